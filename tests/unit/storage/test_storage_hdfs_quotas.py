"""Which directories are asked for what their quotas leave, how often, and what is made of one that doesn't answer."""

from types import SimpleNamespace

import pytest

from compactor.errors import UnreachableError
from compactor.storage.base import Room
from compactor.storage.hdfs.client import FileDefaults
from compactor.storage.hdfs.quotas import Quotas
from tests.unit.storage.test_storage_hdfs import answered

PARTITION = "/warehouse/db/t/p=1"
UNSET = 2**64 - 1
CLOSED = answered(
    "org.apache.hadoop.security.AccessControlException",
    'Permission denied: user=hive, access=READ_EXECUTE, inode="/warehouse/db/private"',
)


def counted(names=10, quota=UNSET, space=0, space_quota=UNSET):
    """A content summary."""
    return SimpleNamespace(
        file_count=names - 1, directory_count=1, quota=quota, space_consumed=space, space_quota=space_quota
    )


class NameNode:
    """Answers as `says` has it by directory, after `takes` seconds; `asked` lists them in turn."""

    def __init__(self, says):
        self.says = says
        self.takes = 0.0
        self.now = 1000.0
        self.asked = []

    def get_content_summary(self, path):
        self.asked.append(path)
        self.now += self.takes
        found = self.says.get(path, counted())
        if isinstance(found, Exception):
            raise found
        return found

    def quotas(self):
        return Quotas(lambda: self, lambda: FileDefaults(2, 100), clock=lambda: self.now)

    def questions(self):
        asked, self.asked = self.asked, []
        return asked


def test_the_nearest_quota_of_each_kind_counts():
    """
    Once both are known, nothing above is asked; a block is taken off, and a byte counts as often as it is replicated.
    """
    node = NameNode(
        {
            PARTITION: counted(5),
            "/warehouse/db/t": counted(20, quota=50),
            "/warehouse/db": counted(90, quota=95, space=600, space_quota=1000),
        }
    )
    found = node.quotas().room(PARTITION)
    assert (found.bytes, found.names) == (100, 30)
    assert found.limited_by == "the name quota of /warehouse/db/t or the space quota of /warehouse/db"
    assert node.questions() == [PARTITION, "/warehouse/db/t", "/warehouse/db"]


def test_a_private_directory_beside_the_table_closes_only_what_is_above_it():
    """
    The NameNode refuses the count of the database and of all above: a quota of the table still counts, and a compaction
    isn't refused for it.
    """
    node = NameNode({"/warehouse/db": CLOSED, "/warehouse/db/t": counted(20, quota=50)})
    assert node.quotas().room(PARTITION).names == 30
    assert node.questions() == [PARTITION, "/warehouse/db/t", "/warehouse/db"]
    node = NameNode({PARTITION: CLOSED})
    found = node.quotas().room(PARTITION)
    assert (found.bytes, found.names, found.limited_by) == (None, None, "no quota")
    assert node.questions() == [PARTITION]


def test_a_directory_above_that_does_not_answer_stops_nothing():
    """
    The partition has answered; whether the NameNode is there, what follows will show. Where the partition itself
    doesn't answer, it is told.
    """
    silent = OSError("Connection reset by peer (os error 104)")
    node = NameNode({"/warehouse": silent})
    assert node.quotas().room(PARTITION).bytes is None
    with pytest.raises(UnreachableError):
        NameNode({PARTITION: silent}).quotas().room(PARTITION)
    with pytest.raises(FileNotFoundError):
        NameNode({PARTITION: FileNotFoundError("gone")}).quotas().room(PARTITION)


def test_a_directory_above_that_did_not_answer_is_asked_again_soon():
    """
    Else a NameNode that was away for a moment hid a quota for ten minutes: what had no room was begun all the same.
    """
    node = NameNode({"/warehouse/db/t": OSError("Connection reset by peer (os error 104)")})
    quotas = node.quotas()
    assert quotas.room(PARTITION).names is None
    node.says["/warehouse/db/t"] = counted(20, quota=50)
    node.now += 61
    assert quotas.room(PARTITION).names == 30


def test_what_is_large_is_not_climbed_above():
    """A directory with more than a million names is counted, those above it aren't."""
    node = NameNode({"/warehouse/db": counted(1_000_001)})
    assert node.quotas().room(PARTITION).names is None
    assert node.questions() == [PARTITION, "/warehouse/db/t", "/warehouse/db"]


def test_directories_above_are_not_counted_for_each_partition():
    """
    Those without a quota, and those that don't tell, are asked every ten minutes; those with one every minute, as the
    partition itself.
    """
    node = NameNode({"/warehouse/db": counted(20, quota=50), "/warehouse": CLOSED})
    quotas = node.quotas()
    quotas.room(PARTITION)
    node.questions()
    quotas.room(PARTITION)
    assert node.questions() == []
    assert quotas.room("/warehouse/db/t/p=2").names == 30
    assert node.questions() == ["/warehouse/db/t/p=2"]
    node.now += 61
    quotas.room(PARTITION)
    assert node.questions() == [PARTITION, "/warehouse/db"]
    node.now += 600
    quotas.room(PARTITION)
    assert node.questions() == [PARTITION, "/warehouse/db/t", "/warehouse/db", "/warehouse"]


def test_a_count_that_takes_long_is_kept_long():
    """Two hundred times as long as it took, and an hour at most."""
    node = NameNode({"/warehouse/db": counted(20, quota=50)})
    quotas = node.quotas()
    node.takes = 5
    quotas.room(PARTITION)
    node.questions()
    node.now += 900
    quotas.room(PARTITION)
    assert node.questions() == []
    node.now += 100
    node.takes = 60
    quotas.room(PARTITION)
    node.questions()
    node.now += 3601
    assert quotas.room(PARTITION) == Room(None, 30, "the name quota of /warehouse/db", quotas.room(PARTITION).reason)
    assert node.questions() == [PARTITION, "/warehouse/db/t", "/warehouse/db", "/warehouse"]
