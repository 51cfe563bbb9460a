"""
`compactor queue` shows COMPACTION_QUEUE and `compactor history` shows COMPLETED_COMPACTIONS, in somewhat more detail
than Hive's SHOW COMPACTIONS.
"""

from itertools import islice

import click

from compactor.cli import control_records, units
from compactor.cli.lookup import find_partition, find_table
from compactor.cli.output import OutputColumn, Record, View
from compactor.cli.session import Command, Session, pass_session
from compactor.cli.target import parse_target, partition_names
from compactor.control import Denial
from compactor.metastore.catalog import Catalog
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.model import KINDS, Entity, ForeignEntry, HistoryEntry, QueueEntry, QueueState
from compactor.reasons import Reason
from compactor.roles.worker.failures import StoredFailure
from compactor.spark.application.tracking import is_application, tracking_url

WAITING = (QueueState.INITIATED, QueueState.WORKING, QueueState.READY_FOR_CLEANING)
QUEUE_STATES = [state.value.replace(" ", "-") for state in WAITING]
HISTORY_STATES = [state.value.replace(" ", "-") for state in QueueState if state not in WAITING]

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
    OutputColumn("pool", "POOL"),
    OutputColumn("waits", "WAITS FOR", people=False),
    OutputColumn("waits_because", "WAITS BECAUSE"),
    OutputColumn("broke_down", "BROKE DOWN", programs=False),
    OutputColumn("failures", "FAILURES", people=False),
    OutputColumn("last_failure", "LAST FAILURE", people=False),
    OutputColumn("worker", "WORKER"),
    OutputColumn("highest_write_id", "WRITE ID", right=True),
    OutputColumn("application", "APPLICATION", programs=False),
    OutputColumn("job", "JOB", people=False),
    OutputColumn("tracking_url", "TRACKING URL", people=False),
    OutputColumn("message", "MESSAGE"),
)
HISTORY_COLUMNS = (
    *ENTITY_COLUMNS,
    OutputColumn("kind", "KIND"),
    OutputColumn("state", "STATE"),
    OutputColumn("ended", "ENDED", show=units.clock),
    OutputColumn("duration_ms", "TOOK", right=True, show=units.milliseconds),
    OutputColumn("highest_write_id", "WRITE ID", right=True),
    OutputColumn("application", "APPLICATION", programs=False),
    OutputColumn("job", "JOB", people=False),
    OutputColumn("tracking_url", "TRACKING URL", people=False),
    OutputColumn("message", "MESSAGE"),
)


@click.command(cls=Command)
@click.argument("target", required=False, metavar="[DB.TABLE[/PARTITION]]")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(QUEUE_STATES),
    help="Only entries in this state; may be repeated.",
)
@pass_session
def queue(session: Session, target: str | None, states: tuple[str, ...]) -> None:
    """Show what is waiting, being worked on, or ready for cleaning; oldest first."""
    wanted = wanted_entity(session, target)
    database = session.database()
    wanted_states = _states(states)
    entries = [entry for entry in Queue(database).entries(*wanted_states) if _fits(entry, wanted)]
    foreign = [
        entry
        for entry in Queue(database).foreign()
        if _fits(entry, wanted) and (not states or QueueState.from_code(entry.state) in wanted_states)
    ]
    now = database.read(database.now_ms)
    denied = control_records.waiting(session, entries)
    told = control_records.stored_failures(session, entries, denied.values())
    records: list[Record] = [
        {**queue_record(entry, now, denied.get(entry.id), told.get(entry.id)), **_tracked(session, entry)}
        for entry in entries
    ]
    records = sorted(
        [*records, *(_foreign_record(entry, now) for entry in foreign)], key=lambda record: int(str(record["id"]))
    )
    session.output.show(View(QUEUE_COLUMNS, records, empty="nothing is queued"))


@click.command(cls=Command)
@click.argument("target", required=False, metavar="[DB.TABLE[/PARTITION]]")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(HISTORY_STATES),
    help="Only entries in this state; may be repeated.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000_000),
    default=50,
    show_default=True,
    help="At most so many entries, newest first.",
)
@pass_session
def history(session: Session, target: str | None, states: tuple[str, ...], limit: int) -> None:
    """Show finished, failed and refused compactions; newest first."""
    wanted = wanted_entity(session, target)
    entries = Queue(session.database()).history(*_states(states), limit=limit if wanted is None else None)
    records = [
        {**history_record(entry), **_tracked(session, entry)}
        for entry in islice((entry for entry in entries if _fits(entry, wanted)), limit)
    ]
    session.output.show(View(HISTORY_COLUMNS, records, empty="no compaction has ended yet"))


def queue_record(
    entry: QueueEntry, now_ms: int, denial: Denial | None = None, told: StoredFailure | None = None
) -> Record:
    """
    An entry of the queue as an output record.

    Times are in ISO 8601. `since_ms` is for how long the entry has been in its state. `waits` is the code of the reason
    that keeps workers from claiming the entry, or from compacting after a claim. `failures` is how many claims of the
    entry ended in a failure.
    """
    told = told or StoredFailure()
    waits, because = (
        (denial.reason.value, denial.sentence)
        if denial
        else (told.reason, told.because)
        if entry.state is QueueState.INITIATED
        else ("", "")
    )
    since = {
        QueueState.INITIATED: entry.enqueue_ms,
        QueueState.WORKING: entry.start_ms,
        QueueState.READY_FOR_CLEANING: entry.commit_ms or entry.start_ms,
    }
    entered = since.get(entry.state)
    return {
        **_common(entry),
        "since_ms": None if entered is None else max(0, now_ms - entered),
        "waits": waits or None,
        "waits_because": because or None,
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


def wanted_entity(session: Session, target: str | None) -> Entity | None:
    """
    The table or partition to show entries of; None: all.

    A dropped table or partition is found as long as the queue or the history has a row of it.

    Raises:
        RefusedError: TABLE_MISSING, PARTITION_MISSING: it is neither in the catalog nor in queue or history; with near
            names.
    """
    if target is None:
        return None
    wanted = parse_target(target)
    catalog = Catalog(session.database())
    table = catalog.find_table(wanted.database, wanted.table)
    if table is None or wanted.partition is None:
        entity = Entity(wanted.database, wanted.table, wanted.partition)
        if table is None and not _has_rows(session, entity):
            find_table(catalog, wanted)
        return entity
    entities = [
        Entity(wanted.database, wanted.table, name)
        for name in partition_names(wanted.partition, [key.name for key in table.partition_keys])
    ]
    known = next(
        (entity for entity in entities if entity.partition and catalog.find_partition(table, entity.partition)), None
    )
    known = known or next((entity for entity in entities if _has_rows(session, entity)), None)
    return known or Entity(wanted.database, wanted.table, find_partition(catalog, table, wanted.partition).name)


def _has_rows(session: Session, entity: Entity) -> bool:
    queue = Queue(session.database())
    return any(_fits(entry, entity) for entry in (*queue.entries(), *queue.history()))


def _fits(entry: QueueEntry | ForeignEntry, wanted: Entity | None) -> bool:
    if wanted is None:
        return True
    return entry.entity == wanted or (wanted.partition is None and entry.entity.whole_table() == wanted)
