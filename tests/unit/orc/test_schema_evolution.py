"""Older rows in the table's current columns: by name, wider, or refused."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.acid.columns import ColumnRule
from compactor.acid.row_id import RowKey
from compactor.acid.types import acid_type, parse_hive_type
from compactor.errors import RefusedError
from compactor.orc.reading.arrow import arrow_type
from compactor.orc.rows import StripeSource
from compactor.orc.writing.output import OutputFormat, compatible
from compactor.orc.writing.schema_evolution import conversion, widens_float
from compactor.reasons import Reason
from tests import strategies
from tests.recoding import recode
from tests.unit.orc.files import MemorySink, acid_file, insert, opened, rows_of

BUCKET = 536870912


def evolved(old, new, values):
    """
    The rows that a file of type `old` becomes in a table of type `new`: by Arrow, and by pyorc (forced by an old
    timestamp), which must agree.
    """
    before, after = parse_hive_type(f"struct<{old}>"), parse_hive_type(f"struct<{new}>")
    plain = recoded(before, after, values)
    timed_before, timed_after = (parse_hive_type(f"struct<{columns},moment:timestamp>") for columns in (old, new))
    timed = recoded(timed_before, timed_after, [(*value, (-5, 7)) for value in values])
    assert [row[:-1] for row in timed] == plain
    return plain


def recoded(before, after, values):
    file = acid_file([insert(RowKey(1, BUCKET, n), value) for n, value in enumerate(values)], before)
    sink = MemorySink()
    recode([StripeSource(*opened(file))], OutputFormat(acid_type(after)), sink)
    assert opened(sink.getvalue())[1].row_tree == after
    return [row[5] for row in rows_of(sink)]


@pytest.mark.parametrize(
    ("old", "new", "before", "after"),
    [
        ("a:int", "a:int,b:string", (1,), (1, None)),
        ("b:string,a:int", "a:int,b:string", ("x", 1), (1, "x")),
        ("b:int,a:int", "a:int,b:int", (1, 2), (2, 1)),
        ("a:int", "b:string,a:int", (1,), (None, 1)),
        ("a:tinyint", "a:smallint", (-128,), (-128,)),
        ("a:tinyint", "a:float", (-128,), (-128.0,)),
        ("a:smallint", "a:int", (32767,), (32767,)),
        ("a:int", "a:bigint", (-(2**31),), (-(2**31),)),
        ("a:int", "a:double", (2**31 - 1,), (float(2**31 - 1),)),
        ("a:float", "a:double", (1.5,), (1.5,)),
        ("a:int", "a:decimal(12,2)", (-5,), ("-5.00",)),
        ("a:bigint", "a:string", (-(2**63),), (str(-(2**63)),)),
        ("a:decimal(8,2)", "a:decimal(10,4)", ("123456.78",), ("123456.7800",)),
        ("a:decimal(8,0)", "a:decimal(9,0)", ("12345678",), ("12345678",)),
        ("a:varchar(3)", "a:varchar(9)", ("abc",), ("abc",)),
        ("a:varchar(3)", "a:string", ("ü ",), ("ü ",)),
        ("a:char(5)", "a:string", ("ab   ",), ("ab",)),
        ("a:char(3)", "a:char(5)", ("ab ",), ("ab   ",)),
        ("a:char(3)", "a:varchar(3)", ("ab ",), ("ab",)),
        ("a:varchar(3)", "a:char(3)", ("abc",), ("abc",)),
        ("a:string", "a:varchar(3)", ("üab",), ("üab",)),
        ("a:string", "a:char(4)", ("ab",), ("ab  ",)),
        ("s:struct<x:int,y:string>", "s:struct<y:string,z:int,x:bigint>", ((1, "y"),), (("y", None, 1),)),
        (
            "l:array<struct<x:int>>",
            "l:array<struct<x:bigint,n:string>>",
            ([(1,), None, (None,)],),
            ([(1, None), None, (None, None)],),
        ),
        ("a:int,s:struct<x:int,y:string>", "s:struct<x:int,y:string>,a:int", (1, (2, "y")), ((2, "y"), 1)),
        ("a:int,l:array<struct<x:int>>", "l:array<struct<x:int>>,a:int", (1, [(2,), None]), ([(2,), None], 1)),
        ("a:int,m:map<string,struct<x:int>>", "m:map<string,struct<x:int>>,a:int", (1, {"k": (2,)}), ({"k": (2,)}, 1)),
        ("m:map<string,int>", "m:map<string,bigint>", ({"k": 1, "n": None},), ({"k": 1, "n": None},)),
        (
            "m:map<string,struct<x:int,y:string>>",
            "m:map<string,struct<y:string,z:int,x:bigint>>",
            ({"k": (1, "y")},),
            ({"k": ("y", None, 1)},),
        ),
        (
            "m:map<varchar(2),array<tinyint>>",
            "m:map<string,array<int>>",
            ({"k": [1, None], "n": None},),
            ({"k": [1, None], "n": None},),
        ),
    ],
)
def test_what_fits_is_converted(old, new, before, after):
    """Added columns are NULL, order doesn't matter, wider types hold the same values; NULL stays NULL."""
    nothing = tuple(None for _ in before)
    assert evolved(old, new, [before, nothing, before]) == [after, tuple(None for _ in after), after]


