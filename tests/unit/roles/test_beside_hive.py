"""
The queue beside Hive's own TxnHandler, 3.1.3's and 4.0.1's: what is left to its workers, who waits for whom, and what
of its entries is ours.
"""

import pytest
from sqlalchemy import delete, select

from compactor.metastore.model import QueueState
from compactor.status.records import history_record
from tests.demo.rows import CatalogRows
from tests.metastore.databases import metastore, parties, real_client  # noqa: F401 - a fixture
from tests.unit.roles.worker.test_monitor import Waits
from tests.unit.roles.world import Inline, World

pytestmark = [pytest.mark.hive, pytest.mark.postgres]


def _world(kind, request, tmp_path):
    with metastore(kind, request, tmp_path) as database:
        world = World(database, tmp_path)
        world.real = real_client(database, request.getfixturevalue("parties"))
        yield world


@pytest.fixture
def beside_4(request, tmp_path):
    """A world, and Hive 4.0.1's TxnHandler on its metastore."""
    yield from _world("postgres-4", request, tmp_path)


@pytest.fixture
def beside_3(request, tmp_path):
    """A world, and Hive 3.1.3's TxnHandler on its metastore."""
    yield from _world("postgres-3", request, tmp_path)


def asked(world, kind="MAJOR", name="t", partition=None):
    """ALTER TABLE … COMPACT."""
    named = {} if partition is None else {"partitionname": partition}
    return world.real.party.call("compact", {"dbname": "db", "tablename": name, "type": kind} | named)


def test_a_rebalance_is_left_to_hives_workers(beside_4):
    """
    We neither claim nor refuse it, and go on with what is behind it; Hive's findNextToCompact finds it as it was asked
    for.
    """
    world = beside_4
    for name in ("t", "u"):
        world.table(name, rows=3)
    world.settle_time()
    asked(world, "REBALANCE")
    asked(world, name="u")
    worker = world.worker()
    assert "db.u: published" in worker.run_once().sentence
    assert worker.run_once().sentence == "nothing is queued"
    claimed = world.real.claim()
    assert (claimed["tableName"], claimed["type"]) == ("t", "REBALANCE")
    assert world.ended() == []


@pytest.mark.parametrize("partition", [None, "day=1"])
def test_a_compaction_of_an_iceberg_table_is_left_to_hives_workers(beside_4, partition):
    """
    Hive 4 queues them among those of ACID tables (HIVE-27850). Ours give such an entry back, also of a partition, which
    the catalog doesn't have; they go on with what is behind it, and one of Hive's workers gets it.
    """
    world = beside_4
    for name in ("t", "u"):
        world.table(name, rows=3)
    params, tbls = world.database.schema.table_params, world.database.schema.tbls
    ((number,),) = world.hive.rows(tbls, "tbl_id", where=tbls.c.tbl_name == "t")
    world.hive.change(delete(params).where(params.c.tbl_id == number))
    world.hive.change(params.insert().values(tbl_id=number, param_key="table_type", param_value="ICEBERG"))
    world.settle_time()
    asked(world, partition=partition)
    asked(world, name="u")
    worker = world.worker()
    said = [worker.run_once().sentence for _ in range(3)]
    assert any("given back: iceberg-table: db.t is an Iceberg table" in one for one in said), said
    assert any("db.u: published" in one for one in said), said
    assert world.ended() == []
    assert world.real.claim()["tableName"] == "t"


def test_a_rebalance_of_an_insert_only_table_waits_for_nothing(beside_4):
    """
    Hive takes the request, and its own workers fail it: the Housekeeper ends it as refused, and leaves the rebalance of
    a full ACID table to Hive.
    """
    world = beside_4
    world.table("t", rows=3, insert_only=True)
    world.table("u", rows=3)
    world.settle_time()
    for name in ("t", "u"):
        asked(world, "REBALANCE", name)
    assert "refused 1 rebalance of insert-only tables" in world.housekeeper().run_once().sentence
    ((state, message),) = world.ended()
    assert (state, message.partition(": ")[0]) == ("refused", "unsupported-kind")
    assert "ask for a major one" in message
    assert world.real.claim()["tableName"] == "u"


def test_an_insert_overwrite_of_hive_3_does_not_end_an_entry(beside_3):
    """
    Its lock is exclusive there: the entry waits however often it is tried, its failures don't add up, and the Initiator
    isn't kept away.
    """
    world = beside_3
    world.table(rows=12)
    world.settle_time()
    asked(world)
    writer = world.real.begin()
    assert world.real.ask(writer, world.real.component("db.t", kind="e", operation="i"))[1]
    worker = world.worker()
    for _ in range(3):
        assert "given back: lock-not-acquired: db.t is locked: lock" in worker.run_once().sentence
        world.clock.forward(2000)
    assert (world.states(), world.ended()) == (["initiated"], [])
    assert world.services.initiating.failing(2, 7) == set()
    world.real.abort(writer)
    assert "published" in worker.run_once().sentence


