"""
One attempt at one queue entry, from the opened transaction to the commit, and its rollback.

The order is Hive's: transaction, lock, heartbeat, valid lists, listing, plan, state stored (with the component that
marks what follows as this attempt's), work, check, rename, commit. An attempt may be cut off at any point. Its rollback
is a fence: first the staging directory goes, so that a rename that is still to come finds no source; then the
transaction is aborted; then what was published under its number is removed, and only when the metastore says that the
transaction was aborted. An attempt that ended before it made a staging directory has nothing in the store, and its
rollback doesn't need the store.
Source: docs/compaction.md; Hive's Worker, AcidCompactionService.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from compactor.acid.snapshot import AcidState
from compactor.acid.write_ids import ValidTxnList
from compactor.engine.compaction import Compaction, Published
from compactor.engine.request import CompactionRequest
from compactor.errors import CancelledError, CompactorError, OutcomeUnknownError, RefusedError, RivalError
from compactor.log import get_logger
from compactor.metastore.clean.may_clean import Blocker
from compactor.metastore.compaction_queue.commits import committed
from compactor.metastore.compaction_queue.follow_ups import FollowUp
from compactor.metastore.compaction_queue.rivals import Neighbours
from compactor.metastore.model import QueueEntry, QueueState
from compactor.metastore.txn.transactions import TxnState
from compactor.planning.document import CompactionPlan
from compactor.planning.included import OnlyCleaning, enough, only_cleaning, why_not_enough
from compactor.reasons import Reason
from compactor.roles import steps
from compactor.roles.fence import remove_staging, remove_uncommitted
from compactor.roles.pauses import subject_of
from compactor.roles.services import Services
from compactor.roles.unreachable import require_removed
from compactor.roles.worker.cancellation import Cancellation
from compactor.roles.worker.entry_facts import EntryFacts, is_in_the_catalog, look_up, request_for, require_there
from compactor.roles.worker.follow_ups import follow_up_of
from compactor.roles.worker.lease import Lease
from compactor.roles.worker.metastore_retry import patiently
from compactor.roles.worker.monitor import Monitor, not_ours
from compactor.roles.worker.older_snapshots import is_first_base, wait_for_older_snapshots
from compactor.roles.worker.work_record import WorkRecord
from compactor.storage.base import Storage

T = TypeVar("T")

_log = get_logger(__name__)
_MISSING = frozenset({Reason.LOCATION_MISSING, Reason.INPUT_CHANGED, Reason.CORRUPT_FILE})
"""Reasons that the work may end with when its directory vanished."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """
    The attempt ended with a published result.

    Args:
        beside: the queries whose snapshots may have been older than the first base when it appeared (Hive 3.1).
    """

    published: Published
    beside: str


class Attempt:
    """
    Compacts one entry; runs once. Then either its result stands, or `undo` must succeed before the entry may be given
    away.

    Args:
        entry: claimed by `worker_id`.
        cancellation: checked between steps, and by the engine while it waits.

    `state_stored`: whether the metastore marks what follows as this attempt's. `visible`: whether readers see the
    result, or may, and nothing can take it back (Hive 3.1 after the rename).
    """

    def __init__(self, services: Services, entry: QueueEntry, worker_id: str, cancellation: Cancellation) -> None:
        self._services = services
        self._worker_id = worker_id
        self._cancellation = cancellation
        self._lease = Lease(services, entry, worker_id, cancellation, self._step)
        self._watching = contextlib.ExitStack()
        self._compaction: Compaction | None = None
        self._record = WorkRecord(services.work_records, entry, worker_id)
        self._done = 0.0
        self._written = 0
        self._near: Neighbours | None = None
        self._rename_commits = services.generation.rename_commits
        self.entry = entry
        self.state_stored = False
        self.visible = False

    @property
    def txn_id(self) -> int | None:
        """The attempt's transaction; None before it is opened, and on Hive 3.1."""
        return self._lease.txn_id

    def run(self) -> Compacted | OnlyCleaning:
        """
        Compact the entry, or leave it to the Cleaner.

        Raises:
            RefusedError: the entry isn't compacted; with the reason.
            UnreachableError: a service or store doesn't answer, or the file system isn't mounted.
            CompactorError: any other end of the attempt; `undo` comes next.
        """
        facts = self._asked(lambda: look_up(self._services, self.entry))
        storage = self._services.storage(facts.location)
        try:
            return self._run(facts, storage)
        except (RefusedError, CancelledError, FileNotFoundError) as error:
            if not isinstance(error, RefusedError) or error.reason in _MISSING:
                require_there(self._services, self.entry.entity, facts, storage)
                self._require_not_displaced(error)
            raise

    def _require_not_displaced(self, error: Exception) -> None:
        """
        On Hive 3.1 a compaction that publishes takes the staging directories of all others of the place away
        (`engine.publish`): then this one comes again later.

        Raises:
            RivalError: so it was.
        """
        compaction = self._compaction
        unpublished = self._rename_commits and not self.visible
        if unpublished and compaction is not None and compaction.was_discarded and self._is_ours():
            raise RivalError(
                f"{self.entry.entity}: another compaction of the place has taken its files away"
            ) from error

    def _run(self, facts: EntryFacts, storage: Storage) -> Compacted | OnlyCleaning:
        services, entry = self._services, self.entry
        run_as = entry.run_as or services.settings.worker.run_as or storage.owner(facts.location)
        self._lease.begin(run_as)
        request = self._asked(lambda: request_for(services, entry, facts, self.txn_id, run_as))
        self._asked(lambda: self._require_none_open(request.txns))
        newest = self._asked(services.transactions.snapshot).high_watermark if self._rename_commits else None
        self._compaction = compaction = Compaction(request, storage, services.submitter, services.settings, self._step)
        monitor = Monitor(
            services.queue,
            entry,
            lambda: services.submitter.application(compaction.job),
            self._lease.give_way,
            self._cancellation.cancel,
            keep=lambda: self._record.keep(self._done),
        )
        self._watching.callback(monitor.stop)
        monitor.start()
        if self._rename_commits and entry.highest_write_id is not None:
            # Hive may have taken back the claim of an attempt that is only asleep: now its rename finds no source.
            remove_staging(storage, facts.location, entry.id, self._is_ours)
        state = compaction.observe()
        self._step(steps.WORKER_LISTED)
        plan = self._plan(compaction, state)
        if isinstance(plan, RefusedError):
            return self._leave_to_the_cleaner(plan, state, request)
        self._asked(lambda: self._require_turn(plan.name_write_id))
        self._step(steps.WORKER_PLANNED)
        self._record.planned(plan)
        charge = services.control.charge(subject_of(entry), plan.prediction.written)
        try:
            self._store_state(plan.highest_write_id, request.entry, compaction.job.key)
            return self._compact(compaction, plan, newest if is_first_base(state, plan) else None)
        finally:
            services.control.correct(charge, self._written)

    def _compact(self, compaction: Compaction, plan: CompactionPlan, newest: int | None) -> Compacted:
        """
        From the plan to the commit.

        Args:
            newest: wait for snapshots that are older than this transaction; None: don't wait.
        """
        staged = compaction.stage(plan, partial(self._progress, plan.prediction.written), self._cancellation)
        self._written = staged.bytes
        self._step(steps.WORKER_RAN)
        verified = compaction.verify(staged, self._cancellation)
        self._step(steps.WORKER_VERIFIED)
        beside = "" if newest is None else wait_for_older_snapshots(lambda: self._older(newest), self._cancellation)
        try:
            published = compaction.publish(verified, lambda: self._guard(compaction.request, plan.name_write_id))
        except OutcomeUnknownError:
            self.visible = self._rename_commits
            raise
        self.visible = self._rename_commits
        self._step(steps.WORKER_PUBLISHED)
        self._commit(follow_up_of(plan.parts), compaction.request.txns)
        self._step(steps.WORKER_COMMITTED)
        with contextlib.suppress(CompactorError, OSError):
            compaction.discard()  # what is left of the staging directory; the Cleaner removes it otherwise
        self._record.ended(published.staged)
        return Compacted(published, beside)

    def _older(self, newest: int) -> list[Blocker]:
        """
        The queries that still have an older snapshot.

        Args:
            newest: the last transaction that was opened when this attempt's lists were taken, or a later one.
        """
        entity, lock_id = self.entry.entity, self._lease.lock_id
        return self._asked(lambda: self._services.cleaning.older(entity, newest, lock_id))

    def undo(self, reason: str) -> bool:
        """
        Leave nothing behind that could become visible; may be repeated until it succeeds.

        The store is asked only if this attempt may have staged files there: an unreachable store may be why the attempt
        ended. What late writers of earlier attempts left does no harm, and the Cleaner removes it
        (`cleaner.partition`).

        Returns whether it turned out that the compaction is committed after all (then nothing was undone).

        Raises:
            CompactorError: the metastore or the file system doesn't answer, or isn't mounted; nothing that other
                processes rely on was taken away.
        """
        self._watching.close()
        if self.state_stored and self._is_committed():
            self._rest()
            return True
        compaction = self._compaction
        if compaction is not None and not compaction.may_have_staged:
            compaction = None
        if compaction is not None:
            request = compaction.request
            # What is removed must be seen to go; where the directory left the catalog, no reader looks any more.
            if is_in_the_catalog(self._services, self.entry.entity, request.table):
                require_removed(compaction.storage, request.location, request.table.location)
            compaction.discard()
            # Of earlier attempts, only while the entry is this worker's: later another may be working in one of them.
            remove_staging(compaction.storage, request.location, self.entry.id, self._is_ours)
        self._rest()
        if self.txn_id is not None and not (
            not self.state_stored and self._services.transactions.end_empty(self.txn_id)
        ):
            if compaction is None:
                self._services.queue.withdraw_attempt(self.txn_id)
            state = self._services.transactions.abort(self.txn_id, reason)
            self._remove_published(self.txn_id, state, compaction)
        return False

    def _remove_published(self, txn_id: int, state: TxnState, compaction: Compaction | None) -> None:
        """
        Remove what was published without a commit.

        When the transaction and the entry are both forgotten (the table was dropped, or all this is long ago), no entry
        is left to give back, and nothing says whether it was committed: then everything stays where it is.
        """
        if state is TxnState.ABSENT and self._services.queue.entry(self.entry.id) is None:
            _log.warning(
                "rollback.skipped",
                txn=txn_id,
                why="entry and transaction are forgotten",
                detail="directories that may have been published stay",
            )
            return
        if compaction is None:
            return
        remove_uncommitted(self._services, compaction.request.location, txn_id)

    def _is_committed(self) -> bool:
        """
        Whether a commit without an answer succeeded: the queue row and the transaction changed together, or not at all.
        """
        state = self._services.transactions.state(self.txn_id) if self.txn_id is not None else TxnState.ABSENT
        if state is not TxnState.ABSENT:
            return state is TxnState.COMMITTED
        now = self._services.queue.entry(self.entry.id)
        return now is not None and committed(now, self.txn_id)

    def _is_ours(self) -> bool:
        now = self._services.queue.entry(self.entry.id)
        return now is not None and (now.state, now.worker_id, now.start_ms) == (
            QueueState.WORKING,
            self._worker_id,
            self.entry.start_ms,
        )

    def _rest(self) -> None:
        """End monitor and heartbeat."""
        self._watching.close()
        self._lease.end()

    def _plan(self, compaction: Compaction, state: AcidState) -> CompactionPlan | RefusedError:
        """The plan, or why there is not enough to compact."""
        if not enough(state, self.entry.kind, compaction.request.table.insert_only):
            return RefusedError(Reason.NOT_ENOUGH, f"{self.entry.entity}: {why_not_enough(state)}")
        try:
            return compaction.plan(state)
        except RefusedError as error:
            if error.reason is Reason.NOT_ENOUGH:  # inputs that an open writer holds back don't count
                return error
            raise

    def _leave_to_the_cleaner(
        self, refusal: RefusedError, state: AcidState, request: CompactionRequest
    ) -> OnlyCleaning:
        """
        End an entry with not enough to compact, so that the Cleaner removes what is obsolete or aborted.

        Raises:
            RefusedError: NOT_ENOUGH; there is nothing to do at all.
        """
        left = only_cleaning(state, request.write_ids, request.layout)
        if left is None:
            raise refusal
        self._store_state(left.highest_write_id, request.entry)
        self._guard(request)
        self._commit(lists=request.txns)
        self._step(steps.WORKER_COMMITTED)
        return left

    def _store_state(self, highest_write_id: int, entry: QueueEntry, job_id: str | None = None) -> None:
        self._cancellation.check()
        queue, txn_id = self._services.queue, self.txn_id
        self._asked(lambda: queue.set_compactor_state(entry, txn_id, highest_write_id, entry.run_as, job_id))
        self.state_stored = True
        self._step(steps.WORKER_STATE_STORED)

    def _guard(self, before: CompactionRequest, name_write_id: int | None = None) -> None:
        """
        The last check before the rename: the entry is still this worker's, the table still the same, the lease alive.
        However long the metastore was unreachable, nothing is published without this check.

        Args:
            name_write_id: the highest write id in the result's name; None: there is no result.
        """
        self._cancellation.check()
        self._asked(lambda: self._require_unchanged(before, name_write_id))
        self._cancellation.check()

    def _require_unchanged(self, before: CompactionRequest, name_write_id: int | None) -> None:
        services, entry = self._services, self.entry
        if not self._is_ours():
            raise not_ours(entry.id, services.queue.entry(entry.id))
        try:
            facts = look_up(services, entry)
            services.places.require_alone(facts.location, facts.table, facts.partition, last_look=True)
        except RefusedError as error:
            raise RefusedError(Reason.INPUT_CHANGED, f"while it was compacted: {error}") from None
        if facts.table.tbl_id != before.table.tbl_id or facts.location != before.location:
            raise RefusedError(Reason.INPUT_CHANGED, f"{entry.entity} was re-created or moved while it was compacted")
        if facts.table.insert_only != before.table.insert_only:  # ALTER TABLE doesn't wait for the compaction's lock
            kind = "insert-only" if facts.table.insert_only else "full ACID"
            raise RefusedError(Reason.INPUT_CHANGED, f"{entry.entity} was made {kind} while it was compacted")
        self._lease.renew()
        self._require_first(before.txns)
        self._require_turn(name_write_id)

    def _require_none_open(self, lists: ValidTxnList | None) -> None:
        """Hive 4: a worker of Hive's whose claim was taken back works on; nothing in the queue tells of it."""
        if lists is not None and self.txn_id is not None:
            self._services.queue.require_none_open(self.entry, self.txn_id, lists)

    def _require_first(self, lists: ValidTxnList | None) -> None:
        """
        Hive 4: an early answer of what the commit asks. Readers that ignore `_v` see a result as soon as it is renamed;
        and the queue is read here, not while no transaction can be opened.
        """
        if lists is not None and self.txn_id is not None:
            self._near = self._services.queue.require_first(self.entry, self.txn_id, lists, self._near)

    def _require_turn(self, name_write_id: int | None) -> None:
        """Hive 3.1: the rename is the commit."""
        if self._rename_commits:
            self._services.queue.require_turn(self.entry, name_write_id)

    def _commit(self, follow_up: FollowUp | None = None, lists: ValidTxnList | None = None) -> None:
        """
        Mark the entry compacted, note the follow-up, and commit, in one database transaction. When the outcome is
        unknown the call is repeated: the second call finds out.

        Args:
            lists: of the compaction: nothing that another one committed beside it may be missing from them.
        """
        patiently(
            lambda: self._services.queue.mark_compacted_and_commit(
                self.entry, self._worker_id, self.txn_id, follow_up, lists, near=self._near
            ),
            self._cancellation,
            OutcomeUnknownError,
        )
        self._rest()

    def _asked(self, ask: Callable[[], T]) -> T:
        """The metastore's answer; see `metastore_retry`."""
        return patiently(ask, self._cancellation)

    def _progress(self, expected: int, done: float) -> None:
        """
        Called ten times a second; logs each time another tenth is done.

        Args:
            expected: bytes that all tasks together are predicted to write.
            done: the share of the tasks that have ended.
        """
        if (tenth := int(done * 10)) > int(self._done * 10):
            _log.debug("compaction.progressed", done=f"{tenth * 10} %")
        self._done = max(self._done, done)
        self._written = int(self._done * expected)

    def _step(self, step: str) -> None:
        self._record.passed(step)
        self._services.steps.enter(step, self.entry)
        # a published result is only a commit away from its end
        if step not in {steps.WORKER_PUBLISHED, steps.WORKER_COMMITTED}:
            self._cancellation.check()
