"""
`compactor queue` shows COMPACTION_QUEUE and `compactor history` shows COMPLETED_COMPACTIONS, in somewhat more detail
than Hive's SHOW COMPACTIONS.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import click

from compactor.cli import control_records, units
from compactor.cli.naming.filters import Wanted, entry_options, moment_of, watch_option, watched
from compactor.cli.output import OutputColumn, Record, View
from compactor.cli.session import Command, Session, pass_session
from compactor.cli.views.achieved import ACHIEVED_COLUMNS, PROGRESS_COLUMNS, achieved, progress
from compactor.control.waits import Wait
from compactor.errors import CompactorError
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.compaction_queue.urgency import is_timed, rank_of, urgency_of
from compactor.metastore.compaction_queue.work import StoredWork, WorkTable
from compactor.metastore.model import KINDS, ForeignEntry, HistoryEntry, QueueEntry, QueueState
from compactor.reasons import Reason
from compactor.roles.worker.failures import StoredFailure
from compactor.spark.application.tracking import is_application, tracking_url

WAITING = (QueueState.INITIATED, QueueState.WORKING, QueueState.READY_FOR_CLEANING)
QUEUE_STATES = [state.value.replace(" ", "-") for state in WAITING]
_ENDED = [state for state in QueueState if state not in WAITING]
HISTORY_STATES = [state.value.replace(" ", "-") for state in _ENDED]


def _by_age(entry: QueueEntry | ForeignEntry) -> tuple[int, int]:
    match entry:
        case ForeignEntry():
            moment = entry.enqueue_ms
        case HistoryEntry():
            moment = entry.end_ms
        case _:
            moment = moment_of(entry)
    return (moment if moment is not None else 1 << 62, entry.id)


_ORDERS: Final[Mapping[str, Callable[[QueueEntry | ForeignEntry], tuple[Any, ...]]]] = {
    "id": lambda entry: (entry.id,),
    "age": _by_age,
    "table": lambda entry: (str(entry.entity), entry.id),
}
"""By `--sort`: the id; the time in the state, longest first; the name."""
_BY_URGENCY: Final = "urgency"
_HISTORY_ORDERS: Final[Mapping[str, Callable[[HistoryEntry], tuple[Any, ...]]]] = {
    "id": lambda entry: (-entry.id,),
    "age": _by_age,
    "table": lambda entry: (str(entry.entity), -entry.id),
}
"""By `--sort`: the id, newest first; the time since the end, longest first; the name, newest first."""


def _order(sort: str, *, timed: bool) -> Callable[[QueueEntry | ForeignEntry], tuple[Any, ...]]:
    """
    The key by which entries are sorted for `--sort`.

    By urgency, what waits comes first, in the order of claims.
    """

    def by_urgency(entry: QueueEntry | ForeignEntry) -> tuple[Any, ...]:
        if isinstance(entry, ForeignEntry) or entry.state is not QueueState.INITIATED:
            return (True, 0, entry.id)
        return (False, rank_of(entry, timed=timed), entry.id)

    return by_urgency if sort == _BY_URGENCY else _ORDERS[sort]


ENTITY_COLUMNS = (
    OutputColumn("id", "ID", right=True),
    OutputColumn("database", "DATABASE", people=False),
    OutputColumn("table", "TABLE", people=False),
    OutputColumn("partition", "PARTITION", people=False),
    OutputColumn("entity", "TABLE", programs=False),
)
QUEUE_COLUMNS = (
    *ENTITY_COLUMNS,
    OutputColumn("kind", "KIND"),
    OutputColumn("state", "STATE"),
    OutputColumn("since_ms", "FOR", right=True, show=units.milliseconds),
    *PROGRESS_COLUMNS,
    OutputColumn("pool", "POOL", less=2),
    OutputColumn("urgency", "URGENCY", right=True, less=6),
    OutputColumn("waits", "WAITS FOR", people=False),
    OutputColumn("waits_because", "WAITS BECAUSE", folds=24),
    OutputColumn("broke_down", "BROKE DOWN", programs=False, less=1, folds=24),
    OutputColumn("failures", "FAILURES", people=False),
    OutputColumn("last_failure", "LAST FAILURE", people=False),
    OutputColumn("worker", "WORKER", less=3),
    OutputColumn("highest_write_id", "WRITE ID", right=True, less=5),
    OutputColumn("application", "APPLICATION", programs=False, less=4),
    OutputColumn("job", "JOB", people=False),
    OutputColumn("tracking_url", "TRACKING URL", people=False),
    OutputColumn("message", "MESSAGE", folds=32),
)
HISTORY_COLUMNS = (
    *ENTITY_COLUMNS,
    OutputColumn("kind", "KIND"),
    OutputColumn("state", "STATE"),
    OutputColumn("ended", "ENDED", show=units.clock, less=1),
    OutputColumn("duration_ms", "TOOK", right=True, show=units.milliseconds, less=2),
    *ACHIEVED_COLUMNS,
    OutputColumn("highest_write_id", "WRITE ID", right=True, less=7),
    OutputColumn("application", "APPLICATION", programs=False, less=6),
    OutputColumn("job", "JOB", people=False),
    OutputColumn("tracking_url", "TRACKING URL", people=False),
    OutputColumn("message", "MESSAGE", folds=32),
)


@click.command(cls=Command)
@entry_options
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(QUEUE_STATES),
    help="Only entries in this state; may be repeated.",
)
@click.option(
    "--sort",
    type=click.Choice([*_ORDERS, _BY_URGENCY]),
    default="id",
    show_default=True,
    help="What comes first; urgency: what workers claim first.",
)
@click.option("--limit", type=click.IntRange(1, 1_000_000), help="At most so many entries.")
@watch_option
@pass_session
def queue(
    session: Session,
    /,
    *,
    states: tuple[str, ...],
    sort: str,
    limit: int | None,
    watch: float | None,
    **chosen: Any,
) -> None:
    """
    Show what is waiting, being worked on, or ready for cleaning; oldest first.

    The target may be a database, or a pattern such as 'sales.*' or 'sales.orders/dt=2024-*'.
    """
    watched(session, watch, lambda: session.output.show(_queue_view(session, _states(states), sort, limit, chosen)))


def _queue_view(
    session: Session, states: list[QueueState], sort: str, limit: int | None, chosen: Mapping[str, Any]
) -> View:
    wanted = Wanted.of(session, **chosen)
    database = session.database()
    now = database.read(database.now_ms)
    # The oldest of all: no other entry need be read.
    most = limit if sort == "id" and all(value is None for value in chosen.values()) else None
    there: list[QueueEntry | ForeignEntry] = [
        *Queue(database).entries(*states, limit=most),
        *(entry for entry in Queue(database).foreign() if not states or QueueState.from_code(entry.state) in states),
    ]
    entries = wanted.among(there)
    first = sorted(entries, key=_order(sort, timed=is_timed(database.schema.compaction_queue)))[:limit]
    known = [entry for entry in first if isinstance(entry, QueueEntry)]
    waits, told = control_records.waiting(session, known)
    work = work_on(session, [one for one in known if one.state is QueueState.WORKING])
    records: list[Record] = [
        _foreign_record(entry, now)
        if isinstance(entry, ForeignEntry)
        else {
            **queue_record(entry, now, waits.get(entry.id), told.get(entry.id)),
            **progress(entry, work.get(entry.id), now),
            **_tracked(session, entry),
        }
        for entry in first
    ]
    count = len(entries) if most is None or len(entries) < most else Queue(database).count(*states)
    more = f"{count - len(first):,} more; --limit shows them" if len(first) < count else ""
    return View(
        QUEUE_COLUMNS,
        records,
        empty="nothing that fits is queued" if there or states else "nothing is queued",
        footer=more,
    )


@click.command(cls=Command)
@entry_options
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(HISTORY_STATES),
    help="Only entries in this state; may be repeated.",
)
@click.option("--failed", is_flag=True, help="Only those that failed, were refused, aborted, or didn't initiate.")
@click.option(
    "--sort",
    type=click.Choice(list(_HISTORY_ORDERS)),
    default="id",
    show_default=True,
    help="What comes first; id: the newest; age: what ended longest ago.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=50,
    show_default=True,
    help="At most so many entries, those that come first.",
)
@watch_option
@pass_session
def history(
    session: Session,
    /,
    *,
    states: tuple[str, ...],
    failed: bool,
    sort: str,
    limit: int,
    watch: float | None,
    **chosen: Any,
) -> None:
    """
    Show finished, failed and refused compactions; newest first.

    The target may be a database, or a pattern such as 'sales.*' or 'sales.orders/dt=2024-*'.
    """
    wanted_states = [
        *_states(states),
        *([state for state in _ENDED if state is not QueueState.SUCCEEDED] if failed else []),
    ]
    watched(session, watch, lambda: session.output.show(_history_view(session, wanted_states, sort, limit, chosen)))


def _history_view(session: Session, states: list[QueueState], sort: str, limit: int, chosen: Mapping[str, Any]) -> View:
    wanted = Wanted.of(session, **chosen)
    everything = all(value is None for value in chosen.values())
    # The newest of all: no other entry need be read.
    most = limit if everything and sort == "id" else None
    entries = Queue(session.database()).history(*states, limit=most)
    shown = sorted(wanted.among(entries), key=_HISTORY_ORDERS[sort])[:limit]
    work = work_on(session, shown)
    records = [
        {**history_record(entry), **achieved(entry, work.get(entry.id)), **_tracked(session, entry)} for entry in shown
    ]
    empty = "no compaction has ended yet" if everything and not states else "no compaction that fits has ended"
    return View(HISTORY_COLUMNS, records, empty=empty)


def work_on(session: Session, entries: Sequence[QueueEntry]) -> Mapping[int, StoredWork]:
    """The work on these entries, by id; where it can't be read, one line says why and the rest is shown."""
    try:
        return WorkTable(session.database()).find([entry.id for entry in entries])
    except CompactorError as error:
        session.output.say(f"what compactions achieve can't be read: {error}")
        return {}


