"""
Runs Hive's housekeeping (time-outs, purges) when no metastore service does, and gives back what dead workers claimed.

Each daemon gives back the claims of dead workers of its own machine, as many as a minute allows: the duties must get
their turn. Only the leader queues the follow-ups of parts, whichever worker did the part, refuses rebalances that no
worker does, and forgets the work on entries that have left the history. The leader runs Hive's duties when the settings say so, or when it finds that no
metastore service does: then for a day, after which it finds out again.
Source: docs/operations.md; Hive's AcidHouseKeeperService, AcidTxnCleanerService, CompactionHouseKeeperService.
"""

import contextlib
import time

from compactor.acid.compaction import CompactionKind
from compactor.coordination import Role
from compactor.durations import DAY_MS
from compactor.errors import CompactorError, OwnershipLostError
from compactor.log import get_logger
from compactor.metastore.compaction_queue.retention import Retention
from compactor.metastore.housekeeping import Duty
from compactor.planning.eligibility import why_not
from compactor.roles.cycle import Cycle, Progress
from compactor.roles.housekeeper.recovery import Recovery
from compactor.roles.services import Services
from compactor.roles.worker.follow_ups import FollowUps
from compactor.settings import History
from compactor.words import plural

_log = get_logger(__name__)
_LOOK_SECONDS = 600.0
_OURS_SECONDS = 24 * 3600.0


