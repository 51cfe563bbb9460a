"""
What the Initiator thinks of one table or partition: lists its directory, resolves it under the compactor's snapshot, and lets the pure picker decide.

In any number of threads at a time. Source: docs/operations.md, Initiator.
"""

from compactor.acid.compaction import LayoutVersion
from compactor.acid.snapshot import resolve
from compactor.errors import CompactorError, RefusedError
from compactor.planning.picker import Pick, Skip
from compactor.reasons import Reason
from compactor.roles.absence import require_removed
from compactor.roles.away import AwayStores
from compactor.roles.eligibility import require_in_store
from compactor.roles.initiator_tally import DueSubject, Moment
from compactor.roles.rules import decide
from compactor.roles.services import Services


def verdict_on(services: Services, subject: DueSubject, moment: Moment, away: AwayStores) -> tuple[Pick | Skip, bool]:
    """
    The picker's word, and whether it stays the same until something changes.

    Raises:
        RefusedError: the directory can't be understood, or the store says that it can't be compacted.
        UnreachableError: it can't be seen.
        CompactorError: a property of the table's is none.
    """
    candidate, place, layout = subject.candidate, subject.place, services.layout
    assert place.location is not None  # or the rules had skipped it
    thresholds = subject.rules.thresholds
    if isinstance(thresholds, CompactorError):
        raise thresholds
    away.check(place.location)
    storage = services.storage(place.location)
    try:
        listing = storage.list_tree(place.location)
    except RefusedError as error:
        if error.reason is Reason.LOCATION_MISSING:
            require_removed(storage, place.location, place.table.location)
        raise
    state = resolve(listing, moment.write_ids[place.table.full_name], moment.txns if layout is LayoutVersion.HIVE_4 else None, layout)
    verdict = decide(
        candidate,
        place.table,
        {} if place.part_id is None else moment.parameters.get(place.part_id, {}),
        state,
        thresholds=thresholds,
        layout=layout,
        now_ms=moment.now_ms,
        oldest_open_ms=moment.oldest_open_ms,
    )
    if isinstance(verdict, Pick):
        require_in_store(services.places, place)
    return verdict, not state.excluded and not candidate.aborted_count
