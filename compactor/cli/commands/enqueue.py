"""`compactor enqueue`: requests one compaction, and waits for it with --wait."""

import time

import click

from compactor.acid.compaction import CompactionKind
from compactor.cli import control_records, units
from compactor.cli.commands.queue import HISTORY_COLUMNS, history_record
from compactor.cli.lookup import Found, find
from compactor.cli.options import POLL_SECONDS, request_options, wait_options
from compactor.cli.output import OutputColumn, View
from compactor.cli.session import Code, Command, Session, pass_session
from compactor.cli.target import parse_target
from compactor.control import Denial
from compactor.errors import CompactorError
from compactor.metastore.catalog import Catalog
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.compaction_queue.requests import NOT_ASKED_FOR, POOL_CHARACTERS
from compactor.metastore.model import Enqueued, QueueEntry, QueueState
from compactor.reasons import Reason
from compactor.roles.eligibility import require_eligible
from compactor.roles.pauses import pool_of

OUTCOMES = {QueueState.READY_FOR_CLEANING: Code.DONE, QueueState.SUCCEEDED: Code.DONE, QueueState.REFUSED: Code.REFUSED}
COLUMNS = (
    OutputColumn("id", "ID", right=True),
    OutputColumn("entity", "COMPACTION OF"),
    OutputColumn("kind", "KIND"),
    OutputColumn("state", "STATE"),
    OutputColumn("message", "MESSAGE"),
)


def _named(_: click.Context, __: click.Parameter, pool: str | None) -> str | None:
    if pool is not None and not pool.strip():
        raise click.BadParameter(f"{pool!r} is no name")
    if pool is not None and len(pool) > POOL_CHARACTERS:
        raise click.BadParameter(f"a pool's name has at most {POOL_CHARACTERS} characters, this one {len(pool)}")
    return pool


@click.command(cls=Command)
@request_options
@click.option("--pool", callback=_named, help="The pool whose workers take it; else the table's or database's own.")
@wait_options("Wait until it has ended or is ready for cleaning; the exit code tells the outcome.")
@pass_session
def enqueue(
    session: Session,
    *,
    target: str,
    partition: str | None,
    kind: str,
    properties: dict[str, str],
    pool: str | None,
    wait: bool,
    timeout: float | None,
) -> int:
    """
    Ask for one table or partition to be compacted, as ALTER TABLE … COMPACT does.

    A partitioned table needs a partition: sales.orders/dt=2024-01-01, or --partition dt=2024-01-01.
    """
    wanted = parse_target(target, partition)
    database = session.database(write=True)
    found = find(Catalog(database), wanted)
    require_eligible(session.places, found.place, database.schema.version, CompactionKind(kind))
    warnings = [warning for warning in (found.kept, _dropped(properties)) if warning is not None]
    for warning in warnings:
        session.output.say(f"warning: {warning}")
    asked = Queue(database).enqueue(
        found.entity,
        CompactionKind(kind),
        properties=properties,
        pool=pool or pool_of(found.table),
        initiator_id=f"{session.settings.host_name}-manual",
    )
    denial = _waits(session, asked)
    standing = None if asked.accepted else Queue(database).entry(asked.id)
    session.close()  # frees an embedded database for the daemon during the wait
    if denial is not None and denial.reason is not Reason.CONTROL_UNKNOWN:  # `_waits` printed that one and its cause
        session.output.say(f"it waits ({denial.reason.value}): {denial.sentence}")
    if not wait:
        record: dict[str, object] = {
            "id": asked.id,
            "entity": str(found.entity),
            "kind": standing.kind.value if standing is not None and standing.kind is not None else kind,
            "state": asked.state.value,
            "accepted": asked.accepted,
            "message": asked.message,
        }
        record |= {
            "waits": denial.reason.value if denial else None,
            "waits_because": denial.sentence if denial else None,
        }
        record["warnings"] = warnings
        session.output.show(View(COLUMNS, [record], document=record))
        return Code.DONE if asked.accepted else Code.NOTHING_TO_DO
    if not asked.accepted:
        session.output.say(asked.message)
    entry = _wait(session, found, asked, timeout)
    ended = {**history_record(entry), "warnings": warnings}
    session.output.show(View(HISTORY_COLUMNS, [ended], document=ended))
    return OUTCOMES.get(entry.state, Code.FAILED)


def _dropped(properties: dict[str, str]) -> str | None:
    """A sentence about the given properties that don't get into the queue; None when all do."""
    dropped = sorted(NOT_ASKED_FOR & properties.keys())
    return f"dropped {', '.join(dropped)}: such properties are set by Hive or the daemon only" if dropped else None


def _waits(session: Session, asked: Enqueued) -> Denial | None:
    """Why no worker may claim the entry now; None when one may."""
    entry = Queue(session.database()).entry(asked.id) if asked.state is QueueState.INITIATED else None
    return None if entry is None else control_records.waiting(session, [entry]).get(entry.id)


def _wait(session: Session, found: Found, asked: Enqueued, timeout: float | None) -> QueueEntry:
    began = time.monotonic()
    with session.output.busy(f"{found.entity}: {asked.state.value}") as tell:
        while True:
            entry = Queue(session.database()).entry(asked.id)
            if entry is None:
                raise CompactorError(
                    f"entry {asked.id} of {found.entity} is gone from queue and history: was the table dropped?"
                )
            if entry.state not in (QueueState.INITIATED, QueueState.WORKING):
                return entry
            waited = time.monotonic() - began
            if timeout is not None and waited > timeout:
                hint = ""
                if entry.state is QueueState.INITIATED:
                    denial = _waits(session, asked)
                    hint = f"{denial.sentence}; " if denial else "is a daemon running (`compactor run`)? "
                raise CompactorError(
                    f"{found.entity} is still {entry.state.value} after {units.seconds(waited)}; {hint}entry {asked.id} stays queued"
                )
            tell(f"{found.entity}: {entry.state.value}" + (f" by {entry.worker_id}" if entry.worker_id else ""))
            time.sleep(POLL_SECONDS)
