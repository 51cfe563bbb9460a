"""
Sets the metrics of the metastore: whether it answers, how many queue entries are in each state and how old the oldest
is, how old the oldest open transaction is, what aborted writes left.

Each run also brings what this process knows of transaction ids up to date (`HandedOut`).

Every daemon does this, whichever leads: a metric that only the leader set would stay in a daemon that leads no more.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from compactor.acid.compaction import SUPPORTED, CompactionKind
from compactor.control.judge import ON_PURPOSE, Judge
from compactor.errors import CompactorError
from compactor.log import get_logger
from compactor.metastore.model import KINDS, ForeignEntry, QueueEntry, QueueState
from compactor.metrics import MANY_ABORTS
from compactor.reasons import Reason
from compactor.roles.cycle import Cycle
from compactor.roles.pauses import subject_of
from compactor.roles.services import Services
from compactor.status.daemons import Daemons

_log = get_logger(__name__)
_NOT_WAITED_FOR = ON_PURPOSE | {Reason.UNSUPPORTED_KIND}
_SHOWN = (QueueState.INITIATED, QueueState.WORKING, QueueState.READY_FOR_CLEANING)


class QueueMetrics:
    """Reads the metastore and sets the metrics; changes nothing."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._held_ms: dict[int, int] = {}
        self._seen_ms: dict[tuple[int, QueueState], int] = {}
        self._told: set[str] = set()

    def run_once(self) -> Cycle:
        """
        Set the metrics.

        Raises:
            CompactorError: the metastore can't be asked.
        """
        services, metrics = self._services, self._services.metrics
        metrics.show(
            metrics.waiting_for_store,
            {(store,): count for store, count in services.backoff.waiting_for_stores().items()},
        )
        try:
            entries, now = services.queue.entries(), services.now_ms()
            aborts = services.aborts.totals(MANY_ABORTS, services.settings.cleaner.late_ms)
            foreign = services.queue.foreign()
            daemons = Daemons()
            if any(entry.state is not QueueState.WORKING for entry in entries):
                daemons = Daemons.read(services.coordinator, services.control.judge(), services.queue)
            held = {number: wait.reason for number, wait in daemons.waits(entries).items()}
            self._remember(entries, held, now)
            overdue = self._overdue(entries, daemons.judge, now)
            services.transactions.keep_up()
            open_ages = [one.age_ms for one in services.transactions.open_transactions() if not one.replication]
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
            for kind in SUPPORTED:
                depth.setdefault((state, kind), 0)
            found = [entry for entry in entries if entry.state is state and held.get(entry.id) not in _NOT_WAITED_FOR]
            metrics.queue_oldest_age.labels(_label(state)).set(
                max([0, *(now - self._since(entry) for entry in found)]) / 1000
            )
            if state is QueueState.INITIATED:
                metrics.claimable.set(len(found))
        metrics.cleaning_overdue.set(max([0, *overdue]) / 1000)
        metrics.show(
            metrics.queue_entries, {(_label(state), kind.value): count for (state, kind), count in depth.items()}
        )
        metrics.show(metrics.held_entries, {(reason,): count for reason, count in Counter(held.values()).items()})
        metrics.show(
            metrics.foreign_entries,
            {(kind,): count for kind, count in Counter(_type(entry) for entry in foreign).items()},
        )
        self._tell(foreign)
        counts = Counter(entry.state for entry in entries)
        return Cycle.worked(", ".join(f"{counts[state]} {state.value}" for state in _SHOWN))

    def _tell(self, foreign: Iterable[ForeignEntry]) -> None:
        """Log each unknown type or state once, for as long as this process lives."""
        for entry in foreign:
            if (kind := _type(entry)) not in self._told:
                self._told.add(kind)
                _log.warning("entry.left_to_hive", type=entry.type, state=entry.state, id=entry.id)

    def _remember(self, entries: Iterable[QueueEntry], held: Mapping[int, str], now: int) -> None:
        """
        Remember until when each entry was held on purpose, and since when this process has seen it in its state: Hive
        3.1 doesn't store all of these times.
        """
        self._held_ms = {
            entry.id: now if held.get(entry.id) in _NOT_WAITED_FOR else self._held_ms.get(entry.id, 0)
            for entry in entries
        }
        self._seen_ms = {(entry.id, entry.state): self._seen_ms.get((entry.id, entry.state), now) for entry in entries}

    def _since(self, entry: QueueEntry) -> int:
        """
        Since when the entry is in its state. An entry that waited for a window has waited for a worker only since it
        opened.
        """
        match entry.state:
            case QueueState.INITIATED:
                since, held = entry.enqueue_ms, self._held_ms[entry.id]
            case QueueState.WORKING:
                since, held = entry.start_ms, 0
            case _:
                since, held = entry.commit_ms, 0
        return max(held, self._seen_ms[entry.id, entry.state] if since is None else since)

    def _overdue(self, entries: Iterable[QueueEntry], judge: Judge, now: int) -> list[int]:
        """
        For how long each compaction could have been cleaned, in ms. Entries whose cleaning is paused on purpose are
        left out, and so is what Hive notes of aborted writes.
        """
        retention, _ = self._services.settings.cleaner.waits_ms
        return [
            now - self._since(entry) - retention
            for entry in entries
            if entry.state is QueueState.READY_FOR_CLEANING
            and entry.kind is not CompactionKind.ABORT_CLEANUP
            and ((denial := judge.cleaning(subject_of(entry))) is None or denial.reason not in ON_PURPOSE)
        ]


def _type(entry: ForeignEntry) -> str:
    """The letter of the entry's type; if the type is known, its unknown state as well."""
    return entry.type if entry.type not in KINDS else f"{entry.type}, state {entry.state}"


def _label(state: QueueState) -> str:
    return state.value.replace(" ", "-")
