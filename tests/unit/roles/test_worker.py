"""Worker: the order of its steps, how entries end, and that nothing is left behind when it doesn't work out."""

import shutil
import threading

import pytest
from sqlalchemy import insert, update

from compactor.demo.rows import CatalogRows
from compactor.engine.submit import BrokenDownError
from compactor.errors import OutcomeUnknownError, RetryableError, UnreachableError
from compactor.metastore.model import Entity
from compactor.metastore.queue import committed
from compactor.roles import steps
from compactor.roles.cancellation import DrainedError
from compactor.roles.recovery import Recovery
from compactor.roles.worker import IDLE, Worker

T = Entity("db", "t")


def leftovers(table):
    return [path.name for path in table.location.iterdir() if path.name.startswith(".")]


@pytest.fixture
def table(world):
    """Four deltas of an insert-only table: compacted without a decoder."""
    return world.table(rows=4, insert_only=True)


def test_a_major_compaction_from_claim_to_commit(any_world):
    """The steps come in order; the result is one base with the same rows; the entry is ready for cleaning; nothing hidden is left."""
    world = any_world
    table = world.table(rows=4)
    before = world.rows(table)
    world.compact(table)
    expected = [step for step in steps.WORKER_STEPS if world.services.hive_4 or step != steps.WORKER_TXN_OPENED]
    assert world.passed == expected
    (entry,) = world.services.queue.entries()
    assert (entry.state.value, entry.highest_write_id, entry.worker_id) == ("ready for cleaning", 4, None)
    suffix = f"_v{entry.txn_id:07d}" if world.services.hive_4 else ""
    assert f"base_0000004{suffix}" in world.names(table.location)
    assert leftovers(table) == []
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
    """One sentence, always the same."""
    assert world.worker().run_once() == "nothing is queued"


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


@pytest.mark.parametrize(
    ("entity", "kind", "message"),
    [
        (Entity("db", "gone"), "major", "table-missing: there is no table db.gone"),
        (Entity("db", "parts"), "major", "partition-unspecified: db.parts is partitioned"),
        (Entity("db", "parts", "p=9"), "major", "partition-missing: there is no partition db.parts/p=9"),
        (Entity("db", "plain"), "major", "not-transactional: db.plain isn't a transactional table"),
        (Entity("db", "t"), "rebalance", "unsupported-kind: db.t: a rebalance compaction isn't supported"),
        (Entity("db", "single"), "major", "not-enough-to-compact: db.single: not enough to compact"),
    ],
)
def test_what_makes_no_sense_is_refused(world, table, entity, kind, message):
    """With a code and a sentence, before anything was begun; no transaction and no lock stay open."""
    world.table("parts", rows=0, partition_keys=[("p", "int")])
    world.table("plain", rows=0, transactional=False)
    world.table("single", rows=1, insert_only=True)
    world.settle_time()
    world.enqueue(entity, kind)
    assert f"refused: {message}" in world.worker().run_once()
    ((state, stored),) = world.ended()
    assert state == "refused"
    assert (stored or "").startswith(message)
    assert world.services.locks.all() == []
    assert world.services.transactions.open_transactions() == []


def test_a_refusal_leaves_no_aborted_transaction(world):
    """Nothing was marked under it: like Hive's worker, ours commits it, and SHOW TRANSACTIONS and the metrics of aborted ones stay clean."""
    world.table(rows=1, insert_only=True)
    world.settle_time()
    world.enqueue(T)
    opened = []
    world.at_step[steps.WORKER_TXN_OPENED] = lambda: opened.extend(txn.txn_id for txn in world.services.transactions.open_transactions())
    assert "refused: not-enough-to-compact" in world.worker().run_once()
    assert [world.services.transactions.state(txn_id).value for txn_id in opened] == ["committed"]


def test_a_sorted_table_is_refused(world, table):
    """Compaction would break the order that the table promises."""
    schema = world.database.schema
    sd_id = world.hive.rows(schema.tbls, "sd_id")[0][0]
    world.hive.change(insert(schema.sort_cols).values(sd_id=sd_id, column_name="id", order=1, integer_idx=0))
    assert "refused: sorted-table" in world.compact(table)


