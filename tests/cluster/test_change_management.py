"""
Tables of replication sources, on a real HDFS: what the Cleaner removes is found again by Hive's own
`ReplChangeManager`, under the names that it gives itself.
"""

import contextlib
from dataclasses import replace

import pytest

from compactor.engine.change_management import ChangeManagement, change_management
from compactor.errors import RefusedError
from compactor.reasons import Reason
from compactor.roles import steps
from compactor.storage.location import join
from compactor.storage.registry import configure, configured, storage_for
from tests.cluster.test_hdfs_compaction import HdfsWorld
from tests.hive.recycle.change_management import HiveChangeManagement
from tests.hive.server.jars import UnavailableError
from tests.metastore.actor import T
from tests.metastore.databases import metastore
from tests.needs import missing

pytestmark = [pytest.mark.cluster, pytest.mark.hive, pytest.mark.timeout(600)]
NAME = {"3": "postgres-3", "4": "sqlite"}


@contextlib.contextmanager
def managed(root):
    """A change-management root is made, and we are configured for it."""
    storage_for(root).mkdir(root)
    before = configured()
    configure(replace(before, hdfs=before.hdfs.model_copy(update={"change_management_root": root})))
    yield root
    change_management().close()
    configure(before)


@pytest.fixture
def root(hdfs_directory):
    """The change-management root, that we are configured for."""
    with managed(join(hdfs_directory, "cmroot")) as root:
        yield root


@pytest.fixture(params=["3", "4"])
def hive(request, root, hdfs, tmp_path):
    """Hive's own change management, of one release."""
    try:
        judge = HiveChangeManagement(request.param, hdfs.conf, root, tmp_path / "hive.log")
    except UnavailableError as error:
        missing(str(error))
    judge.version = request.param
    with judge:
        yield judge


@pytest.fixture
def world(hive, root, hdfs, tmp_path, request):
    """A replication source with a table of four inserts."""
    with metastore(NAME[hive.version], request, tmp_path) as database:
        world = HdfsWorld(database, tmp_path)
        means = {"conf_dir": str(hdfs.conf), "change_management_root": root}
        world.services = world.new_services(hdfs=means, initiator={"thresholds": {"delta_count": 3}})
        world.warehouse.create_database("db", {"repl.source.for": "policy"})
        yield world


def files_of(location, *names):
    storage = storage_for(location)
    return [join(location, file.path) for file in storage.list_tree(location).files if file.path.split("/")[0] in names]


@pytest.mark.parametrize("cut_off", [None, steps.CLEANER_COMPARED])
def test_hive_finds_what_was_removed(world, hive, root, hdfs_directory, cut_off):
    """
    Each file is gone from its place and is read from the root by name and checksum, and tells where it was; also after
    a Cleaner that died before it deleted.
    """
    table = world.table(rows=4, insert_only=True)
    before = world.rows(table)
    place = join(hdfs_directory, "warehouse")
    storage_for(place).mkdir(place)
    world.move(place)
    location = join(world.remote, "db.db", "t")
    old = files_of(location, *storage_for(location).directories(location))
    noted = {path: hive.checksum(path) for path in old}
    assert len(old) >= 4
    world.settle_time()
    world.initiator().run_once()
    world.worker().run_once()
    assert world.states() == ["ready for cleaning"], world.ended()
    assert all(hive.find(path, checksum) == ("source", path) for path, checksum in noted.items())
    if cut_off:
        world.clean_until_it_breaks(cut_off)
    assert world.clean().startswith("cleaned 1 entry, 4 directories")
    assert [name.split("_")[0] for name in storage_for(location).directories(location)] == ["base"]
    for path, checksum in noted.items():
        where, found = hive.find(path, checksum)
        assert (where, hive.checksum(found)) == ("root", checksum)
    data = {checksum: path for path, checksum in noted.items() if "/bucket_" in path or "/0000" in path}
    for checksum, path in data.items():
        assert hive.origin(hive.find(path, checksum)[1]) == path
    world.bring_back()
    assert world.rows(table) == before


def test_names_are_those_hive_gives(hive, root, hdfs_directory):
    """
    The same files, recycled by Hive into its root and by us into another, get the same names; what Hive recycled
    already is only kept for longer.
    """
    storage = storage_for(hdfs_directory)
    ours = join(hdfs_directory, "ours")
    storage.mkdir(ours)
    manager = ChangeManagement(configured().hdfs.model_copy(update={"change_management_root": ours}))
    names = [
        "bucket_00000",
        "bucket_00000_0",
        "ä b%2F",
        "n" * 198,
        "n" * 199,
        "n" * 200,
        "m" * 250,
        ".hidden",
        "_orc_acid_version",
    ]
    for copy in ("by_hive", "by_us", "again"):
        storage.mkdir(join(hdfs_directory, copy))
        storage.mkdir(join(hdfs_directory, copy, "delta_0000001_0000001_0000"))
        for number, name in enumerate(names):
            storage.write_small(join(hdfs_directory, copy, "delta_0000001_0000001_0000", name), b"content" * number)
    assert hive.recycle(join(hdfs_directory, "by_hive")) == len(names) - 1
    before = configured()
    configure(replace(before, hdfs=before.hdfs.model_copy(update={"change_management_root": ours})))
    assert manager.recycle(join(hdfs_directory, "by_us"), join(hdfs_directory, "t")) == len(names) - 1
    manager.close()
    configure(before)
    told = [sorted((file.path, file.length) for file in storage.list_tree(place).files) for place in (root, ours)]
    assert told[0] == told[1]
    assert change_management().recycle(join(hdfs_directory, "again"), join(hdfs_directory, "t")) == 0
    assert hive.recycle(join(hdfs_directory, "again")) == 0


def test_a_root_that_is_not_there_is_refused_before_any_work(world, hive, root, hdfs_directory):
    """The Initiator queues nothing, and the Worker refuses what Hive queued; both say what is missing."""
    world.table(rows=4, insert_only=True)
    place = join(hdfs_directory, "warehouse")
    storage_for(place).mkdir(place)
    world.move(place)
    hive.find(root, "00")  # which makes the root when it starts
    storage_for(root).delete_tree(root)
    world.settle_time()
    assert "queued 0 of 1 candidates, 1 listed" in world.initiator().run_once().sentence
    world.enqueue(T)
    world.worker().run_once()
    assert [state for state, _ in world.ended()] == ["refused", "did not initiate"]
    assert all(
        message.startswith(f"{Reason.REPLICATION_SOURCE.value}: {root} isn't there") for _, message in world.ended()
    )


def test_another_file_system_is_refused(root):
    """A table that isn't where the root is."""
    with pytest.raises(RefusedError, match="isn't on the file system"):
        change_management().require("file:/warehouse/db.db/t")