class Housekeeper:
    """
    Runs one cycle at a time. The first cycle follows the start of the daemon at once: it clears up after a predecessor
    that was killed.

    Args:
        progress: told of each claim that was looked at, and of each duty.
    """

    def __init__(self, services: Services, progress: Progress | None = None) -> None:
        self._services = services
        self._progress = progress or Progress()
        self._recovery = Recovery(services, self._progress)
        self._follow_ups = FollowUps(services.queue)
        self._ours_until: dict[Duty, float] = {}
        self._looked = -_LOOK_SECONDS
        self._told: dict[str, str] = {}
        for duty in Duty:
            services.metrics.housekeeping_rows.labels(duty.value)  # there from the start, as all series of known labels
            services.metrics.housekeeping_failures.labels(duty.value)

    def run_once(self) -> Cycle:
        """
        Run one cycle.

        Raises:
            CompactorError: the metastore can't be asked.
        """
        freed = self._recovery.give_back_claims_of_the_dead() + self._recovery.give_back_claims_of_nobody()
        parts: list[str] = []
        if self._leads():
            self._services.coordinator.acted(Role.HOUSEKEEPER)
            freed += self._recovery.give_back_claims_of_the_lost()
            parts = self._go_on()
        if parts:
            self._services.shared_looks.over()
        done: list[str] = [f"gave back {plural(len(freed), 'claim')} of dead workers"] if freed else []
        done += [f"queued what follows {plural(len(parts), 'part')}"] if parts else []
        if self._leads() and (gone := self._forget_work()):
            done.append(f"forgot the work on {plural(gone, 'entry', 'entries')}")
        if self._leads() and (refused := self._refuse_rebalances()):
            done.append(f"refused {plural(refused, 'rebalance')} of insert-only tables")
        failed: list[str] = []
        for duty in self._duties() if self._leads() else ():
            if self._services.stopping.is_set() or not self._leads():
                break
            self._progress.made()
            try:
                count = self._do(duty)
            except CompactorError as error:
                failed.append(f"{duty.value} failed: {error}")
                self._services.metrics.housekeeping_failures.labels(duty.value).inc()
                (_log.debug if self._is_told(duty.value, error) else _log.warning)(
                    "duty.failed", duty=duty.value, error=str(error)
                )
                continue
            self._told.pop(duty.value, None)
            self._services.metrics.housekeeping_rows.labels(duty.value).inc(count)
            if count:
                done.append(f"{duty.value} {count}")
        if not self._leads():
            return Cycle.standby("; ".join(done) or "stands by: another daemon keeps house")
        return Cycle.worked("; ".join(done + failed)) if done or failed else Cycle.idle("nothing to keep")

    def _go_on(self) -> list[str]:
        """
        Queue the follow-ups of parts whose workers are gone. A failing search for them keeps no duty from being done.
        """
        try:
            self._follow_ups.find()
            self._told.pop("follow-ups", None)
        except CompactorError as error:
            (_log.debug if self._is_told("follow-ups", error) else _log.warning)(
                "follow_ups.not_read", error=str(error)
            )
        return self._follow_ups.go_on()

    def _refuse_rebalances(self) -> int:
        """
        Refuse each waiting rebalance of an insert-only table; returns their number. A failure keeps no duty from being
        done.

        Rebalances are left to Hive's workers, which may be off, and then the entry would wait for ever. Of an
        insert-only table Hive's workers fail it (CompactorFactory of 4.0 to 4.2), so nothing is lost by refusing it.
        """
        services, refused = self._services, 0
        try:
            waiting = [
                entry
                for entry in services.queue.waiting(CompactionKind.REBALANCE)
                if services.control.includes(entry.entity.database, entry.entity.table)
            ]
            tables = services.catalog.tables_for(entry.entity for entry in waiting) if waiting else {}
            for entry in waiting:
                table = tables.get(entry.entity.whole_table())
                if table is None or not table.insert_only:
                    continue
                if (skip := why_not(table, entry.kind, services.layout)) is not None:
                    with contextlib.suppress(OwnershipLostError):  # one of Hive's workers has claimed it by now
                        services.queue.mark_refused(entry, f"{skip.reason.value}: {skip.explanation}")
                        refused += 1
            self._told.pop("rebalances", None)
        except CompactorError as error:
            (_log.debug if self._is_told("rebalances", error) else _log.warning)(
                "rebalances.not_read", error=str(error)
            )
        return refused

    def _forget_work(self) -> int:
        """
        Forget the work on entries that have left queue and history; returns their number. A failure keeps no duty from
        being done.
        """
        try:
            gone = self._services.work.forget_gone()
        except CompactorError as error:
            (_log.debug if self._is_told("work", error) else _log.warning)("work_records.not_purged", error=str(error))
            return 0
        self._told.pop("work", None)
        return gone

    def _is_told(self, what: str, error: CompactorError) -> bool:
        """Whether this failed in the same way the last time, and the log has told so; notes it."""
        before, self._told[what] = self._told.get(what), str(error)
        return before == str(error)

    def _leads(self) -> bool:
        """
        Whether this daemon leads. Claims of this machine's dead workers are given back in any case; the rest only by
        the leader.
        """
        return self._services.coordinator.lead(Role.HOUSEKEEPER) is not None

    def _do(self, duty: Duty) -> int:
        settings = self._services.settings
        return self._services.housekeeping.run(
            duty,
            timeout_ms=round(settings.txn.timeout_seconds * 1000),
            retention=retention_from(settings.housekeeper.history),
            late_ms=settings.cleaner.late_ms,
        )

    def _duties(self) -> list[Duty]:
        match self._services.settings.housekeeper.enabled:
            case "never":
                return []
            case "always":
                return list(Duty)
            case _:
                self._find_out()
                now = time.monotonic()
                return [duty for duty in Duty if self._ours_until.get(duty, 0.0) > now]

    def _find_out(self) -> None:
        now = time.monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        for duty, finding in self._services.housekeeping.who_does_it().items():
            if not finding.ours:
                continue
            if self._ours_until.get(duty, 0.0) <= now:
                _log.info("duty.taken_over", duty=duty.value, why=finding.sentence)
            self._ours_until[duty] = now + _OURS_SECONDS


def retention_from(history: History) -> Retention:
    """How much history stays, as the settings say."""
    return Retention(
        succeeded=history.succeeded,
        failed=history.failed,
        did_not_initiate=history.did_not_initiate,
        refused=history.refused,
        timeout_ms=round(history.timeout_days * DAY_MS),
    )
