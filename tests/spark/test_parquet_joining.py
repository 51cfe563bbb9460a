"""Spark's Parquet reader, Java's, judges joined files that Spark wrote."""

import pytest

from tests.spark.processes import said_by

pytestmark = pytest.mark.spark


@pytest.mark.timeout(900)
def test_spark_reads_joined_files_as_it_read_their_sources(tmp_path):
    """
    INT96 and other timestamps, old dates, legacy decimals and lists, Bloom filters, pages of both versions: copied or
    encoded anew, both readers find the same rows, and every comparison finds the same rows with push-down as without.
    """
    found = said_by("parquet_joining", tmp_path)
    assert len(found) == 10
    for manner, said in found.items():
        assert (said["rows_differ"], said["differing"]) == ([], []), manner
        assert said["asked"] > 50
        recoded = manner.endswith("encoded") and not manner.startswith("bloom")
        assert (said["recoded"], said["row_groups"]) == (recoded, 1 if recoded else 4), manner
        assert (3 in said["types"]) == (manner.startswith(("int96", "legacy", "bloom", "version 2"))), manner
    assert found["bloom, copied"]["kept"] == "it has Bloom filters"
    number, absent, text = found["bloom, copied"]["scanned"]
    assert max(number, text) < 200, "row groups and pages were left out by moved statistics and page indexes"
    assert absent == 0, "row groups were left out by moved Bloom filters"
    assert min(found["int96, encoded"]["scanned"]) == 3000, "one row group of one page has nothing to leave out"
