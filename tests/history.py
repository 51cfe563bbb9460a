"""
A partition's life in memory: writers, overwrites, streams, compactions, cleaning, and readers with old snapshots.

What a snapshot must see is kept twice: as a log of inserts, deletes and overwrites (the truth), and as directories that
are read through `resolve` row by row. The reading here follows the rules of readers literally and shares nothing with
the engine; compactions follow the naming rule of docs/layout.md.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.acid.listing import FileEntry, Listing
from compactor.acid.names import AcidDir, DirKind, base_name, delete_delta_name, delta_name
from compactor.acid.snapshot import AcidState, ListedDir, resolve
from compactor.acid.write_ids import CleanerWriteIdList, CompactorWriteIdList, ValidTxnList, ValidWriteIdList
from compactor.errors import RefusedError
from compactor.planning.included import enough, included, overlap, same_range
from compactor.reasons import Reason

Row = tuple[int, int, int]
"""Write id, statement, ordinal: a ROW__ID of a table with one bucket."""

ORIGINALS = AcidDir(DirKind.BASE, 0, 0, None, 0, "")


@dataclass(frozen=True)
class Event:
    """An insert or delete of one row, by the write id `current`."""

    row: Row
    current: int


@dataclass
class Content:
    """What one directory holds."""

    events: tuple[Event, ...]
    length: int


@dataclass(frozen=True)
class Snapshot:
    """A reader's lists, and the rows the log says it must see as long as it reads."""

    txns: ValidTxnList
    ids: ValidWriteIdList
    expected: tuple[Row, ...]


@dataclass
class Compaction:
    """A published result: its transaction, the write id its queue entry carries, and where it stands."""

    kind: CompactionKind
    txn: int
    highest_write_id: int
    fate: str
    committed_before_txn: int = 0
    cleaned: bool = False


