"""
Failures: an entry that takes its worker's process with it, or breaks down each time, is set aside, whichever daemons
try it; its neighbours aren't.
"""

import json
from dataclasses import replace

import pytest

from compactor.coordination import Alone
from compactor.errors import CompactorError, RetryableError, UnreachableError
from compactor.metastore.model import Entity, QueueState
from compactor.roles.housekeeper.recovery import Recovery
from compactor.roles.identity import Identity
from compactor.roles.worker.failures import ATTEMPTS, KEY, Failures, GivenUpError, SuspectWaitsError
from compactor.spark.attempts import FailedAttempt
from compactor.spark.results import JobEnd
from compactor.spark.submitter import BrokenDownError, Runner, SessionEndedError


class Away(Alone):
    """Nobody answers."""

    def read(self, key):
        raise CompactorError("nobody answers")


class Unable(Alone):
    """All but what broke down can be read."""

    def read(self, key):
        if key == KEY:
            raise CompactorError("can't be read")
        return super().read(key)

    def update(self, key, change):
        if key == KEY:
            raise CompactorError("can't be written")
        return super().update(key, change)


@pytest.fixture
def coordinator():
    return Alone()


def another(world, coordinator):
    """Another process of the same machine, with the same control state."""
    services = world.new_services()
    services.coordinator = coordinator
    return services


def claimed_and_dead(world, coordinator, *tables, in_order=False):
    """A process that claims these tables' entries and ends; returns what the next one gave back."""
    services = another(world, coordinator)
    identity = Identity("here", "compactor", world.folder / "alive")
    with identity:
        claims = [services.queue.claim(identity.worker_id(number), "1") for number, _ in enumerate(tables, 1)]
        assert [claim.entity.table for claim in claims] == list(tables)
        if in_order:
            identity.leave_trace()
        else:
            identity._keep_trace = True  # as after SIGKILL
    return Recovery(another(world, coordinator)).give_back_claims_of_the_dead()


def test_a_compaction_that_kills_its_daemon_is_set_aside(world, coordinator):
    """Three processes die over it, each a new one: the fourth doesn't try it, but fails it, and says why."""
    world.table(rows=4, insert_only=True)
    world.settle_time()
    world.enqueue(Entity("db", "t"))
    for _ in range(ATTEMPTS):
        assert len(claimed_and_dead(world, coordinator, "t")) == 1
    world.services.coordinator = coordinator
    said = world.worker().run_once().sentence
    assert "failed: broke down 3 times, the latest: its worker compactor-here-" in said
    assert world.submitter.jobs == []
    ((state, message),) = world.ended()
    assert state == "failed"
    assert message.endswith(" ended; not tried again")
    world.assert_rows()


def test_twice_is_not_enough(world, coordinator):
    """The third try may succeed."""
    world.table(rows=4, insert_only=True)
    world.settle_time()
    world.enqueue(Entity("db", "t"))
    for _ in range(ATTEMPTS - 1):
        claimed_and_dead(world, coordinator, "t")
    world.services.coordinator = coordinator
    assert "published" in world.worker().run_once().sentence


def test_who_leaves_in_order_is_not_counted(world, coordinator):
    """
    A daemon that drained and had to leave a claim behind, since something couldn't be reached: no fault of the entry's.
    """
    world.table(rows=4, insert_only=True)
    world.settle_time()
    world.enqueue(Entity("db", "t"))
    for _ in range(ATTEMPTS + 1):
        assert len(claimed_and_dead(world, coordinator, "t", in_order=True)) == 1
    assert coordinator.read(KEY) is None


def test_failures_outlive_the_process(world, coordinator):
    """Steps that fail without effect, each time in another daemon: the third fails the entry, as if it had been one."""
    world.table(rows=4, insert_only=True)
    world.settle_time()
    world.enqueue(Entity("db", "t"))

    def broken(job):
        raise RetryableError("ExecutorLostFailure")

    world.submitter.before = broken
    said = []
    for _ in range(ATTEMPTS):
        world.services = another(world, coordinator)
        said.append(world.worker().run_once().sentence)
    assert [": given back: " in sentence for sentence in said] == [True, True, False]
    assert world.ended() == [("failed", "ExecutorLostFailure (3 times in a row)")]


