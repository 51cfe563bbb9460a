"""
A compaction that somebody wants stopped, and one whose entry was taken away: its worker notices within seconds, and
undoes.
"""

import threading

import pytest

from compactor.errors import OwnershipLostError
from compactor.metastore.compaction_queue.queue import asked_to_stop
from compactor.metastore.model import Entity, QueueState
from compactor.roles.housekeeper.recovery import Recovery
from compactor.roles.worker import monitor as monitor_module
from compactor.roles.worker.monitor import Monitor
from tests.compacting import NothingRuns
from tests.unit.roles.world import Inline

WORKER, OTHER = (f"compactor-here-{'0a' * 16}-{number}" for number in (1, 2))


class Waits(NothingRuns):
    """Its application never ends by itself; a test may do something when it runs."""

    def __init__(self, when_running):
        self._when_running = when_running
        self.ended = []

    def run(self, job, function, tasks, *, progress=lambda _: None, cancelled=lambda: False):
        from compactor.errors import CancelledError

        self._when_running()
        wait = threading.Event()
        while not cancelled():
            wait.wait(0.01)
        raise CancelledError("stopped")

    def application(self, job):
        return "application_1700000000000_0001"

    def end(self, job):
        self.ended.append(job.key)


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch):
    monkeypatch.setattr(monitor_module, "LOOK_SECONDS", 0.02)


def enqueued(world, **sections):
    """A table that waits for its compaction, and the entry's id."""
    table = world.table(rows=3)
    world.settle_time()
    return table, world.enqueue(Entity("db", "t")).id


def working(world):
    (entry,) = world.services.queue.entries(QueueState.WORKING)
    return entry


def test_a_wish_to_stop_ends_the_compaction_as_aborted(any_world):
    """Its application is ended, its staging directory is gone, nothing is tried again."""
    world = any_world
    table, _ = enqueued(world)
    before = world.names(table.location)
    world.services.submitter = submitter = Waits(lambda: world.services.queue.ask_to_stop(working(world), "ann@edge1"))
    said = world.worker().run_once().sentence
    assert said.endswith("cancelled: cancelled by ann@edge1")
    assert world.ended()[0] == ("aborted", "cancelled by ann@edge1")
    assert world.names(table.location) == before
    assert submitter.ended
    assert world.services.transactions.open_compactions() == []


def test_an_entry_that_is_anothers_stops_its_worker_at_once(world):
    """Not only when it would publish: the cluster isn't kept busy for nothing."""
    enqueued(world)
    world.services.submitter = Waits(lambda: world.services.queue.give_back(working(world)))
    assert ": lost:" in world.worker().run_once().sentence
    assert world.states() == ["initiated"]


def test_on_hive_3_a_statement_that_waits_for_our_lock_comes_first(world_3):
    """
    An INSERT OVERWRITE takes it exclusively there, and Hive's own compactions hold none: the entry goes back, says what
    it waits for, and fails never.
    """
    world = world_3
    table, number = enqueued(world)
    before = world.names(table.location)
    locks = []
    world.services.submitter = submitter = Waits(lambda: locks.append(world.hive.lock("db.t", kind="e", state="w")))
    worker = world.worker()
    said = worker.run_once().sentence
    assert f"given back: db.t: lock {locks[0]} (exclusive, waiting) on db.t by bob@client comes first" in said
    assert (world.states(), world.ended(), world.names(table.location)) == (["initiated"], [], before)
    assert submitter.ended
    assert [lock.lock_id for lock in world.services.locks.all()] == locks
    assert worker.run_once().sentence.startswith(f"waiting: compaction {number} of db.t waits: db.t: lock {locks[0]}")
    world.hive.unlock(locks[0])
    world.clock.forward(10)
    world.services.submitter = Inline()
    assert "published" in worker.run_once().sentence
    world.assert_rows()


def test_on_hive_4_nothing_gives_way(world):
    """There its own compactions hold that lock, too."""
    enqueued(world)

    def wait_for_three_looks():
        world.hive.lock("db.t", kind="e", state="w")
        looks = Counted(world.services.queue.entry)
        world.services.queue.entry = looks
        looks.wait(3)
        del world.services.queue.entry
        world.services.queue.ask_to_stop(working(world), "ann")

    world.services.submitter = Waits(wait_for_three_looks)
    assert world.worker().run_once().sentence.endswith("cancelled: cancelled by ann")


