"""
Takes queue entries and compacts them, one at a time.

The worker waits until Spark's session is there, claims an entry, lets an `Attempt` run, and brings the entry into the
state that the attempt's end calls for.
An attempt that can't be undone yet (the metastore or the file system doesn't answer) is kept and undone later
(`rollback`), while the worker compacts other entries: an entry is never given away while a result of the attempt could
still become visible.
"""

import time
from typing import Final

from compactor.control import Denial, Judge, Subject
from compactor.errors import CompactorError, OwnershipLostError, RefusedError, UnreachableError, VerificationError
from compactor.log import get_logger
from compactor.metastore.compaction_queue.queue import asked_to_stop
from compactor.metastore.model import QueueEntry, QueueState
from compactor.metrics import version
from compactor.planning.included import OnlyCleaning
from compactor.roles import steps
from compactor.roles.cycle import Cycle, Phrase
from compactor.roles.pauses import HeldError, require_still, subject_of
from compactor.roles.services import Services, about_entity
from compactor.roles.worker.attempt import Attempt, Compacted
from compactor.roles.worker.cancellation import Cancellation, CancelRequestedError
from compactor.roles.worker.failures import ATTEMPTS
from compactor.roles.worker.follow_ups import FollowUps
from compactor.roles.worker.outcome import End, Ended, Outcome, Retry, message_of, outcome_of
from compactor.roles.worker.rollback import PendingRollback, Rollbacks
from compactor.spark.submitter import BrokenDownError
from compactor.words import one_line, plural

_log = get_logger(__name__)
IDLE: Final = Cycle.idle("nothing is queued")
DRAINING: Final = Cycle.held("draining: nothing new is claimed")
STARTING: Final = Cycle.held("Spark starts; an entry is claimed when it is there", again=True)
_START_SECONDS = 2.0
"""How long a cycle waits for Spark; then the next looks again whether an entry waits and may be claimed."""
_SIGNAL_SECONDS = 1.0
"""How long a signal that ended Spark may take to reach this process, too."""


