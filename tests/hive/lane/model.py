"""
The parts of a history in the fast lane: statements, writing transactions, readers, and the turns of a worker.
"""

import queue
import threading
from dataclasses import dataclass, field

_LIMIT_SECONDS = 120


class KilledError(BaseException):
    """As SIGKILL: nothing of the process runs after it."""


@dataclass(frozen=True)
class Statement:
    """
    INSERT, UPDATE, DELETE, INSERT OVERWRITE, or "copy": an INSERT into the table from which it reads, of which Hive
    notes nothing with its lock (LockRequestBuilder).

    Args:
        places: indices of `PARTITIONS` it goes to; a static one goes to the first of them.
        count: rows an insert brings; how thickly the others choose theirs.
        dynamic: it finds its partitions while it runs.
    """

    kind: str
    places: tuple[int, ...] = (0,)
    count: int = 1
    bucket: int = 0
    dynamic: bool = False


@dataclass
class Write:
    """
    One transaction that writes: what it is going to leave, and how far it is.

    Args:
        named: Hive had noted where it writes when it was rolled back.
    """

    txn: int
    write_id: int
    dynamic: bool
    inserts: list[tuple[str | None, tuple[int, int, int], tuple[int, str]]] = field(default_factory=list)
    deletes: list[tuple[str | None, tuple[int, int, int], tuple[int, str]]] = field(default_factory=list)
    overwrites: bool = False
    copies: bool = False
    partitions: tuple[str | None, ...] = ()
    phase: int = 0
    named: bool = True


@dataclass
class Reader:
    """
    A statement that reads: its transaction, its lists, what it must see, and what it has listed.

    Args:
        late: it has its snapshot, and lists when it is told to (Hive 3.1).
        outlived: partitions whose first base didn't wait for it any longer (Hive 3.1).
        robbed: partitions from which Hive 4's abort cleanup removed directories beside it.
    """

    name: str
    txn: int
    txns: str
    write_ids: str
    expected: dict[str | None, list[tuple]]
    listed: set[str | None] = field(default_factory=set)
    checked: dict[str | None, tuple] = field(default_factory=dict)
    late: bool = False
    outlived: set[str | None] = field(default_factory=set)
    robbed: set[str | None] = field(default_factory=set)


class Turns:
    """
    Cycles of a worker, each in a thread of its own; and the clock of the wait before a first base
    (`compactor.roles.worker.older_snapshots`, in place of `time`): a worker that waits stands still until the history
    lets it look again.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.waits = False
        self._said, self._go = queue.SimpleQueue(), queue.SimpleQueue()

    def monotonic(self):
        return self.seconds

    def sleep(self, _):
        """In the worker's thread."""
        self._said.put(("waits", None))
        self._go.get()

    def run(self, cycle):
        """What the cycle says; None: it waits."""
        threading.Thread(target=self._run, args=(cycle,), daemon=True).start()
        return self._hear()

    def look(self):
        """The same of one that waits, after another look."""
        self._go.put(None)
        return self._hear()

    def _run(self, cycle):
        try:
            self._said.put(("ended", cycle().sentence))
        except BaseException as error:
            self._said.put(("broke", error))

    def _hear(self):
        what, value = self._said.get(timeout=_LIMIT_SECONDS)
        self.waits = what == "waits"
        if what == "broke":
            raise value
        return value


def difference(found, rows):
    """Rows that a reader sees and shouldn't, and those that it lacks."""
    return {"more": [row for row in found if row not in rows], "less": [row for row in rows if row not in found]}
