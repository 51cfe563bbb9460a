"""Java's predicate push-down judges files of Java and C++ stripes."""

import pytest

from tests.spark.processes import said_by

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("how", [[], ["cut"]], ids=["as written", "with rows cut out"])
def test_pruning_by_the_mixed_files_statistics_loses_no_row(tmp_path, how):
    """
    Stripes of Spark's Java writer and of the C++ writer in one file: every comparison of every column finds the same
    rows with and without push-down, and groups are really skipped.
    """
    found = said_by("pushdown", tmp_path, *how)
    assert found["differing"] == []
    assert found["asked"] > 140
    assert found["skipped"] >= 4000
    assert (found["rows_differ"], found["stripes"], found["label"]) == (0, 3, [0, 6])