class Worker:
    """
    One of the daemon's workers.

    Args:
        number: distinguishes the workers of one process.
        pool: takes entries of this compaction pool only; None: as `worker.pool` says.
    """

    def __init__(self, services: Services, number: int, pool: str | None = None) -> None:
        self._services = services
        self._pool = pool
        self.worker_id = services.identity.worker_id(number)
        self._cancellation: Cancellation | None = None
        self._entry: QueueEntry | None = None
        self._rollbacks = Rollbacks(services.backoff)
        self._follow_ups = FollowUps(services.queue)

    def run_once(self) -> Cycle:
        """
        Undo an attempt that is due, or claim one entry and compact it: then the next cycle looks for more at once.

        Raises:
            CompactorError: the metastore can't be asked.
        """
        if (pending := self._rollbacks.due()) is not None:
            settled = self._settle(pending)
            if pending not in self._rollbacks:
                self._services.in_hand.discard(_claim_of(pending.attempt.entry))
                return Cycle.worked(settled, again=True)
        if self._services.stopping.is_set():
            return DRAINING
        if (why := self._services.coordinator.why_not_start()) is not None:
            return _waits(why, told=True)
        if self._follow_ups.go_on():
            self._services.shared_looks.over()
        settings = self._services.settings.worker
        pool = self._claims_from
        if (held := self._rollbacks.full() or self._services.backoff.pause(pool)) is not None:
            return _waits(held)
        judge = self._services.control.judge()
        if (closed := judge.closed()) is not None:
            return _waits(closed.sentence)
        if self._services.shared_looks.is_known(self.worker_id, pool, settings.poll_seconds):
            return self._idle()
        cold = self._services.submitter.cold
        if cold and self._entry_waits(pool, judge):
            return self._start_spark()
        # without Spark, and with nothing that could deny it: an entry that came this moment is left to the next cycle
        entry, denied = (None, None) if cold and judge.free else self._claim(pool, judge)
        if entry is not None:
            self._services.in_hand.add(_claim_of(entry))
            try:
                with about_entity(entry.entity, entry):
                    return Cycle.worked(self._work(entry, settings.timeout_hours * 3600), again=True)
            finally:
                if entry.id not in self._rollbacks.entries:
                    self._services.in_hand.discard(_claim_of(entry))
        if denied is not None:
            subject, denial = denied
            return _waits(f"{subject.full_name}: {denial.sentence}")
        if (later := self._services.backoff.nothing_else(self._is_still_ours)) is not None:
            return _waits(later)
        self._services.shared_looks.found(self.worker_id, pool)
        return self._idle()

    @property
    def _claims_from(self) -> str | None:
        return self._pool or self._services.settings.worker.pool

    def _entry_waits(self, pool: str | None, judge: Judge) -> bool:
        """Whether there is an entry that this worker may claim now."""
        services, ours = self._services, self._rollbacks.entries
        gate = None if judge.free else judge.gate()
        found = services.backoff.look(
            pool, lambda without, among: services.queue.claimable(pool, without=without | ours, among=among, gate=gate)
        )
        return found is not None

    def _start_spark(self) -> Cycle:
        """
        Have Spark's session started; an entry waits for it. Meanwhile the daemon may have been told to stop, or lost its
        place: all is asked again in the next cycle.
        """
        services = self._services
        try:
            services.submitter.warm_up(_START_SECONDS)
            return STARTING
        except UnreachableError as error:
            if services.backoff.cannot_begin(error):
                _log.warning("spark_start.failed", why=one_line(str(error)))
            return _waits(str(error))

    def _claim(self, pool: str | None, judge: Judge) -> tuple[QueueEntry | None, tuple[Subject, Denial] | None]:
        """The next entry; without one, the first subject that isn't let through, and why not."""
        gate = None if judge.free else judge.gate()
        denied: list[tuple[Subject, Denial]] = []
        ours = self._rollbacks.entries

        def take(without: frozenset[int], among: frozenset[int] | None) -> QueueEntry | None:
            entry = self._services.queue.claim(
                self.worker_id, version=version(), pool=pool, without=without | ours, among=among, gate=gate
            )
            if gate is not None and gate.first is not None:
                denied.append(gate.first)
            return entry

        return self._services.backoff.claim(pool, take), next(iter(denied), None)

    def _idle(self) -> Cycle:
        return IDLE if (left := self._rollbacks.waiting()) is None else _waits(left)

    def cancel(self, error: CompactorError) -> None:
        """Stop the running compaction, if any; from another thread."""
        if (cancellation := self._cancellation) is not None:
            cancellation.cancel(error)

    def hold(self, judge: Judge) -> None:
        """Stop the running compaction if it was paused and is to stop; from another thread."""
        cancellation, entry = self._cancellation, self._entry
        if (
            cancellation is not None
            and entry is not None
            and (denial := judge.cancelled(subject_of(entry))) is not None
            and cancellation is self._cancellation
        ):
            cancellation.cancel(HeldError(denial))

    @property
    def busy(self) -> bool:
        return self._cancellation is not None

    def _is_still_ours(self, entry_id: int) -> bool:
        """
        Whether this process is to try again, or is trying, an entry that was given back. An attempt of another process
        tells nothing of what this one lacks.
        """
        entry = self._services.queue.entry(entry_id)
        if entry is None:
            return False
        if entry.state is QueueState.INITIATED:
            return self._services.control.includes(entry.entity.database, entry.entity.table)
        return entry.state is QueueState.WORKING and self._services.identity.is_mine(entry.worker_id)

    def _work(self, entry: QueueEntry, seconds: float) -> Phrase:
        services = self._services
        began = time.monotonic()
        self._entry, self._cancellation = entry, Cancellation(seconds)
        attempt = Attempt(services, entry, self.worker_id, self._cancellation)
        services.metrics.jobs_running.inc()
        try:
            services.steps.enter(steps.WORKER_CLAIMED, entry)
            self._cancellation.check()
            require_still(services, entry)
            with services.failures.watched(entry):
                result = attempt.run()
        except Exception as error:
            cause = self._cancellation.error or error
            if not isinstance(error, CompactorError):
                _log.exception("compaction.crashed")
            if isinstance(cause, BrokenDownError):
                services.stopping.wait(_SIGNAL_SECONDS)
            return self._settle(PendingRollback(attempt, cause))
        finally:
            self._cancellation = None
            services.metrics.jobs_running.dec()
        services.metrics.job_duration.labels(entry.kind.value).observe(time.monotonic() - began)
        return Phrase(self._done(entry, result))

    def _done(self, entry: QueueEntry, result: Compacted | OnlyCleaning) -> str:
        metrics = self._services.metrics
        self._services.backoff.ended(entry, compacted=isinstance(result, Compacted))
        if isinstance(result, OnlyCleaning):
            metrics.jobs.labels(entry.kind.value, "cleaning-only").inc()
            return f"{_name(entry)}: not enough to compact, but {result.sentence}: left to the Cleaner"
        metrics.jobs.labels(entry.kind.value, "compacted").inc()
        published, staged, plan = result.published, result.published.staged, result.published.staged.plan
        metrics.copied_bytes.inc(staged.copied_bytes)
        metrics.recoded_bytes.inc(staged.recoded_bytes)
        metrics.written_bytes.inc(staged.bytes)
        if plan.prediction.written:
            metrics.written_ratio.labels(entry.kind.value).observe(staged.bytes / plan.prediction.written)
        metrics.input_files.inc(len(plan.inputs))
        metrics.output_files.inc(len(staged.files))
        if plan.parts is not None:
            self._follow_ups.remember(entry.id)
        names = " and ".join(published.directories) or "nothing"
        _log.info(
            "compaction.committed",
            kind=plan.kind.value,
            directories=list(published.directories),
            input_files=len(plan.inputs),
            output_files=len(staged.files),
            copied_bytes=staged.copied_bytes,
            recoded_bytes=staged.recoded_bytes,
            written_bytes=staged.bytes,
        )
        part = f"; {plan.parts.reason}" if plan.parts else ""
        beside = f"; it appeared beside older snapshots, which may fail: {result.beside}" if result.beside else ""
        return f"{_name(entry)}: published {names} from {plural(len(plan.inputs), 'file')}{part}{beside}"

    def _settle(self, pending: PendingRollback) -> Phrase:
        """Undo, then mark; in that order, however many tries it takes."""
        entry = pending.attempt.entry
        with about_entity(entry.entity, entry):
            try:
                sentence = self._undo(pending)
            except Exception as error:
                return self._rollbacks.keep(pending, error)
            self._rollbacks.done(pending)
            return Phrase(sentence)

    def _undo(self, pending: PendingRollback) -> str:
        attempt, entry, error = pending.attempt, pending.attempt.entry, pending.error
        if attempt.undo(message_of(error)):
            self._follow_ups.remember(entry.id)
            self._services.backoff.ended(entry, compacted=True)
            return f"{_name(entry)}: committed, though no answer came"
        if (
            pending.times
            and (now := self._services.queue.entry(entry.id)) is not None
            and (by := asked_to_stop(now)) is not None
        ):
            error = CancelRequestedError(f"cancelled by {by}")  # no monitor looked while the attempt was kept
        return self._mark(attempt, entry, error)

    def _mark(self, attempt: Attempt, entry: QueueEntry, error: Exception) -> str:
        services = self._services
        outcome = outcome_of(
            Ended(
                error,
                visible=attempt.visible,
                state_stored=attempt.state_stored,
                stopping=services.stopping.is_set(),
                missing_seconds=services.backoff.left_for(entry, error.reason)
                if isinstance(error, RefusedError)
                else 0,
            )
        )
        outcome = self._counted(entry, outcome)
        try:
            self._end(entry, outcome)
        except OwnershipLostError as lost:
            outcome = outcome.lost(lost)
        news = self._remember(entry, outcome, error)
        services.metrics.jobs.labels(entry.kind.value, outcome.name).inc()
        services.metrics.verification_refused.inc(isinstance(error, VerificationError))
        kind = (
            {"reason": error.reason.value} if isinstance(error, RefusedError) else {"error_type": type(error).__name__}
        )
        (_log.warning if outcome.troubles else _log.info if news else _log.debug)(
            "attempt.ended", outcome=outcome.name, published=attempt.visible, why=outcome.message, **kind
        )
        return f"{_name(entry)}: {outcome.words}: {outcome.message}"

    def _counted(self, entry: QueueEntry, outcome: Outcome) -> Outcome:
        """Count the failure, or note the suspicion; the entry is given up where that was once too often."""
        failures, backoff = self._services.failures, self._services.backoff
        if outcome.retry is Retry.ALONE:
            failures.suspect(entry, outcome.message)
        elif outcome.retry is Retry.COUNTED:
            failures.count(entry, outcome.message, died=False)
            if failures.times(entry) >= ATTEMPTS or not backoff.may_be_tried_again(entry):
                return outcome.given_up()
        return outcome

    def _end(self, entry: QueueEntry, outcome: Outcome) -> None:
        """Tell the queue."""
        queue = self._services.queue
        match outcome.end:
            case End.GIVEN_BACK:
                queue.give_back(entry)
            case End.CANCELLED:
                queue.mark_aborted(entry, outcome.message)
            case End.UNNEEDED:
                queue.mark_unneeded(entry, outcome.message)
            case End.REFUSED:
                queue.mark_refused(entry, outcome.message)
            case _:
                queue.mark_failed(entry, outcome.message)

    def _remember(self, entry: QueueEntry, outcome: Outcome, error: Exception) -> bool:
        """Note when the entry is tried again, and what it shows until then; returns whether that is news."""
        failures, backoff = self._services.failures, self._services.backoff
        if outcome.shows is not None:
            reason, why = outcome.shows
            failures.waits(entry, reason.value, why)
        elif outcome.retry is not Retry.IN_TURN:
            failures.waits_no_more(entry)
        match outcome.retry:
            case Retry.IN_TURN:
                return backoff.leave(entry, error) == 1
            case Retry.AT_ONCE:
                backoff.ended(entry, compacted=False)
            case _:
                backoff.given_back(entry, error, self._claims_from)
        return True


def _claim_of(entry: QueueEntry) -> tuple[int, int | None]:
    return entry.id, entry.start_ms


def _waits(why: str | Phrase, *, told: bool = False) -> Cycle:
    """Nothing is claimed for now, and why."""
    return Cycle.held((why if isinstance(why, Phrase) else Phrase(why)).after("waiting: "), told=told)


def _name(entry: QueueEntry) -> str:
    return f"{entry.kind} compaction {entry.id} of {entry.entity}"
