"""Which delete files concern which bucket, where statistics don't tell."""

import pytest

from compactor.acid.columns import ColumnRule
from compactor.acid.row_id import RowKey, encode
from compactor.engine.delete_files import Deletes
from compactor.engine.inputs import file_facts, read_tails
from compactor.planning.document import FileRole, InputFile
from compactor.planning.segments import SegmentSource
from compactor.storage.local_fs.driver import LocalStorage
from tests.unit.orc.files import ROW, acid_file, delete

EVENTS = {
    "one": [RowKey(1, encode(0, 0), 0), RowKey(1, encode(0, 0), 1)],
    "two": [RowKey(1, encode(1, 0), 0)],
    "both": [RowKey(2, encode(0, 0), 5), RowKey(2, encode(1, 0), 5)],
    "gone": [RowKey(2, encode(1, 0), 6)],
}


class Counting(LocalStorage):
    """Notes which files are opened."""

    def __init__(self):
        super().__init__()
        self.opened = []

    def open_read(self, path):
        self.opened.append(path.rpartition("/")[2])
        return super().open_read(path)


@pytest.mark.parametrize("stride", [0, 10_000])
def test_a_file_is_read_for_the_buckets_in_it(tmp_path, stride):
    """
    Without statistics (Hive 3.1 compacts so) a file is read once to find its buckets, then for those alone, not for
    each bucket of the table.
    """
    files = []
    for name, keys in EVENTS.items():
        (tmp_path / name).write_bytes(
            acid_file([delete(key, 8 if name == "gone" else 7) for key in keys], row_index_stride=stride)
        )
        files.append(
            InputFile(name, (tmp_path / name).stat().st_size, 0, FileRole.DELETE_DELTA, "delete_delta_7_8", 0, 7, 8)
        )
    storage = Counting()
    reads = read_tails(storage, str(tmp_path), files)
    sources = [SegmentSource(read.file, file_facts(read, ROW, ColumnRule.NAME)) for read in reads]
    storage.opened.clear()
    deletes = Deletes(storage, str(tmp_path), sources, {read.file.path: read.tail for read in reads}, [8], 100)
    assert deletes.buckets() == (0, 1)
    found = {bucket: deletes.look(bucket, (), 1)[0] for bucket in (0, 1)}
    assert {bucket: (facts.events, facts.own) for bucket, facts in found.items()} == {0: (3, 2), 1: (2, 1)}
    once = {name: storage.opened.count(name) for name in EVENTS}
    assert once == (
        {"one": 2, "two": 2, "both": 3, "gone": 1} if stride == 0 else {"one": 1, "two": 1, "both": 3, "gone": 1}
    )
    assert found[1].paths == (("two", "both") if stride == 0 else ("two", "gone", "both"))
