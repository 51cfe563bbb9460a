"""By place or by name: how the columns of a file are found."""

import pytest

from compactor.acid.columns import ColumnRule, by_place, converted, nameless, unread
from compactor.acid.types import Kind, parse_hive_type


@pytest.mark.parametrize(
    ("rule", "row", "found_by_place"),
    [
        (ColumnRule.POSITION, "struct<a:int,b:int>", True),
        (ColumnRule.NAME, "struct<a:int,b:int>", False),
        (ColumnRule.BOTH, "struct<a:int,b:int>", False),
        (ColumnRule.NAME, "struct<_col0:int,_col1:int>", True),
        (ColumnRule.NAME, "struct<_col0:int,b:int>", False),
    ],
)
def test_how_columns_are_found(rule, row, found_by_place):
    """By their places where the readers do so, or where no column has a name of its own; otherwise by their names."""
    assert by_place(parse_hive_type(row), rule) is found_by_place


def test_a_row_without_columns_has_names():
    """A file without columns isn't one of nameless ones."""
    assert not nameless(parse_hive_type("struct<>"))


@pytest.mark.parametrize(
    ("file", "table", "position", "name"),
    [
        ("a:int,n:decimal(10,2)", "a:int,n:decimal(10,2)", (), ()),
        ("a:int,n:decimal(10,2)", "a:bigint,n:decimal(12,2)", ("n",), ("n",)),
        ("a:int,n:decimal(10,2)", "a:int,n:string", ("n",), ("n",)),
        ("n:decimal(10,2)", "m:decimal(12,2)", ("m",), ()),
        ("n:decimal(10,2),m:decimal(5,0)", "m:decimal(10,2),n:decimal(5,0)", (), ("m", "n")),
        ("n:decimal(10,2)", "n:decimal(10,2),more:decimal(3,1)", (), ()),
        ("s:struct<n:decimal(10,2)>", "s:struct<o:int,n:decimal(12,2)>", ("s.n",), ("s.n",)),
        ("l:array<decimal(10,2)>", "l:array<decimal(12,2)>", ("l",), ("l",)),
        ("m:map<string,decimal(1,0)>", "m:map<string,decimal(2,0)>", ("m",), ("m",)),
        ("n:array<decimal(10,2)>", "n:string", (), ()),
    ],
)
def test_which_columns_are_converted(file, table, position, name):
    """
    Those that a reader takes from a decimal of another type, at any depth; with readers of both kinds in the site, what
    either of them converts.
    """
    file, table = parse_hive_type(f"struct<{file}>"), parse_hive_type(f"struct<{table}>")
    assert converted(file, table, ColumnRule.POSITION, Kind.DECIMAL) == position
    assert converted(file, table, ColumnRule.NAME, Kind.DECIMAL) == name
    assert set(converted(file, table, ColumnRule.BOTH, Kind.DECIMAL)) == {*position, *name}


@pytest.mark.parametrize("more", ["int,string,date", "int"])
def test_unions_of_other_alternatives_are_no_lost_columns(more):
    """What one union has beyond the other is another type, which the conversion of the column refuses."""
    file, table = (parse_hive_type(f"struct<u:uniontype<{inside}>>") for inside in ("int,string", more))
    assert unread(file, table, ColumnRule.NAME) == converted(file, table, ColumnRule.NAME, Kind.DECIMAL) == ()
