"""Patterns of tables and partitions, and what is said when they fit nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.cli.naming.patterns import by_pattern, keys_of, partition_fits, require_keys
from compactor.errors import UsageError
from compactor.metastore.model import Entity
from compactor.metastore.partition_names import escaped
from tests.strategies import partition_values


@given(st.text("abc", min_size=1, max_size=4), st.text("abc", min_size=1, max_size=4), st.text("ab*?", max_size=5))
def test_a_pattern_is_of_databases_or_of_tables(database, table, pattern):
    """`*` finds all; a pattern with a dot looks at both names, one without at the database alone."""
    entity = Entity(database, table, "dt=1")
    assert by_pattern("*")(entity)
    assert by_pattern("*.*")(entity)
    assert by_pattern(f"{database}.*")(entity)
    assert by_pattern(f"*.{table}/dt=*")(entity)
    assert not by_pattern(f"{database}x.*")(entity)
    if "*" in pattern or "?" in pattern:
        by_database, by_table = by_pattern(pattern)(entity), by_pattern(f"{pattern}.*")(entity)
        assert by_database == by_table
    with pytest.raises(UsageError):
        by_pattern(f"{database}*/dt=1")


@given(partition_values(), st.data())
def test_keys_come_in_any_order_and_may_be_left_out(values, data):
    """Any of a partition's keys, in any order, escaped or as they are; and no other value of one of them."""
    name = "/".join(f"{key}={escaped(value)}" for key, value in values.items())
    keys = data.draw(st.permutations(list(values)))[: data.draw(st.integers(1, len(values)))]
    assert partition_fits(name, "/".join(f"{key}={escaped(values[key])}" for key in keys))
    assert partition_fits(name, "/".join(f"{key.upper()}={values[key]}" for key in keys))
    assert partition_fits(name, "/".join(f"{key}={values[key][0]}*" for key in keys))
    other = data.draw(st.sampled_from(keys))
    said = "/".join(f"{key}={'zz' if key == other else '*'}" for key in keys)
    assert not partition_fits(name, said)


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        ("dt=2024-*", True),
        ("hour=0?/dt=2024-*", True),
        ("hour=05", True),
        ("dt=2024-01-01", True),
        ("*05", True),
        ("*/hour=05", True),
        ("hour=05/dt=2025-*", False),
        ("hour=5", False),
        ("minute=1", False),
        ("hour=05/minute=1", False),
        ("hour=05/hour=06", False),
        ("xhour=05", False),
        ("", False),
    ],
)
def test_what_a_partition_fits(pattern, fits):
    """The name as a whole, or the values of the keys that are named."""
    assert partition_fits("dt=2024-01-01/hour=05", pattern) is fits


def test_a_table_without_partitions_fits_no_pattern_of_partitions():
    """Its name has no keys."""
    assert not partition_fits("", "=x")
    assert not partition_fits("", "dt=*")


def test_a_wrong_key_is_answered_with_those_that_there_are():
    """And with the nearest."""
    assert keys_of("Hour=0?/dt=a*") == ["hour", "dt"]
    require_keys(["hour"], ["dt", "hour"], "x")
    with pytest.raises(UsageError, match=r"^x: no partition has huor \(did you mean hour\?\); keys .*: dt, hour$"):
        require_keys(["huor", "dt"], ["dt", "hour"], "x")
