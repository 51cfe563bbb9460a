"""What the recoder writes, Hive's own readers read as they read the source."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compactor.acid.row_id import RowKey
from compactor.acid.types import Kind, acid_type, parse_hive_type, to_hive_string
from compactor.orc.events.deletes import DeleteEvents
from compactor.orc.format.tail import read_tail
from compactor.orc.recode import write_delete_events
from compactor.orc.rows import RowFilter, StripeSource
from compactor.orc.writing.output import OutputFormat
from compactor.orc.writing.splice import Splicer
from compactor.storage.local_fs.files import LocalReader, LocalWriter
from tests import strategies
from tests.fixtures import hive
from tests.recoding import recode
from tests.unit.orc.files import acid_file, delete, insert, opened

pytestmark = pytest.mark.hive
BUCKET = 536870912


@pytest.fixture(params=["hive_3", "hive_4"])
def judge(request):
    """Hive 3.1.3's and Hive 4's readers."""
    return request.getfixturevalue(request.param)


def spliced(target, data):
    """The rows as the C++ writer put them, with the metadata that Hive 3.1 insists on."""
    reader, tail = opened(data)
    with LocalWriter(str(target)) as sink:
        splicer = Splicer(sink, OutputFormat(tail.tree))
        splicer.add_stripe(reader, tail, 0)
        splicer.finish("insert")


def base(directory, name):
    (directory / name / "base_0000005").mkdir(parents=True)
    return directory / name / "base_0000005" / "bucket_00000"


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data(), strategies.row_structs().filter(lambda row: not row.holds((Kind.TIMESTAMP_INSTANT,))))
def test_hive_sees_no_difference(judge, tmp_path_factory, data, row):
    """
    Any columns, any values: the recoded file reads like the source, row by row and in batches; deleted rows are gone.
    """
    values = data.draw(st.lists(strategies.filled(row), min_size=1, max_size=6))
    file = acid_file([insert(RowKey(1, BUCKET, n), value) for n, value in enumerate(values)], row)
    directory = tmp_path_factory.mktemp("rows")
    spliced(base(directory, "before"), file)
    reader, tail = opened(file)
    gone = DeleteEvents.load([opened(acid_file([delete(RowKey(1, BUCKET, 2), 4)]))])
    with LocalWriter(str(base(directory, "after"))) as sink:
        recode([StripeSource(reader, tail)], OutputFormat(tail.tree), sink, RowFilter(gone))
    schema = to_hive_string(tail.row_tree)
    for mode in ("vector", "row"):
        before = judge.rows(directory / "before", schema, mode=mode)
        after = judge.rows(directory / "after", schema, mode=mode)
        assert len(before) == len(values)
        assert after == [found for found in before if found[0] != (1, BUCKET, 2)]


def test_texts_that_dont_fit_their_type_read_the_same(judge, tmp_path):
    """
    A char without padding and too long a varchar, beside a timestamp that needs pyorc: Hive reads the stored bytes as
    it read them before.
    """
    schema = "struct<t:timestamp,c:char(5),v:varchar(2)>"
    texts = acid_file(
        [insert(RowKey(1, BUCKET, n), ((-5 - n, 5), "ab"[:n], "abcdef"[:n])) for n in range(6)],
        parse_hive_type("struct<t:timestamp,c:string,v:string>"),
    )
    output = OutputFormat(acid_type(parse_hive_type(schema)))
    with LocalWriter(str(base(tmp_path, "before"))) as sink:
        splicer = Splicer(sink, output)
        splicer.add_recoded(*opened(texts), RowKey(1, BUCKET, 5))
        splicer.finish("insert")
    reader = LocalReader(str(tmp_path / "before" / "base_0000005" / "bucket_00000"))
    with LocalWriter(str(base(tmp_path, "after"))) as sink:
        recode([StripeSource(reader, read_tail(reader))], output, sink)
    for mode in ("vector", "row"):
        before = judge.rows(tmp_path / "before", schema, mode=mode)
        assert len(before) == 6
        assert judge.rows(tmp_path / "after", schema, mode=mode) == before


def test_hives_own_rows_stay_for_hive(hive_4, tmp_path):
    """
    Each insert file of the fixtures, recoded as a base, is read as the original is: old dates, early times, chars,
    unions, nested nulls.
    """
    warehouse = hive.restore(tmp_path)
    files = [path for path in sorted(warehouse.rglob("bucket_*")) if "delete_delta" not in path.parent.name]
    assert len(files) > 40
    for number, path in enumerate(files):
        reader = LocalReader(str(path))
        tail = read_tail(reader)
        if tail.tree.holds((Kind.TIMESTAMP_INSTANT,)):
            continue
        original, again = base(tmp_path, f"{number}-original"), base(tmp_path, f"{number}-again")
        original.write_bytes(path.read_bytes())
        with LocalWriter(str(again)) as sink:
            recode([StripeSource(reader, tail)], OutputFormat(tail.tree), sink)
        schema = to_hive_string(tail.row_tree)
        for mode in ("vector", "row"):
            assert hive_4.rows(again.parents[1], schema, mode=mode) == hive_4.rows(
                original.parents[1], schema, mode=mode
            ), path


@pytest.mark.parametrize("mode", ["vector", "row"])
def test_delete_events_beside_a_union(judge, tmp_path, mode):
    """
    Delete events of a table with a union column are written by pyorc; Hive reads them, and the right rows are gone.
    """
    file = acid_file(
        [insert(RowKey(1, BUCKET, n), (n, n if n % 2 else "x")) for n in range(4)],
        parse_hive_type("struct<id:int,u:uniontype<int,string>>"),
    )
    spliced(base(tmp_path, "t"), file)
    _, tail = opened(file)
    (tmp_path / "t" / "delete_delta_0000006_0000007").mkdir()
    events = DeleteEvents.load([opened(acid_file([delete(RowKey(1, BUCKET, n), 6) for n in (0, 2)]))])
    with LocalWriter(str(tmp_path / "t" / "delete_delta_0000006_0000007" / "bucket_00000")) as sink:
        write_delete_events(events.blocks(), OutputFormat(tail.tree), sink)
    assert [key for key, _ in judge.rows(tmp_path / "t", "struct<id:int,u:uniontype<int,string>>", mode=mode)] == [
        (1, BUCKET, 1),
        (1, BUCKET, 3),
    ]