@pytest.mark.parametrize(
    ("old", "new", "values"),
    [
        ("map<string,int>", "map<string,bigint>", [[("a", 1)], [("b", 2), ("c", 3)], None]),
        ("array<int>", "array<bigint>", [[1], [2, 3], None]),
        ("struct<x:int>", "struct<x:bigint>", [{"c2": 1}, {"c2": 2}, None]),
    ],
)
def test_a_part_of_a_batch_is_converted(old, new, values):
    """Where a batch was cut, values lie behind others that don't count."""
    before, after = parse_hive_type(f"struct<a:{old}>"), parse_hive_type(f"struct<a:{new}>")
    rows = [{"c1": value} for value in values]
    whole, made = pa.array(rows, arrow_type(before, 0)), conversion(before, after, "f", 0, ColumnRule.NAME)
    for cut in range(len(rows)):
        assert made.array(whole.slice(cut)).to_pylist() == rows[cut:]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("a:float", "a:double", True),
        ("a:float", "a:float,b:double", False),
        ("a:double,b:float", "b:float,a:double", False),
        ("s:array<struct<x:float>>", "s:array<struct<y:int,x:double>>", True),
        ("m:map<string,float>", "m:map<string,double>", True),
        ("_col0:int,_col1:float", "a:int,b:double", True),
    ],
)
def test_floats_that_became_doubles_are_found(old, new, expected):
    """By name at any depth; by position where a file's columns have no names."""
    assert widens_float(*(parse_hive_type(f"struct<{one}>") for one in (old, new)), ColumnRule.NAME) is expected


def test_files_without_names_go_by_position():
    """`_col0`, `_col1` of old CTAS files are the table's first columns, whatever these are called."""
    before, after = (
        parse_hive_type("struct<_col0:int,_col1:string>"),
        parse_hive_type("struct<id:bigint,v:string,w:date>"),
    )
    assert recoded(before, after, [(1, "x"), (None, None)]) == [(1, "x", None), (None, None, None)]


def test_inside_a_column_that_goes_by_position_fields_go_by_name():
    """
    Only the columns of a `_col0` file have no names: the fields of a struct in it are found by theirs, and such a
    stripe isn't copied under others.
    """
    before, after = (
        parse_hive_type("struct<_col0:struct<a:int,b:int>>"),
        parse_hive_type("struct<s:struct<b:int,a:int>>"),
    )
    assert recoded(before, after, [((1, 2),)]) == [((2, 1),)]
    assert compatible(opened(acid_file([], before))[1], OutputFormat(acid_type(after))) is not None
    with pytest.raises(RefusedError, match=r"read nothing from _col0\.a, _col0\.b"):
        recoded(before, parse_hive_type("struct<s:struct<x:int,y:int>>"), [((1, 2),)])


def test_an_added_union_is_refused():
    """Arrow has no NULL unions: a column that was added would turn from NULL into a value of its first alternative."""
    before, after = parse_hive_type("struct<a:int>"), parse_hive_type("struct<a:int,u:uniontype<int,string>>")
    with pytest.raises(RefusedError, match=r"column u is uniontype<int,string> and isn't in the file") as refused:
        recoded(before, after, [(1,)])
    assert refused.value.reason is Reason.UNSUPPORTED_FORMAT


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("a:int,gone:string", "a:int", "gone"),
        ("s:struct<x:int,gone:int>", "s:struct<x:int>", "read nothing from s.gone"),
        ("a:bigint", "a:int", "column a is bigint in the file and int in the table"),
        ("a:bigint", "a:double", "bigint"),
        ("a:int", "a:float", "int"),
        ("a:int", "a:decimal(10,2)", "decimal"),
        ("a:decimal(8,2)", "a:decimal(8,3)", "decimal"),
        ("a:decimal(8,1)", "a:decimal(10,0)", "decimal"),
        ("a:string", "a:int", "string"),
        ("a:timestamp", "a:date", "timestamp"),
        ("a:date", "a:string", "date"),
        ("l:array<bigint>", "l:array<int>", r"column l\[\]"),
        ("m:map<string,bigint>", "m:map<string,int>", r"column m\.value"),
        ("a:array<int>", "a:int", "array<int>"),
        ("_col0:int,_col1:int", "a:int", "_col1"),
    ],
)
def test_what_would_lose_values_is_refused(old, new, words):
    """Dropped or renamed columns, narrower types, other kinds: the message names the column and both types."""
    before = parse_hive_type(f"struct<{old}>")
    with pytest.raises(RefusedError, match=words) as refused:
        recoded(before, parse_hive_type(f"struct<{new}>"), [tuple(None for _ in before.children)])
    assert refused.value.reason is Reason.SCHEMA_MISMATCH


@pytest.mark.parametrize("extra", ["", ",moment:timestamp"])
def test_a_text_that_is_too_long_is_refused_when_it_is_met(extra):
    """A string column narrowed to a varchar that holds all its values is fine; one longer value isn't."""
    before, after = parse_hive_type(f"struct<a:string{extra}>"), parse_hive_type(f"struct<a:varchar(2){extra}>")
    moment = ((-5, 7),) if extra else ()
    with pytest.raises(RefusedError, match=r"3 characters.*varchar\(2\)"):
        recoded(before, after, [("ab", *moment), ("abc", *moment)])


@given(st.data(), strategies.row_structs())
def test_adding_a_column_changes_nothing_else(data, row):
    """Any table with a new last column: all values as before, the new one NULL."""
    values = data.draw(st.lists(strategies.filled(row), min_size=1, max_size=6))
    file = acid_file([insert(RowKey(1, BUCKET, n), value) for n, value in enumerate(values)], row)
    tree = opened(file)[1].row_tree
    wider = parse_hive_type("struct<added:struct<x:int,y:array<string>>>")
    new = type(tree)(tree.kind, (*tree.children, *wider.children), (*tree.names, *wider.names))
    sink = MemorySink()
    recode([StripeSource(*opened(file))], OutputFormat(acid_type(new)), sink)
    assert repr([row[5] for row in rows_of(sink)]) == repr([(*row[5], None) for row in rows_of(file)])
