"""`compactor enqueue`: requests one compaction, and waits for it with --wait."""

import time
from collections.abc import Sequence

import click

from compactor.acid.compaction import CompactionKind
from compactor.cli import completing, control_records, units
from compactor.cli.commands.queueing.cancel import COLUMNS
from compactor.cli.commands.queueing.queue import HISTORY_COLUMNS, work_on
from compactor.cli.naming.lookup import find
from compactor.cli.naming.many import Condition, chosen, condition, is_many
from compactor.cli.naming.pools import known_pools, unknown_pool
from compactor.cli.naming.target import parse_target
from compactor.cli.options import POLL_SECONDS, request_options, wait_options
from compactor.cli.output import OutputColumn, Record, View
from compactor.cli.session import Code, Command, Session, pass_session
from compactor.control import Subject
from compactor.control.waits import Wait
from compactor.errors import CompactorError, UsageError
from compactor.metastore.catalog import Catalog
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.compaction_queue.requests import NOT_ASKED_FOR, POOL_CHARACTERS, Request
from compactor.metastore.db.database import Database
from compactor.metastore.model import Enqueued, Entity, QueueEntry, QueueState
from compactor.planning.picker import Skip
from compactor.reasons import Reason
from compactor.roles.eligibility import require_eligible
from compactor.roles.pauses import pool_of
from compactor.status.daemons import Daemons
from compactor.status.judging import Found, why_ineligible
from compactor.status.records import achieved, history_record
from compactor.status.survey import Survey
from compactor.status.survey import worst as most_in_need
from compactor.words import plural

OUTCOMES = {QueueState.READY_FOR_CLEANING: Code.DONE, QueueState.SUCCEEDED: Code.DONE, QueueState.REFUSED: Code.REFUSED}
MANY_COLUMNS = (
    *COLUMNS[:-1],
    OutputColumn("refused", "REFUSED"),
    OutputColumn("waits", "WAITS FOR"),
    OutputColumn("waits_because", "WAITS BECAUSE", people=False),
    COLUMNS[-1],
)


def _named(_: click.Context, __: click.Parameter, pool: str | None) -> str | None:
    if pool is not None and not pool.strip():
        raise click.BadParameter(f"{pool!r} is no name")
    if pool is not None and len(pool) > POOL_CHARACTERS:
        raise click.BadParameter(f"a pool's name has at most {POOL_CHARACTERS} characters, this one {len(pool)}")
    return pool


@click.command(cls=Command)
@request_options
@click.option(
    "--pool",
    callback=_named,
    shell_complete=completing.named_pools,
    help="The pool whose workers take it; else the table's or database's own.",
)
@wait_options("Wait until it has ended or is ready for cleaning; the exit code tells the outcome.")
@click.option(
    "--where", metavar="CONDITION", help="Of many: only partitions of which it is true: \"dt < '2024-01-01'\"."
)
@click.option(
    "--worst", type=click.IntRange(min=1), metavar="N", help="Of many: the N most in need, each as it is due."
)
@click.option("--yes", is_flag=True, help="Queue many; without it they are only shown.")
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
    where: str | None,
    worst: int | None,
    yes: bool,
) -> int:
    """
    Ask for one table or partition to be compacted, as ALTER TABLE … COMPACT does; or for many.

    A partitioned table needs a partition: sales.orders/dt=2024-01-01, or --partition dt=2024-01-01. Many are named by
    a database or a pattern ('sales.*', 'sales.orders/dt=2024-*'), with --where, or with --worst: they are shown, and
    queued with --yes.
    """
    if is_many(target) or where is not None or worst is not None:
        if wait or partition is not None:
            raise UsageError(f"--{'wait' if wait else 'partition'} is for a single compaction")
        tests = None if where is None else condition(where)
        return _many(
            session, target, tests, worst, kind=CompactionKind(kind), properties=properties, pool=pool, yes=yes
        )
    if yes:
        raise UsageError("--yes is for many: a pattern, --where or --worst")
    wanted = parse_target(target, partition)
    database = session.database(write=True)
    found = find(Catalog(database), wanted)
    require_eligible(session.places, found.place, database.schema.generation.layout, CompactionKind(kind))
    daemons = control_records.daemons(session)
    warnings = [
        warning for warning in (found.kept, _dropped(properties), _odd(session, daemons, pool)) if warning is not None
    ]
    for warning in warnings:
        session.output.say(f"warning: {warning}")
    asked = Queue(database).enqueue(
        found.entity,
        CompactionKind(kind),
        properties=properties,
        pool=pool or pool_of(found.table),
        initiator_id=f"{session.settings.host_name}-manual",
    )
    return show_asked(session, found, CompactionKind(kind), asked, daemons, warnings, wait=wait, timeout=timeout)


