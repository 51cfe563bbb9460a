"""`compactor members`: shows the daemons, the roles that each leads, and what each is doing."""

import click

from compactor.cli import control_records, units
from compactor.cli.naming.filters import watch_option, watched
from compactor.cli.output import OutputColumn, View
from compactor.cli.session import Command, Session, pass_session
from compactor.coordination import not_led
from compactor.status.records import member_record

COLUMNS = (
    OutputColumn("host", "HOST"),
    OutputColumn("pid", "PID", right=True),
    OutputColumn("version", "VERSION"),
    OutputColumn("state", "STATE"),
    OutputColumn("leads", "LEADS", show=units.joined(", "), folds=12),
    OutputColumn("stands_by", "STANDS BY", show=units.joined(", "), folds=12),
    OutputColumn("heartbeat_age_ms", "HEARTBEAT", right=True, show=units.milliseconds),
    OutputColumn("busy", "DOING", show=units.joined("; "), folds=24),
    OutputColumn("instance", "INSTANCE", people=False),
    OutputColumn("not_led", "NOT LED", people=False),
)


@click.command(cls=Command)
@watch_option
@pass_session
def members(session: Session, *, watch: float | None) -> None:
    """
    Show the daemons of this metastore: which one leads what, and what each is doing.

    Without ZooKeeper no leader is elected beforehand: the leader of a role is then the daemon that did its latest cycle, and daemons
    that went without a word are shown as gone. A role that no daemon leads is named below the table, with the reason.
    """

    def look() -> View:
        with control_records.coordinator(session) as where:
            found = where.members()
        unled = {role.value: why for role, why in not_led(found).items()}
        records = [{**member_record(seen), "not_led": unled} for seen in found]
        footer = "\n".join(f"no daemon leads the {role}: {why}" for role, why in unled.items())
        return View(COLUMNS, records, empty="no daemon is there", footer=footer if records else "")

    watched(session, watch, look)
