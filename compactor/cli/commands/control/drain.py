"""`compactor drain`: lets the workers of a host finish and claim nothing more, until the drain is undone."""

import click

from compactor.cli import completing, control_records
from compactor.cli.naming.target import did_you_mean
from compactor.cli.output import View
from compactor.cli.session import Code, Command, Session, pass_session
from compactor.control.records import Drain, with_drain, without_drain
from compactor.coordination import Coordinator
from compactor.errors import CompactorError, RefusedError, UnreachableError, UsageError
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.worker_ids import parse_worker_id
from compactor.reasons import Reason
from compactor.status.records import drain_record
from compactor.words import one_line

_HOST_LIMIT = 64
"""How many characters of a host's name fit into a worker id."""


@click.command(cls=Command)
@click.argument("host", shell_complete=completing.hosts)
@click.option("--reason", default="", help="Shown wherever the drain is shown.")
@click.option("--undo", is_flag=True, help="Its workers may claim again.")
@pass_session
def drain(session: Session, *, host: str, reason: str, undo: bool) -> int:
    """
    Let the workers of HOST finish and claim nothing more, until --undo; also after a restart.

    HOST is the daemon's name as `compactor members` shows it. Its Initiator and Cleaner go on; entries that wait are
    left to other hosts.
    """
    host = host.strip()[:_HOST_LIMIT]
    if not host or any(char.isspace() for char in host):
        raise UsageError("HOST is a daemon's name, as `compactor members` shows it")
    with control_records.coordinator(session, write=True) as where:
        metastore = session.database()
        now = metastore.read(metastore.now_ms)
        before = control_records.stored(where).drain_of(host)
        made = Drain(host, one_line(reason), control_records.who(session), now)
        if undo:
            if before is None:
                near = did_you_mean(host, [one.host for one in control_records.stored(where).drains])
                session.output.say(f"host {host} isn't drained{near}")
                return Code.NOTHING_TO_DO
            control_records.change(where, lambda data: without_drain(data, host))
        else:
            _require_known(session, where, host)
            control_records.change(where, lambda data: with_drain(data, made))
        owners = [parse_worker_id(entry.worker_id) for entry in Queue(metastore).working()]
    running = sum(owner is not None and owner.host == host for owner in owners)
    if running and not undo:
        session.output.say(f"host {host} is still working on {running}; `compactor queue --state working` shows them")
    record = {**drain_record(before if undo and before else made), "drained": not undo, "running": running}
    session.output.show(View(control_records.COLUMNS, [record], document=record))
    return Code.DONE


def _require_known(session: Session, where: Coordinator, host: str) -> None:
    """
    Refuse a host that is not known.

    A host is known when it is this machine, when one of its daemons is or lately was a member, or when one of its
    workers ran a compaction that is still in the queue or the history.

    Raises:
        RefusedError: HOST_UNKNOWN, with near names.
    """
    known = {session.settings.host_name[:_HOST_LIMIT]}
    try:
        known.update(seen.member.host for seen in where.members())
    except UnreachableError:
        raise
    except CompactorError:
        pass  # no daemon has been here yet
    if host in known:
        return
    queue = Queue(session.database())
    owners = (parse_worker_id(entry.worker_id) for entry in (*queue.working(), *queue.history()))
    known |= {owner.host for owner in owners if owner is not None}
    if host not in known:
        raise RefusedError(
            Reason.HOST_UNKNOWN,
            f"no daemon of a host {host} is known{did_you_mean(host, sorted(known))}; `compactor members` shows them",
        )
