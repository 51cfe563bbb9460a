"""
Tables in an encryption zone of HDFS, with a real KMS: compacted as any, and of a replication source handed to a
change-management root in the same zone, or refused.
"""

import itertools
from dataclasses import replace

import pytest

from compactor.acid.compaction import CompactionKind
from compactor.reasons import Reason
from compactor.storage.location import join
from compactor.storage.registry import configure, configured, storage_for
from tests.cluster.test_change_management import (
    files_of,
    hive,
    managed,
    test_hive_finds_what_was_removed,  # the same test, in a zone
    world,
)
from tests.cluster.test_hdfs_compaction import build, compact_there
from tests.compacting import InProcess
from tests.metastore.actor import T
from tests.unit.roles.cleaner.test_cleaner_requests import request

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
NAMES = {"no zone": "no encryption zone", "another zone": "encryption zone /warehouse/zone"}
_NUMBERS = itertools.count(1)
__all__ = ["hive", "test_hive_finds_what_was_removed", "world"]


@pytest.fixture
def hdfs(zones):
    """For the fixtures and tests of replication sources."""
    return zones


def zone(server):
    """The location of a new encryption zone."""
    path = f"/warehouse/zone{next(_NUMBERS)}"
    server.command("zone", "make", path)
    return server.root + path


@pytest.fixture
def hdfs_directory(hdfs):
    """The location of an empty encryption zone."""
    return zone(hdfs)


@pytest.fixture
def root(request, hdfs, hdfs_directory):
    """The change-management root that we are configured for: in the table's zone unless a test says otherwise."""
    match getattr(request, "param", "the same zone"):
        case "the same zone":
            root = join(hdfs_directory, "cmroot")
        case "no zone":
            root = f"{hdfs.root}/warehouse/cmroot{next(_NUMBERS)}"
        case _:
            root = join(zone(hdfs), "cmroot")
    with managed(root):
        yield root


def on_disk(server):
    """The first bytes of all blocks that the DataNode holds."""
    return [path.read_bytes()[:3] for path in server.folder.glob("dfs/data/**/blk_*") if path.suffix != ".meta"]


@pytest.mark.parametrize("kind", [CompactionKind.MAJOR, CompactionKind.MINOR])
@pytest.mark.parametrize("insert_only", [False, True])
def test_a_table_in_a_zone_is_compacted(warehouse, hdfs, hdfs_directory, kind, insert_only):
    """The rows are the same before and after, and what lies on the DataNode's disk is encrypted."""
    compact_there(
        warehouse, build(warehouse, count=500, insert_only=insert_only), hdfs_directory, kind, submitter=InProcess()
    )
    assert on_disk(hdfs)
    assert b"ORC" not in on_disk(hdfs)


@pytest.mark.hive
@pytest.mark.parametrize(("root", "place"), [(place, place) for place in NAMES], indirect=["root"])
def test_a_root_in_another_zone_is_refused_before_any_work(world, hive, root, place, hdfs_directory):
    """
    The Initiator queues nothing, and the Worker refuses what Hive queued; both name the two zones, and nothing is
    compacted.
    """
    world.table(rows=4, insert_only=True)
    world.move(hdfs_directory)
    location = join(world.remote, "db.db", "t")
    before = storage_for(location).list_tree(location)
    world.settle_time()
    world.configure(initiator={"thresholds": {"delta_count": 3}})
    assert "queued 0 of 1 candidates, 1 listed" in world.initiator().run_once().sentence
    world.enqueue(T)
    world.worker().run_once()
    assert storage_for(location).list_tree(location) == before
    assert world.states() == []
    assert [state for state, _ in world.ended()] == ["refused", "did not initiate"]
    for _, message in world.ended():
        assert message.startswith(
            f"{Reason.REPLICATION_SOURCE.value}: {location} is in encryption zone /warehouse/zone"
        )
        assert f"the change-management root {root} in {NAMES[place]}" in message


@pytest.mark.hive
def test_a_cleaner_whose_root_is_in_another_zone_moves_nothing(world, hive, root, hdfs, hdfs_directory):
    """
    The root was set anew after the compaction: a replica finds every file at its place until it is set right, and in
    the root then.
    """
    world.table(rows=4, insert_only=True)
    world.move(hdfs_directory)
    location = join(world.remote, "db.db", "t")
    old = files_of(location, *storage_for(location).directories(location))
    noted = {path: hive.checksum(path) for path in old}
    world.settle_time()
    world.initiator().run_once()
    world.worker().run_once()
    assert world.states() == ["ready for cleaning"], world.ended()
    world.configure(cleaner={"retry_seconds": 0.001})
    before, listing = configured(), storage_for(location).list_tree(location)
    elsewhere = f"{hdfs.root}/warehouse/cmroot{next(_NUMBERS)}"
    storage_for(elsewhere).mkdir(elsewhere)
    configure(replace(before, hdfs=before.hdfs.model_copy(update={"change_management_root": elsewhere})))
    for _ in range(2):
        assert "HDFS moves no file from the one to the other" in world.clean()
    assert storage_for(location).list_tree(location) == listing
    assert all(hive.find(path, checksum) == ("source", path) for path, checksum in noted.items())
    configure(before)
    assert world.clean().startswith("cleaned 1 entry, 4 directories")
    for path, checksum in noted.items():
        where, found = hive.find(path, checksum)
        assert (where, hive.checksum(found)) == ("root", checksum)


@pytest.mark.hive
@pytest.mark.parametrize("hive", ["4"], indirect=True)
@pytest.mark.parametrize("root", ["no zone"], indirect=True)
def test_what_was_dropped_stays_where_its_files_can_not_be_handed_over(world, root, hdfs_directory):
    """
    A dropped table whose directory is an encryption zone of its own: refused before it is moved, with the directory
    above, and the root, in none.
    """
    storage = storage_for(hdfs_directory)
    storage.write_small(join(hdfs_directory, "000000_0"), b"x")
    world.root(hdfs_directory.rpartition("/")[0])
    request(world, "db.gone", hdfs_directory, ended="committed")
    assert f"{hdfs_directory} is in encryption zone" in world.clean()
    assert [file.path for file in storage.list_tree(hdfs_directory).files] == ["000000_0"]
