"""
Applies pauses, drains and budgets in the roles: sets metrics, cancels compactions, wakes workers that may go on.

Decides nothing; `compactor.control` does.
Source: docs/control.md.
"""

from collections.abc import Callable, Iterable

from compactor.control import Denial, Judge, Subject
from compactor.control.judge import shortened
from compactor.control.spending import used
from compactor.control.waits import Workers
from compactor.coordination import SeenMember
from compactor.coordination.model import HELD, POOLS
from compactor.errors import CompactorError
from compactor.metastore.model import QueueEntry, TableFacts
from compactor.roles.cycle import Cycle
from compactor.roles.services import Services
from compactor.roles.worker.cancellation import DrainedError

POOL_KEY = "hive.compactor.worker.pool"


class HeldError(DrainedError):
    """A claimed entry may not begin, or not go on: it goes back into the queue."""

    def __init__(self, denial: Denial) -> None:
        super().__init__(f"{denial.reason.value}: {denial.sentence}")


def subject_of(entry: QueueEntry) -> Subject:
    """What the control is asked about an entry."""
    return Subject(entry.entity.database, entry.entity.table, entry.pool)


def workers_of(alive: Iterable[SeenMember]) -> tuple[Workers, ...]:
    """The workers of these daemons, by the host."""
    return tuple(
        Workers(seen.member.host, _pools(seen), str(seen.member.extra.get(HELD, "")))
        for seen in alive
        if "worker" in seen.member.roles
    )


def _pools(seen: SeenMember) -> frozenset[str] | None:
    pools = seen.member.extra.get(POOLS)
    return frozenset(map(str, pools)) if isinstance(pools, list) else None


def pool_of(table: TableFacts) -> str | None:
    """The pool a table's compactions go to: the table's property, else its database's."""
    return table.parameters.get(POOL_KEY) or table.database_parameters.get(POOL_KEY) or None


def require_still(services: Services, entry: QueueEntry) -> None:
    """
    Check for the last time, between the claim and the work, that the entry wasn't paused meanwhile.

    Raises:
        HeldError: the entry may not begin.
    """
    if (denial := services.control.last_look(subject_of(entry))) is not None:
        raise HeldError(denial)


class Pauses:
    """
    A thread of the daemon that applies the control state: when it is told of a change, and now and then.

    Args:
        holds: the `Worker.hold` of each worker of this process: stops what it runs if that was paused and is to stop.
        changed: called when the pauses or the drain changed, or whether they are known.
    """

    def __init__(
        self, services: Services, holds: Iterable[Callable[[Judge], None]], changed: Callable[[], None]
    ) -> None:
        self._services = services
        self._holds = tuple(holds)
        self._changed = changed
        self._before: object = None

    def run_once(self) -> Cycle:
        """Apply the control state. Never fails: when it can't be read, the sentence says so, and nothing begins."""
        try:
            judge = self._services.control.judge(fresh=True)
        except CompactorError as error:
            self._services.metrics.control_known.set(0)
            return Cycle.worked(f"what is paused can't be told: {error}")
        self._show(judge)
        for hold in self._holds:
            hold(judge)
        now = (judge.pauses, judge.drained(), judge.uncertain() is None)
        if now != self._before:
            self._before = now
            self._changed()
        return Cycle.worked(self._sentence(judge))

    def _show(self, judge: Judge) -> None:
        metrics = self._services.metrics
        metrics.show(metrics.paused, {(str(pause.scope),): 1 for pause in judge.pauses})
        metrics.show(
            metrics.paused_since,
            {(str(pause.scope),): pause.since_ms / 1000 for pause in judge.pauses if pause.until_ms is None},
        )
        metrics.drained.set(judge.drained() is not None)
        metrics.drained_since.set(0 if judge.drain is None else judge.drain.since_ms / 1000)
        metrics.control_known.set(judge.uncertain() is None)
        metrics.show(
            metrics.budget_used_bytes, {(budget.name,): used(record, judge.now_ms) for budget, record in judge.spent()}
        )

    @staticmethod
    def _sentence(judge: Judge) -> str:
        if (unknown := judge.uncertain()) is not None:
            return f"nothing is claimed: {unknown.sentence}"
        said = [f"control.only names {shortened(judge.only.tables)}"] if judge.only.tables else []
        said += [denial.sentence for denial in (judge.drained(), *map(judge.told, judge.pauses)) if denial is not None]
        return "; ".join(said) or "nothing is paused"