def test_on_hive_3_a_refusal_is_shown_as_failed(world_3):
    """3.1 knows no refused state."""
    world_3.enqueue(Entity("db", "gone"))
    world_3.worker().run_once()
    assert world_3.ended()[0][0] == "failed"


def test_not_enough_but_obsolete_calls_the_cleaner(any_world):
    """A base of INSERT OVERWRITE over two deltas: nothing to compact, two directories to remove; the Cleaner does it."""
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


def test_an_exclusive_lock_refuses_the_entry(world, table):
    """A DROP is waiting: no lock, no compaction; the message names the lock; the transaction is rolled back."""
    lock = world.hive.lock("db.t", kind="e")
    world.compact(table)
    ((state, message),) = world.ended()
    assert state == "refused"
    assert f"lock-not-acquired: db.t is locked: lock {lock} (exclusive)" in (message or "")
    assert world.services.transactions.open_transactions() == []


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (RetryableError("Spark's JVM died"), "given back: Spark's JVM died"),
        (UnreachableError("Java isn't installed"), "given back: Java isn't installed"),
        (ValueError("a bug"), "failed: ValueError: a bug"),
        (OSError("disk on fire"), "failed: OSError: disk on fire"),
    ],
)
def test_a_broken_job_leaves_nothing(any_world, error, end):
    """Whatever the job raises: staging is gone, the transaction is rolled back and forgotten, the files are untouched."""
    world = any_world
    table = world.table(rows=4, insert_only=True)
    names = world.names(table.location)

    def broken(_: object) -> None:
        raise error

    world.submitter.before = broken
    assert world.compact(table).endswith(end)
    assert world.names(table.location) == names
    assert world.states() == (["initiated"] if end.startswith("given back") else [])
    assert world.services.locks.all() == []
    assert world.services.transactions.open_transactions() == []
    assert world.hive.rows(world.database.schema.txn_components, "tc_txnid") == []
    world.assert_rows()


def test_a_drained_worker_gives_its_entry_back(world, table):
    """Cancelled because the daemon stops: the entry is initiated again, nothing is left, and the next worker does it."""
    worker = world.worker()
    world.submitter.before = lambda _: worker.cancel(DrainedError("the daemon stops"))
    world.settle_time()
    world.enqueue(T)
    assert worker.run_once().endswith("given back: the daemon stops")
    assert world.states() == ["initiated"]
    assert leftovers(table) == []
    world.submitter.before = lambda _: None
    assert "published base_0000004_v" in world.worker(2).run_once()
    world.assert_rows()


class SignalledWhileWaiting(threading.Event):
    """The signal that ended Spark reaches this process a moment later."""

    def wait(self, timeout: float | None = None) -> bool:
        self.set()
        return super().wait(timeout)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_session_that_ends_with_the_daemon_gives_the_entry_back(any_world, when):
    """TERM went to all processes at once, and Spark's JVM died of it: not the compaction's fault, so it is undone and given back, not failed."""
    world = any_world
    table = world.table(rows=4, insert_only=True)
    names = world.names(table.location)
    if when == "after":
        world.services.stopping = SignalledWhileWaiting()

    def broken(_: object) -> None:
        if when == "before":
            world.services.stopping.set()
        raise BrokenDownError("Spark's JVM died")

    world.submitter.before = broken
    assert world.compact(table).endswith("given back: Spark's JVM died")
    assert world.states() == ["initiated"]
    assert world.names(table.location) == names
    assert world.hive.rows(world.database.schema.txn_components, "tc_txnid") == []


def test_a_stopping_daemon_claims_nothing(world, table):
    """Draining: what is queued stays queued."""
    world.enqueue(T)
    world.services.stopping.set()
    assert world.worker().run_once() == "draining: nothing new is claimed"
    assert world.states() == ["initiated"]


def test_out_of_time(world, table):
    """`worker.timeout_hours` fails the entry."""
    world.configure(worker={"timeout_hours": 1e-9})
    assert "failed: timed out" in world.compact(table)
    assert leftovers(table) == []


