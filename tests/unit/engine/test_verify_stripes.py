"""What one stripe of a result may not be: each check by itself, for an encoder that errs errs in one place."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.acid.names import DirKind
from compactor.acid.row_id import RowKey, encode
from compactor.acid.types import parse_hive_type
from compactor.engine.results import Origin
from compactor.engine.verify import stripes
from compactor.errors import VerificationError
from compactor.orc.events.deletes import DeleteEvents
from compactor.orc.events.keys import StripeBounds
from compactor.orc.format.codec import Compression
from compactor.orc.format.key_columns import KeyColumns

BUCKET, OTHER = encode(3, 0), encode(4, 0)
LOW, HIGH = 5, 8
ABORTED = 7


def check(kind=DirKind.BASE, *, tail=None):
    """A check of one stripe of bucket 3, with write ids 5 to 8, of which 7 is aborted."""
    made = object.__new__(stripes._Check)
    made._name = "base_8/bucket_00003"
    made._deletes = kind is DirKind.DELETE_DELTA
    made._aborted = np.array([ABORTED], dtype=np.int64)
    work, file = SimpleNamespace(write_ids=(LOW, HIGH)), SimpleNamespace(bucket=3, kind=kind)
    made._check, made._task = SimpleNamespace(work=work, file=file), SimpleNamespace()
    made._tail = tail
    return made


def keys(write_id=6, bucket=BUCKET, current=None, operation=0):
    """Two rows, of which the second is changed."""
    columns = (0, operation), (6, write_id), (BUCKET, bucket), (0, 1), (6, write_id if current is None else current)
    kinds = np.int32, np.int64, np.int32, np.int64, np.int64
    return KeyColumns(*(np.array(column, dtype=kind) for column, kind in zip(columns, kinds, strict=True)))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        ({"write_id": LOW}, None),
        ({"write_id": HIGH}, None),
        ({"write_id": LOW, "current": HIGH}, None),
        ({"operation": 2}, "mixes operations"),
        ({"bucket": OTHER}, "another bucket"),
        ({"write_id": 8, "current": 6}, "changed before they were written"),
        ({"write_id": LOW - 1, "current": LOW}, "write ids outside 5 to 8"),
        ({"write_id": LOW, "current": HIGH + 1}, "write ids outside 5 to 8"),
        ({"write_id": ABORTED}, "aborted write ids"),
    ],
)
def test_each_key_of_a_stripe_is_judged(changes, said):
    """One row among others is enough."""
    if said is None:
        check()._keys(0, keys(**changes), None)
    else:
        with pytest.raises(VerificationError, match=said):
            check()._keys(0, keys(**changes), None)


def test_delete_events_are_of_their_own_write():
    """A row may have been written long before the write that deletes it, which is the one in the directory's range."""
    events = keys(write_id=1, current=6, operation=2)
    events.operation[:] = 2
    check(DirKind.DELETE_DELTA)._keys(0, events, None)
    events.current[:] = LOW - 1
    events.write_id[:] = 1
    with pytest.raises(VerificationError, match="write ids outside"):
        check(DirKind.DELETE_DELTA)._keys(0, events, None)


@pytest.mark.parametrize(("row", "hit"), [(1, True), (2, False)])
def test_a_deleted_row_that_is_still_there_is_found(row, hit):
    """By the events that were to be applied."""
    event = (6, np.int64), (BUCKET, np.int32), (row, np.int64), (HIGH, np.int64)
    events = DeleteEvents(*(np.array([value], dtype=kind) for value, kind in event))
    if hit:
        with pytest.raises(VerificationError, match="deleted rows"):
            check()._keys(0, keys(), events)
    else:
        check()._keys(0, keys(), events)


BOUNDS = {
    "first": RowKey(6, BUCKET, 0),
    "last": RowKey(6, BUCKET, 9),
    "exact": True,
    "write_id": (LOW, HIGH),
    "bucket": (BUCKET, BUCKET),
    "row_id": (0, 9),
    "current": (LOW, HIGH),
    "operation": (0, 0),
    "rows": 10,
}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        ({"bucket": (3, BUCKET)}, None),
        ({"bucket": (4, BUCKET)}, "another bucket"),
        ({"last": RowKey(6, BUCKET, -1)}, "doesn't come after"),
        ({"last": RowKey(5, BUCKET, 99)}, "doesn't come after"),
        ({"operation": (0, 2)}, "operations"),
        ({"operation": None}, "operations"),
        ({"write_id": (LOW - 1, HIGH)}, "write ids"),
        ({"write_id": (LOW, HIGH + 1)}, "write ids"),
        ({"bucket": (BUCKET, OTHER)}, "another bucket"),
        ({"bucket": (OTHER, OTHER)}, "another bucket"),
    ],
)
def test_the_statistics_of_a_stripe_are_judged(monkeypatch, changes, said):
    """They are possible in the directory, and the stripe follows the one before it."""
    monkeypatch.setattr(stripes, "stripe_bounds", lambda _tail, _index: StripeBounds(**(BOUNDS | changes)))
    judge = check(tail=tail(before=RowKey(6, BUCKET, -1)))
    if said is None:
        judge._statistics(1)
    else:
        with pytest.raises(VerificationError, match=said):
            judge._statistics(1)


