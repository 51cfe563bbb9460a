"""`compactor resume`: ends pauses, so that compactions may begin again."""

import click

from compactor.cli import control_records
from compactor.cli.output import View
from compactor.cli.session import Code, Command, Session, pass_session
from compactor.control.records import without_pauses
from compactor.errors import UsageError
from compactor.status.records import pause_record


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
    session.output.show(
        View(
            control_records.COLUMNS,
            [pause_record(one) for one in ended],
            document=[pause_record(one) for one in ended],
        )
    )
    return Code.DONE if ended else Code.NOTHING_TO_DO
