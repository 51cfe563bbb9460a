"""`compactor retry`: asks again for a compaction that ended badly, with its kind, properties and pool."""

import click

from compactor.cli import completing, control_records
from compactor.cli.commands.queueing.enqueue import say_wait, show_asked
from compactor.cli.naming.lookup import find
from compactor.cli.naming.target import parse_target
from compactor.cli.options import wait_options
from compactor.cli.session import Code, Command, Session, pass_session
from compactor.errors import UsageError
from compactor.metastore.catalog import Catalog
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.compaction_queue.urgency import URGENCY
from compactor.metastore.model import HistoryEntry, QueueState
from compactor.roles.eligibility import require_eligible


@click.command(cls=Command)
@click.argument("number", metavar="ID", type=click.IntRange(1, (1 << 63) - 1), shell_complete=completing.ended_badly)
@wait_options("Wait until it has ended or is ready for cleaning; the exit code tells the outcome.")
@pass_session
def retry(session: Session, *, number: int, wait: bool, timeout: float | None) -> int:
    """
    Ask again for a compaction that failed, was refused, aborted, or did not initiate.

    ID is that of `compactor history`. The new entry has the same kind, properties and pool, and a person's urgency.
    """
    database = session.database(write=True)
    queue = Queue(database)
    entry = queue.entry(number)
    if entry is None:
        raise UsageError(f"there is no compaction {number}; `compactor history` shows what there was")
    if not isinstance(entry, HistoryEntry) or entry.state is QueueState.SUCCEEDED:
        ended = "has succeeded" if entry.state is QueueState.SUCCEEDED else f"hasn't ended: it is {entry.state.value}"
        session.output.say(f"compaction {number} {ended}")
        if entry.state is QueueState.INITIATED:
            say_wait(session, control_records.daemons(session), entry)
        return Code.NOTHING_TO_DO
    found = find(Catalog(database), parse_target(entry.entity.full_name, entry.entity.partition))
    require_eligible(session.places, found.place, database.schema.generation.layout, entry.kind)
    daemons, warnings = control_records.daemons(session), [] if found.kept is None else [found.kept]
    for warning in warnings:
        session.output.say(f"warning: {warning}")
    asked = queue.enqueue(
        entry.entity,
        entry.kind,
        properties={key: value for key, value in entry.properties.items() if key != URGENCY},
        pool=entry.pool,
        initiator_id=f"{session.settings.host_name}-manual",
    )
    return show_asked(session, found, entry.kind, asked, daemons, warnings, wait=wait, timeout=timeout)
