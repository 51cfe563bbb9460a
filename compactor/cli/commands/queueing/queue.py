"""
`compactor queue` shows COMPACTION_QUEUE and `compactor history` shows COMPLETED_COMPACTIONS, in somewhat more detail
than Hive's SHOW COMPACTIONS.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import click

from compactor.cli import control_records, units
from compactor.cli.naming.filters import Wanted, entry_options, watch_option, watched
from compactor.cli.output import OutputColumn, Record, View
from compactor.cli.session import Command, Session, pass_session
from compactor.cli.views.achieved import ACHIEVED_COLUMNS, PROGRESS_COLUMNS
from compactor.errors import CompactorError
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.compaction_queue.urgency import is_timed, rank_of
from compactor.metastore.compaction_queue.work import StoredWork, WorkTable
from compactor.metastore.model import ForeignEntry, HistoryEntry, QueueEntry, QueueState
from compactor.status.daemons import Daemons
from compactor.status.records import (
    achieved,
    entered_ms,
    foreign_record,
    history_record,
    progress,
    queue_record,
    tracked,
)

WAITING = (QueueState.INITIATED, QueueState.WORKING, QueueState.READY_FOR_CLEANING)
QUEUE_STATES = [state.value.replace(" ", "-") for state in WAITING]
_ENDED = [state for state in QueueState if state not in WAITING]
HISTORY_STATES = [state.value.replace(" ", "-") for state in _ENDED]


def _by_age(entry: QueueEntry | ForeignEntry) -> tuple[int, int]:
    moment = entered_ms(entry)
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


def _state_option(states: Sequence[str]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        "--state",
        "states",
        multiple=True,
        type=click.Choice(states),
        help="Only entries in this state; may be repeated.",
    )


@click.command(cls=Command)
@entry_options
@_state_option(QUEUE_STATES)
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
    session: Session, /, *, states: tuple[str, ...], sort: str, limit: int | None, watch: float | None, **chosen: Any
) -> None:
    """
    Show what is waiting, being worked on, or ready for cleaning; oldest first.

    The target may be a database, or a pattern such as 'sales.*' or 'sales.orders/dt=2024-*'.
    """
    watched(session, watch, lambda: _queue_view(session, _states(states), sort, limit, chosen))


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
    wanted.tell_unknown(session, there)
    entries = wanted.among(there)
    first = sorted(entries, key=_order(sort, timed=is_timed(database.schema.compaction_queue)))[:limit]
    known = [entry for entry in first if isinstance(entry, QueueEntry)]
    tried = any(entry.state is not QueueState.READY_FOR_CLEANING for entry in known)
    daemons = control_records.daemons(session) if tried else Daemons()
    work = work_on(session, [one for one in known if one.state is QueueState.WORKING])
    unknown = dict.fromkeys(column.key for column in QUEUE_COLUMNS)
    records: list[Record] = [
        {**unknown, **foreign_record(entry, now)}
        if isinstance(entry, ForeignEntry)
        else {
            **queue_record(entry, now, daemons),
            **progress(entry, work.get(entry.id), now),
            **tracked(entry, session.settings),
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
@_state_option(HISTORY_STATES)
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
    watched(session, watch, lambda: _history_view(session, wanted_states, sort, limit, chosen))


def _history_view(session: Session, states: list[QueueState], sort: str, limit: int, chosen: Mapping[str, Any]) -> View:
    wanted = Wanted.of(session, **chosen)
    everything = all(value is None for value in chosen.values())
    # The newest of all: no other entry need be read.
    most = limit if everything and sort == "id" else None
    entries = Queue(session.database()).history(*states, limit=most)
    wanted.tell_unknown(session, entries)
    shown = sorted(wanted.among(entries), key=_HISTORY_ORDERS[sort])[:limit]
    work = work_on(session, shown)
    records = [
        {**history_record(entry), **achieved(entry, work.get(entry.id)), **tracked(entry, session.settings)}
        for entry in shown
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


def _states(words: tuple[str, ...]) -> list[QueueState]:
    return [QueueState(word.replace("-", " ")) for word in words]