def show_asked(  # noqa: PLR0917 - what is known of it
    session: Session,
    found: Found,
    kind: CompactionKind,
    asked: Enqueued,
    daemons: Daemons,
    warnings: Sequence[str],
    *,
    wait: bool,
    timeout: float | None,
) -> int:
    """
    Show the queue's answer to one request and what its entry waits for, or with `wait` what came of it; returns the exit
    code.

    Raises:
        CompactorError: it hasn't ended after `timeout` seconds, or is gone.
    """
    entry = Queue(session.database()).entry(asked.id)
    waits = None if entry is None else say_wait(session, daemons, entry)
    session.close()  # frees an embedded database for the daemon during the wait
    if wait:
        return _show_end(session, found, asked, timeout, warnings)
    record = {
        **_asked_record(found.entity, (kind if entry is None else entry.kind).value, asked),
        "waits": waits.reason if waits else None,
        "waits_because": waits.sentence if waits else None,
        "warnings": list(warnings),
    }
    session.output.show(View(COLUMNS, [record], document=record))
    return Code.DONE if asked.accepted else Code.NOTHING_TO_DO


def say_wait(session: Session, daemons: Daemons, entry: QueueEntry) -> Wait | None:
    """Print why an entry isn't claimed now, if it waits, and return it."""
    waits = daemons.wait(entry)
    if waits is not None and waits.reason != Reason.CONTROL_UNKNOWN.value:  # printed with its cause
        session.output.say(f"it waits ({waits.reason}): {waits.sentence}")
    return waits


def _asked_record(entity: Entity, kind: str, asked: Enqueued) -> dict[str, object]:
    """The queue's answer to one request, as a record."""
    return {
        "id": asked.id,
        "entity": str(entity),
        "kind": kind,
        "state": asked.state.value,
        "accepted": asked.accepted,
        "message": asked.message,
    }


def _many(
    session: Session,
    target: str,
    where: Condition | None,
    worst: int | None,
    *,
    kind: CompactionKind,
    properties: dict[str, str],
    pool: str | None,
    yes: bool,
) -> int:
    """
    Show what is asked for, and queue it with `yes`; what would be refused is shown with its reason.

    Args:
        kind: of the compactions; those that are due (`worst`) have their own.
    """
    database = session.database(write=yes)
    among = chosen(session, target, where)
    picks = [(found, kind, "") for found in among]
    if worst is not None:
        due = most_in_need(Survey(session.database(), session.settings, session.places, among).judged(), worst)
        picks = [(one.found, pick.kind, pick.explanation) for one, pick in due]
    if (dropped := _dropped(properties)) is not None:
        session.output.say(f"warning: {dropped}")
    skips = why_ineligible(session.places, [found for found, _, _ in picks], database.schema.generation.layout)
    initiator_id = f"{session.settings.host_name}-manual"
    requests = [
        Request(found.entity, its_kind, pool or pool_of(found.table), properties, initiator_id=initiator_id)
        for (found, its_kind, _), skip in zip(picks, skips, strict=True)
        if skip is None
    ]
    daemons = control_records.daemons(session) if requests else Daemons()
    if (odd := _odd(session, daemons, pool)) is not None:
        session.output.say(f"warning: {odd}")
    queue = Queue(database)
    answers = (
        dict(zip((one.entity for one in requests), queue.enqueue_all(requests), strict=True))
        if yes
        else queue.preview(requests)
    )
    there = {entry.id: entry for entry in queue.entries()} if answers else {}
    waits = {one.entity: daemons.surroundings.wait(_subject(one, database), one.kind) for one in requests}
    records: list[Record] = []
    for (found, its_kind, because), skip in zip(picks, skips, strict=True):
        answer = answers.get(found.entity)
        entry = there.get(answer.id) if answer is not None else None
        wait = waits.get(found.entity) if entry is None else daemons.wait(entry)
        records.append(_record(found.entity, its_kind if entry is None else entry.kind, because, skip, answer, wait))
    accepted = sum(answer.accepted for answer in answers.values())
    count = plural(len(requests), "compaction")
    new = len(requests) - len(answers)
    would = f"nothing is queued yet: --yes queues {plural(new, 'compaction')}"
    footer = f"{accepted:,} of {count} queued" if yes else would
    empty = f"none of {plural(len(among), 'directory', 'directories')} is due"
    session.output.show(View(MANY_COLUMNS, records, empty=empty, footer=footer if records else ""))
    return Code.DONE if accepted or (new and not yes) else Code.NOTHING_TO_DO


