"""
Finds tables and partitions that are due for compaction, and queues them, the most urgent first.

The Initiator asks the metastore in few set-based statements what was written or aborted since the last look, joins the
catalog in bulk, lists the directories of the remaining candidates in a pool of threads, and lets the pure picker
decide. One bad table is recorded and never stops the cycle.

New writes are told by transactions, not by times: a write is stamped when its transaction starts and seen when it
commits. What is queued, or skipped for a reason that passes by itself, is looked at again in the next cycle, after the
candidates that the cycle before didn't reach. Everything else is looked at again in a full scan.
Source: docs/operations.md; Hive's Initiator, TableOptimizer, AcidTableOptimizer.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import attrgetter
from typing import Final, NamedTuple

from compactor.control import Denial, Judge, Subject
from compactor.coordination import Role
from compactor.errors import CompactorError, RefusedError, RetryableError, UnreachableError
from compactor.log import get_logger
from compactor.metastore.candidates import Left, Look
from compactor.metastore.compaction_queue.requests import Request
from compactor.metastore.compaction_queue.urgency import urgency_for
from compactor.metastore.db.sql import batches
from compactor.metastore.model import Candidate, CatalogPlace, Entity
from compactor.metrics import version
from compactor.planning.picker import Pick, Skip
from compactor.reasons import Reason
from compactor.roles import steps
from compactor.roles.cycle import Clock, Cycle, Progress
from compactor.roles.eligibility import judge_all
from compactor.roles.housekeeper.recovery import Recovery
from compactor.roles.initiator.judging import verdict_on
from compactor.roles.initiator.rules import TableRules, thresholds_from
from compactor.roles.initiator.scan_state import Plan, Refusals, ScanState, Unchanged
from compactor.roles.initiator.spread import ahead, spread
from compactor.roles.initiator.tally import PASSING, DueSubject, InitiatorTally, ScanMoment, Verdict
from compactor.roles.leadership import HeldLeadership, leading
from compactor.roles.pauses import pool_of
from compactor.roles.services import Services, about_entity
from compactor.roles.unreachable import AwayStores
from compactor.shared import Shared
from compactor.words import one_line

_log = get_logger(__name__)
CYCLE_SECONDS: Final = 900.0
"""
Nothing is judged after this time: other processes may want Hive's mutex, picks are to be queued, and an hour without a
cycle that ends looks like one that hangs.
"""
_AT_ONCE = 10_000
"""Candidates that are described and judged at a time: bounds the memory that a scan of a large warehouse takes."""
_PASSED_OVER = frozenset({Reason.PAUSED, Reason.NOT_INCLUDED, Reason.CONTROL_UNKNOWN})
_MISPLACED = frozenset({Reason.OUTSIDE_ROOTS, Reason.OVERLAPPING_LOCATION, Reason.UNSAFE_LOCATION})
"""
Reasons that the table's owner, or its neighbour's, has to mend: the history shows them, too, and they are checked again
in each cycle.
"""
_table = attrgetter("entity.database", "entity.table")
_UNCHANGED = {reason: Skip(reason, "nothing changed since it was listed") for reason in Reason}


class _Batch(NamedTuple):
    """
    Candidates that are judged together.

    Args:
        unnamed: those of them, and maybe of others, with a newer write than any commit tells of.
    """

    candidates: Sequence[Candidate]
    places: Mapping[Entity, CatalogPlace]
    unnamed: AbstractSet[Entity]


class Initiator:
    """
    Runs one cycle at a time; holds Hive's mutex `Initiator` while it works.

    Args:
        progress: told of each partition that was judged.
    """

    def __init__(self, services: Services, progress: Progress | None = None, clock: Clock = time.monotonic) -> None:
        self._services = services
        self._progress = progress or Progress()
        self._clock = clock
        self._recovery = Recovery(services, self._progress)
        self._scan_state = ScanState()
        self._unchanged = Unchanged()
        self._away = AwayStores()
        self._txns = Shared(services.transactions.valid_txns, clock)
        self._recorded: dict[Entity, str] = {}
        self._told: dict[Entity, tuple[str, ...]] = {}
        self._refusals = Refusals(services.queue)

    def run_once(self) -> Cycle:
        """
        Run one cycle.

        Raises:
            CompactorError: the metastore can't be asked; nothing is forgotten, and the next cycle looks at the same
                again.
        """
        services = self._services
        services.database.connect()
        settings = services.settings  # before the judge: what a reload between them changes is judged anew
        judge = services.control.judge()
        if (unknown := judge.uncertain()) is not None:
            return Cycle.held(f"nothing is queued: {unknown.sentence}")
        paused = frozenset(str(pause.scope) for pause in judge.pauses)
        with leading(services, Role.INITIATOR) as held:
            plan = self._scan_state.plan(
                services.now_ms(), paused, settings.initiator.full_scan_seconds, settings.rules_of_judging
            )
            if plan.anew:
                self._unchanged, self._refusals = Unchanged(), Refusals(services.queue)
            tally, look = self._cycle(held, plan, judge)
            passed_over = judge.pauses or judge.only.tables or not tally.skips.keys().isdisjoint(_PASSED_OVER)
            if not (tally.left or tally.unread or passed_over):
                held.keep(plan.start_ms)  # Hive's own Initiator would go on from there, and miss what was passed over
        if not tally.unread:
            self._scan_state.came(
                plan,
                look,
                again=tally.again,
                left=tally.left,
                unnamed=tally.unnamed,
                passed_over=bool(tally.skips.get(Reason.PAUSED)),
            )
        freed = self._recovery.give_back_timed_out()
        return tally.cycle(full=plan.full, freed=len(freed))

    def _cycle(self, held: HeldLeadership, plan: Plan, judge: Judge) -> tuple[InitiatorTally, Look]:
        services, now_ms = self._services, plan.start_ms
        settings = services.settings.initiator
        limits = thresholds_from(settings.thresholds)
        look = services.initiating.look(
            plan.first,
            also=plan.also,
            handed_out=plan.handed_out,
            aborted_count=limits.aborted_count,
            aborted_age_ms=limits.aborted_age_ms,
        )
        self._refusals.begin(now_ms)
        tally = InitiatorTally(told=self._told)
        tally.wait(look.waiting)
        services.steps.enter(steps.INITIATOR_SEARCHED)
        self._unchanged.begin(now_ms, everything=plan.full)
        self._away.begin()
        self._txns.forget()
        over = self._over()
        with ahead(self._read(look, plan.left, over)) as read:
            failing = services.initiating.failing(settings.failed_threshold, settings.failed_retry_days)
            oldest_open_ms = self._oldest_open_ms(now_ms)
            if look.sizes:
                self._txns.get()
            for batch in read:
                tally.candidates += len(batch.candidates)
                tally.unnamed |= batch.unnamed
                self._progress.made()
                if over():
                    tally.left.add(candidate.entity for candidate in batch.candidates)
                else:
                    subjects = self._subjects(batch, failing, tally, now_ms, judge)
                    self._judge_all(subjects, tally, now_ms, oldest_open_ms, over)
                if services.stopping.is_set():
                    tally.unread = True
                    break
        (self._unchanged.go_on if tally.left or tally.unread else self._unchanged.end)()
        services.steps.enter(steps.INITIATOR_LISTED)
        self._enqueue(held, tally)
        services.steps.enter(steps.INITIATOR_QUEUED)
        tally.count(services.metrics)
        return tally, look

    def _over(self) -> Callable[[], bool]:
        until = self._clock() + CYCLE_SECONDS
        return lambda: self._services.stopping.is_set() or self._clock() >= until

    # What is looked at

    def _read(self, look: Look, left: Left, over: Callable[[], bool]) -> Iterator[_Batch]:
        """
        All candidates with their places, which aren't read any more once it is over. By table: together, the partitions
        of a table cost one look at the table and its write ids.
        """
        for part in look.parts(left):
            for candidates in batches(part.candidates, _AT_ONCE):
                entities = [candidate.entity for candidate in candidates]
                yield _Batch(candidates, {} if over() else self._services.catalog.places_for(entities), part.unnamed)

    def _oldest_open_ms(self, now_ms: int) -> int | None:
        """Age in ms of the oldest open transaction that may write: no directory waits for one that only reads."""
        started = min(
            (one.started_ms for one in self._services.transactions.open_transactions() if not one.read_only),
            default=None,
        )
        return None if started is None else now_ms - started

    def _subjects(
        self, batch: _Batch, failing: Collection[Entity], tally: InitiatorTally, now_ms: int, judge: Judge
    ) -> list[DueSubject]:
        """Leave out the candidates that need no listing."""
        services, candidates, places = self._services, batch.candidates, batch.places
        missing = (
            [candidate.entity for candidate in candidates if candidate.entity not in places]
            if len(places) < len(candidates)
            else []
        )
        tables = services.catalog.tables_for(missing) if missing else {}
        for entity in missing:
            reason = Reason.PARTITION_MISSING if entity.whole_table() in tables else Reason.TABLE_MISSING
            tally.skip(entity, Skip(reason, f"{entity} isn't in the catalog"))
        defaults = thresholds_from(services.settings.initiator.thresholds)
        rules: dict[int, TableRules] = {}
        held: dict[int, Denial | None] = {}
        found = [(candidate, place) for candidate in candidates if (place := places.get(candidate.entity)) is not None]
        ineligible = judge_all(services.places, [place for _, place in found], services.layout)
        subjects = []
        for (candidate, place), why_not in zip(found, ineligible, strict=True):
            entity, table = candidate.entity, place.table
            if (of_table := rules.get(table.tbl_id)) is None:
                of_table = rules[table.tbl_id] = TableRules.of(table, defaults, services.layout)
                held[table.tbl_id] = judge.paused(Subject(table.database, table.name, pool_of(table)))
            if (skip := of_table.skip(candidate, why_not)) is not None:
                tally.skip(entity, skip)
                if skip.reason in _MISPLACED and of_table.skip(candidate, None) is None and held[table.tbl_id] is None:
                    self._record(entity, f"{skip.reason.value}: {skip.explanation}")
                    self._progress.made()
            elif (denial := held[table.tbl_id]) is not None:
                tally.skip(entity, Skip(denial.reason, denial.sentence))
            elif entity in failing:
                skip = Skip(
                    Reason.FAILED_TOO_OFTEN,
                    f"the last {services.settings.initiator.failed_threshold} compactions failed",
                )
                tally.skip(entity, skip)
                self._record(entity, f"{skip.reason.value}: {skip.explanation}")
            elif (skip := self._refusals.skip(candidate, table)) is not None:
                tally.skip(entity, skip)
            else:
                fingerprint = hash((candidate, place.part_id, place.location, of_table.fingerprint))
                if (before := self._unchanged.reason(fingerprint, now_ms)) is not None:
                    tally.skip(entity, _UNCHANGED[before])
                    tally.unnamed.discard(entity)
                else:
                    subjects.append(DueSubject(candidate, place, of_table, fingerprint))
        return subjects

    # What is due

    def _judge_all(
        self,
        pending: list[DueSubject],
        tally: InitiatorTally,
        now_ms: int,
        oldest_open_ms: int | None,
        over: Callable[[], bool],
    ) -> None:
        if not pending:
            return
        services = self._services
        parameters = services.catalog.parameters_of(
            [subject.place.part_id for subject in pending if subject.place.part_id is not None]
        )
        txns = self._txns.get()
        write_ids = services.transactions.compactor_write_ids_of(
            {subject.place.table.full_name for subject in pending}, txns
        )
        moment = ScanMoment(now_ms, oldest_open_ms, txns, write_ids, parameters)

        def judge(subject: DueSubject) -> tuple[Verdict, bool]:
            try:
                return verdict_on(services, subject, moment, self._away)
            except Exception as error:  # any error concerns this table alone
                self._away.note(error)
                return error, False
            finally:
                self._progress.made()

        left = {subject.candidate.entity: None for subject in pending}
        pending.sort(key=lambda subject: self._away.is_doubtful(subject.place.location or ""))
        for subject, (verdict, settled) in spread(judge, pending, services.settings.initiator.listing_threads, over):
            if settled and isinstance(verdict, Skip):
                self._unchanged.leave(subject.fingerprint, now_ms, verdict.reason)
            self._take(subject, verdict, tally)
            del left[subject.candidate.entity]
        tally.listed += len(pending) - len(left)
        tally.left.add(left)

    def _take(self, subject: DueSubject, verdict: Verdict, tally: InitiatorTally) -> None:
        entity = subject.candidate.entity
        match verdict:
            case Pick():
                self._recorded.pop(entity, None)
                tally.picks.append((subject, verdict))
                tally.tell(entity, verdict.findings)
            case Skip():
                tally.tell(entity, verdict.findings)
                tally.skip(entity, verdict)
                if verdict.reason not in PASSING:
                    tally.unnamed.discard(entity)
            case RefusedError():
                tally.unnamed.discard(entity)
                tally.skip(entity, Skip(verdict.reason, verdict.message))
                self._record(entity, f"{verdict.reason.value}: {verdict.message}")
            case UnreachableError() | RetryableError():
                tally.errors += 1
                tally.again.add(entity)
                tally.away = tally.away or verdict
            case _:
                tally.errors += 1
                tally.again.add(entity)
                words = one_line(verdict)
                self._record(
                    entity, words if isinstance(verdict, CompactorError) else f"{type(verdict).__name__}: {words}"
                )

    def _record(self, entity: Entity, message: str) -> None:
        """
        Write a row to the history, so that `SHOW COMPACTIONS` shows why; not the same row again while nothing changes.
        When it can't be written, that is only logged.
        """
        if self._recorded.get(entity) == message:
            return
        self._recorded[entity] = message
        with about_entity(entity):
            _log.warning("candidate.not_queued", why=message)
            try:
                self._services.queue.record_did_not_initiate(entity, message, initiator_id=self._initiator_id)
            except Exception as error:
                _log.warning("outcome.not_stored", error=one_line(error))

    # What is queued

    @property
    def _initiator_id(self) -> str:
        return self._services.identity.worker_id("initiator")

    def _enqueue(self, held: HeldLeadership, tally: InitiatorTally) -> None:
        chosen = self._still_wanted(
            sorted(tally.picks, key=lambda item: (-item[1].score, str(item[0].candidate.entity))), tally
        )
        if not chosen:
            return
        requests = [
            Request(
                subject.candidate.entity,
                picked.kind,
                pool=pool_of(subject.place.table),
                run_as=self._services.settings.worker.run_as,
                initiator_id=self._initiator_id,
                initiator_version=version(),
                urgency=urgency_for(picked.excess),
            )
            for subject, picked in chosen
        ]
        queued = []
        for (subject, picked), answer in zip(
            chosen, self._services.queue.enqueue_all(requests, held.check), strict=True
        ):
            if answer.accepted:
                queued.append((subject, picked))
                tally.again.add(subject.candidate.entity)
                self._refusals.asked(subject.candidate, subject.place.table, answer.id)
                with about_entity(subject.candidate.entity):
                    _log.info(
                        "entry.queued",
                        id=answer.id,
                        kind=picked.kind.value,
                        reason=picked.reason.value,
                        why=picked.explanation,
                        score=round(picked.score, 3),
                        urgency=urgency_for(picked.excess),
                    )
            else:
                tally.skip(subject.candidate.entity, Skip(Reason.ALREADY_QUEUED, answer.message))
        tally.picks = queued

    def _still_wanted(
        self, chosen: list[tuple[DueSubject, Pick]], tally: InitiatorTally
    ) -> list[tuple[DueSubject, Pick]]:
        """
        The picks without those that were paused while they were judged; these are looked at again in the next cycle.
        """
        if not chosen:
            return []
        judge = self._services.control.judge(fresh=True)
        wanted = []
        for subject, picked in chosen:
            table = subject.place.table
            denial = judge.uncertain() or judge.paused(Subject(table.database, table.name, pool_of(table)))
            if denial is None:
                wanted.append((subject, picked))
            else:
                tally.skip(subject.candidate.entity, Skip(denial.reason, denial.sentence))
                tally.again.add(subject.candidate.entity)
        tally.picks = wanted
        return wanted