@pytest.mark.parametrize(
    ("changes", "values", "said"),
    [
        ({}, 0, None),
        ({"write_id": (1, HIGH)}, 0, None),
        ({"current": (LOW - 1, HIGH)}, 0, "write ids"),
        ({"current": (LOW, HIGH + 1)}, 0, "write ids"),
        ({"current": None}, 0, "write ids"),
        ({"operation": (0, 0)}, 0, "operations"),
        ({}, 1, "values beside"),
    ],
)
def test_the_statistics_of_delete_events_are_judged(monkeypatch, changes, values, said):
    """Their own write is the current one; events have no values."""
    bounds = StripeBounds(**(BOUNDS | {"operation": (2, 2)} | changes))
    monkeypatch.setattr(stripes, "stripe_bounds", lambda _tail, _index: bounds)
    judge = check(DirKind.DELETE_DELTA, tail=tail(values=values))
    if said is None:
        judge._statistics(0)
    else:
        with pytest.raises(VerificationError, match=said):
            judge._statistics(0)


def test_statistics_that_are_missing_are_told(monkeypatch):
    """Where the file has an index; a file without one has none to judge."""
    monkeypatch.setattr(stripes, "stripe_bounds", lambda _tail, _index: None)
    with pytest.raises(VerificationError, match="no statistics"):
        check(tail=tail())._statistics(0)
    check(tail=tail(stride=0))._statistics(0)


def tail(*, before=None, values=10, stride=10_000):
    """As much of a file's tail as is asked for."""
    columns = [SimpleNamespace(number_of_values=values)] * 7
    return SimpleNamespace(
        stride=stride,
        key_index=None if before is None else [before, before],
        metadata=SimpleNamespace(stripe_stats=[SimpleNamespace(columns=columns)] * 2),
    )


def file_tail(*stripes, found, stride=10_000):
    """A tail whose key columns have these minima and maxima, by stripe, and these in the file's statistics."""

    def columns(span):
        return [SimpleNamespace(integers=SimpleNamespace(minimum=span[0], maximum=span[1]))] * 6

    return SimpleNamespace(
        stripes=[None] * len(stripes),
        stride=stride,
        metadata=SimpleNamespace(stripe_stats=[SimpleNamespace(columns=columns(span)) for span in stripes]),
        footer=SimpleNamespace(statistics=columns(found)),
    )


@pytest.mark.parametrize(
    ("made", "right"),
    [
        (file_tail((1, 5), (3, 9), found=(1, 9)), True),
        (file_tail((1, 5), (3, 9), found=(1, 5)), False),
        (file_tail((1, 5), (3, 9), found=(3, 9)), False),
        (file_tail((1, 5), (3, 9), found=(0, 9)), False),
        (file_tail((1, 5), found=(0, 0), stride=0), True),
        (file_tail(found=(0, 0)), True),
    ],
)
def test_the_statistics_of_a_file_are_those_of_its_stripes(made, right):
    """Where there are any: of a file without an index, or without stripes, nothing is said."""
    if right:
        check(tail=made)._file_statistics()
    else:
        with pytest.raises(VerificationError, match="file statistics of column 1"):
            check(tail=made)._file_statistics()


def rows_of(*numbers):
    """Inserted rows of one write id with these row numbers."""
    columns = (0, np.int32), (6, np.int64), (BUCKET, np.int32)
    made = [np.full(len(numbers), value, dtype=kind) for value, kind in columns]
    return KeyColumns(*made, np.array(numbers, dtype=np.int64), np.full(len(numbers), 6, dtype=np.int64))


def tail_of_rows(*, rows, last, spans):
    """The tail of a file with one stripe of such rows."""
    columns = [None, *(SimpleNamespace(integers=SimpleNamespace(minimum=low, maximum=high)) for low, high in spans)]
    return SimpleNamespace(
        stripes=[SimpleNamespace(number_of_rows=rows)],
        key_index=[RowKey(6, BUCKET, last)],
        stripe_stats=lambda _index: columns,
    )


