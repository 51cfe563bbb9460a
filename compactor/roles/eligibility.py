"""
Whether tables and partitions may be compacted: the one judgement of Initiator, `explain`, `enqueue`, `plan` and Worker.

What the catalog tells is judged for any number at once, in a few statements. What only the store tells is asked for one directory, before it is queued or worked on.
Whether it is due is the picker's to say; what its files are like, the plan's.
Source: docs/compaction.md, docs/storage.md.
"""

from collections.abc import Sequence

from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.engine.change_management import change_management
from compactor.errors import RefusedError
from compactor.metastore.model import Place
from compactor.metastore.places import Places
from compactor.planning.eligibility import why_not, why_nowhere, why_unspecified
from compactor.planning.picker import Skip
from compactor.reasons import Reason
from compactor.roles.replication import is_source, why_kept


def judge_all(places: Places, wanted: Sequence[Place], layout: LayoutVersion, kind: CompactionKind | None = None) -> list[Skip | None]:
    """
    For each table or partition why it can't be compacted, as far as the catalog tells; None: it can.

    Args:
        kind: None: whichever.

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
    for index, refusal in zip(asked, places.refusals([wanted[index] for index in asked]), strict=True):
        if refusal is not None:
            found[index] = Skip(refusal.reason, refusal.message)
    return found


def require_in_store(places: Places, place: Place) -> None:
    """
    What only the store tells: that no symbolic link leads there; of a source of replication, that what a compaction replaces can be handed to Hive's change management.

    Raises:
        RefusedError: nothing is written there, or it would stay for ever.
        UnreachableError: HDFS can't be asked.
    """
    location = place.location or ""
    places.require_unlinked(location)
    if location and is_source(place.table.database_parameters):
        change_management().require(location)


def require_eligible(places: Places, place: Place, layout: LayoutVersion, kind: CompactionKind | None = None) -> None:
    """
    Both of one table or partition: what the catalog tells, and the store.

    Args:
        kind: None: whichever.

    Raises:
        RefusedError: a compaction of it would be refused, whatever lies in its directory.
        UnreachableError: metastore or store can't be asked.
    """
    (skip,) = judge_all(places, [place], layout, kind)
    if skip is not None:
        raise RefusedError(skip.reason, skip.explanation)
    require_in_store(places, place)


def _why_kept(place: Place) -> Skip | None:
    try:
        why = why_kept(place.table.database, place.table.database_parameters, place.location)
    except RefusedError as refusal:  # the location can't be understood
        return Skip(refusal.reason, refusal.message)
    return None if why is None else Skip(Reason.REPLICATION_SOURCE, why)
