"""Queue entries as workers leave them along their way."""

from compactor.acid.compaction import CompactionKind
from compactor.errors import OutcomeUnknownError
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.txn.transactions import Transactions
from tests.metastore.actor import T

MAJOR, MINOR = CompactionKind.MAJOR, CompactionKind.MINOR


def claimed(database, entity=T, kind=MAJOR, worker="compactor-edge-1"):
    """An entry that a worker has."""
    queue = Queue(database)
    queue.enqueue(entity, kind)
    return queue.claim(worker, "1")


def working(database, entity=T, worker="compactor-edge-1", write_id=5):
    """An entry whose worker has stored what it covers; returns it with its transaction (None on 3.1)."""
    entry = claimed(database, entity, worker=worker)
    txn_id = Transactions(database).open_compaction("ann", "edge")
    Queue(database).set_compactor_state(entry, txn_id, write_id, "ann")
    return entry, txn_id


def without_an_answer(database, monkeypatch, *, happened):
    """The next change of the database gets no answer, whether it `happened` or not."""
    write = database.write

    def unanswered(change, *given, **named):
        monkeypatch.undo()
        if happened:
            write(change, *given, **named)
        raise OutcomeUnknownError("no answer")

    monkeypatch.setattr(database, "write", unanswered)