def test_a_transaction_that_was_taken_away_ends_the_compaction(world, table):
    """Timed out by housekeeping while the job ran: nothing is published, the entry fails, the files stay."""
    names = world.names(table.location)

    def reap(_: object) -> None:
        (open_one,) = world.services.transactions.open_transactions()
        world.services.transactions.abort(open_one.txn_id, "timed out")

    world.submitter.before = reap
    assert "was ended by somebody else" in world.compact(table)
    assert world.ended()[0][0] == "failed"
    assert world.names(table.location) == names


def test_a_lost_heartbeat_cancels_the_job(world, table):
    """The heartbeat finds the transaction gone while Spark works: the job is cancelled, not waited for."""
    cancelled = threading.Event()

    def reap_and_wait(_: object) -> None:
        (open_one,) = world.services.transactions.open_transactions()
        world.services.transactions.abort(open_one.txn_id, "timed out")
        assert worker._cancellation is not None
        for _ in range(2000):
            if worker._cancellation():
                cancelled.set()
                return
            threading.Event().wait(0.01)

    world.configure(worker={"heartbeat_seconds": 0.01})
    worker = world.worker()
    world.submitter.before = reap_and_wait
    world.settle_time()
    world.enqueue(T)
    assert "was ended by somebody else" in worker.run_once()
    assert cancelled.is_set()


def test_a_claim_that_was_taken_away_is_not_published(any_world):
    """Somebody else owns the entry by now: nothing becomes visible and the entry isn't touched."""
    world = any_world
    table = world.table(rows=4, insert_only=True)
    names = world.names(table.location)
    queue = world.database.schema.compaction_queue
    world.submitter.before = lambda _: world.hive.change(update(queue).values(cq_worker_id="somebody-else"))
    sentence = world.compact(table)
    assert ": lost: " in sentence
    assert "with worker somebody-else" in sentence
    assert world.names(table.location) == names
    assert world.states() == ["working"]


@pytest.mark.parametrize("what", ["dropped", "re-created", "rewritten", "truncated"])
def test_a_table_that_changes_under_the_job_is_not_published(any_world, what):
    """Dropped, dropped and created again, a file replaced, or emptied while the job ran: the compaction fails, and what is there stays."""
    world = any_world
    table = world.table(rows=4, insert_only=True)
    catalog = CatalogRows(world.database)

    def change(_: object) -> None:
        match what:
            case "dropped":
                catalog.drop_table(table)
            case "re-created":
                world.table("other", rows=0)
                catalog.drop_table(table)
                catalog.add_table(table)
            case "rewritten":
                file = next(table.location.glob("delta_0000001_0000001*/0*"))
                content = file.read_bytes()
                file.unlink()
                file.write_bytes(content + b"x")
            case "truncated":
                for file in table.location.glob("delta_*/0*"):
                    file.unlink()

    world.submitter.before = change
    sentence = world.compact(table)
    assert ": failed: input-changed: " in sentence or "No such file" in sentence or "gone" in sentence or "corrupt" in sentence, sentence
    assert not [name for name in world.names(table.location) if name.startswith(("base_", "."))]


def test_a_metastore_that_goes_away_is_waited_for(world, table, monkeypatch):
    """The job broke and the metastore doesn't answer: the entry is kept, nothing is claimed; settled as soon as it answers again."""
    worker = world.worker()
    away = [True]
    abort = world.services.transactions.abort

    def sometimes(*arguments, **options):
        if away[0]:
            raise UnreachableError("no metastore")
        return abort(*arguments, **options)

    def broken(_: object) -> None:
        raise RetryableError("Spark's JVM died")

    monkeypatch.setattr(world.services.transactions, "abort", sometimes, raising=False)
    world.submitter.before = broken
    world.settle_time()
    world.enqueue(T)
    for _ in range(2):
        with pytest.raises(UnreachableError):
            worker.run_once()
        assert world.states() == ["working"]
        assert leftovers(table) == []
    away[0] = False
    assert "given back: Spark's JVM died" in worker.run_once()
    assert world.states() == ["initiated"]


