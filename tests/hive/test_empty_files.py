"""Files of no bytes among others, as Tez leaves them for empty buckets and IMPORT brings them: what Hive reads in them."""

import pytest

from compactor.acid.compaction import CompactionKind
from compactor.errors import CorruptFileError
from tests.compacting import Attempt
from tests.hive.reader import JudgeError
from tests.reference.compare import expected_rows, schema_of
from tests.unit.engine.files_of_no_bytes import PLACES, put_empty_files, table_of

pytestmark = pytest.mark.hive


@pytest.mark.parametrize("release", ["4", "3"])
@pytest.mark.parametrize("place", [*PLACES, "delete_delta"])
def test_hive_reads_no_rows_in_a_file_of_no_bytes(request, release, place):
    """
    In a base, delta or loaded delta, and among originals, before other files and after them: the rows of the others, in
    the vectorised reader and row by row, before and after a compaction. Over one in a delete delta the vectorised reader
    fails: there a compaction is refused.
    """
    warehouse = request.getfixturevalue("warehouse" if release == "4" else "warehouse_3")
    judge = request.getfixturevalue(f"hive_{release}")
    table = table_of(warehouse, place)
    (directory,) = table.directories.values()
    put_empty_files(directory.location, place)

    def seen(mode):
        snapshot = warehouse.snapshot(table)
        txns = snapshot.txns if release == "4" else None
        return judge.rows(
            directory.location, schema_of(table), snapshot.write_ids, txns, mode=mode, buckets=table.buckets
        )

    first = 1 if place.startswith("only") else 0  # the write whose files all became empty
    expected = [row for row in expected_rows(warehouse, table)[None] if row[0][0] != first or not first]
    if place == "delete_delta":
        assert seen("row") == expected
        with pytest.raises(JudgeError, match="NullPointerException"):
            seen("vector")
        with pytest.raises(CorruptFileError, match="Hive's vectorised reader fails"):
            Attempt(warehouse, table).plan()
        return
    assert seen("vector") == seen("row") == expected
    kinds = (CompactionKind.MINOR, CompactionKind.MAJOR) if release == "4" else (CompactionKind.MAJOR,)
    for kind in kinds:
        Attempt(warehouse, table, kind).run()
        assert seen("vector") == seen("row") == expected
