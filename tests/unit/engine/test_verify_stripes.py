"""What one stripe of a result may not be: each check by itself, for an encoder that errs errs in one place."""

from types import SimpleNamespace

import numpy as np
import pytest

from compactor.acid.names import DirKind
from compactor.acid.row_id import RowKey, encode
from compactor.engine.verify import stripes
from compactor.errors import VerificationError
from compactor.orc.events.deletes import DeleteEvents
from compactor.orc.events.keys import StripeBounds
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
    made._task = SimpleNamespace(work=SimpleNamespace(write_ids=(LOW, HIGH)), file=SimpleNamespace(bucket=3, kind=kind))
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