def queue_record(entry: QueueEntry, now_ms: int, wait: Wait | None = None, told: StoredFailure | None = None) -> Record:
    """
    An entry of the queue as an output record.

    Times are in ISO 8601. `since_ms` is for how long the entry has been in its state. `waits` is the code of the reason
    that keeps workers from claiming the entry, or from compacting after a claim. `failures` is how many claims of the
    entry ended in a failure. `urgency` is 0 to 4 (`compaction_queue.urgency`).
    """
    told = told or StoredFailure()
    entered = moment_of(entry)
    return {
        **_common(entry),
        "since_ms": None if entered is None else max(0, now_ms - entered),
        "urgency": urgency_of(entry),
        "waits": None if wait is None else wait.reason,
        "waits_because": None if wait is None else wait.sentence,
        "broke_down": told.sentence or None,
        "failures": told.times,
        "last_failure": told.latest or None,
        "worker": entry.worker_id,
        "cleaning_started": units.instant(entry.cleaner_start_ms),
    }


def _foreign_record(entry: ForeignEntry, now_ms: int) -> Record:
    """A row that a later Hive wrote, as an output record; an unknown `kind` or `state` shows the row's own letter."""
    kind, state = KINDS.get(entry.type), QueueState.from_code(entry.state)
    record: dict[str, object] = dict.fromkeys(column.key for column in QUEUE_COLUMNS)
    return record | {
        "id": entry.id,
        "entity": str(entry.entity),
        "database": entry.entity.database,
        "table": entry.entity.table,
        "partition": entry.entity.partition,
        "kind": kind.value if kind else f"unknown ({entry.type})",
        "state": state.value if state else f"unknown ({entry.state})",
        "since_ms": None if entry.enqueue_ms is None else max(0, now_ms - entry.enqueue_ms),
        "waits": Reason.UNSUPPORTED_KIND.value,
        "waits_because": "left to Hive: that type or state isn't known here",
        "worker": entry.worker_id,
    }


