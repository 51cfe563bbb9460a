"""`compactor cancel`: takes a compaction out of the queue, or asks the worker that runs it to stop."""

import getpass
import time

import click

from compactor.cli import completing, units
from compactor.cli.naming.filters import places
from compactor.cli.options import POLL_SECONDS, wait_options
from compactor.cli.output import OutputColumn, Record, View
from compactor.cli.session import Code, Command, Session, pass_session
from compactor.errors import CompactorError, RefusedError, UsageError
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.model import QueueEntry, QueueState
from compactor.metastore.worker_ids import parse_worker_id
from compactor.reasons import Reason
from compactor.words import plural

COLUMNS = (
    OutputColumn("id", "ID", right=True),
    OutputColumn("entity", "COMPACTION OF"),
    OutputColumn("kind", "KIND"),
    OutputColumn("state", "STATE"),
    OutputColumn("message", "MESSAGE", folds=24),
)
HIGHEST_ID = (1 << 63) - 1
"""The highest value of CQ_ID."""


@click.command(cls=Command)
@click.argument("what", metavar="ID|PATTERN", shell_complete=completing.queued)
@wait_options("Wait until the worker has stopped; the exit code tells whether it could.")
@click.option("--yes", is_flag=True, help="Cancel many; without it they are only shown.")
@pass_session
def cancel(session: Session, *, what: str, wait: bool, timeout: float | None, yes: bool) -> int:
    """
    Take a compaction out of the queue, or ask the worker on it to stop.

    ID is that of `compactor queue`. What a worker did is undone, its Spark application is ended, and the entry ends
    aborted. What is committed stays. A database, a table or a pattern ('sales.*') stands for all that are initiated or
    worked on: they are shown, and cancelled with --yes.
    """
    if not (what.isascii() and what.isdecimal()):
        if wait:
            raise UsageError("--wait is for a single compaction")
        return _many(session, what, yes=yes)
    if yes:
        raise UsageError("--yes is for many: a database, a table or a pattern")
    number = int(what)
    if not 1 <= number <= HIGHEST_ID:
        raise UsageError(f"{what} is no id of a compaction")
    queue = Queue(session.database(write=True))
    cancelled = _cancel(queue, number, _user(session))
    entry = _found(queue, number)
    if cancelled is None:
        _show(session, entry, f"has ended already: it is {entry.state.value}")
        return Code.NOTHING_TO_DO
    if cancelled or not wait:
        _show(session, entry, _done(entry, taken_out=cancelled))
        return Code.DONE
    session.close()  # frees an embedded database for the daemon during the wait
    entry = _wait(session, number, timeout)
    _show(session, entry, entry.error_message or "")
    return Code.DONE if entry.state in {QueueState.ABORTED, QueueState.FAILED} else Code.FAILED


def _user(session: Session) -> str:
    return f"{session.settings.user or getpass.getuser()}@{session.settings.host_name}"


def _cancel(queue: Queue, number: int, user: str) -> bool | None:
    """
    Cancel one entry. True: it is out of the queue; False: its worker was asked to stop; None: it has ended already.

    Raises:
        UsageError: there is no such entry.
        RefusedError: a worker of Hive has it.
    """
    entry = queue.entry(number)
    if entry is not None and entry.state is QueueState.INITIATED and queue.cancel(number, f"cancelled by {user}"):
        return True
    entry = _found(queue, number)  # a worker may have claimed it just now
    if entry.state is not QueueState.WORKING:
        return None
    _ask(queue, entry, user)
    return False


def _done(entry: QueueEntry, *, taken_out: bool) -> str:
    return "taken out of the queue" if taken_out else f"worker {entry.worker_id} was asked to stop"


def _many(session: Session, what: str, *, yes: bool) -> int:
    queue = Queue(session.database(write=yes))
    fits = places(session, what)
    entries = [one for one in queue.entries(QueueState.INITIATED, QueueState.WORKING) if fits(one.entity)]
    user, records, done = _user(session), list[Record](), 0
    for found in entries:
        entry, message = found, ""
        if yes:
            try:
                cancelled = _cancel(queue, entry.id, user)
                message = "has ended already" if cancelled is None else _done(entry, taken_out=cancelled)
                done += cancelled is not None
                entry = queue.entry(entry.id) or entry  # as it is now
            except CompactorError as error:
                message = str(error)
            except KeyboardInterrupt:
                session.output.say(f"{done:,} of {plural(len(entries), 'compaction')} cancelled")
                raise
        records.append(_record(entry, message))
    count = plural(len(entries), "compaction")
    footer = f"{done:,} of {count} cancelled" if yes else f"nothing is cancelled yet: --yes cancels {count}"
    empty = "nothing that fits is initiated or being worked on"
    session.output.show(View(COLUMNS, records, empty=empty, footer=footer if records else ""))
    if yes:
        return Code.DONE if done == len(entries) and entries else Code.FAILED if entries else Code.NOTHING_TO_DO
    return Code.DONE if entries else Code.NOTHING_TO_DO


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


def _record(entry: QueueEntry, message: str) -> Record:
    return {
        "id": entry.id,
        "entity": str(entry.entity),
        "kind": entry.kind.value,
        "state": entry.state.value,
        "message": message,
    }


def _show(session: Session, entry: QueueEntry, message: str) -> None:
    record = _record(entry, message)
    session.output.show(View(COLUMNS, [record], document=record))
