"""
`compactor pause` keeps compactions from beginning, `compactor resume` lets them begin again, and `compactor pauses` shows
pauses and drained hosts.
"""

import click

from compactor.cli import control_records
from compactor.cli.output import View
from compactor.cli.session import Code, Command, Session, pass_session
from compactor.control.records import Pause, with_pause, without_pauses
from compactor.errors import UsageError
from compactor.metastore.compaction_queue.queue import Queue
from compactor.roles.pauses import subject_of
from compactor.status.records import drain_record, pause_record
from compactor.words import one_line


@click.command(cls=Command)
@control_records.scope_options
@click.option("--reason", required=True, help="Shown with every compaction that waits.")
@click.option(
    "--until",
    metavar="TIME",
    help="When it ends by itself, such as 2026-01-31T18:00 (in windows.time_zone) or 2026-01-31T18:00Z.",
)
@click.option("--for", "length", metavar="TIME", help="The same as a length of time from now on: 30min, 2h, 1d12h.")
@click.option("--cancel", is_flag=True, help="Cancel running compactions, too; they go back into the queue.")
@click.option("--cleaner", is_flag=True, help="Nothing is cleaned, either.")
@pass_session
def pause(
    session: Session,
    *,
    pool: str | None,
    database: str | None,
    table: str | None,
    everything: bool,
    reason: str,
    until: str | None,
    length: str | None,
    cancel: bool,
    cleaner: bool,
) -> None:
    """
    Keep compactions from beginning: all of them, a pool's, a database's, or those of some tables.

    Running ones are finished. What is asked for meanwhile is queued and waits. A second pause of the same goes over the
    first.
    """
    scope = control_records.scope_from(pool, database, table, everything=everything)
    if until is not None and length is not None:
        raise UsageError("give --until or --for, not both")
    if not (reason := one_line(reason)):
        raise UsageError("--reason is empty: it is shown with every compaction that waits")
    holds_for = None if length is None else control_records.length_ms(length)
    end = None if until is None else control_records.moment_ms(session, until)
    with control_records.coordinator(session, write=True) as where:
        control_records.require_there(session, scope)
        metastore = session.database()
        now = metastore.read(metastore.now_ms)
        end = now + holds_for if holds_for is not None else end
        if end is not None and end <= now:
            raise UsageError(f"--until: {until} is over")
        made = Pause(scope, reason, control_records.who(session), now, end, cancel=cancel, cleaner=cleaner)
        before = next(
            (one for one in control_records.stored(where).pauses if one.scope == scope and one.active(now)), None
        )
        control_records.change(where, lambda data: with_pause(data, made, now))
        running = sum(scope.covers(subject_of(entry)) for entry in Queue(metastore).working())
    if before is not None:
        session.output.say(f"goes over the pause by {before.by}: {before.reason}")
    if running:
        session.output.say(f"being worked on: {running}; {'they are cancelled' if cancel else 'they are finished'}")
    record = {**pause_record(made), "running": running}
    session.output.show(View(control_records.COLUMNS, [record], document=record))


@click.command(cls=Command)
@pass_session
def pauses(session: Session) -> None:
    """Show what is paused, and which hosts are drained."""
    metastore = session.database()
    with control_records.coordinator(session) as where:
        found = control_records.stored(where)
    now = metastore.read(metastore.now_ms)
    records = [
        *(pause_record(one) for one in found.pauses if one.active(now)),
        *(drain_record(one) for one in found.drains),
    ]
    session.output.show(View(control_records.COLUMNS, records, empty="nothing is paused"))


@click.command(cls=Command)
@control_records.scope_options
@click.option("--every", is_flag=True, help="End every pause there is.")
@pass_session
def resume(
    session: Session, *, pool: str | None, database: str | None, table: str | None, everything: bool, every: bool
) -> int:
    """
    End a pause: name it as it was named when it was made (`compactor pauses` shows them).

    --all ends the pause of the whole cluster; narrower ones stay, and are said.
    """
    if every and (pool or database or table or everything):
        raise UsageError("--every ends all pauses: name none besides")
    wanted = None if every else control_records.scope_from(pool, database, table, everything=everything)
    with control_records.coordinator(session, write=True) as where:
        metastore = session.database()
        now = metastore.read(metastore.now_ms)
        active = [one for one in control_records.stored(where).pauses if one.active(now)]
        ended = [one for one in active if wanted is None or one.scope == wanted]
        if ended:
            names = frozenset(str(one.scope) for one in ended)
            control_records.change(where, lambda data: without_pauses(data, names, now))
    left = ", ".join(str(one.scope) for one in active if one not in ended)
    if left:
        session.output.say(f"still paused: {left}")
    if not ended:
        session.output.say("nothing is paused" if wanted is None or not active else f"{wanted} isn't paused")
    records = [pause_record(one) for one in ended]
    session.output.show(View(control_records.COLUMNS, records, document=records))
    return Code.DONE if ended else Code.NOTHING_TO_DO