@pytest.mark.parametrize(
    ("hosts", "ended", "waiting"),
    [
        (["n7", "n7"], [("failed", "it doesn't answer (seen from n7) (3 times in a row)")], {}),
        (["n7", "n8"], [], {"hdfs://nn:8020": 1}),
    ],
    ids=["one node", "two nodes"],
)
def test_a_store_that_nodes_cannot_reach(world, coordinator, hosts, ended, waiting):
    """What one node says, and the daemon doesn't see, is counted; what two say lets all entries of the store wait."""
    world.table(rows=4, insert_only=True)
    world.settle_time()
    world.enqueue(Entity("db", "t"))
    away = UnreachableError("it doesn't answer", store="hdfs://nn:8020")

    class OnNodes(Runner):
        def _answers(self, *_):
            return JobEnd(error=away, failures=tuple(FailedAttempt(host, away, "") for host in hosts))

    world.submitter.before = lambda job: OnNodes().run(job, abs, [1])
    for _ in range(ATTEMPTS):
        world.services = another(world, coordinator)
        world.worker().run_once()
    assert world.ended() == ended
    assert world.services.backoff.waiting_for_stores() == waiting


def test_one_suspect_at_a_time(world, coordinator):
    """
    Two entries whose worker ended: while a process works on one it gives the other back, and leaves it alone for a
    while; others are claimed meanwhile.
    """
    for name in ("a", "b", "c"):
        world.table(name, rows=4, insert_only=True)
        world.enqueue(Entity("db", name))
    world.settle_time()
    claimed_and_dead(world, coordinator, "a", "b")
    world.services.coordinator = coordinator
    first, second = world.worker(1), world.worker(2)
    said = []

    def meanwhile(job):
        world.submitter.before = lambda _: None
        said.extend(second.run_once().sentence for _ in range(3))

    world.submitter.before = meanwhile
    assert "db.a: published" in first.run_once().sentence
    assert (
        "db.b: given back: its worker or Spark's session ended before, as that of compaction 1 did, which is tried first"
        in said[0]
    )
    assert "db.c: published" in said[1]
    assert said[2].startswith("waiting: compaction 2 of db.b waits: ")
    assert world.services.backoff.trouble() is None
    world.clock.forward(10)
    assert "db.b: published" in second.run_once().sentence
    world.assert_rows()


def test_a_claim_counts_once_and_what_left_the_queue_is_forgotten(world):
    """
    However often, and by whomever, a claim is counted; entries that ended are dropped; fields of a newer version stay.
    """
    coordinator = Alone()
    coordinator.write(
        KEY, {"entries": {"77": {"x@1": {"died": True, "why": "long ago"}}, "odd": 3}, "newer": [1]}, None
    )
    world.table(rows=4, insert_only=True)
    world.enqueue(Entity("db", "t"))
    entry = world.services.queue.claim("compactor-a-1", "1")
    counting = [Failures(lambda: coordinator, lambda number: number == entry.id) for _ in range(2)]
    for one in (*counting, *counting):
        one.count(entry, "its worker\nended", died=True)
    assert counting[0].times(entry) == 1
    stored = coordinator.read(KEY).data
    assert stored == {
        "entries": {str(entry.id): {f"compactor-a-1@{entry.start_ms}": {"died": True, "why": "its worker ended"}}},
        "newer": [1],
    }


def test_it_stays_small(world):
    """
    A cluster on which everything breaks down: what is stored fits into ZooKeeper's limit of 1 MB, and the newest is in
    it.
    """
    coordinator = Alone()
    counting = Failures(lambda: coordinator, lambda _: True)
    world.table(rows=4, insert_only=True)
    world.enqueue(Entity("db", "t"))
    entry = world.services.queue.claim("compactor-" + "h" * 64 + "-1", "1")

    for number in range(300):
        counting.count(replace(entry, id=number), "x" * 5000, died=False)
    stored = coordinator.read(KEY).data
    assert len(json.dumps(stored)) < 200_000
    assert list(stored["entries"])[-1] == "299"


def test_without_control_state_nothing_is_counted(world):
    """Neither counting nor asking fails; the entry is tried."""
    world.table(rows=4, insert_only=True)
    world.enqueue(Entity("db", "t"))
    entry = world.services.queue.claim("compactor-a-1", "1")
    counting = Failures(Away, lambda _: True)
    counting.count(entry, "x", died=True)
    assert counting.times(entry) == 0
    with counting.watched(entry):
        pass


def test_what_could_not_be_stored_is_stored_later(world):
    """
    As at a daemon's start: claims of the dead are given back before ZooKeeper is reached. Asked about the entry, it is
    counted first, and once.
    """
    coordinator, answering = Alone(), []
    counting = Failures(lambda: coordinator if answering else Away(), lambda _: True)
    world.table(rows=4, insert_only=True)
    world.enqueue(Entity("db", "t"))
    entry = world.services.queue.claim("compactor-a-1", "1")
    counting.count(entry, "x", died=True)
    assert coordinator.read(KEY) is None
    answering.append(True)
    assert counting.times(entry) == 1
    version = coordinator.read(KEY).version
    assert counting.times(entry) == 1
    assert coordinator.read(KEY).version == version