class Counted:
    """A function whose calls can be waited for."""

    def __init__(self, function):
        self._function = function
        self._calls = threading.Semaphore(0)

    def __call__(self, *arguments):
        found = self._function(*arguments)
        self._calls.release()
        return found

    def wait(self, count):
        for _ in range(count):
            assert self._calls.acquire(timeout=300)


def test_the_application_is_noted_with_the_entry(world):
    """As soon as it is known; for `compactor queue`."""
    enqueued(world)
    seen = []

    def wait_until_noted():
        wait = threading.Event()
        while not (working(world).job_id or "").startswith("application_"):
            wait.wait(0.01)
        seen.append(working(world).job_id)
        world.services.queue.ask_to_stop(working(world), "ann")

    world.services.submitter = Waits(wait_until_noted)
    world.worker().run_once()
    assert seen == ["application_1700000000000_0001"]


def test_a_wish_outlives_the_worker_that_was_asked(any_world):
    """
    It died before it could stop: whoever takes the entry next does. Noting an application doesn't wipe the wish out.
    """
    world = any_world
    enqueued(world)
    queue = world.services.queue
    entry = queue.claim(WORKER, "1")
    assert queue.ask_to_stop(entry, "ann")
    queue.set_job_id(entry, "application_1_0001")
    assert asked_to_stop(working(world)) == "ann"
    queue.give_back(entry)
    world.services.submitter = Waits(lambda: None)
    assert world.worker().run_once().sentence.endswith("cancelled: cancelled by ann")


def test_only_the_worker_that_was_seen_is_asked(world):
    """The entry has changed hands since: nobody is stopped by mistake."""
    enqueued(world)
    queue = world.services.queue
    entry = queue.claim(WORKER, "1")
    queue.give_back(entry)
    queue.claim(OTHER, "1")
    assert not queue.ask_to_stop(entry, "ann")
    assert asked_to_stop(working(world)) is None


def test_a_long_name_is_cut_to_what_the_column_holds(world):
    """32 characters."""
    enqueued(world)
    entry = world.services.queue.claim(WORKER, "1")
    assert world.services.queue.ask_to_stop(entry, "somebody-with-a-long-name@a-host-with-a-long-name")
    assert asked_to_stop(working(world)) == "somebody-with-a-long-name@a"


def test_a_monitor_that_cannot_look_looks_again(world):
    """A metastore that is away is the heartbeat's matter."""
    enqueued(world)
    entry = world.services.queue.claim(WORKER, "1")
    calls, told = [], threading.Event()

    def application():
        calls.append(1)
        if len(calls) == 1:
            raise OSError("away")

    def lost(error):
        assert isinstance(error, OwnershipLostError)
        told.set()

    lookout = Monitor(world.services.queue, entry, application, lambda: None, lost, keep=lambda: None)
    lookout.start()
    wait = threading.Event()
    while len(calls) < 3:
        wait.wait(0.01)
    world.services.queue.give_back(entry)
    assert told.wait(60)
    lookout.stop()


class Left(Inline):
    """Notes what is to be ended."""

    def __init__(self):
        super().__init__()
        self.left = []

    def end_left_over(self, keys, application):
        self.left.append((set(keys), application))


def test_what_a_dead_worker_had_running_is_ended_after_the_fence(world):
    """
    By the keys of its staging directories and the application that was noted; the staging directories are gone by then.
    """
    table, _ = enqueued(world)
    world.services.submitter = submitter = Left()
    entry = world.services.queue.claim(WORKER, "1")
    world.services.queue.set_job_id(entry, "application_1_0001")
    (table.location / f".compactor-{entry.id}-0a1b").mkdir()
    assert Recovery(world.services).clear(working(world))
    assert submitter.left == [({f"{entry.id}.0a1b"}, "application_1_0001")]
    assert not [name for name in world.names(table.location) if name.startswith(".compactor")]


def test_what_hives_own_workers_run_is_left_alone(world):
    """Its job isn't ours to end."""
    enqueued(world)
    world.services.submitter = submitter = Left()
    entry = world.services.queue.claim("hms-host-7", "4")
    world.services.queue.set_job_id(entry, "application_1_0001")
    Recovery(world.services).clear(working(world))
    assert submitter.left == []
