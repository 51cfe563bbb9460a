"""Who is waited for before the first base of a directory appears on Hive 3.1, for how long, and what comes first."""

from time import sleep

import pytest

from compactor.metastore.clean import readers
from compactor.metastore.model import Entity
from compactor.metastore.txn.locks import read_locks
from compactor.roles.worker import monitor, older_snapshots


class Time:
    """A clock that only the wait moves; each pause does what a test says, once."""

    def __init__(self):
        self.seconds, self.pauses, self.then = 0.0, 0, []

    def monotonic(self):
        return self.seconds

    def sleep(self, seconds):
        self.seconds += seconds
        self.pauses += 1
        if self.then:
            self.then.pop(0)()


@pytest.fixture
def time(monkeypatch):
    """The wait's own clock."""
    made = Time()
    monkeypatch.setattr(older_snapshots, "time", made)
    return made


def reader(world, name="db.t", partition=None):
    """A query that has its snapshot and its locks."""
    txn = world.hive.begin(user="reader")
    world.hive.lock(name, partition, txn_id=txn)
    return txn


def test_a_first_base_appears_when_older_readers_have_gone(world_3, time):
    """Nothing is there before; who began meanwhile isn't waited for."""
    world = world_3
    table = world.table(rows=4)
    old = reader(world)
    world.at_step["worker.verified"] = lambda: reader(world)
    bases = []

    def go():
        bases.extend(table.location.glob("base_*"))
        world.hive.commit(old)

    time.then = [lambda: None, go]
    said = world.compact(table)
    assert said.endswith("published base_0000004 from 4 files")
    assert (time.pauses, bases) == (2, [])
    world.assert_rows()


def test_a_query_without_locks_yet_is_waited_for(world_3, time):
    """
    It has its snapshot when it compiles, and its locks later. What has waited for minutes without any is a streaming
    writer's.
    """
    world = world_3
    table = world.table(rows=4)
    world.hive.begin(age=600_000)
    compiling = world.hive.begin(age=0)
    time.then = [lambda: world.hive.commit(compiling)]
    assert world.compact(table).endswith("from 4 files")
    assert time.pauses == 1


def test_nobody_waits_for_ever(world_3, time):
    """After five minutes the base appears, and the sentence says beside whom."""
    world = world_3
    table = world.table(rows=4)
    old = reader(world)
    said = world.compact(table)
    assert (
        f"published base_0000004 from 4 files; it appeared beside older snapshots, which may fail: transaction {old} of reader@"
        in said
    )
    assert time.seconds == older_snapshots.WAIT_SECONDS
    assert world.states() == ["ready for cleaning"]


@pytest.mark.parametrize(("agent", "waits"), [("compactor", False), ("other", True)])
def test_what_a_dead_daemon_left_is_no_reader(world_3, time, agent, waits):
    """
    The lock of a compaction that died stays until it times out; another lock without a transaction may be a reader's.
    """
    world = world_3
    table = world.table(rows=4)
    world.services.locks.acquire_shared(Entity("db", "t"), 0, "ann", "edge1", agent=agent)
    assert ("appeared beside older snapshots" in world.compact(table)) is waits
    assert bool(time.pauses) is waits


def test_the_sentence_names_a_few(world_3, time):
    """Of a thousand transactions, as streaming writers open them, no line of the log tells one by one."""
    world = world_3
    table = world.table(rows=4)
    for _ in range(8):
        reader(world)
    said = world.compact(table)
    assert said.count("reader@") == 5
    assert said.endswith("; and 3 more")


def test_locks_on_other_tables_are_not_fetched(world_3, time, monkeypatch):
    """Each worker looks every two seconds, and a metastore may have a hundred thousand locks."""
    fetched = []

    def counted(*about):
        fetched.extend(found := read_locks(*about))
        return found

    monkeypatch.setattr(readers, "read_locks", counted)
    world = world_3
    table = world.table(rows=4)
    for _ in range(20):
        reader(world, "db.other")
    world.at_step["worker.verified"] = lambda: reader(world)
    assert world.compact(table).endswith("from 4 files")
    assert time.pauses == 0
    assert [lock.table for lock in fetched] == ["t"]


def test_beside_an_older_base_nobody_is_waited_for(world_3, time):
    """Older snapshots go on with that; a minor makes no base at all."""
    world = world_3
    table = world.table(rows=3)
    world.compact(table)
    for number in (7, 8):
        world.insert(table, [(number, "later")])
    reader(world)
    assert "published base_0000005" in world.compact(table)
    other = world.table("u", rows=3)
    reader(world, "db.u")
    assert "published delta_0000001_0000003" in world.compact(other, "minor")
    assert time.pauses == 0


def test_readers_of_others_are_not_waited_for(world_3, time):
    """Another table, another partition."""
    world = world_3
    table = world.table(rows=0, partition_keys=[("p", "string")])
    for number in range(3):
        world.insert(table, [(number, "v")], ("1",))
    reader(world, "db.other")
    reader(world, "db.t", "p=2")
    assert world.compact(table, partition="p=1").endswith("from 3 files")
    assert time.pauses == 0


def test_hive_4_waits_for_nobody(world, time):
    """Nobody sees the base there before its transaction is committed."""
    table = world.table(rows=4)
    reader(world)
    assert "published base_0000004" in world.compact(table)
    assert time.pauses == 0


def test_while_it_waits_it_gives_way(world_3, time, monkeypatch):
    """An INSERT OVERWRITE that waits for our lock comes first; nothing is left of the attempt."""
    monkeypatch.setattr(monitor, "LOOK_SECONDS", 0.02)
    world = world_3
    table = world.table(rows=4)
    before = world.names(table.location)
    reader(world)
    time.then = [lambda: world.hive.lock("db.t", kind="e", state="w"), *[lambda: sleep(0.02)] * 140]
    assert "given back: db.t: lock" in world.compact(table)
    assert (world.states(), world.names(table.location)) == (["initiated"], before)