@dataclass
class History:
    """The partition, its table's write ids and transactions, and everybody who still reads."""

    layout: LayoutVersion
    lengths: Sequence[int] = (1 << 20,)
    insert_only: bool = False
    originals: int = 0
    directories: dict[str, Content] = field(default_factory=dict)
    write_ids: dict[int, int] = field(default_factory=dict)
    txns: dict[int, str] = field(default_factory=dict)
    inserts: list[tuple[Event, int]] = field(default_factory=list)
    deletes: list[tuple[Event, int]] = field(default_factory=list)
    overwrites: list[int] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    compactions: list[Compaction] = field(default_factory=list)
    originals_there: bool = True
    compacted: set[str] = field(default_factory=set)
    forgotten: set[int] = field(default_factory=set)
    files: int = 0
    checked: dict[Snapshot, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.inserts += [(Event((0, 0, i), 0), 0) for i in range(self.originals)]

    # ---- writers

    def insert(self, rows: int, fate: str) -> None:
        """One statement of one transaction."""
        write_id = self._begin(fate)
        self._add(delta_name(write_id, write_id, 0), self._new_rows(write_id, 0, rows))

    def update(self, picks: Sequence[int], fate: str) -> None:
        """Hive 4 gives the insert half a statement of its own; Hive 3.1 doesn't."""
        targets = self._targets(picks)
        write_id = self._begin(fate)
        statement = 0 if self.layout is LayoutVersion.HIVE_3 else 1
        self._add(delete_delta_name(write_id, write_id, 0), self._delete(targets, write_id, 0))
        self._add(delta_name(write_id, write_id, statement), self._new_rows(write_id, statement, len(targets)))

    def delete(self, picks: Sequence[int], fate: str) -> None:
        targets = self._targets(picks)
        write_id = self._begin(fate)
        self._add(delete_delta_name(write_id, write_id, 0), self._delete(targets, write_id, 0))

    def several_statements(self, rows: int, picks: Sequence[int], fate: str) -> None:
        """Insert, delete some of the old and of the just inserted, insert again: all in one transaction."""
        targets = self._targets(picks)
        write_id = self._begin(fate)
        first = self._new_rows(write_id, 0, rows)
        self._add(delta_name(write_id, write_id, 0), first)
        own = [e.row for e in first[: rows // 2]]
        self._add(delete_delta_name(write_id, write_id, 1), self._delete([*targets, *own], write_id, 1))
        self._add(delta_name(write_id, write_id, 2), self._new_rows(write_id, 2, rows))

    def stream(self, fates: Sequence[str], rows: int) -> None:
        """A batch of transactions that share one directory."""
        write_ids = [self._begin(fate) for fate in fates]
        events = [e for w in write_ids for e in self._new_rows(w, 0, rows)]
        self._add(delta_name(write_ids[0], write_ids[-1]), events)

    def overwrite(self, rows: int, fate: str) -> None:
        """INSERT OVERWRITE; no rows is TRUNCATE."""
        write_id = self._begin(fate)
        self.overwrites.append(write_id)
        self._add(base_name(write_id), self._new_rows(write_id, 0, rows))

    def settle(self, which: int, fate: str) -> None:
        """End one of the open writers."""
        writers = set(self.write_ids.values())
        running = [t for t, f in self.txns.items() if f == "o" and t in writers]
        if running:
            self.txns[running[which % len(running)]] = fate

    # ---- readers

    def lists(self) -> tuple[ValidTxnList, ValidWriteIdList]:
        """What a reader that starts now is given."""
        of = self._with_fate
        ids = {
            f: tuple(w for w, t in self.write_ids.items() if self.txns[t] == f and w not in self.forgotten)
            for f in "oa"
        }
        return ValidTxnList(len(self.txns), of("o"), of("a")), ValidWriteIdList(
            "db.t", len(self.write_ids), ids["o"], ids["a"]
        )

    def look(self) -> None:
        """A reader starts, and keeps reading until its files may go."""
        txns, ids = self.lists()
        self.snapshots.append(Snapshot(txns, ids, tuple(sorted(self._visible(ids)))))

    def check(self) -> None:
        """
        Every reader sees exactly its rows, once each. Who has looked at these very directories isn't asked again: it
        would read the same.
        """
        there = (self.files, self.originals_there, tuple(self.directories), len(self.compacted))
        for snapshot in self.snapshots:
            if self.checked.get(snapshot) != there:
                self._check(snapshot)
        self.checked = dict.fromkeys(self.snapshots, there)

    def _check(self, snapshot: Snapshot) -> None:
        if self.layout is LayoutVersion.HIVE_3 and self.lacks_history(snapshot.txns, snapshot.ids):
            return
        assert tuple(sorted(self.read(snapshot.txns, snapshot.ids))) == snapshot.expected, (snapshot, self.directories)

    def read(self, txns: ValidTxnList, ids: ValidWriteIdList) -> list[Row]:
        """Rows as a reader finds them: base unfiltered, deltas by write id, minus qualifying delete events."""
        state = self.resolve(txns, ids)
        return [
            event.row
            for event in self._survivors(state, ids, [*self._under(state), *self._rows(state.insert_deltas, ids)])
        ]

    def resolve(self, txns: ValidTxnList, ids: ValidWriteIdList) -> AcidState:
        return resolve(self.listing(), ids, None if self.layout is LayoutVersion.HIVE_3 else txns, self.layout)

    def lacks_history(self, txns: ValidTxnList, ids: ValidWriteIdList) -> bool:
        """Whether readers with these lists are told that there isn't enough history."""
        try:
            self.resolve(txns, ids)
        except RefusedError as error:
            return error.reason is Reason.NOT_ENOUGH_HISTORY
        return False

    def listing(self) -> Listing:
        files = [FileEntry(f"{name}/bucket_00000", content.length) for name, content in self.directories.items()]
        if self.originals and self.originals_there:
            files.append(FileEntry("000000_0", self.lengths[0]))
        formats = [(n, "compacted") for n in self.directories if n.startswith("base_") and n in self.compacted]
        replaced = [
            (n, tuple(f for f in files if "/" not in f.path)) for n in self.directories if n.startswith("base_")
        ]
        return Listing(
            tuple(files),
            tuple(self.directories),
            tuple(formats) if self.layout is LayoutVersion.HIVE_3 else (),
            tuple(replaced),
        )

    # ---- compaction

    def compactor_lists(self) -> tuple[ValidTxnList, CompactorWriteIdList]:
        txns, ids = self.lists()
        return txns, CompactorWriteIdList.from_reader(ids)

    def compact(self, kind: CompactionKind, fate: str) -> bool:
        """Publish a result, if there is enough to compact and none is running; whether it was."""
        if any(c.fate == "o" for c in self.compactions):
            return False
        txns, ids = self.compactor_lists()
        if self.lacks_history(txns, ids):
            return False
        state = self.resolve(txns, ids)
        deltas = included(state)
        if (
            kind is CompactionKind.MINOR
            and self.layout is LayoutVersion.HIVE_3
            and (self.insert_only or len({d.acid.kind for d in deltas}) > 1)
        ):
            kind = CompactionKind.MAJOR
        if not enough(state, kind, insert_only=self.insert_only):
            return False
        assert overlap(state.base, deltas) is None
        if same_range(state, kind, deltas) is not None:
            return False
        highest = max(
            [0 if state.base is None else state.base.acid.max_write_id, *(d.acid.max_write_id for d in deltas)]
        )
        skipped = bool(state.excluded) or len(deltas) < len(state.deltas)
        txn = self._open_txn(fate if self.layout is LayoutVersion.HIVE_4 else "c")
        suffix = txn if self.layout is LayoutVersion.HIVE_4 else 0
        for name, events in self._outputs(kind, state, ids, highest, suffix):
            assert name not in self.directories
            self._add(name, events)
            self.compacted.add(name)
        entry = Compaction(kind, txn, highest if skipped else max(highest, ids.high_watermark), self.txns[txn])
        entry.committed_before_txn = len(self.txns)
        self.compactions.append(entry)
        return True

    def merge(self, fate: str) -> bool:
        """
        Hive's merge compaction: the deltas one after the other, rows of aborted write ids too, named from 1 to the
        watermark; whether it was possible.

        Source: Hive's MergeCompactor. Beside a base, and beside a directory that reaches over the watermark, its name
        loses rows or brings them twice for Hive itself: not copied.
        """
        if self.layout is LayoutVersion.HIVE_3 or any(c.fate == "o" for c in self.compactions):
            return False
        txns, ids = self.compactor_lists()
        state = self.resolve(txns, ids)
        if (
            state.base
            or state.originals
            or state.delete_deltas
            or state.aborted
            or state.excluded
            or len(state.deltas) < 2
        ):
            return False
        txn = self._open_txn(fate)
        name = delta_name(1, ids.high_watermark, None, txn)
        if any(n.startswith(name.partition("_v")[0] + "_v") for n in self.directories):
            return False
        self._add(name, [e for d in state.deltas for e in self.directories[d.name].events])
        self.compacted.add(name)
        self.compactions.append(
            Compaction(CompactionKind.MINOR, txn, ids.high_watermark, self.txns[txn], len(self.txns))
        )
        return True

    def settle_compaction(self, fate: str) -> None:
        """End the running compaction, if there is one."""
        for entry in self.compactions:
            if entry.fate == "o":
                entry.fate = self.txns[entry.txn] = fate
                entry.committed_before_txn = len(self.txns)

    def ready_for_cleaning(self) -> list[Compaction]:
        return [c for c in self.compactions if c.fate == "c" and not c.cleaned]

    def clean(self, *, patient: bool = True) -> bool:
        """
        Remove what the oldest entry replaced, once nobody may read it; readers from before are gone then. Whether there
        was an entry to clean.

        Only results that every remaining reader sees count: a later compaction may have been committed while some of
        them were reading.

        Args:
            patient: wait for transactions from before the commit; otherwise they are taken to be writers only.
        """
        entry = min(self.ready_for_cleaning(), key=lambda c: c.highest_write_id, default=None)
        if entry is None:
            return False
        running = self._with_fate("o")
        if patient and any(t <= entry.committed_before_txn for t in running):
            return False
        self.snapshots = [s for s in self.snapshots if s.txns.high_watermark >= entry.committed_before_txn]
        txns, ids = self.lists()
        everybodys = min(
            [
                txns.high_watermark,
                *(min([s.txns.high_watermark, *(t - 1 for t in s.txns.open[:1])]) for s in self.snapshots),
            ]
        )
        state = self.resolve(
            ValidTxnList(everybodys, txns.open, txns.aborted),
            CleanerWriteIdList.from_reader(ids, entry.highest_write_id),
        )
        for listed in state.obsolete + state.aborted:
            del self.directories[listed.name]
        if state.obsolete_originals:
            self.originals_there = False
        entry.cleaned = True
        left = self.resolve(
            ValidTxnList(everybodys, txns.open, txns.aborted),
            CleanerWriteIdList.from_reader(ids, entry.highest_write_id),
        )
        self.forgotten |= {
            w for w in ids.aborted if w <= entry.highest_write_id and self.write_ids[w] <= everybodys
        } - left.mixed_aborted_write_ids
        return True

    # ---- inside

    def _outputs(
        self, kind: CompactionKind, state: AcidState, ids: ValidWriteIdList, highest: int, suffix: int
    ) -> Iterator[tuple[str, list[Event]]]:
        deltas = included(state)
        inserts = self._rows([d for d in deltas if d.acid.kind is DirKind.DELTA], ids)
        if kind is CompactionKind.MAJOR:
            kept = self._survivors(state, ids, [*self._under(state), *inserts])
            yield base_name(highest, suffix), [Event(e.row, e.row[0]) for e in kept]
            return
        rows = [e for _, e in inserts]
        events: dict[Row, Event] = {}
        for listed in deltas:
            if listed.acid.kind is DirKind.DELETE_DELTA:
                for event in self.directories[listed.name].events:
                    if (
                        ids.is_valid(event.current)
                        and event.current < events.get(event.row, Event(event.row, 1 << 62)).current
                    ):
                        events[event.row] = event
        low = min(d.acid.min_write_id for d in deltas)
        if low == highest:
            cancelled = {r for r, e in events.items() if r[0] == e.current}
            rows = [e for e in rows if e.row not in cancelled]
            events = {r: e for r, e in events.items() if r not in cancelled}
        if events:
            yield delete_delta_name(low, highest, None, suffix), list(events.values())
        if rows or not events:
            yield delta_name(low, highest, None, suffix), rows

    def _under(self, state: AcidState) -> list[tuple[AcidDir, Event]]:
        if state.base is not None:
            return [(state.base.acid, e) for e in self.directories[state.base.name].events]
        return [(ORIGINALS, e) for e, _ in self.inserts if e.current == 0] if state.originals else []

    def _rows(self, deltas: Sequence[ListedDir], ids: ValidWriteIdList) -> list[tuple[AcidDir, Event]]:
        return [(d.acid, e) for d in deltas for e in self.directories[d.name].events if ids.is_valid(e.current)]

    def _survivors(self, state: AcidState, ids: ValidWriteIdList, rows: Sequence[tuple[AcidDir, Event]]) -> list[Event]:
        deletes = [
            (d.acid, {e.row for e in self.directories[d.name].events if ids.is_valid(e.current)})
            for d in state.delete_deltas
        ]
        return [e for split, e in rows if not any(e.row in gone and qualifies(acid, split) for acid, gone in deletes)]

    def _visible(self, ids: ValidWriteIdList) -> list[Row]:
        """
        The truth: valid inserts since the last valid overwrite, minus valid deletes by later statements. What was
        rolled back stays so when it is forgotten.
        """

        def valid(write_id: int) -> bool:
            return ids.is_valid(write_id) and write_id not in self.forgotten

        floor = max((w for w in self.overwrites if valid(w)), default=0)
        gone = {(e.row) for e, s in self.deletes if valid(e.current) and (e.row[0], e.row[1]) < (e.current, s)}
        return [
            e.row
            for e, _ in self.inserts
            if e.current >= floor and (e.current == 0 or valid(e.current)) and e.row not in gone
        ]

    def _targets(self, picks: Sequence[int]) -> list[Row]:
        """Rows a writer may delete now: visible, and untouched by anybody who isn't rolled back."""
        _, ids = self.lists()
        touched = {e.row for e, _ in self.deletes if not ids.is_aborted(e.current) and e.current not in self.forgotten}
        free = [r for r in sorted(self._visible(ids)) if r not in touched]
        return sorted({free[p % len(free)] for p in picks}) if free else []

    def _delete(self, rows: Sequence[Row], write_id: int, statement: int) -> list[Event]:
        events = [Event(r, write_id) for r in rows]
        self.deletes += [(e, statement) for e in events]
        return events

    def _new_rows(self, write_id: int, statement: int, count: int) -> list[Event]:
        events = [Event((write_id, statement, i), write_id) for i in range(count)]
        self.inserts += [(e, statement) for e in events]
        return events

    def _begin(self, fate: str) -> int:
        txn = self._open_txn(fate)
        self.write_ids[len(self.write_ids) + 1] = txn
        return len(self.write_ids)

    def _open_txn(self, fate: str) -> int:
        self.txns[len(self.txns) + 1] = fate
        return len(self.txns)

    def _with_fate(self, fate: str) -> tuple[int, ...]:
        return tuple(t for t, f in self.txns.items() if f == fate)

    def _add(self, name: str, events: Sequence[Event]) -> None:
        self.directories[name] = Content(tuple(events), self.lengths[self.files % len(self.lengths)])
        self.files += 1


def qualifies(delete_dir: AcidDir, split_dir: AcidDir) -> bool:
    """
    Whether delete events of `delete_dir` may hide rows of `split_dir`: written by a later write id, or by a later
    statement of the same.

    Source: Hive's OrcInputFormat / VectorizedOrcAcidRowBatchReader.isQualifiedDeleteDeltaForSplit.
    """
    if split_dir.min_write_id != delete_dir.max_write_id:
        return split_dir.min_write_id < delete_dir.max_write_id
    return (split_dir.statement_id or 0) < (delete_dir.statement_id or 0)
