"""
Gives back what dead workers had claimed.

Only after nothing of theirs can become visible any more: first their staging directories go, then the transaction is
aborted, then what they published under its number without a commit is removed, then the claim is free. A worker that
was only asleep and wakes up later finds no source for its rename.
"""

import itertools
import time
from collections.abc import Callable, Iterable
from typing import Final

from compactor.durations import HOUR_MS
from compactor.errors import CompactorError, OwnershipLostError
from compactor.log import get_logger
from compactor.metastore.model import CatalogPlace, QueueEntry
from compactor.metastore.txn.transactions import TxnState
from compactor.metastore.worker_ids import parse_worker_id
from compactor.roles import steps
from compactor.roles.cycle import Clock, Progress
from compactor.roles.fence import job_keys, remove_staging, remove_uncommitted
from compactor.roles.services import Services, about_entity
from compactor.roles.unreachable import AwayStores, StoreAwayError, news, require_removed

_log = get_logger(__name__)


ROUND_SECONDS: Final = 60.0
"""
No claim is begun after this time, since Housekeeper and Initiator have other duties. The next round goes on from there.
"""


class Recovery:
    """
    Finds claims of dead workers, clears up after them, and gives them back. Claims on an unreachable store, and claims
    that a round doesn't reach, are left for the next round.

    Args:
        progress: told of each claim that was looked at.
    """

    def __init__(self, services: Services, progress: Progress | None = None, clock: Clock = time.monotonic) -> None:
        self._services = services
        self._progress = progress or Progress()
        self._clock = clock
        self._said: dict[int, str] = {}
        self._turns = itertools.count(1)
        self._tried: dict[int, int] = {}
        self._unheld: dict[tuple[int, int | None], float] = {}
        self._away = AwayStores()

    def give_back_claims_of_the_dead(self) -> list[QueueEntry]:
        """
        Give back entries whose worker is known to have ended; returns those that are free again.

        Also ends transactions that such workers had opened and not yet stored with their entry.
        """
        services = self._services
        now = services.now_ms()
        claimed = [
            entry
            for entry in services.queue.working()
            if self._is_dead_worker(entry.worker_id, now - (entry.start_ms or now))
        ]
        dead = {entry.worker_id or "" for entry in claimed}
        freed = self._give_back(claimed, self._clear_after_death)
        dead |= self._abort_transactions_of_the_dead()
        still = {entry.worker_id for entry in services.queue.working()}
        for worker_id in dead - still:
            services.identity.forget(worker_id)
        return freed

    def give_back_claims_of_nobody(self) -> list[QueueEntry]:
        """
        Give back entries with a claim of this process that none of its workers has in hand; returns those that are free
        again.

        The answer to the claim was lost, or the database came back without a later change of the entry. A worker takes
        a claim in hand just after its commit, so one counts that was in nobody's hands a round ago, too.
        """
        services, now = self._services, self._clock()
        claimed = [entry for entry in services.queue.working() if services.identity.is_mine(entry.worker_id)]
        found = {(entry.id, entry.start_ms): entry for entry in claimed}
        unheld = found.keys() - services.in_hand
        self._unheld = {claim: self._unheld.get(claim, now) for claim in unheld}
        left = [found[claim] for claim, since in self._unheld.items() if now - since >= ROUND_SECONDS]
        return self._give_back(left, self.clear) if left else []

    def give_back_timed_out(self) -> list[QueueEntry]:
        """
        Give back entries that were claimed longer ago than `worker.timeout_hours`, by any process but this one. Claims
        of Hive's workers on tables that aren't included (`control.only`) are left to Hive's Initiator.
        """
        services = self._services
        late = services.queue.timed_out(round(services.settings.worker.timeout_hours * HOUR_MS))

        def is_ours_to_free(entry: QueueEntry) -> bool:
            if parse_worker_id(entry.worker_id) is None:
                return services.control.includes(entry.entity.database, entry.entity.table)
            return not services.identity.is_mine(entry.worker_id)

        return self._give_back(filter(is_ours_to_free, late), self.clear)

    def give_back_claims_of_the_lost(self) -> list[QueueEntry]:
        """
        Give back entries of daemons, on whichever machine, that the other daemons no longer see and that don't keep
        their transaction or lock alive; returns those that are free again.

        Such a daemon may be alive all the same, cut off or stopped: the fence of `clear` holds for it too.
        """
        services = self._services
        claimed = services.queue.timed_out(round(services.settings.txn.timeout_seconds * 1000))
        if not claimed or (present := services.coordinator.present()) is None:
            return []

        def is_lost(entry: QueueEntry) -> bool:
            owner = parse_worker_id(entry.worker_id)
            return (
                owner is not None
                and owner.instance not in present
                and not services.identity.is_mine(entry.worker_id)
                and not self._beats(entry, owner.host)
            )

        return self._give_back([entry for entry in claimed if is_lost(entry)], self._clear_after_death)

    def _give_back(self, claimed: Iterable[QueueEntry], clear: Callable[[QueueEntry], bool]) -> list[QueueEntry]:
        """
        One round, those claims first whose turn was longest ago. A claim stays when clearing up after it fails. Returns
        the entries that are free again.
        """
        services = self._services
        until = self._clock() + ROUND_SECONDS
        self._away.begin()
        freed = []
        for entry in sorted(claimed, key=lambda entry: self._tried.get(entry.id, 0)):
            if services.stopping.is_set() or self._clock() >= until:
                break
            cleared = clear(entry)
            self._progress.made()
            if not cleared:
                continue
            try:
                self._free(entry)
            except OwnershipLostError:
                continue  # it ended by itself meanwhile
            services.steps.enter(steps.RECOVERY_FREED, entry)
            freed.append(entry)
        return freed

    def _free(self, entry: QueueEntry) -> None:
        """
        Give an entry back that was cleared up after. The claim of a worker of Hive's own goes with its transaction: no
        staging directory fences such a worker, and it may be alive.
        """
        queue = self._services.queue
        if parse_worker_id(entry.worker_id) is None:
            queue.take_back(entry, f"worker {entry.worker_id} took longer than worker.timeout_hours")
        else:
            queue.give_back(entry)

    def _beats(self, entry: QueueEntry, host: str) -> bool:
        """
        Whether the entry's transaction is open, on Hive 3.1 whether its lock is there: both time out without a
        heartbeat.
        """
        services = self._services
        if services.generation.rename_commits:
            return any(lock.txn_id == 0 and lock.host == host for lock in services.locks.held(entry.entity))
        if entry.txn_id is not None:
            return services.transactions.state(entry.txn_id) is TxnState.OPEN
        return any(opened.agent == entry.worker_id for opened in services.transactions.open_compactions())

    def _abort_transactions_of_the_dead(self) -> set[str]:
        """
        End transactions that dead workers had opened and not yet stored with their entry; returns these workers.

        Nothing was written under such a transaction: a worker stores its transaction with the entry first. Stored
        transactions are ended by `clear`, in its order. A worker that opened a transaction is judged as one that
        claimed an entry. When no file tells, the heartbeat must be older than this machine's start, so that not even a
        machine of the same name is taken for this one.
        """
        services = self._services
        found = [
            open_one
            for open_one in services.transactions.open_compactions()
            if self._is_dead_worker(open_one.agent, open_one.silent_ms)
        ]
        if not found:
            return set()
        stored = {entry.txn_id for entry in services.queue.working()}
        dead = set()
        for open_one in found:
            if open_one.txn_id in stored:
                continue
            services.transactions.abort(open_one.txn_id, f"worker {open_one.agent} is gone")
            _log.info("transaction.aborted", txn=open_one.txn_id, worker=open_one.agent)
            dead.add(open_one.agent or "")
        return dead

    def _clear_after_death(self, entry: QueueEntry) -> bool:
        """
        Clear up as `clear` does, and count a failure of the entry: its work may be why the worker died. A process that
        ended in order isn't counted.
        """
        services = self._services
        in_order = services.identity.ended_in_order(entry.worker_id)
        if not self.clear(entry):
            return False
        if not in_order:
            services.failures.count(entry, f"its worker {entry.worker_id} ended", died=True)
        return True

    def clear(self, entry: QueueEntry) -> bool:
        """Remove what an attempt left. False when that isn't possible now; then the claim stays."""
        with about_entity(entry.entity, entry):
            try:
                self._services.steps.enter(steps.RECOVERY_FOUND, entry)
                self._clear(entry)
            except StoreAwayError as error:
                _log.debug("recovery.postponed", worker=entry.worker_id, error=str(error), detail="the claim stays")
                return False
            except (CompactorError, OSError) as error:
                self._away.note(error)
                self._tried[entry.id] = next(self._turns)
                (_log.debug if self._said.get(entry.id) == news(error) else _log.warning)(
                    "recovery.failed", worker=entry.worker_id, error=str(error), detail="the claim stays"
                )
                self._said[entry.id] = news(error)
                return False
            self._said.pop(entry.id, None)
            self._tried.pop(entry.id, None)
            _log.info("claim.given_back", worker=entry.worker_id)
            return True

    def _is_dead_worker(self, worker_id: str | None, age_ms: int) -> bool:
        identity = self._services.identity
        if parse_worker_id(worker_id) is None or identity.is_mine(worker_id):
            return False
        if self._services.database.embedded:
            return True  # no other process uses the database
        return identity.is_dead(worker_id, age_ms / 1000)

    def _require_unchanged(self, entry: QueueEntry) -> bool:
        now = self._services.queue.entry(entry.id)
        if now is None or (now.state, now.worker_id, now.start_ms) != (entry.state, entry.worker_id, entry.start_ms):
            raise OwnershipLostError(f"compaction {entry.id} isn't with {entry.worker_id} any more")
        return True

    def _clear(self, entry: QueueEntry) -> None:
        """
        Put up the fence: no staging directory, no transaction, nothing that was published without a commit.

        A directory that can't be seen now can't be fenced off: a worker that was only asleep would find its staging
        directory again together with the file system, and on Hive 3.1 its rename is the commit. So the claim of a
        daemon's worker stays until the place is seen again, is known to have been removed (its staging directory went
        with it), or leaves the catalog. An entry without a highest write id is free at once: nothing is staged before
        that id is stored, and it can't be stored any more once the claim is another worker's.

        Raises:
            UnreachableError: the catalog names a directory that is neither there nor known to have been removed, or
                that lies on an unreachable store.
        """
        services, entity = self._services, entry.entity
        ours = parse_worker_id(entry.worker_id) is not None
        facts = services.catalog.facts_for([entity]).get(entity)
        place = None
        if facts is not None:
            table, _, _, location = CatalogPlace.of(*facts)
            if location:
                self._away.check(location)
                place = (services.storage(location), location)
                if ours and entry.highest_write_id is not None:
                    require_removed(*place, table.location)
        removed = remove_staging(*place, entry.id, lambda: self._require_unchanged(entry)) if place is not None else []
        services.steps.enter(steps.RECOVERY_UNSTAGED, entry)
        if ours:
            services.submitter.end_left_over(job_keys(removed), entry.job_id)
        if entry.txn_id is None or not ours:
            # A worker of Hive's has no staging directory that would fence it: `_free` ends its transaction, and what it
            # leaves stays marked by its component.
            return
        state = services.transactions.abort(entry.txn_id, f"worker {entry.worker_id} is gone")
        services.steps.enter(steps.RECOVERY_ABORTED, entry)
        # The component stays, and the cleaning of aborted writes looks again, also where no place is looked at now.
        if state is TxnState.ABORTED and place is not None:
            remove_uncommitted(services, place[1], entry.txn_id)