def test_the_place_of_a_suspect_is_free_again(world):
    """Also when the work raised; given up entries never take it."""
    coordinator = Alone()
    counting = Failures(lambda: coordinator, lambda _: True)
    for name in ("a", "b"):
        world.table(name, rows=4, insert_only=True)
        world.enqueue(Entity("db", name))
    one, other = (world.services.queue.claim(f"compactor-a-{number}", "1") for number in (1, 2))
    for entry in (one, other):
        counting.count(entry, "x", died=True)
    with counting.watched(one), pytest.raises(SuspectWaitsError), counting.watched(other):
        pass
    with pytest.raises(RetryableError), counting.watched(one):
        raise RetryableError("x")
    with counting.watched(other):
        pass
    for number in range(ATTEMPTS):
        counting.count(replace(one, start_ms=number), "y", died=True)
    with pytest.raises(GivenUpError, match="4 times, the latest: y"), counting.watched(one):
        pass


TOGETHER = SessionEndedError("Spark's session ended while it ran, with 2 more in it")


def ending_the_session(world, *poison):
    """
    Jobs of these tables end the session in which others run, too, each time; those of other tables are with them once.
    """
    ended = set()

    def job_runs(job):
        table = job.name.rpartition(".")[2]
        if table in poison or table not in ended:
            ended.add(table)
            raise TOGETHER

    world.submitter.before = job_runs


def test_the_end_of_a_shared_session_fails_the_one_that_ends_it_and_no_other(world, coordinator):
    """
    Three in it when it ends: none is counted, all are suspects and tried one at a time. The one that ends it again and
    again is found, the others are compacted.
    """
    for name in ("a", "b", "poison"):
        world.table(name, rows=4, insert_only=True)
        world.enqueue(Entity("db", name))
    world.settle_time()
    world.services.coordinator = coordinator
    ending_the_session(world, "poison")
    worker = world.worker()
    said = []
    for _ in range(60):
        said.append(worker.run_once().sentence)
        world.clock.forward(100)
        if not world.services.queue.entries(QueueState.INITIATED):
            break
    assert sum("given back: Spark's session ended" in sentence for sentence in said) == 3 + ATTEMPTS - 1
    assert [sentence.partition(": ")[2][:9] for sentence in said if "db.a" in sentence or "db.b" in sentence].count(
        "published"
    ) == 2
    assert world.ended() == [("failed", "Spark's session ended while it ran, with 2 more in it (3 times in a row)")]
    world.assert_rows()


def test_one_that_ends_the_session_alone_is_counted_at_once(world, coordinator):
    """Nobody else can have been the reason."""
    world.table(rows=4, insert_only=True)
    world.settle_time()
    world.enqueue(Entity("db", "t"))
    world.services.coordinator = coordinator

    def alone(job):
        raise BrokenDownError("Spark's session ended while it ran, and nothing else in it")

    world.submitter.before = alone
    worker = world.worker()
    for _ in range(ATTEMPTS - 1):
        assert "given back" in worker.run_once().sentence
        world.clock.forward(1000)
    assert "failed: " in worker.run_once().sentence


def test_suspects_of_a_session_are_known_to_other_processes(world, coordinator):
    """Stored beside what is counted, and not counted; forgotten when they leave the queue."""
    world.table(rows=4, insert_only=True)
    world.enqueue(Entity("db", "t"))
    entry = world.services.queue.claim("compactor-a-1", "1")
    here, elsewhere = (Failures(lambda: coordinator, lambda number: number == entry.id) for _ in range(2))
    here.suspect(replace(entry, id=77), "x")
    here.suspect(entry, "Spark's\nsession ended")
    assert coordinator.read(KEY).data == {"suspects": {str(entry.id): "Spark's session ended"}}
    for counting in (here, elsewhere):
        assert counting.times(entry) == 0
        with pytest.raises(BrokenDownError) as caught, counting.watched(entry):
            raise TOGETHER
        assert not isinstance(caught.value, SessionEndedError)
    with pytest.raises(SessionEndedError), elsewhere.watched(replace(entry, id=78)):
        raise TOGETHER


def test_without_control_state_the_process_knows_its_suspects(world):
    """One that ends the session each time is found all the same."""
    world.table(rows=4, insert_only=True)
    world.settle_time()
    world.enqueue(Entity("db", "t"))
    world.services.coordinator = Unable()
    ending_the_session(world, "t")
    worker = world.worker()
    said = []
    for _ in range(1 + ATTEMPTS):
        said.append(worker.run_once().sentence)
        world.clock.forward(1000)
    assert ["given back" in sentence for sentence in said] == [True, True, True, False]
    assert world.ended()[0][0] == "failed"
