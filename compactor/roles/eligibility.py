"""
Whether tables and partitions may be compacted: the one judgement of Initiator, `explain`, `enqueue`, `plan` and Worker.

What the catalog tells is judged for any number of places at once, in a few statements. What only the store tells is
asked for one directory, before it is queued or worked on. Whether a place is due is for the picker to decide, and what
its files are like for the plan.
Source: docs/compaction.md, docs/storage.md.
"""

from collections.abc import Sequence

from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.engine.change_management import change_management
from compactor.errors import RefusedError
from compactor.metastore.locations.places import Places
from compactor.metastore.model import CatalogPlace
from compactor.planning.eligibility import why_not, why_nowhere, why_unspecified
from compactor.planning.picker import Skip
from compactor.reasons import Reason
from compactor.roles.replication import is_source, why_kept
from compactor.storage.registry import require_changeable


def judge_all(
    places: Places,
    wanted: Sequence[CatalogPlace],
    layout: LayoutVersion,
    kind: CompactionKind | None = None,
    *,
    last_look: bool = False,
) -> list[Skip | None]:
    """
    Why each table or partition can't be compacted, as far as the catalog tells; None if it can.

    Args:
        kind: the kind of compaction; None: any.
        last_look: a compaction comes next (`Places.refusals`).

    Raises:
        CompactorError: the metastore can't be asked.
    """
    of_table: dict[int, Skip | None] = {}
    found = []
    for one in wanted:
        if (number := one.table.tbl_id) not in of_table:
            of_table[number] = why_not(one.table, kind, layout)
        nowhere = why_nowhere(one.table, one.partition, one.location)
        found.append(why_unspecified(one.table, one.partition) or of_table[number] or nowhere or _why_kept(one))
    asked = [index for index, skip in enumerate(found) if skip is None]
    refusals = places.refusals([wanted[index] for index in asked], last_look=last_look)
    for index, refusal in zip(asked, refusals, strict=True):
        if refusal is not None:
            found[index] = Skip(refusal.reason, refusal.message)
    return found


def require_in_store(places: Places, place: CatalogPlace) -> str:
    """
    Check what only the store tells: that no symbolic link leads to the directory and, for a source of replication, that
    Hive's change management takes what a compaction replaces. Returns the location; empty if the catalog has none.

    Raises:
        RefusedError: nothing is written there, or what is replaced would stay for ever.
        UnreachableError: HDFS can't be asked.
    """
    location = place.location or ""
    places.require_unlinked(location)
    if location and is_source(place.table.database_parameters):
        change_management().require(location)
    return location


def require_eligible(
    places: Places, place: CatalogPlace, layout: LayoutVersion, kind: CompactionKind | None = None
) -> str:
    """
    Check one table or partition against both the catalog and the store; returns its location.

    Args:
        kind: the kind of compaction; None: any.

    Raises:
        RefusedError: a compaction of it would be refused, whichever files its directory holds.
        UnreachableError: metastore or store can't be asked.
    """
    (skip,) = judge_all(places, [place], layout, kind, last_look=True)
    if skip is not None:
        raise RefusedError(skip.reason, skip.explanation)
    return require_in_store(places, place)


def _why_kept(place: CatalogPlace) -> Skip | None:
    try:
        if place.location is not None:
            require_changeable(place.location)
        why = why_kept(place.table.database, place.table.database_parameters, place.location)
    except RefusedError as refusal:  # the location can't be understood, or nothing is changed on its store
        return Skip(refusal.reason, refusal.message)
    return None if why is None else Skip(Reason.REPLICATION_SOURCE, why)
