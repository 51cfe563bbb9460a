"""
Whole compactions of tables on a real HDFS: the rows are the same before and after, by a reader that shares no code with
us.
"""

from dataclasses import replace

import pytest
from sqlalchemy import func

from compactor.acid.compaction import CompactionKind
from compactor.engine.compaction import Compaction
from compactor.metastore.db.database import Database
from compactor.metastore.model import Entity
from compactor.roles.cleaner.cleaner import Cleaner
from compactor.roles.initiator.initiator import Initiator
from compactor.roles.worker.worker import Worker
from compactor.storage.location import join, name
from compactor.storage.registry import storage_for
from tests.cluster.mirror import fetch, put
from tests.compacting import KIB, Attempt, InProcess, settings
from tests.daemon.lab import Shared
from tests.reference.compare import expected_rows, read_table
from tests.spark.conftest import submitter  # noqa: F401 - a fixture
from tests.unit.roles.world import World

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
COLUMNS = [("id", "int"), ("v", "string")]


class Remote(Attempt):
    """One compaction of a table that was built here and lies there."""

    def __init__(self, warehouse, table, location, kind=CompactionKind.MAJOR, **how):
        super().__init__(warehouse, table, kind, **how)
        self.remote = location
        self.request = replace(self.request, location=location)
        self.compaction = Compaction(self.request, storage_for(location), self.submitter, self.settings)


def rows(first, count):
    return [(first + i, f"{(first + i) * 2654435761 % (1 << 32):x}" * 4) for i in range(count)]


def build(warehouse, files=3, count=4000, **options):
    """A table with inserts, and deletes where it can have them."""
    table = warehouse.create_table("db", "t", COLUMNS, **options)
    for number in range(files):
        with warehouse.begin() as txn:
            txn.insert(table, rows(number * count, count))
    if not options.get("insert_only"):
        with warehouse.begin() as txn:
            txn.delete(table, lambda row: row[0] % 1000 == 0)
    return table


def compact_there(warehouse, table, location, kind=CompactionKind.MAJOR, **how):
    """Compact on HDFS; what lies there afterwards is read here, by new readers and by old ones."""
    before, old = read_table(warehouse, table), warehouse.snapshot(table)
    assert before == expected_rows(warehouse, table)
    put(table.location, location)
    attempt = Remote(warehouse, table, location, kind, **how)
    published = attempt.run()
    fetch(location, table.location)
    assert read_table(warehouse, table) == before
    assert read_table(warehouse, table, old) == before
    return attempt, published


@pytest.mark.spark
@pytest.mark.parametrize("kind", [CompactionKind.MAJOR, CompactionKind.MINOR])
def test_both_kinds_by_spark_tasks(warehouse, hdfs_directory, submitter, kind):  # noqa: F811
    """Tasks make their own connection from what travels with them; nothing hidden is left in the directory."""
    small = settings(splice={"min_stripe_bytes": 4 * KIB}, recode={"target_stripe_bytes": 1024 * KIB})
    _, published = compact_there(warehouse, build(warehouse), hdfs_directory, kind, submitter=submitter, settings=small)
    assert set(published.directories) <= set(storage_for(hdfs_directory).directories(hdfs_directory))
    assert not [found for found in storage_for(hdfs_directory).directories(hdfs_directory) if found.startswith(".")]


def test_hive_3(warehouse_3, hdfs_directory):
    """The rename is the commit; a base has its marker of origin."""
    table = build(warehouse_3, files=2, count=100)
    before = read_table(warehouse_3, table)
    put(table.location, hdfs_directory)
    attempt = Remote(warehouse_3, table, hdfs_directory)
    (base,) = attempt.run().directories
    listing = storage_for(hdfs_directory).list_tree(hdfs_directory)
    assert (base, "compacted") in listing.formats
    fetch(hdfs_directory, table.location)
    assert read_table(warehouse_3, table) == before


def test_insert_only(warehouse, hdfs_directory):
    """Whole files are copied, for HDFS has no links; their bytes count as room that is needed."""
    compact_there(warehouse, build(warehouse, insert_only=True), hdfs_directory, submitter=InProcess())


