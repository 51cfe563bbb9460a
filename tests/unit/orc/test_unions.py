"""Tables with union columns: Arrow knows no NULL in a union, and ends the process over one in a NULL struct."""

import pytest

from compactor.acid.row_id import RowKey
from compactor.acid.types import acid_type, parse_hive_type
from compactor.orc.events.deletes import DeleteEvents
from compactor.orc.recode import write_delete_events
from compactor.orc.writing.output import OutputFormat
from compactor.orc.writing.writer_choice import check_unions
from tests.unit.orc.files import MemorySink, acid_file, delete, insert, opened, rows_of

BUCKET = 536870912


@pytest.mark.parametrize(
    "columns",
    [
        "u:uniontype<int,string>",
        "c:char(3),u:uniontype<int,string>,l:array<int>",
        "s:struct<u:uniontype<struct<a:int>,int>>",
        "l:array<uniontype<int,string>>",
    ],
)
def test_delete_events_of_a_table_with_unions(columns):
    """
    Arrow aborts the whole process over a NULL struct that has a union inside; the events are written all the same, and
    their rows are NULL.
    """
    types = acid_type(parse_hive_type(f"struct<{columns}>"))
    keys = [RowKey(1, BUCKET, 0), RowKey(1, BUCKET, 7), RowKey(2, BUCKET, 0)]
    events, sink = DeleteEvents.load([opened(acid_file([delete(key, 4) for key in keys]))]), MemorySink()
    summary = write_delete_events(events.blocks(), OutputFormat(types), sink)
    _, tail = opened(sink.getvalue())
    assert (tail.tree, summary.rows, tail.key_index) == (types, 3, [keys[-1]])
    assert rows_of(sink) == [(2, *key, 4, None) for key in keys]
    assert tail.metadata.stripe_stats[0].columns[6].number_of_values == 0


def test_a_null_beside_a_union_is_no_null_union():
    """Only the union itself must not be NULL for its stripe to be encoded anew."""
    row = parse_hive_type("struct<a:int,u:uniontype<int,string>>")
    file = acid_file([insert(RowKey(1, BUCKET, n), (value, 7)) for n, value in enumerate((None, 3))], row)
    check_unions(*opened(file), 0)
