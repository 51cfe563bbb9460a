"""
The values of the protocol's model: what the metastore knows, what lies in the warehouse, and who is at work.

Small on purpose: a row is a bit, the row of write id n is bit n, and a directory knows its rows. Identity of
transactions and entries is their order only, so `search` gives them small numbers again after each action.
"""

from typing import NamedTuple


class Txn(NamedTuple):
    """
    A transaction that isn't simply committed: a row of TXNS, open or aborted; purged: only its tasks are left.

    Args:
        kind: insert, overwrite, delete, batch (one of a streaming batch), compaction.
        write_id: 0: none yet, or a compaction's.
        low, high: the range of its directory: its write id, a batch's all write ids.
        places: it writes there.
        events: rows that a delete marks.
        written: its files are there.
        over: no task of it writes any more.
        noted: TXN_COMPONENTS has a row of it.
    """

    id: int
    kind: str
    state: str = "open"
    write_id: int = 0
    low: int = 0
    high: int = 0
    places: tuple[int, ...] = (0,)
    events: int = 0
    written: bool = False
    over: bool = False
    noted: bool = True


class Directory(NamedTuple):
    """
    A base, delta or delete delta.

    Args:
        low: 0: of a base.
        txn: of the compaction, in the name (`_v`); 0: none, as always on Hive 3.1.
        rows: the rows that lie there.
        events: rows that are marked, by the write ids that mark them.
        statement: the name has a statement id, as a writer's has.
    """

    place: int
    kind: str
    low: int
    high: int
    txn: int = 0
    rows: int = 0
    events: tuple[tuple[int, int], ...] = ()
    statement: bool = False

    @property
    def name(self) -> tuple[int, str, int, int, int, bool]:
        """What no two directories have in common; whether a base is a compaction's isn't in its name on Hive 3.1."""
        return self.place, self.kind, self.low, self.high, self.txn, self.statement and self.kind != "base"


class Lists(NamedTuple):
    """
    The valid transactions and write ids of a snapshot. Of transactions only those of compactions matter.

    Args:
        open, aborted: write ids, as bits.
    """

    txn_high: int
    txns_open: tuple[int, ...]
    txns_aborted: tuple[int, ...]
    high: int
    open: int
    aborted: int

    @property
    def valid(self) -> int:
        """Write ids whose rows are read, as bits."""
        return upto(self.high) & ~self.open & ~self.aborted


class Reader(NamedTuple):
    """
    A statement that reads.

    Args:
        due: the rows of each place that were committed when it began.
        listed: the directories that it reads; None: it lists again each time (Hive 4), or hasn't listed yet (3.1).
    """

    txn: int
    lists: Lists
    due: tuple[int, ...]
    listed: frozenset[Directory] | None = None


class Sight(NamedTuple):
    """The first observation of a ready entry (Hive 3.1): the transactions, and the directories that were there."""

    txn_high: int
    directories: frozenset[Directory]


class Entry(NamedTuple):
    """
    A row of COMPACTION_QUEUE.

    Args:
        state: initiated, opened (claimed, its transaction is open), working (planned), looked (after its last look),
            displaced (another one took its staging directory away), half (one of two renames is done), published,
            ready.
        worker: ours or hive.
        covered: its highest write id.
        txn: of its compaction, also once that is committed (Hive 4).
        next: CQ_NEXT_TXN_ID.
        beside: compactions that were open when its lists were taken.
        replaced: what its plan found replaced or aborted.
    """

    id: int
    place: int
    kind: str
    state: str = "initiated"
    worker: str = ""
    covered: int = 0
    txn: int = 0
    next: int = 0
    beside: tuple[int, ...] = ()
    inputs: frozenset[Directory] = frozenset()
    replaced: frozenset[Directory] = frozenset()
    results: tuple[Directory, ...] = ()
    sight: Sight | None = None


class Late(NamedTuple):
    """
    A worker whose claim was taken back, and which goes on all the same.

    Args:
        entry, covered: of its claim, as long as its transaction is open.
        alive: its transaction is open: it may still be committed.
        published: its results are there.
    """

    txn: int
    results: tuple[Directory, ...]
    entry: int = 0
    covered: int = 0
    alive: bool = False
    published: bool = False


class State(NamedTuple):
    """
    The whole.

    Args:
        rows: those committed, of each place.
    """

    next_txn: int = 1
    next_write_id: int = 1
    next_entry: int = 1
    txns: tuple[Txn, ...] = ()
    readers: tuple[Reader, ...] = ()
    entries: tuple[Entry, ...] = ()
    late: tuple[Late, ...] = ()
    directories: frozenset[Directory] = frozenset()
    rows: tuple[int, ...] = (0,)

    def txn(self, number: int) -> Txn:
        return next(txn for txn in self.txns if txn.id == number)

    def put_txn(self, new: Txn) -> "State":
        return self._replace(txns=tuple(new if txn.id == new.id else txn for txn in self.txns))

    def without_txn(self, number: int) -> "State":
        return self._replace(txns=tuple(txn for txn in self.txns if txn.id != number))

    def put_entry(self, new: Entry) -> "State":
        return self._replace(entries=tuple(new if entry.id == new.id else entry for entry in self.entries))

    def without_entry(self, number: int) -> "State":
        return self._replace(entries=tuple(entry for entry in self.entries if entry.id != number))

    def open_txns(self) -> list[int]:
        """Of writers, readers and compactions, ascending."""
        return sorted([txn.id for txn in self.txns if txn.state == "open"] + [reader.txn for reader in self.readers])


class Action(NamedTuple):
    """One step of a party: its name, and about what."""

    name: str
    about: tuple[object, ...] = ()

    def __str__(self) -> str:
        return " ".join([self.name, *(_word(one) for one in self.about)])


def _word(one: object) -> str:
    if isinstance(one, Directory):
        return directory_name(one)
    if isinstance(one, tuple):
        return ",".join(_word(part) for part in one) or "nothing"
    return str(one)


def directory_name(directory: Directory) -> str:
    """As Hive names it, without the zeros."""
    suffix = f"_v{directory.txn}" if directory.txn else ""
    where = f"p{directory.place}/" if directory.place else ""
    if directory.kind == "base":
        return f"{where}base_{directory.high}{suffix}"
    kind = "delta" if directory.kind == "delta" else "delete_delta"
    return f"{where}{kind}_{directory.low}_{directory.high}{'_0000' if directory.statement else ''}{suffix}"


def bit(number: int) -> int:
    return 1 << number


def upto(number: int) -> int:
    """Bits 1 to that number."""
    return (2 << number) - 2


def span(low: int, high: int) -> int:
    return upto(high) & ~upto(low - 1)


def numbers(bits: int) -> list[int]:
    return [number for number in range(bits.bit_length()) if bits >> number & 1]