def test_what_belongs_to_the_table_is_carried_over(warehouse, hdfs_directory, hdfs):
    """
    Owner, group, permission and access control list of the partition's directory; a file isn't executable by that.
    """
    import hdfs_native
    from hdfs_native import AclEntry

    client = hdfs_native.Client(hdfs.root, config_dir=str(hdfs.conf))
    top = hdfs_directory.removeprefix(hdfs.root)
    client.set_owner(top, "etl", "analysts")
    table = build(warehouse, files=2, count=50)
    put(table.location, hdfs_directory)
    whole = [("user", "rwx", None), ("user", "r-x", "bob"), ("group", "r-x", None), ("other", "---", None)]
    entries = [AclEntry(kind, "access", action, who) for kind, action, who in whole]
    entries += [AclEntry(kind, "default", action, who) for kind, action, who in whole]
    client.set_acl(top, entries)
    (base,) = Remote(warehouse, table, hdfs_directory).run().directories
    model = client.get_file_info(top)

    def acl(path):
        return sorted(
            (str(e.scope), str(e.type), e.name or "", str(e.permissions)) for e in client.get_acl_status(path).entries
        )

    for path in (f"{top}/{base}", f"{top}/{base}/bucket_00000", f"{top}/{base}/_orc_acid_version"):
        found = client.get_file_info(path)
        assert (found.owner, found.group) == ("etl", "analysts")
        assert found.permission == (model.permission if found.isdir else model.permission & 0o666)
    assert acl(f"{top}/{base}") == acl(top)
    assert acl(f"{top}/{base}/bucket_00000") == [("access", "group", "", "r--"), ("access", "user", "bob", "r--")]


def test_new_files_are_made_as_configured(warehouse, hdfs_directory, hdfs):
    """Replication and block size are those of hdfs-site.xml, which the NameNode doesn't know."""
    import hdfs_native

    client = hdfs_native.Client(hdfs.root, config_dir=str(hdfs.conf))
    storage_for(hdfs_directory).write_small(join(hdfs_directory, "f"), b"x")
    found = client.get_file_info(f"{hdfs_directory.removeprefix(hdfs.root)}/f")
    assert (found.replication, found.blocksize) == (1, 64 << 20)


class HdfsWorld(World):
    """Catalog and queue in a database here, all data on HDFS."""

    def move(self, location):
        """Move the whole warehouse there."""
        storage_for(location).mkdir(join(location, "w"))
        self.remote = join(location, "w")
        put(self.folder / "warehouse", self.remote)
        schema = self.database.schema
        for column in (schema.sds.c.location, schema.dbs.c.db_location_uri):
            for prefix in (f"file:{self.folder}/warehouse", f"{self.folder}/warehouse"):
                self.hive.change(
                    column.table.update()
                    .where(column.like(f"{prefix}%"))
                    .values({column: func.replace(column, prefix, self.remote)})
                )

    def bring_back(self):
        """What lies on HDFS now, to be read here."""
        fetch(self.remote, self.folder / "warehouse")


@pytest.fixture
def world(tmp_path):
    """A SQLite metastore of Hive 4."""
    with Database(f"sqlite:///{tmp_path}/metastore.db", create=True) as database:
        yield HdfsWorld(database, tmp_path)


@pytest.mark.spark
def test_the_roles_find_compact_and_clean(world, hdfs_directory, submitter):  # noqa: F811
    """
    Initiator, Worker on Spark, and Cleaner on a catalog whose locations are on HDFS: a major, a minor with deletes,
    obsolete directories removed, rows as ever.
    """
    world.submitter = Shared(submitter)
    world.services = world.new_services(hdfs={"conf_dir": str(_conf())}, initiator={"thresholds": {"delta_count": 3}})
    plain, kept = world.table("plain", rows=5), world.table("kept", rows=2)
    world.delete(plain, 2)
    parted = world.table("parted", rows=0, partition_keys=[("k", "string")])
    for number in range(4):
        world.insert(parted, [(number, "x")], ("a b%2F",))
    world.aborted_insert(plain, [(99, "never")])
    before = {table.full_name: world.rows(table) for table in (plain, kept, parted)}
    world.move(hdfs_directory)
    world.settle_time()
    Initiator(world.services).run_once()
    assert len(world.states()) == 2
    for _ in range(2):
        Worker(world.services, 1).run_once()
    world.services.queue.enqueue(Entity("db", "kept", None), CompactionKind.MINOR)
    Worker(world.services, 1).run_once()
    assert world.states() == ["ready for cleaning"] * 3
    world.settle_time()
    Cleaner(world.services).run_once()
    assert [state for state, _ in world.ended()] == ["succeeded"] * 3
    storage = storage_for(world.remote)
    for table, kinds in ((plain, ["base"]), (kept, ["delta"])):
        location = join(world.remote, "db.db", table.name)
        assert [found.partition("_")[0] for found in storage.directories(location)] == kinds
    world.bring_back()
    for table in (plain, kept, parted):
        assert world.rows(table) == before[table.full_name], name(str(table.location))


def _conf():
    from compactor.storage.registry import configured

    return configured().hdfs.conf_dir
