"""Java's predicate push-down judges files of Java and C++ stripes."""

import pytest

from tests.spark.processes import said_by

pytestmark = pytest.mark.spark


@pytest.mark.timeout(900)
def test_pruning_by_the_mixed_files_statistics_loses_no_row(tmp_path):
    """
    Stripes of Spark's Java writer and of the C++ writer in one file, as they were written, and with rows cut out: every
    comparison of every column finds the same rows with and without push-down, and groups are really skipped.
    """
    said = said_by("pushdown", tmp_path)
    assert list(said) == ["as written", "with rows cut out"]
    for manner, found in said.items():
        assert found["differing"] == [], manner
        assert found["asked"] > 80
        assert found["found"] > 100_000
        assert found["skipped"] >= 4000
        assert (found["rows_differ"], found["stripes"], found["label"]) == (0, 3, [0, 6])
