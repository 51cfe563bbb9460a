"""By place or by name: how the columns of a file are found."""

import pytest

from compactor.acid.columns import ColumnRule, by_place, nameless
from compactor.acid.types import parse_hive_type


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
