"""
Describes what the Cleaner keeps in quarantine, and removes it when its time is over.

Only a manifest proves how old a quarantine directory is (`manifest`). Without a readable one the directory stays, and
the log says so once. Times are those of the database clock.
Source: docs/operations.md, Quarantine.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from compactor.acid.listing import FileEntry, Listing
from compactor.acid.snapshot import AcidState, ListedDir, resolve
from compactor.acid.write_ids import ValidTxnList, ValidWriteIdList
from compactor.engine.aborted_rows import aborted_in
from compactor.errors import RefusedError, UsageError
from compactor.log import get_logger
from compactor.metastore.model import QueueEntry, TableFacts
from compactor.planning.thresholds import quarantine_hours
from compactor.reasons import Reason
from compactor.roles.cleaner.manifest import LIMIT, MANIFEST, KeptDirectory, KeptFiles, Manifest, decode
from compactor.roles.cleaner.trash import Removal, is_quarantine, remove_hidden
from compactor.roles.services import Services
from compactor.storage.base import Storage
from compactor.storage.location import join

_log = get_logger(__name__)
HOUR_MS: Final = 3_600_000
_told: Final[set[str]] = set()
"""Quarantine directories without a readable manifest of which the log has told."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One quarantine directory; without a readable manifest, `manifest` is None."""

    name: str
    manifest: Manifest | None


def hours_for(services: Services, table: TableFacts | None) -> float:
    """
    For how many hours what is removed from a table stays in quarantine; 0: not at all.

    Raises:
        RefusedError: BAD_PROPERTY: the table's property can't be read.
    """
    default = services.settings.cleaner.quarantine_hours
    try:
        return default if table is None else quarantine_hours(default, table.parameters)
    except UsageError as error:
        raise RefusedError(Reason.BAD_PROPERTY, str(error)) from None


def kept_in(storage: Storage, location: str, names: Iterable[str]) -> tuple[Kept, ...]:
    """
    The quarantine directories among the names in a directory, ascending. One that vanishes meanwhile has no manifest.
    """
    return tuple(Kept(name, read_manifest(storage, location, name)) for name in sorted(names) if is_quarantine(name))


def read_manifest(storage: Storage, location: str, name: str) -> Manifest | None:
    """The manifest of a quarantine directory; None where it is missing or can't be read."""
    try:
        return decode(storage.read_small(join(location, name, MANIFEST), LIMIT))
    except FileNotFoundError:
        return None
    except RefusedError as error:
        if error.reason is not Reason.CORRUPT_FILE:
            raise
        return None


def remove_overdue(storage: Storage, location: str, names: Iterable[str], now_ms: int) -> int:
    """
    Remove the quarantine directories whose time is over; only for the holder of the Cleaner's mutex.

    Args:
        names: of what lies directly in the location.

    Returns how many with a readable manifest are left.
    """
    left = 0
    for kept in kept_in(storage, location, names):
        place = join(location, kept.name)
        if kept.manifest is None:
            if place not in _told and storage.exists(place):
                _told.add(place)
                _log.warning("quarantine.unproven", directory=place, why=f"it has no readable {MANIFEST}: it stays")
        elif now_ms >= kept.manifest.until_ms:
            remove_hidden(storage, location, [kept.name])
            _log.info("quarantine.removed", directory=place, bytes=kept.manifest.length)
        else:
            left += 1
    return left


def of_dropped(services: Services, entry: QueueEntry, removal: Removal, hours: float) -> bytes:
    """The manifest for the directory of a dropped table or partition."""
    now_ms = services.now_ms()
    directory = KeptDirectory(removal.name, _files(removal.files), replaced=False)
    return Manifest(entry.id, str(entry.entity), 0, now_ms, now_ms + round(hours * HOUR_MS), (directory,)).encode()


@dataclass(frozen=True, slots=True)
class Look:
    """
    What a sweep saw when it decided.

    Args:
        write_ids, txns: under which it decided; without `txns` on 3.1.
        removals: what it is about to remove.
        entry: whose compaction replaced things; None: the sweep removes aborted writes only.
    """

    listing: Listing
    state: AcidState
    write_ids: ValidWriteIdList
    txns: ValidTxnList | None
    removals: Sequence[Removal]
    entry: QueueEntry | None


def of_partition(services: Services, table: TableFacts, location: str, look: Look, hours: float) -> bytes:
    """
    The manifest for what a sweep is about to remove from a partition, while everything is still in its place.

    Raises:
        UnreachableError, RetryableError: metastore or store don't answer.
    """
    storage, entry, state = services.storage(location), look.entry, look.state
    current = services.transactions.valid_write_ids(table.full_name, services.transactions.valid_txns())
    aborted = ValidWriteIdList(
        table.full_name,
        max(look.write_ids.high_watermark, current.high_watermark),
        aborted=(*look.write_ids.aborted, *current.aborted),
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
        for removal in look.removals
    )
    now_ms = services.now_ms()
    result = () if entry is None else _result_of(entry, state, hive_4=services.hive_4)
    return Manifest(
        entry=None if entry is None else entry.id,
        what=str(entry.entity) if entry is not None else table.full_name,
        tbl_id=table.tbl_id,
        kept_ms=now_ms,
        until_ms=now_ms + round(hours * HOUR_MS),
        directories=directories,
        highest_write_id=None if entry is None else entry.highest_write_id,
        result=tuple(KeptFiles(one.name, _files(one.files)) for one in result),
        read_before=_read_without(services, look, {one.name for one in result}) if result else (),
        first_look=services.hive_4 and entry is not None and entry.cleaner_start_ms is None,
    ).encode()


def seen(state: AcidState) -> tuple[str, ...]:
    """What a reader reads: names of the base and the deltas in reading order, then paths of original files."""
    base = () if state.base is None else (state.base.name,)
    return (*base, *(listed.name for listed in state.deltas), *(file.path for file in state.originals))


def without(listing: Listing, names: Iterable[str]) -> Listing:
    """A listing as if directories or files at the top level weren't there."""
    gone = set(names)

    def stays(path: str) -> bool:
        return path.split("/", 1)[0] not in gone

    return Listing(
        tuple(file for file in listing.files if stays(file.path)),
        tuple(directory for directory in listing.directories if stays(directory)),
        tuple(item for item in listing.formats if item[0] not in gone),
        tuple(item for item in listing.replaced if item[0] not in gone),
    )


def _read_without(services: Services, look: Look, result: set[str]) -> tuple[str, ...]:
    try:
        return seen(resolve(without(look.listing, result), look.write_ids, look.txns, services.layout))
    except RefusedError:
        return ()


def _result_of(entry: QueueEntry, state: AcidState, *, hive_4: bool) -> tuple[ListedDir, ...]:
    """
    The directories that an entry's compaction made. On 3.1 names don't tell which compaction made them: there they are
    the deltas that replaced others or, where none did, the compacted base.
    """
    read = (*(() if state.base is None else (state.base,)), *state.deltas)
    if hive_4:
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