def test_an_insert_overwrite_of_hive_3_waits_for_no_compaction(beside_3):
    """
    It asks for its lock while we work: Hive answers WAITING; we give way within seconds, and Hive's checkLock gives it
    the lock.
    """
    world = beside_3
    table = world.table(rows=4)
    before = world.names(table.location)
    world.settle_time()
    asked(world)
    writer, locks = world.real.begin(), []

    def ask():
        locks.append(world.real.ask(writer, world.real.component("db.t", kind="e", operation="i")))

    world.services.submitter = Waits(ask)
    worker = world.worker()
    said = worker.run_once().sentence
    ((number, held),) = locks
    assert not held
    assert f"given back: db.t: lock {number} (exclusive, waiting)" in said
    assert world.real.held(number, writer)
    assert (world.states(), world.ended(), world.names(table.location)) == (["initiated"], [], before)
    world.real.commit(writer)
    world.services.submitter = Inline()
    world.clock.forward(2000)
    assert "published" in worker.run_once().sentence


def drop_partition(world, name):
    schema = world.database.schema
    gone = select(schema.partitions.c.part_id).where(schema.partitions.c.part_name == name)
    for rows in (schema.partition_params, schema.partition_key_vals):
        world.hive.change(delete(rows).where(rows.c.part_id.in_(gone)))
    world.hive.change(delete(schema.partitions).where(schema.partitions.c.part_name == name))


@pytest.mark.parametrize("what", ["partition", "table"])
def test_what_was_dropped_waits_only_for_who_could_have_seen_it(beside_4, what):
    """
    A reader that began before the soft drop holds it back, one that came later, with a lock on the table as a whole,
    doesn't.

    As Hive does it: the catalog, then submitForCleanup in the drop's own transaction, then its commit.
    """
    world = beside_4
    table = world.table(rows=0, insert_only=True, partition_keys=[("p", "int")])
    for value in ("1", "2"):
        world.insert(table, [(1, "x")], (value,))
    world.settle_time()
    early = world.real.begin()
    world.real.ask(early, world.real.component("db.t"))
    drop = world.real.begin(kind=5)
    place = table.location / "p=1" if what == "partition" else table.location
    request = {
        "dbname": "db",
        "tablename": "t",
        "type": "MAJOR",
        "runas": "hive",
        "properties": {"location": f"file:{place}", "ifPurge": "true"},
    }
    request |= {"partitionname": "p=1"} if what == "partition" else {}
    if what == "partition":
        drop_partition(world, "p=1")
    else:
        CatalogRows(world.database).drop_table(table)
    assert world.real.party.call("submitForCleanup", request, 2, drop)
    world.real.commit(drop)
    cleaner = world.cleaner()
    world.settle_time()
    assert f"transaction {early}" in cleaner.run_once().sentence
    late = world.real.begin()
    number = world.real.ask(late, world.real.component("db.t"))[0]
    world.real.commit(early)
    world.settle_time()
    assert cleaner.run_once().sentence.startswith("cleaned 1 entry, 1 directory")
    assert not place.exists()
    assert [lock.lock_id for lock in world.services.locks.all()] == [number]


def test_what_hive_aborted_before_it_began_took_no_time(beside_4):
    """ABORT COMPACTIONS writes a start of 0 into the history."""
    world = beside_4
    world.table(rows=3)
    number = asked(world)["id"]
    world.real.party.call("abortCompactions", {"compactionIds": [number]})
    (entry,) = world.services.queue.history(QueueState.ABORTED)
    assert world.hive.rows(world.database.schema.completed_compactions, "cc_start") == [(0,)]
    assert (entry.start_ms, history_record(entry)["duration_ms"]) == (None, None)


def test_hives_workers_take_what_a_pilot_leaves_alone_and_leave_its_pool(beside_4):
    """
    A pilot on one database whose entries have a pool of their own: a worker of Hive's takes those outside and those
    without a pool, one of ours those of the pool. An empty name is a pool, too, of which Hive has no worker.
    """
    world = beside_4
    world.configure(control={"only": ["shop.*"]}, worker={"pool": "pilot"})
    pools = {"t": {"poolName": "pilot"}, "unnamed": {"poolName": ""}, "without": {}}
    world.table("t", rows=3, insert_only=True)
    for name in pools:
        world.table(name, rows=3, database="shop", insert_only=True)
    world.settle_time()
    asked(world)
    for name, pool in pools.items():
        world.real.party.call("compact", {"dbname": "shop", "tablename": name, "type": "MAJOR"} | pool)
    claimed = [world.real.claim() for _ in range(3)]
    assert [entry and (entry["dbname"], entry["tableName"]) for entry in claimed] == [
        ("db", "t"),
        ("shop", "without"),
        None,
    ]
    assert "shop.t: published" in world.worker().run_once().sentence
