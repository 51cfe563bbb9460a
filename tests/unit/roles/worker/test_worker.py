"""Worker: the order of its steps, what it leaves to the Cleaner, and which entries are its own."""

import threading

from compactor.metastore.model import Entity
from compactor.roles import steps
from compactor.roles.cycle import Cycle
from compactor.roles.worker.worker import IDLE, Worker
from tests.metastore.actor import T
from tests.unit.roles.tables import hidden


def test_a_major_compaction_from_claim_to_commit(any_world):
    """
    The steps come in order; the result is one base with the same rows; the entry is ready for cleaning; nothing hidden
    is left.
    """
    world = any_world
    table = world.table(rows=4)
    before = world.rows(table)
    world.compact(table)
    expected = [
        step for step in steps.WORKER_STEPS if world.services.layout == "hive-4" or step != steps.WORKER_TXN_OPENED
    ]
    assert world.passed == expected
    (entry,) = world.services.queue.entries()
    assert (entry.state.value, entry.highest_write_id, entry.worker_id) == ("ready for cleaning", 4, None)
    suffix = f"_v{entry.txn_id:07d}" if world.services.layout == "hive-4" else ""
    assert f"base_0000004{suffix}" in world.names(table.location)
    assert hidden(table) == []
    world.settle_time()
    assert world.rows(table) == before
    assert world.services.locks.all() == []
    assert world.submitter.jobs[0].name == "here-compactor-db.t"


def test_the_sentence_says_what_was_done(world, table):
    """Kind, id, table, result, number of inputs."""
    sentence = world.compact(table)
    assert sentence.startswith("major compaction 1 of db.t: published base_0000004_v")
    assert sentence.endswith(" from 4 files")
    value = world.services.metrics.registry.get_sample_value
    assert value("compactor_jobs_total", {"kind": "major", "outcome": "compacted"}) == 1
    assert value("compactor_input_files_total") == 4
    assert (value("compactor_written_bytes_total") or 0) > 0
    assert value("compactor_jobs_running") == 0


def test_an_empty_queue_is_no_work(world):
    """One value, always the same; the worker rests, as after a compaction it doesn't."""
    assert world.worker().run_once() == IDLE == Cycle.idle("nothing is queued")


def test_minor_of_inserts(any_world):
    """One delta over the range, on both generations' names; the rows are the same."""
    world = any_world
    table = world.table(rows=4)
    before = world.rows(table)
    world.compact(table, "minor")
    assert any(name.startswith("delta_0000001_0000004") for name in world.names(table.location))
    world.settle_time()
    assert world.rows(table) == before


def test_the_run_as_user_is_the_owner_of_the_directory(world, table):
    """CQ_RUN_AS is filled in when nobody did; the transaction is opened as that user."""
    world.compact(table)
    (entry,) = world.services.queue.entries()
    assert entry.run_as == table.location.owner()


def test_not_enough_but_obsolete_calls_the_cleaner(any_world):
    """
    A base of INSERT OVERWRITE over two deltas: nothing to compact, two directories to remove; the Cleaner does it.
    """
    world = any_world
    table = world.table(rows=2)
    with world.warehouse.begin() as txn:
        txn.overwrite(table, [(7, "x")])
    assert "left to the Cleaner" in world.compact(table)
    assert world.states() == ["ready for cleaning"]
    world.clean()
    assert world.ended() == [("succeeded", None)]
    assert world.names(table.location) == ["base_0000003"]
    world.assert_rows()


def test_a_stopping_daemon_claims_nothing(world, table):
    """Draining: what is queued stays queued."""
    world.enqueue(T)
    world.services.stopping.set()
    assert world.worker().run_once().sentence == "draining: nothing new is claimed"
    assert world.states() == ["initiated"]


def test_other_pools_are_left_alone(world, table):
    """A worker with a pool takes only its entries."""
    world.configure(worker={"pool": "night"})
    world.settle_time()
    world.enqueue(T)
    assert world.worker().run_once().sentence == "nothing is queued"


def test_two_workers_share_the_queue(any_world):
    """Two tables, two workers at the same time: each gets one, both end well."""
    world = any_world
    tables = [world.table(name, rows=4, insert_only=True) for name in ("one", "two")]
    world.settle_time()
    for table in tables:
        world.enqueue(Entity("db", table.name))
    meet = threading.Barrier(2)
    world.submitter.before = lambda _: meet.wait(60)
    sentences: list[str] = []
    threads = [
        threading.Thread(target=lambda number=number: sentences.append(world.worker(number).run_once().sentence))
        for number in (1, 2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(sentence.split(" of ")[1].split(":")[0] for sentence in sentences) == ["db.one", "db.two"]
    assert world.states() == ["ready for cleaning"] * 2


def test_a_pool_has_workers_of_its_own(world):
    """
    `worker.pools`: they take that pool's entries only, the others those without; as many at once as there are workers.
    """
    world.table("plain", rows=3)
    world.table("night", rows=3)
    world.settle_time()
    world.enqueue(Entity("db", "plain"))
    world.enqueue(Entity("db", "night"), pool="night")
    world.configure(worker={"threads": 1, "pools": {"night": 2}})
    assert world.services.settings.worker.pool_of_each == (None, "night", "night")
    assert "db.night" in Worker(world.services, 2, "night").run_once().sentence
    assert Worker(world.services, 3, "night").run_once() == IDLE
    assert "db.plain" in Worker(world.services, 1).run_once().sentence