def _record(  # noqa: PLR0917 - what is known of it
    entity: Entity, kind: CompactionKind, because: str, skip: Skip | None, answer: Enqueued | None, wait: Wait | None
) -> Record:
    """One of many: what is asked for, and what of that is known: that it is refused, the queue's answer, its wait."""
    record: dict[str, object] = {
        "id": None,
        "entity": str(entity),
        "kind": kind.value,
        "state": None,
        "accepted": None,
        "refused": None,
        "waits": None,
        "waits_because": None,
        "message": because or None,
    }
    if skip is not None:
        record |= {"refused": skip.reason.value, "message": skip.explanation or None}
    if answer is not None:
        record |= _asked_record(entity, kind.value, answer) | {"message": answer.message or None}
    if wait is not None:
        record |= {"waits": wait.reason, "waits_because": wait.sentence}
    return record


def _odd(session: Session, daemons: Daemons, pool: str | None) -> str | None:
    """What is odd about the pool that is asked for; None: nothing."""
    if pool is None:
        return None
    database = session.database()
    if not database.schema.generation.has_pools:
        return "Hive 3.1 knows no pools: --pool is dropped"
    unknown = unknown_pool(pool, known_pools(session.settings, Catalog(database), daemons))
    return None if unknown is None else f"--pool: {unknown}"


def _subject(request: Request, database: Database) -> Subject:
    """A request as the control sees it, once it is queued; Hive 3.1 knows no pools."""
    pool = request.pool if database.schema.generation.has_pools else None
    return Subject(request.entity.database, request.entity.table, pool)


def _dropped(properties: dict[str, str]) -> str | None:
    """A sentence about the given properties that don't get into the queue; None when all do."""
    dropped = sorted(NOT_ASKED_FOR & properties.keys())
    return f"dropped {', '.join(dropped)}: such properties are set by Hive or the daemon only" if dropped else None


def _show_end(session: Session, found: Found, asked: Enqueued, timeout: float | None, warnings: Sequence[str]) -> int:
    """Wait until a compaction has ended or is ready for cleaning, and show what came of it; returns the exit code."""
    if not asked.accepted:
        session.output.say(asked.message)
    entry = _wait(session, found, asked, timeout)
    work = work_on(session, [entry]).get(entry.id)
    ended = {**history_record(entry), **achieved(entry, work), "warnings": list(warnings)}
    session.output.show(View(HISTORY_COLUMNS, [ended], document=ended))
    return OUTCOMES.get(entry.state, Code.FAILED)


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
                    waits = control_records.daemons(session).wait(entry)
                    hint = f"{waits.sentence} ({waits.remedy}); " if waits else ""
                raise CompactorError(
                    f"{found.entity} is still {entry.state.value} after {units.seconds(waited)}; {hint}entry {asked.id} stays queued"
                )
            tell(f"{found.entity}: {entry.state.value}" + (f" by {entry.worker_id}" if entry.worker_id else ""))
            time.sleep(POLL_SECONDS)
