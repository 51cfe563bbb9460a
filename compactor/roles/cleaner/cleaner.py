"""
Removes what compactions have replaced and what aborted writers left, once no reader can need it.

The metastore part decides whether an entry may be cleaned: every transaction that was open at the commit has ended, no
lock that was there then is left, the retention is over. What is removed is decided from a fresh listing. An entry is
marked cleaned only when nothing is left that it should have removed. When an entry is held back, the sentence names
what holds it back.
Source: docs/operations.md; Hive's Cleaner, CompactionCleaner, FSRemover; HIVE-24481, HIVE-27526, HIVE-29572.
"""

import math
import time
from collections import defaultdict
from dataclasses import replace

from compactor.acid.write_ids import CleanerWriteIdList
from compactor.coordination import Role
from compactor.errors import (
    CompactorError,
    OutcomeUnknownError,
    OwnershipLostError,
    RefusedError,
    RetryableError,
    UnreachableError,
)
from compactor.log import get_logger
from compactor.metastore.clean.may_clean import Blocker, ReadyEntry
from compactor.metastore.clean.readers import MayBeListedError
from compactor.metastore.model import CatalogPlace, PartitionFacts, QueueEntry, QueueState, TableFacts, duration
from compactor.planning.eligibility import RENAME_SECONDS
from compactor.planning.included import left_below
from compactor.planning.observed import NOTHING
from compactor.reasons import Reason
from compactor.roles import steps
from compactor.roles.cleaner.aborts import AbortCleaner
from compactor.roles.cleaner.cleared import Judged, prove
from compactor.roles.cleaner.dropped import remove_dropped
from compactor.roles.cleaner.first_look import seen_at
from compactor.roles.cleaner.partition import Sweep, Swept
from compactor.roles.cleaner.quarantine.expiry import Expiry
from compactor.roles.cleaner.schedule import EntryMemory, Schedule
from compactor.roles.cleaner.tally import CleanerTally
from compactor.roles.cycle import Clock, Cycle, Progress
from compactor.roles.leadership import HeldLeadership, leading
from compactor.roles.pauses import subject_of
from compactor.roles.replication import why_stays
from compactor.roles.services import Services, about_entity
from compactor.roles.unreachable import StoreAwayError, news
from compactor.words import one_line

_log = get_logger(__name__)
INTENDED = frozenset({Reason.RETENTION, Reason.EARLIER_ENTRY, Reason.MAY_BE_LISTED, Reason.NOT_OBSERVED})
"""Reasons to wait that are intended, or that are counted for another entry: no operator has to be told."""


