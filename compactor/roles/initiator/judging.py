"""
Judges one table or partition for the Initiator: lists its directory, resolves it under the compactor's snapshot, and
lets the pure picker decide.

May run in any number of threads at a time. Source: docs/operations.md, Initiator.
"""

from compactor.acid.snapshot import resolve
from compactor.errors import CompactorError, RefusedError
from compactor.planning.picker import Pick, Skip
from compactor.reasons import Reason
from compactor.roles.eligibility import require_in_store
from compactor.roles.initiator.rules import decide
from compactor.roles.initiator.tally import DueSubject, ScanMoment
from compactor.roles.services import Services
from compactor.roles.unreachable import AwayStores, require_removed


def verdict_on(
    services: Services, subject: DueSubject, moment: ScanMoment, away: AwayStores
) -> tuple[Pick | Skip, bool]:
    """
    The picker's verdict, and whether it stays the same until the partition or its properties change.

    Raises:
        RefusedError: the directory can't be understood, or the store says that it can't be compacted.
        UnreachableError: the directory can't be seen.
        CompactorError: a property of the table has an invalid value.
    """
    candidate, place, layout = subject.candidate, subject.place, services.layout
    assert place.location is not None  # the rules skip a place without a location
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
    state = resolve(
        listing,
        moment.write_ids[place.table.full_name],
        moment.txns,
        layout,
        with_originals=services.settings.readers.read_originals(insert_only=place.table.insert_only),
    )
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
    # aborted writes matter to the verdict, and their age with them, only where their rows lie among committed ones
    ages = candidate.aborted_count and state.mixed_aborted_write_ids
    return verdict, not state.excluded and not ages
