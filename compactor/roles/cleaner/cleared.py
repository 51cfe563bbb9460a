"""
Says that a directory holds nothing of aborted writes, and makes of that the proof by which they are forgotten.

From what was listed, never from a directory that wasn't there.
Source: docs/metastore.md; HIVE-24481.
"""

from collections.abc import Collection
from dataclasses import dataclass

from compactor.acid.listing import Listing
from compactor.acid.names import STAGING_PREFIX, TRASH_PREFIX
from compactor.acid.snapshot import resolve
from compactor.acid.write_ids import CleanerWriteIdList, ValidTxnList
from compactor.engine.aborted_rows import may_hold_aborted
from compactor.engine.staging.directory import EVIDENCE_PREFIX
from compactor.errors import RefusedError
from compactor.metastore.clean.purge import Proof
from compactor.metastore.model import TableFacts
from compactor.planning.forgetting import Search
from compactor.roles.services import Services

_OURS = (STAGING_PREFIX, TRASH_PREFIX, EVIDENCE_PREFIX)


@dataclass(frozen=True, slots=True)
class Judged:
    """The transactions and write ids under which directories are judged. Nothing newer is touched or forgotten."""

    txns: ValidTxnList
    write_ids: CleanerWriteIdList


@dataclass(frozen=True, slots=True)
class Cleared:
    """
    A directory that was there and holds nothing that should have gone. Only a sweep makes this value, or a listing that
    shows nothing to sweep.

    Args:
        listed_ms: the database clock, before the directory was listed.
        held: aborted write ids whose rows lie there among others.
    """

    location: str
    judged: Judged
    listed_ms: int
    held: frozenset[int]


def clear_listed(services: Services, location: str, listing: Listing, judged: Judged, listed_ms: int) -> Cleared | None:
    """
    Clear a directory by a listing of its table, without a call to the store; None if the directory must be swept.

    It must be swept when a staging, trash or evidence directory lies in it, when a name can't be understood, or when a
    directory's name admits an aborted transaction or write id. Names alone don't find such a row, but they don't miss
    one either. A base's `_metadata_acid` isn't read: it matters only for an aborted write id.

    Args:
        listing: of the directory, which was there; its files aren't needed.
        listed_ms: the database clock, before the listing.
    """
    if any(name.startswith(_OURS) for name in listing.directories):
        return None
    try:
        state = resolve(listing, judged.write_ids, judged.txns, services.layout)
    except RefusedError:
        return None
    if state.aborted or may_hold_aborted(state, judged.write_ids):
        return None
    return Cleared(location, judged, listed_ms, frozenset())


def prove(table: TableFacts, partition: str | None, cleared: Collection[Cleared], late_ms: int) -> Proof:
    """
    The proof that nothing is left of aborted writes, from directories that were cleared under the same lists.

    Args:
        partition: the partition whose one directory was cleared; None: these are all directories of the table.
        late_ms: `cleaner.late_writer_hours`.

    Raises:
        ValueError: no directory was cleared, or some under different lists: that proves nothing.
    """
    (judged,) = {id(one.judged): one.judged for one in cleared}.values()
    held = frozenset[int]().union(*(one.held for one in cleared))
    search = Search(
        judged.txns,
        partition,
        gone=frozenset(judged.write_ids.aborted) - held,
        listed_ms=min(one.listed_ms for one in cleared),
        late_ms=late_ms,
    )
    return Proof(table.entity, table.tbl_id, search)