def test_a_file_system_that_goes_away_is_waited_for(any_world, monkeypatch):
    """It isn't mounted any more when the result should be committed, and the commit fails: what was published stays marked until it is seen and removed."""
    world = any_world
    table = world.table(rows=4, insert_only=True)
    names = world.names(table.location)
    warehouse = world.folder / "warehouse"

    def away() -> None:
        warehouse.rename(world.folder / "elsewhere")
        warehouse.mkdir()

    def broken(*_: object) -> None:
        raise RetryableError("no commit")

    world.at_step[steps.WORKER_RAN if not world.services.hive_4 else steps.WORKER_PUBLISHED] = away
    monkeypatch.setattr(world.services.queue, "mark_compacted_and_commit", broken, raising=False)
    world.settle_time()
    world.enqueue(T)
    worker = world.worker()
    for _ in range(2):
        with pytest.raises(UnreachableError, match="is the file system mounted"):
            worker.run_once()
        assert world.states() == ["working"]
    warehouse.rmdir()
    (world.folder / "elsewhere").rename(warehouse)
    assert ": given back: " in worker.run_once()
    assert world.names(table.location) == names
    assert world.hive.rows(world.database.schema.txn_components, "tc_txnid") == []


def test_a_database_that_is_dropped_under_the_job_is_not_waited_for(world, table):
    """Its directory and the one above are gone, as when nothing is mounted; but the catalog doesn't know the table any more."""

    def dropped(_: object) -> None:
        CatalogRows(world.database).drop_table(table)
        shutil.rmtree(table.location.parent)

    world.submitter.before = dropped
    assert ": failed: " in world.compact(table)
    assert world.worker().run_once() == "nothing is queued"


@pytest.mark.parametrize("happened", [True, False])
def test_a_commit_without_an_answer_is_looked_up(any_world, monkeypatch, happened):
    """The commit was sent and no answer came: when it happened the result stays, when it didn't everything is undone."""
    world = any_world
    table = world.table(rows=4, insert_only=True)
    queue = world.services.queue
    commit = queue.mark_compacted_and_commit

    def unanswered(*arguments):
        if happened:
            commit(*arguments)
        raise OutcomeUnknownError("the connection was lost while committing")

    monkeypatch.setattr(queue, "mark_compacted_and_commit", unanswered, raising=False)
    sentence = world.compact(table)
    bases = [name for name in world.names(table.location) if name.startswith("base_")]
    if happened:
        assert sentence.endswith("committed, though no answer came")
        assert world.states() == ["ready for cleaning"]
        assert len(bases) == 1
    elif world.services.hive_4:
        assert "given back: the connection was lost while committing" in sentence
        assert bases == []
    else:  # the rename was the commit: the next attempt only calls the Cleaner
        assert "published, but not marked; given back for the rest: the connection was lost while committing" in sentence
        assert world.states() == ["initiated"]
        assert len(bases) == 1
        monkeypatch.undo()
        assert "left to the Cleaner" in world.worker().run_once()
    world.settle_time()
    world.assert_rows()


def forgotten(world, txn_id):
    """Housekeeping has purged the transaction: it was over and had no components."""
    txns = world.database.schema.txns
    world.hive.change(txns.delete().where(txns.c.txn_id == txn_id))


@pytest.mark.parametrize("end", ["mark_refused", "mark_failed", "mark_cleaned"])
def test_a_commit_without_an_answer_is_known_by_what_it_wrote(world, table, monkeypatch, end):
    """Meanwhile the Cleaner ended the entry, in whichever way, and the transaction is forgotten: the row still shows that it was committed."""
    services = world.services
    commit = services.queue.mark_compacted_and_commit

    def unanswered(*arguments):
        commit(*arguments)
        (entry,) = services.queue.entries()
        services.cleaning.mark_cleaned(entry) if end == "mark_cleaned" else getattr(services.queue, end)(entry, "no_cleanup")
        forgotten(world, entry.txn_id)
        raise OutcomeUnknownError("the connection was lost while committing")

    monkeypatch.setattr(services.queue, "mark_compacted_and_commit", unanswered, raising=False)
    worker = world.worker()
    world.settle_time()
    world.enqueue(T)
    assert worker.run_once().endswith("committed, though no answer came")
    assert [name for name in world.names(table.location) if name.startswith("base_")]
    assert worker.run_once() == "nothing is queued"


