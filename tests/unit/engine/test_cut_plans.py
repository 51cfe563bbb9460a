"""What a plan says of cutting rows out of stripes, held against what its tasks do."""

import pytest

from compactor.engine.tasks import buckets
from compactor.orc.recode import recode_into
from compactor.planning.document import Cut
from tests.compacting import KIB, Attempt, settings

ROWS = 20_000
SMALL = settings(splice={"min_stripe_bytes": 4 * KIB})


@pytest.mark.parametrize(
    ("going", "said", "cut"),
    [
        ([7], Cut.YES, True),
        (range(0, ROWS, 1_100), Cut.YES, True),
        (range(150), Cut.PERHAPS, True),
        (range(0, ROWS, 150), Cut.PERHAPS, False),
        (range(200), Cut.NO, False),
        ([0, *range(100, ROWS, 2)], Cut.NO, False),
    ],
)
def test_the_plan_says_what_becomes_of_a_stripe(warehouse, going, said, cut):
    """By the number of delete events: rows are cut out, encoded anew, or the task sees where the rows stand."""
    table = warehouse.create_table("db", "t", [("id", "int"), ("v", "string")])
    for first in (0, ROWS):
        with warehouse.begin() as txn:
            txn.insert(table, [(first + i, f"{first + i:x}" * 8) for i in range(ROWS)])
    gone = {ROWS + one for one in going}
    with warehouse.begin() as txn:
        txn.delete(table, lambda row: row[0] in gone)
    attempt = Attempt(warehouse, table, settings=SMALL)
    (bucket,) = attempt.plan().outputs[0].buckets
    assert [segment.cut for segment in bucket.segments] == [Cut.NO, said]
    attempt.run()
    (file,) = attempt.staged.files
    assert [origin.checksum is not None for origin in file.origins] == [False, cut]
    predicted = attempt.plan().prediction
    assert (predicted.cut > 0, predicted.recoded > 0) == (said is Cut.YES, said is not Cut.YES)
    assert attempt.plan().bytes_needed == predicted.written + predicted.cut + predicted.recoded
    assert (predicted.stripes_before, predicted.stripes_after) == (2, 2)
    assert (predicted.files_before, predicted.files_after) == (3, 1)


def test_nested_columns_are_never_cut(warehouse):
    """The plan knows the forms that are encoded anew."""
    table = warehouse.create_table("db", "t", [("id", "int"), ("v", "array<int>")])
    with warehouse.begin() as txn:
        txn.insert(table, [(i, [i]) for i in range(ROWS)])
    with warehouse.begin() as txn:
        txn.delete(table, lambda row: row[0] == 7)
    (bucket,) = Attempt(warehouse, table, settings=SMALL).plan().outputs[0].buckets
    assert [segment.cut for segment in bucket.segments] == [Cut.NO]


def test_neighbours_of_one_file_are_read_as_one_source(warehouse, monkeypatch):
    """Stripes of one chunk that are recoded for different reasons don't count as sources that may overlap."""
    table = warehouse.create_table("db", "t", [("id", "int"), ("v", "string")])
    for first in (0, ROWS):
        with warehouse.begin() as txn:
            txn.insert(table, [(first + i, f"{first + i:x}" * 8) for i in range(ROWS)])
    Attempt(warehouse, table, settings=SMALL).run()
    with warehouse.begin() as txn:
        txn.delete(table, lambda row: row[0] == 7)
    read = []

    def recoded(sources, *args, **how):
        read.append([source.chosen for source in sources])
        return recode_into(sources, *args, **how)

    monkeypatch.setattr(buckets, "recode_into", recoded)
    attempt = Attempt(warehouse, table)
    (bucket,) = attempt.plan().outputs[0].buckets
    assert [segment.reason for segment in bucket.segments] == ["deleted rows", "small stripes"]
    attempt.run()
    assert read == [[(0, 1)]]