@pytest.mark.parametrize(
    ("blocks", "tail", "said"),
    [
        ([(0, 1), (2, 3)], {}, None),
        ([(0, 1), (1, 3)], {}, "keys don't ascend after row 2"),
        ([(0, 2), (1, 3)], {}, "keys don't ascend after row 2"),
        ([(0, 1), (3, 2)], {}, "keys don't ascend after row 2"),
        ([(0, 1), (2, 3)], {"rows": 5}, "its tail says otherwise"),
        ([(0, 1), (2, 3)], {"last": 4}, "its tail says otherwise"),
        ([(0, 1), (2, 3)], {"row_id": (0, 2)}, "statistics that aren't those of its keys"),
        ([(0, 1), (2, 3)], {"row_id": (1, 3)}, "statistics that aren't those of its keys"),
    ],
)
def test_the_keys_of_a_recoded_stripe_are_judged_over_its_blocks(monkeypatch, blocks, tail, said):
    """They ascend from block to block, too, end where the index says, and are as many and within what the tail says."""
    spans = [(0, 0), (6, 6), (BUCKET, BUCKET), tail.get("row_id", (0, 3)), (6, 6)]
    judge = check(tail=tail_of_rows(rows=tail.get("rows", 4), last=tail.get("last", 3), spans=spans))
    monkeypatch.setattr(stripes._Check, "_decoded", lambda *_, **__: iter([rows_of(*block) for block in blocks]))
    if said is None:
        judge._recoded(0, None, keys_only=False)
    else:
        with pytest.raises(VerificationError, match=said):
            judge._recoded(0, None, keys_only=False)


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=3), min_size=1, max_size=3))
def test_the_span_of_keys_is_that_of_all_blocks(blocks):
    """A later block may have the lowest row number: that of a later write."""
    spans = []
    for numbers in blocks:
        spans = stripes._widened(spans, rows_of(*numbers))
    assert spans[3] == (min(map(min, blocks)), max(map(max, blocks)))


def test_each_stripe_is_judged_by_how_it_came_about(monkeypatch):
    """Its statistics always; a copied one beside its source, a recoded one by its keys, and by a checksum if it has one."""
    judge = check()
    judge._reader = None
    judge._task.start = 4
    judge._task.origins = (Origin("a", 7, 1), Origin(None, -1, 1), Origin(None, -1, 1, checksum=11))
    asked = []
    monkeypatch.setattr(stripes, "stripe_checksum", lambda *_: 11)
    for name in ("_statistics", "_copied", "_recoded"):
        monkeypatch.setattr(
            judge.__class__, name, lambda _self, *found, _name=name, **how: asked.append((_name, *found))
        )
    monkeypatch.setattr(judge.__class__, "_events", lambda _self: "events")
    judge.stripes()
    assert asked == [
        ("_statistics", 4),
        ("_copied", 4, "a", 7),
        ("_statistics", 5),
        ("_recoded", 5, "events"),
        ("_statistics", 6),
        ("_recoded", 6, "events"),
    ]
    monkeypatch.setattr(stripes, "stripe_checksum", lambda *_: 12)
    with pytest.raises(VerificationError, match="stripe 7 isn't the one whose values were compared"):
        judge.stripes()


@pytest.mark.parametrize("missing", [(), (5,), (5, 6)])
def test_events_are_looked_for_between_the_keys_of_recoded_stripes(monkeypatch, missing):
    """Of copied ones none; where one stripe doesn't tell its keys, anywhere."""
    judge = check()
    judge._task.start = 4
    judge._task.origins = (Origin("a", 7, 1), Origin(None, -1, 1), Origin(None, -1, 1))
    first, last = RowKey(5, BUCKET, 0), RowKey(8, BUCKET, 9)
    bounds = {
        4: StripeBounds(**(BOUNDS | {"first": RowKey(1, BUCKET, 0), "last": RowKey(9, BUCKET, 0)})),
        5: StripeBounds(**(BOUNDS | {"first": first})),
        6: StripeBounds(**(BOUNDS | {"last": last})),
    }
    monkeypatch.setattr(stripes, "stripe_bounds", lambda _tail, index: None if index in missing else bounds[index])
    assert judge._recoded_span() == (None if missing else (first, last))