def test_a_refusal_by_the_next_worker_is_no_sign_of_a_commit(world, table):
    """It took the entry over and refused it before it stored a transaction of its own: the row still names ours, which was never committed."""
    world.settle_time()
    world.enqueue(T)
    entry = world.services.queue.claim("compactor-here-1", version="1")
    txn_id = world.services.transactions.open_compaction("u", "here")
    world.services.queue.set_compactor_state(entry, txn_id, 4, "u")
    world.services.queue.mark_refused(entry, "table-missing: gone for a moment")
    ended = world.services.queue.entry(entry.id)
    assert (ended.state.value, ended.txn_id) == ("refused", txn_id)
    assert not committed(ended, txn_id)


def test_when_entry_and_transaction_are_forgotten_the_worker_goes_on(world, table, monkeypatch):
    """Nothing tells how the commit ended, and there is no entry left to give to anybody: the result stays, and the worker isn't stuck."""
    services, schema = world.services, world.database.schema
    commit = services.queue.mark_compacted_and_commit

    def unanswered(*arguments):
        commit(*arguments)
        forgotten(world, services.queue.entries()[0].txn_id)
        world.hive.change(schema.compaction_queue.delete())
        raise OutcomeUnknownError("the connection was lost while committing")

    monkeypatch.setattr(services.queue, "mark_compacted_and_commit", unanswered, raising=False)
    worker = world.worker()
    world.settle_time()
    world.enqueue(T)
    assert ": lost: " in worker.run_once()
    assert [name for name in world.names(table.location) if name.startswith("base_")]
    assert worker.run_once() == "nothing is queued"


def test_a_sleeper_finds_no_source_for_its_rename(any_world):
    """Everything is staged and checked; the claim is taken for dead, cleared up and given back; what the sleeper does next harms nobody."""
    world = any_world
    table = world.table(rows=4, insert_only=True)
    names = world.names(table.location)

    def given_away() -> None:
        (entry,) = world.services.queue.entries()
        recovery = Recovery(world.services)
        assert recovery.clear(entry)
        world.services.queue.give_back(entry)

    world.at_step[steps.WORKER_VERIFIED] = given_away
    world.compact(table)
    assert world.names(table.location) == names
    assert world.states() == ["initiated"]
    world.at_step.clear()
    world.settle_time()
    assert "published" in world.worker(2).run_once()
    world.settle_time()
    world.assert_rows()


def test_other_pools_are_left_alone(world, table):
    """A worker with a pool takes only its entries."""
    world.configure(worker={"pool": "night"})
    world.settle_time()
    world.enqueue(T)
    assert world.worker().run_once() == "nothing is queued"


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
    threads = [threading.Thread(target=lambda number=number: sentences.append(world.worker(number).run_once())) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(sentence.split(" of ")[1].split(":")[0] for sentence in sentences) == ["db.one", "db.two"]
    assert world.states() == ["ready for cleaning"] * 2


def test_a_pool_has_workers_of_its_own(world):
    """`worker.pools`: they take that pool's entries only, the others those without; as many at once as there are workers."""
    world.table("plain", rows=3)
    world.table("night", rows=3)
    world.settle_time()
    world.enqueue(Entity("db", "plain"))
    world.enqueue(Entity("db", "night"), pool="night")
    world.configure(worker={"threads": 1, "pools": {"night": 2}})
    assert world.services.settings.worker.pool_of_each == (None, "night", "night")
    assert "db.night" in Worker(world.services, 2, "night").run_once()
    assert Worker(world.services, 3, "night").run_once() == IDLE
    assert "db.plain" in Worker(world.services, 1).run_once()