class Cleaner:
    """
    Runs one cycle at a time; holds Hive's mutex `Cleaner` while it works.

    Args:
        progress: told of each entry, and each place with aborted writes, that had its turn.
    """

    def __init__(self, services: Services, progress: Progress | None = None, clock: Clock = time.monotonic) -> None:
        self._services = services
        progress = progress or Progress()
        self._memory = defaultdict[int, EntryMemory](EntryMemory)
        self._turns = Schedule(services, progress, clock, self._memory)
        self._held: HeldLeadership | None = None
        self._aborts = AbortCleaner(services, progress, self._turns.away, clock)
        self._expiry = Expiry(services, clock)
        self._clock = clock

    def run_once(self) -> Cycle:
        """
        Run one cycle.

        Raises:
            CompactorError: the metastore can't be asked.
        """
        services = self._services
        tally = CleanerTally()
        with leading(services, Role.CLEANER) as held:
            self._held = held
            self._turns.away.begin()
            ready = [
                item
                for item in services.cleaning.ready_for_cleaning(*services.settings.cleaner.waits_ms)
                if services.control.includes(item.entry.entity.database, item.entry.entity.table)
            ]
            for gone in self._memory.keys() - {item.entry.id for item in ready}:
                del self._memory[gone]
            self._report(ready, tally)
            for item in ready:
                if item.failed:
                    self._end_as_failed(item, tally)
            self._turns.give(
                [item for item in ready if not item.blockers], lambda item: self._clean_unless_held(item, tally), tally
            )
            self._aborts.run(held, tally, self._turns.time_is_up())
            self._expiry.run(held, tally, self._turns.time_is_up())
        tally.count(services.metrics)
        return tally.cycle()

    def no_turn(self) -> None:
        """
        Another daemon is the Cleaner: reset the metrics of what holds entries back, and forget what this daemon had
        swept, since there may be writes by now.
        """
        self._aborts.forget()
        metrics = self._services.metrics
        metrics.cleaner_blocked_age.set(0)
        metrics.show(metrics.cleaner_blocked, {})

    def _clean_unless_held(self, item: ReadyEntry, tally: CleanerTally) -> None:
        with about_entity(item.entry.entity, item.entry):
            if (denial := self._services.control.judge().cleaning(subject_of(item.entry))) is None:
                self._clean_one(item, tally)
            else:
                tally.wait(item.entry, Blocker(denial.reason, denial.sentence))

    # One entry

    def _clean_one(self, item: ReadyEntry, tally: CleanerTally) -> None:
        entry = item.entry
        memory = self._memory[entry.id]
        try:
            self._services.steps.enter(steps.CLEANER_SELECTED, entry)
            self._clean(item, tally)
            memory.failures, memory.unanswered = 0, False
        except StoreAwayError:
            raise
        except OwnershipLostError as error:
            _log.info("ownership.lost", error=str(error))
        except MayBeListedError as error:
            tally.wait(entry, Blocker(Reason.MAY_BE_LISTED, str(error)))
            self._services.cleaning.clear_cleaner_start(entry)
        except (UnreachableError, RetryableError) as error:
            tally.error(entry.entity, error)
            self._turns.away.note(error)
            (_log.debug if memory.said == news(error) else _log.warning)("cleaning.postponed", error=str(error))
            memory.said = news(error)
            self._services.cleaning.clear_cleaner_start(entry)
        except Exception as error:
            if isinstance(error, OutcomeUnknownError) and not memory.unanswered:
                # the next visit looks what became of it, and settles that; again in a row it is a failure
                memory.unanswered = True
                tally.error(entry.entity, error)
                _log.warning("cleaning.postponed", error=str(error))
                self._services.cleaning.clear_cleaner_start(entry)
                return
            if not isinstance(error, CompactorError | OSError):
                _log.exception("cleaning.crashed")
            tally.error(entry.entity, error)
            self._after_failure(entry, error, tally)

    def _clean(self, item: ReadyEntry, tally: CleanerTally) -> None:
        services, entry = self._services, item.entry
        facts = services.catalog.facts_for([entry.entity]).get(entry.entity)
        assert self._held is not None
        self._held.check()  # a removal that the next Cleaner is at must not be settled by this one
        location = entry.location or _location(facts)
        if location:
            self._turns.take(location)
        if entry.location is not None:
            remove_dropped(services, self._held, entry, facts, tally)
            return
        if facts is None:
            self._finish_missing(entry, tally)
            return
        self._memory[entry.id].missing = None
        table, partition = facts
        if (skip := why_stays(table, partition)) is not None:
            services.queue.mark_refused(entry, f"{skip.reason.value}: {skip.explanation}")
            tally.end("refused")
            _log.info("cleaning.refused", reason=skip.reason.value, why=skip.explanation)
            return
        if table.partitioned and partition is None:
            # Hive's entry for a dynamic-partition abort; the cleaning of aborted writes does it
            services.cleaning.mark_cleaned(replace(entry, highest_write_id=0))
            self._marked(
                entry,
                tally,
                f"{entry.entity} is partitioned, and the entry names no partition; what was aborted is cleaned as such",
            )
            return
        if not location:
            raise RefusedError(Reason.UNSUPPORTED_STORE, f"{entry.entity} has no location in the catalog")
        services.cleaning.mark_cleaner_start(entry)
        self._sweep(item, table, partition, location, tally)

    def _finish_missing(self, entry: QueueEntry, tally: CleanerTally) -> None:
        """
        End the entry of a table or partition that was dropped. One that is being renamed must wait: it would be neither
        cleaned nor looked at again.
        """
        memory = self._memory[entry.id]
        if memory.missing is None or memory.missing[0] != entry.entity:
            memory.missing = entry.entity, self._clock()
        _, since = memory.missing
        left = since + RENAME_SECONDS - self._clock()
        if left > 0:
            reason = Reason.TABLE_MISSING if entry.entity.partition is None else Reason.PARTITION_MISSING
            dropped = f"taken for dropped in {duration(round(left * 1000))}, unless it is being renamed"
            tally.wait(entry, Blocker(reason, f"isn't in the catalog; {dropped}"))
            return
        self._services.cleaning.mark_cleaned(entry, gone=True)
        self._marked(entry, tally, f"{entry.entity} was dropped; there is nothing to clean")

    def _sweep(
        self, item: ReadyEntry, table: TableFacts, partition: PartitionFacts | None, location: str, tally: CleanerTally
    ) -> None:
        services, entry = self._services, item.entry
        seen = item.seen
        if services.generation.rename_commits and seen is None:
            # says what was wrong with it, if it still is
            if seen_at(services.storage(location), location, table.location):
                raise RetryableError(f"{location} wasn't listed when the entry was first observed; it is observed anew")
            seen = NOTHING
        sweep = Sweep(
            services,
            table,
            location,
            self._judged(item),
            tag=entry.id,
            about=entry,
            still_right=lambda: self._still_right(item, table, location),
            part_id=partition.part_id if partition else None,
            seen=seen,
        )
        services.places.require_alone(location, table, partition)
        swept = sweep.run(lambda state: (*state.obsolete, *state.aborted), originals=True)
        tally.add(swept.removed, swept.evidence)
        if swept.left:
            services.cleaning.clear_cleaner_start(entry)
            tally.wait(entry, Blocker(Reason.INPUT_CHANGED, f"{swept.left[0]} is still there"))
            tally.outcome("left")
            return
        late_ms = services.settings.cleaner.late_ms
        proof = prove(table, entry.entity.partition, [swept.cleared], late_ms) if swept.cleared is not None else None
        services.cleaning.mark_cleaned(
            entry, proof, unjoined=left_below(swept.state, told_by_name=not services.generation.rename_commits)
        )
        self._marked(entry, tally, f"removed {_names(swept)}")

    def _judged(self, item: ReadyEntry) -> Judged:
        """
        The lists under which this entry is judged. Hive 3.1's own Cleaner takes aborted ids for committed here, and
        then a wide aborted delta hides what is below it; this Cleaner doesn't.
        """
        services, entry = self._services, item.entry
        if item.txns is not None:
            return Judged(item.txns, services.cleaning.write_ids(item))
        txns = services.transactions.valid_txns()
        reader = services.transactions.valid_write_ids(entry.entity.full_name, txns)
        return Judged(txns, CleanerWriteIdList.from_reader(reader, entry.highest_write_id or 0))

    def _still_right(self, item: ReadyEntry, table: TableFacts, location: str) -> None:
        """
        Check, before the move and between the move and the deletion, that this daemon is the Cleaner, the entry is
        still ready, and the table is the one that was looked at.
        """
        services, entry = self._services, item.entry
        assert self._held is not None
        services.cleaning.check_alone(item)
        now = services.queue.entry(entry.id)
        if now is None or now.state is not QueueState.READY_FOR_CLEANING:
            raise OwnershipLostError(f"entry {entry.id} is no longer ready for cleaning")
        found = services.catalog.facts_for([entry.entity]).get(entry.entity)
        if found is None or found[0].tbl_id != table.tbl_id or _location(found) != location:
            raise RefusedError(
                Reason.INPUT_CHANGED,
                f"{entry.entity} was dropped, re-created or moved while it was cleaned; everything was put back",
            )
        services.places.require_alone(location, *found, last_look=True)
        self._held.check()  # after the looks: they were at the server that takes writes

    def _marked(self, entry: QueueEntry, tally: CleanerTally, what: str) -> None:
        self._services.steps.enter(steps.CLEANER_MARKED, entry)
        tally.clean()
        _log.info("cleaning.completed", sentence=what)

    # What goes wrong, and what waits

    def _after_failure(self, entry: QueueEntry, error: Exception, tally: CleanerTally) -> None:
        """
        Try again later, with growing pauses; give up after more than `cleaner.retry_attempts` failures in a row. When
        another daemon is the Cleaner by now, nothing is stored.
        """
        services, settings = self._services, self._services.settings.cleaner
        assert self._held is not None
        try:
            self._held.check()
        except OwnershipLostError as lost:
            _log.info("ownership.lost", error=str(lost), after=str(error))
            return
        message = f"cleaning failed: {one_line(error) or type(error).__name__}"
        first = settings.retry_seconds * 1000
        stored = 0 if entry.retry_retention_ms <= 0 else int(math.log2(max(1.0, entry.retry_retention_ms / first))) + 1
        memory = self._memory[entry.id]
        memory.failures = attempts = max(stored, memory.failures) + 1
        try:
            if attempts > settings.retry_attempts:
                services.queue.mark_failed(
                    entry, f"{message}; given up after {attempts} attempts: what it replaced is still there"
                )
                tally.outcome("given-up")
                _log.error("cleaning.given_up", error=message, attempts=attempts)
            else:
                services.cleaning.retry_later(entry, round(first * 2 ** (attempts - 1)), message)
                _log.warning("cleaning.failed", error=message, attempts=attempts)
        except CompactorError as second:
            _log.warning("outcome.not_stored", error=str(second))

    def _end_as_failed(self, item: ReadyEntry, tally: CleanerTally) -> None:
        """End an entry whose own transaction was rolled back: nothing was replaced, nothing may be deleted."""
        with about_entity(item.entry.entity, item.entry):
            try:
                why = next(blocker for blocker in item.blockers if blocker.reason is Reason.COMPACTION_ABORTED)
                self._services.queue.mark_failed(item.entry, f"{why.reason.value}: {why.sentence}")
                tally.end("rolled-back")
            except CompactorError as error:
                tally.error(item.entry.entity, error)

    def _report(self, ready: list[ReadyEntry], tally: CleanerTally) -> None:
        """Say what holds each entry back; in the log only once while nothing changes."""
        now = self._services.now_ms() if ready else 0
        oldest = 0
        for item in ready:
            if not item.blockers or item.failed:
                continue
            blocker = item.blockers[0]
            entry = item.entry
            tally.wait(entry, blocker)
            if entry.commit_ms is not None and not INTENDED.issuperset(blocker.reason for blocker in item.blockers):
                oldest = max(oldest, now - entry.commit_ms)
            memory = self._memory[entry.id]
            if memory.said != blocker.what and blocker.reason not in INTENDED - {Reason.EARLIER_ENTRY}:
                memory.said = blocker.what
                since = None if entry.commit_ms is None else duration(now - entry.commit_ms)
                with about_entity(entry.entity, entry):
                    _log.info(
                        "cleaning.blocked", reason=blocker.reason.value, why=blocker.sentence, committed_since=since
                    )
        self._services.metrics.cleaner_blocked_age.set(oldest / 1000)


def _location(facts: tuple[TableFacts, PartitionFacts | None] | None) -> str | None:
    return None if facts is None else CatalogPlace.of(*facts).location


def _names(swept: Swept) -> str:
    if not swept.removed:
        return "nothing: nothing was left"
    names = [removal.name for removal in swept.removed]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
