"""`compactor cancel`: takes a compaction out of the queue, or asks the worker that runs it to stop."""

import getpass
import time

import click

from compactor.cli import units
from compactor.cli.options import POLL_SECONDS, wait_options
from compactor.cli.output import OutputColumn, View
from compactor.cli.session import Code, Command, Session, pass_session
from compactor.errors import CompactorError, RefusedError, UsageError
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.model import QueueEntry, QueueState
from compactor.reasons import Reason
from compactor.roles.identity import parse_worker_id

COLUMNS = (
    OutputColumn("id", "ID", right=True),
    OutputColumn("entity", "COMPACTION OF"),
    OutputColumn("kind", "KIND"),
    OutputColumn("state", "STATE"),
    OutputColumn("message", "MESSAGE"),
)
HIGHEST_ID = (1 << 63) - 1
"""The highest value of CQ_ID."""


@click.command(cls=Command)
@click.argument("number", metavar="ID", type=click.IntRange(1, HIGHEST_ID))
@wait_options("Wait until the worker has stopped; the exit code tells whether it could.")
@pass_session
def cancel(session: Session, *, number: int, wait: bool, timeout: float | None) -> int:
    """
    Take a compaction out of the queue, or ask the worker on it to stop.

    ID is that of `compactor queue`. What a worker did is undone, its Spark application is ended, and the entry ends
    aborted. What is committed stays.
    """
    queue = Queue(session.database(write=True))
    user = f"{session.settings.user or getpass.getuser()}@{session.settings.host_name}"
    entry = queue.entry(number)
    if entry is not None and entry.state is QueueState.INITIATED and queue.cancel(number, f"cancelled by {user}"):
        _show(session, _found(queue, number), "taken out of the queue")
        return Code.DONE
    entry = _found(queue, number)  # a worker may have claimed it just now
    if entry.state is QueueState.WORKING:
        _ask(queue, entry, user)
    if entry.state is not QueueState.WORKING:
        _show(session, entry, f"has ended already: it is {entry.state.value}")
        return Code.NOTHING_TO_DO
    if not wait:
        _show(session, entry, f"worker {entry.worker_id} was asked to stop")
        return Code.DONE
    session.close()  # frees an embedded database for the daemon during the wait
    entry = _wait(session, number, timeout)
    _show(session, entry, entry.error_message or "")
    return Code.DONE if entry.state in {QueueState.ABORTED, QueueState.FAILED} else Code.FAILED


def _found(queue: Queue, number: int) -> QueueEntry:
    entry = queue.entry(number)
    if entry is None:
        raise UsageError(f"there is no compaction {number}; `compactor queue` shows what there is")
    return entry


def _ask(queue: Queue, entry: QueueEntry, user: str) -> None:
    if parse_worker_id(entry.worker_id) is None:
        what = f"abort its transaction {entry.txn_id} in Hive" if entry.txn_id else "stop it there"
        raise RefusedError(
            Reason.OWNERSHIP_LOST,
            f"compaction {entry.id} is with {entry.worker_id}, a worker of Hive's, which we can't ask to stop: {what}",
        )
    if not queue.ask_to_stop(entry, user):
        raise CompactorError(f"compaction {entry.id} has just changed hands: try again")


def _wait(session: Session, number: int, timeout: float | None) -> QueueEntry:
    began = time.monotonic()
    with session.output.busy(f"compaction {number}: stopping") as tell:
        while True:
            entry = _found(Queue(session.database()), number)
            if entry.state not in (QueueState.INITIATED, QueueState.WORKING):
                return entry
            waited = time.monotonic() - began
            if timeout is not None and waited > timeout:
                raise CompactorError(
                    f"compaction {number} is still {entry.state.value} after {units.seconds(waited)}; it stays asked to stop"
                )
            tell(f"compaction {number}: {entry.state.value}")
            time.sleep(POLL_SECONDS)


def _show(session: Session, entry: QueueEntry, message: str) -> None:
    record = {
        "id": entry.id,
        "entity": str(entry.entity),
        "kind": entry.kind.value,
        "state": entry.state.value,
        "message": message,
    }
    session.output.show(View(COLUMNS, [record], document=record))