def history_record(entry: QueueEntry) -> Record:
    """
    An entry that has ended, or waits for cleaning, as an output record.

    `duration_ms` is the time from the claim to the end, or to the commit while the entry isn't cleaned.
    """
    end = entry.end_ms if isinstance(entry, HistoryEntry) else entry.commit_ms
    duration = None if entry.start_ms is None or end is None else max(0, end - entry.start_ms)
    ended = entry.end_ms if isinstance(entry, HistoryEntry) else None
    return {**_common(entry), "ended": units.instant(ended), "duration_ms": duration, "worker": entry.worker_id}


def _tracked(session: Session, entry: QueueEntry) -> Record:
    """The URL of the entry's Spark application; for people the application's id when no URL is known."""
    url = tracking_url(session.settings, entry.job_id)
    return {"tracking_url": url, "application": url or (entry.job_id if is_application(entry.job_id) else None)}


def _common(entry: QueueEntry) -> dict[str, object]:
    return {
        "id": entry.id,
        "entity": str(entry.entity),
        "database": entry.entity.database,
        "table": entry.entity.table,
        "partition": entry.entity.partition,
        "kind": entry.kind.value,
        "state": entry.state.value,
        "pool": entry.pool,
        "enqueued": units.instant(entry.enqueue_ms),
        "started": units.instant(entry.start_ms),
        "committed": units.instant(entry.commit_ms),
        "run_as": entry.run_as,
        "initiator": entry.initiator_id,
        "highest_write_id": entry.highest_write_id,
        "txn_id": entry.txn_id,
        "next_txn_id": entry.next_txn_id,
        "job": entry.job_id,
        "properties": dict(entry.properties),
        "message": entry.error_message,
    }


def _states(words: tuple[str, ...]) -> list[QueueState]:
    return [QueueState(word.replace("-", " ")) for word in words]
