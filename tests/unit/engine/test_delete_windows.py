"""Which delete events a task loads: those that can hit its rows, none fewer."""

import pytest

from compactor.acid.row_id import RowKey, SyntheticIds, encode
from compactor.engine.tasks.delete_windows import spanning
from compactor.orc.rows import StripeSource
from tests.unit.orc.files import ROW, acid_file, insert, opened, plain_file

BUCKET = encode(0, 0)


def keys(*rows):
    return [RowKey(1, BUCKET, row) for row in rows]


def source(*rows, **options):
    return StripeSource(*opened(acid_file([insert(key, (0, "x")) for key in keys(*rows)], **options)))


@pytest.mark.parametrize("order", [1, -1])
def test_the_span_reaches_over_all_sources(order):
    """From the smallest first key to the largest last one, whichever file comes last."""
    assert spanning([source(5, 9), source(2, 20), source(7, 8)][::order]) == tuple(keys(2, 20))


@pytest.mark.parametrize("order", [1, -1])
def test_one_file_that_does_not_tell_leaves_no_span(order):
    """Its rows may lie anywhere (Hive 3.1 compacts without statistics): all events of the bucket are needed."""
    assert spanning([source(5, 9), source(2, 20, row_index_stride=0)][::order]) is None
    assert spanning([]) is None


def test_rows_without_keys_span_all_that_are_given_to_them():
    """An original file, numbered from where the one before it ended: its first row and its last one are in."""
    file = plain_file(ROW, [(n, "x") for n in range(4)])
    assert spanning([StripeSource(*opened(file), synthetic=SyntheticIds(1, BUCKET, 10))]) == tuple(keys(10, 13))
