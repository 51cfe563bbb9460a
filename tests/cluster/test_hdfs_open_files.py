"""
Files of a real HDFS that are still open for writing, as LOAD DATA brings one whose writer hasn't closed it: they are
neither compacted nor removed, for the NameNode shows them at a length that still grows.
"""

import pytest

from compactor.errors import RefusedError
from compactor.reasons import Reason
from compactor.roles.cleaner.trash import Removal, Trash
from compactor.storage.hdfs.client import require_package
from compactor.storage.location import join, split
from compactor.storage.registry import storage_for
from tests.cluster.mirror import put
from tests.cluster.test_hdfs_compaction import Remote, build

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


@pytest.fixture
def client(hdfs):
    """Another program's client."""
    return require_package().Client(hdfs.root, config_dir=str(hdfs.conf))


@pytest.mark.parametrize("synced", [False, True], ids=["nothing synced", "synced"])
@pytest.mark.parametrize("length", [10, 300_000])
def test_a_file_is_open_until_its_writer_closes_it(hdfs_directory, client, length, synced):
    """Whatever length the NameNode shows meanwhile; opened again for appending it is open again."""
    storage, path = storage_for(hdfs_directory), f"{split(hdfs_directory).path}/f"
    storage.write_small(join(hdfs_directory, "closed"), b"x" * length)
    storage.write_small(join(hdfs_directory, "empty"), b"")

    def open_files():
        return storage.open_files(hdfs_directory, ["closed", "empty", "f", "missing"])

    writer = client.create(path)
    writer.write(b"x" * length)
    if synced:
        writer.inner.hsync()
    assert open_files() == ("f",)
    writer.close()
    assert open_files() == ()
    with client.append(path) as appending:
        assert open_files() == ("f",)
        appending.write(b"x")
    assert open_files() == ()


def test_an_open_file_refuses_the_compaction_by_name(warehouse, hdfs_directory, client):
    """A file in a delta is opened again by its writer: the partition waits until it is closed."""
    table = build(warehouse, files=2, count=100)
    put(table.location, hdfs_directory)
    storage = storage_for(hdfs_directory)
    path = next(file.path for file in storage.list_tree(hdfs_directory).files if "/bucket_" in file.path)
    with client.append(f"{split(hdfs_directory).path}/{path}"):
        with pytest.raises(RefusedError, match=f"{path} is still open for writing") as caught:
            Remote(warehouse, table, hdfs_directory).stage()
        assert caught.value.reason is Reason.OPEN_FILE
    Remote(warehouse, table, hdfs_directory).run()


def test_an_open_file_is_not_removed(hdfs_directory, client):
    """Moved aside with its directory, found open, put back: nothing is deleted."""
    storage, delta = storage_for(hdfs_directory), "delta_0000001_0000001_0000"
    storage.mkdir(join(hdfs_directory, delta))
    with client.create(f"{split(hdfs_directory).path}/{delta}/bucket_00000") as writer:
        writer.write(b"x" * 10)
        files = storage.list_tree(hdfs_directory).files
        trash = Trash(storage, hdfs_directory, 7)
        trash.open()
        trash.take([Removal(delta, files)])
        trash.check()
        with pytest.raises(RefusedError, match="bucket_00000 is still open for writing") as caught:
            trash.require_closed()
        assert caught.value.reason is Reason.OPEN_FILE
        trash.put_back()
    assert [file.path for file in storage.list_tree(hdfs_directory).files] == [f"{delta}/bucket_00000"]
