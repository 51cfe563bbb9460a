"""
Looks at the metastore for the metrics: whether it answers, how many queue entries in each state and how old the oldest is, who is open, what aborted writes left.

Every daemon looks, whoever leads: what only a leader told would stay in the metrics of one that leads no more.
"""

from collections import Counter
from collections.abc import Iterable

from compactor.acid.compaction import CompactionKind
from compactor.control.judge import ON_PURPOSE
from compactor.errors import CompactorError
from compactor.metastore.model import QueueEntry, QueueState
from compactor.metrics import MANY_ABORTS
from compactor.reasons import Reason
from compactor.roles.holding import subject_of
from compactor.roles.services import Services

_SHOWN = (QueueState.INITIATED, QueueState.WORKING, QueueState.READY_FOR_CLEANING)


class Watch:
    """Changes nothing."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def run_once(self) -> str:
        """
        Raises:
            CompactorError: the metastore can't be asked.
        """
        metrics = self._services.metrics
        try:
            entries, now, aborts = self._services.queue.entries(), self._services.now_ms(), self._services.aborts.totals(MANY_ABORTS)
            held = self._held(entries)
            open_ages = [one.age_ms for one in self._services.transactions.open_transactions() if not one.replication]
        except CompactorError:
            metrics.database_up.set(0)
            raise
        metrics.database_up.set(1)
        metrics.open_writer_age.set(max(open_ages, default=0) / 1000)
        metrics.aborted_writes.set(aborts.count)
        metrics.aborted_writes_age.set(0 if aborts.oldest_ms is None else max(0, now - aborts.oldest_ms) / 1000)
        metrics.tables_with_many_aborts.set(aborts.crowded)
        depth = Counter((entry.state, entry.kind) for entry in entries)
        for state in _SHOWN:
            for kind in (CompactionKind.MAJOR, CompactionKind.MINOR):
                depth.setdefault((state, kind), 0)
            ages = [now - since for entry in entries if entry.state is state and held.get(entry.id) not in ON_PURPOSE and (since := _since(entry)) is not None]
            metrics.queue_oldest_age.labels(_label(state)).set(max([0, *ages]) / 1000)
        metrics.queue_entries.clear()
        for (state, kind), count in depth.items():
            metrics.queue_entries.labels(_label(state), kind.value).set(count)
        metrics.held_entries.clear()
        for reason, count in Counter(held.values()).items():
            metrics.held_entries.labels(reason.value).set(count)
        return ", ".join(f"{sum(count for (found, _), count in depth.items() if found is state)} {state.value}" for state in _SHOWN)

    def _held(self, entries: Iterable[QueueEntry]) -> dict[int, Reason]:
        """Why initiated entries wait, whoever asks: a drained host's entries are others' to claim."""
        judge = self._services.control.judge()
        if judge.free:
            return {}
        working = [subject_of(entry) for entry in entries if entry.state is QueueState.WORKING]
        waiting = [entry for entry in entries if entry.state is QueueState.INITIATED]
        return {entry.id: denial.reason for entry in waiting if (denial := judge.waits(subject_of(entry), working)) is not None}


def _since(entry: QueueEntry) -> int | None:
    match entry.state:
        case QueueState.INITIATED:
            return entry.enqueue_ms
        case QueueState.WORKING:
            return entry.start_ms
        case _:
            return entry.commit_ms


def _label(state: QueueState) -> str:
    return state.value.replace(" ", "-")
