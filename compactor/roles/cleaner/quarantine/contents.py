"""
Writes down what a removal takes away, while everything is still in its place: the manifest of its quarantine.

Source: docs/operations.md, Quarantine.
"""

from collections.abc import Iterable, Sequence

from compactor.acid.listing import FileEntry, Listing
from compactor.acid.snapshot import AcidState, ListedDir, ReadSnapshot
from compactor.acid.write_ids import ValidWriteIdList
from compactor.durations import HOUR_MS
from compactor.engine.aborted_rows import aborted_in
from compactor.errors import RefusedError
from compactor.metastore.model import QueueEntry, TableFacts
from compactor.roles.cleaner.quarantine.manifest import KeptDirectory, KeptFiles, QuarantineManifest
from compactor.roles.cleaner.quarantine.sight import seen, without
from compactor.roles.cleaner.trash import Removal
from compactor.roles.services import Services


def of_dropped(services: Services, entry: QueueEntry, removal: Removal, hours: float) -> bytes:
    """The manifest for the directory of a dropped table or partition."""
    now_ms = services.now_ms()
    directory = KeptDirectory(removal.name, _files(removal.files), replaced=False)
    return QuarantineManifest(
        entry.id, str(entry.entity), 0, now_ms, now_ms + round(hours * HOUR_MS), (directory,)
    ).encode()


def of_partition(
    services: Services,
    table: TableFacts,
    location: str,
    *,
    sees: ReadSnapshot,
    listing: Listing,
    removals: Sequence[Removal],
    entry: QueueEntry | None,
    part_id: int | None,
    hours: float,
) -> bytes:
    """
    The manifest for what a sweep is about to remove from a partition, while everything is still in its place.

    Args:
        sees: under which the sweep decided, on this listing.
        entry: whose compaction replaced things; None: the sweep removes aborted writes only.
        part_id: of the partition, where the sweep is of one in the catalog.

    Raises:
        UnreachableError, RetryableError: metastore or store don't answer.
    """
    storage, state = services.storage(location), sees.resolve(listing)
    current = services.transactions.valid_write_ids(table.full_name, services.transactions.valid_txns())
    aborted = ValidWriteIdList(
        table.full_name,
        max(sees.write_ids.high_watermark, current.high_watermark),
        aborted=(*sees.write_ids.aborted, *current.aborted),
    )
    listed = {one.name: one for one in (*state.obsolete, *state.aborted)}
    replaced = {one.name for one in state.obsolete} | {file.path.split("/", 1)[0] for file in state.obsolete_originals}
    directories = tuple(
        KeptDirectory(
            removal.name,
            _files(removal.files),
            replaced=removal.name in replaced,
            aborted=aborted_in(storage, location, listed[removal.name], aborted, insert_only=table.insert_only)
            if removal.name in listed
            else (),
        )
        for removal in removals
    )
    now_ms = services.now_ms()
    result = () if entry is None else _result_of(entry, state, told_by_name=not services.generation.rename_commits)
    return QuarantineManifest(
        entry=None if entry is None else entry.id,
        what=str(entry.entity) if entry is not None else table.full_name,
        tbl_id=table.tbl_id,
        part_id=part_id,
        kept_ms=now_ms,
        until_ms=now_ms + round(hours * HOUR_MS),
        directories=directories,
        highest_write_id=None if entry is None else entry.highest_write_id,
        result=tuple(KeptFiles(one.name, _files(one.files)) for one in result),
        read_before=_read_without(sees, listing, {one.name for one in result}) if result else (),
        first_look=services.generation.notes_cleaning and entry is not None and entry.cleaner_start_ms is None,
    ).encode()


def _read_without(sees: ReadSnapshot, listing: Listing, result: set[str]) -> tuple[str, ...]:
    try:
        return seen(sees.resolve(without(listing, result)))
    except RefusedError:
        return ()


def _result_of(entry: QueueEntry, state: AcidState, *, told_by_name: bool) -> tuple[ListedDir, ...]:
    """
    The directories that an entry's compaction made. On 3.1 names don't tell which compaction made them: there they are
    the deltas that replaced others or, where none did, the compacted base.
    """
    read = (*(() if state.base is None else (state.base,)), *state.deltas)
    if told_by_name:
        return tuple(one for one in read if entry.txn_id and one.acid.visibility_txn == entry.txn_id)
    deltas = tuple(
        one
        for one in state.deltas
        if one.acid.statement_id is None
        and any(
            one.acid.min_write_id <= other.acid.min_write_id and other.acid.max_write_id <= one.acid.max_write_id
            for other in state.obsolete
        )
    )
    return deltas or tuple(one for one in read[:1] if one.acid.is_base and one.compacted)


def _files(files: Iterable[FileEntry]) -> tuple[tuple[str, int], ...]:
    return tuple((file.path, file.length) for file in files)