ROW = parse_hive_type("struct<a:int>")
READ = SimpleNamespace(rows=10)
TAIL = {
    "is_acid": True,
    "row_tree": ROW,
    "tree": "…",
    "compression": Compression.ZLIB,
    "stride": 10_000,
    "rows": 10,
    "stripes": (1, 2),
    "length": 99,
    "key_index": [RowKey(6, BUCKET, 4), RowKey(6, BUCKET, 9)],
    "counts": (10, 0, 0),
    "user_metadata": {"hive.acid.version": b"2", "note": SimpleNamespace(digest=READ)},
}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        ({"is_acid": False}, "has columns"),
        ({"row_tree": parse_hive_type("struct<a:bigint>")}, "has columns"),
        ({"row_tree": parse_hive_type("struct<b:int>")}, "has columns"),
        ({"compression": Compression.NONE}, "is written with NONE and stride 10000"),
        ({"stride": 5}, "is written with ZLIB and stride 5"),
        ({"rows": 9}, "9 rows in 2 stripes; its task reported 10 in 2"),
        ({"stripes": (1,)}, "10 rows in 1 stripes; its task reported 10 in 2"),
        ({"length": 98}, "its task reported"),
        ({"key_index": None}, "has no key index"),
        ({"counts": (9, 0, 0)}, "says"),
        ({"counts": (0, 0, 10)}, "says"),
        ({"user_metadata": TAIL["user_metadata"] | {"hive.acid.version": b"1"}}, "says"),
        ({"user_metadata": {"note": SimpleNamespace(digest=READ)}}, "says"),
        ({"user_metadata": {"hive.acid.version": b"2"}}, "doesn't say what was read"),
        (
            {"user_metadata": TAIL["user_metadata"] | {"note": SimpleNamespace(digest=SimpleNamespace(rows=9))}},
            "doesn't say what was read",
        ),
    ],
)
def test_each_word_of_a_files_tail_is_judged(monkeypatch, changes, said):
    """Types, form, counts, key index, and what was read from the inputs; then the statistics of the whole file."""
    judged = []
    for kind in (DirKind.BASE, DirKind.DELETE_DELTA):
        found = SimpleNamespace(**(TAIL | changes))
        if kind is DirKind.DELETE_DELTA:
            found.counts = found.counts[::-1]
        judge = check(kind, tail=found)
        judge._output = SimpleNamespace(row=ROW, compression=Compression.ZLIB, stride=10_000)
        judge._check.count = 2
        judge._check.file = SimpleNamespace(rows=SimpleNamespace(written=10), length=99, digest=READ)
        monkeypatch.setattr(stripes, "acid_stats", lambda tail: tail.counts)
        monkeypatch.setattr(stripes, "read_note", lambda metadata: metadata.get("note"))
        monkeypatch.setattr(judge.__class__, "_file_statistics", lambda self: judged.append(self._tail))
        if said is None:
            judge.tail_of_file()
            assert judged[-1] is found
            judge._check.file.digest, found.user_metadata = SimpleNamespace(rows=0), {"hive.acid.version": b"2"}
            judge.tail_of_file()
        else:
            with pytest.raises(VerificationError, match=said):
                judge.tail_of_file()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        ({"mine": RowKey(6, BUCKET, 8)}, "hasn't the last key of its source, stripe 3 of a"),
        ({"mine": None}, None),
        ({"theirs": None}, None),
        ({"differs": "stripe 1 has other bytes"}, "has other bytes"),
        ({"taken": [0, 2, 1]}, "has columns that readers take from others"),
    ],
)
def test_a_copied_stripe_is_its_source(monkeypatch, changes, said):
    """Its bytes where they are looked at, its columns at their places, and its last key, where both files tell it."""
    key = RowKey(6, BUCKET, 9)
    given = {"mine": key, "theirs": key, "differs": None, "taken": [0, 1, 2]} | changes
    indexes = [None if given[name] is None else [None, None, given[name]] for name in ("mine", "theirs")]
    theirs = SimpleNamespace(row_tree=ROW, key_index=indexes[1])
    monkeypatch.setattr(stripes, "source_ids", lambda *_: given["taken"])
    monkeypatch.setattr(stripes, "difference", lambda *_: given["differs"])
    for kind in (DirKind.BASE, DirKind.DELETE_DELTA):
        judge = check(kind, tail=SimpleNamespace(key_index=indexes[0]))
        judge._reader, judge._inputs = None, {"a": None}
        judge._output = SimpleNamespace(row=ROW, columns_by=None)
        judge._opened = SimpleNamespace(tail=lambda _: theirs, reader=lambda _: None)
        if said is None or (kind is DirKind.DELETE_DELTA and "taken" in changes):
            judge._copied(2, "a", 2)
        else:
            with pytest.raises(VerificationError, match=said):
                judge._copied(2, "a", 2)
