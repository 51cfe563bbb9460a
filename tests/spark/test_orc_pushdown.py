"""Java's predicate push-down judges files of Java and C++ stripes."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import missing

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("how", [[], ["cut"]], ids=["as written", "with rows cut out"])
def test_pruning_by_the_mixed_files_statistics_loses_no_row(tmp_path, how):
    """
    Stripes of Spark's Java writer and of the C++ writer in one file: every comparison of every column finds the same
    rows with and without push-down, and groups are really skipped.
    """
    if shutil.which("java") is None:
        missing("Spark needs Java, which isn't installed")
    ran = subprocess.run(
        [sys.executable, "-m", "tests.spark.pushdown", tmp_path, *how],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["differing"] == []
    assert found["asked"] > 140
    assert found["skipped"] >= 4000
    assert (found["rows_differ"], found["stripes"], found["label"]) == (0, 3, [0, 6])
