"""Workers of one process share what they find out about an empty queue."""

from types import SimpleNamespace

from compactor.acid.compaction import CompactionKind
from compactor.metastore.model import Entity
from compactor.roles.worker.backoff import SharedLooks
from compactor.roles.worker.worker import IDLE, Worker


def counted(world, monkeypatch):
    """The workers that ask the database for an entry, in order."""
    asked = []
    claim = world.services.queue.claim

    def counting(worker_id, **others):
        asked.append(worker_id)
        return claim(worker_id, **others)

    monkeypatch.setattr(world.services.queue, "claim", counting)
    return asked


def test_one_of_many_idle_workers_asks(world, monkeypatch):
    """While one has just found nothing, the others don't ask; it asks itself again."""
    asked = counted(world, monkeypatch)
    one, two, three = (Worker(world.services, number) for number in (1, 2, 3))
    assert [worker.run_once() for worker in (one, two, three, one)] == [IDLE] * 4
    assert asked == [one.worker_id, one.worker_id]


def test_what_this_process_queues_is_seen_by_all(world, monkeypatch):
    """The daemon tells when its Initiator has queued something: whoever looks first takes it."""
    table = world.table(rows=2, insert_only=True)
    asked = counted(world, monkeypatch)
    one, two = Worker(world.services, 1), Worker(world.services, 2)
    one.run_once()
    world.services.queue.enqueue(Entity(table.database, table.name), CompactionKind.MAJOR)
    assert two.run_once() == IDLE
    world.services.shared_looks.over()
    assert "published" in two.run_once().sentence
    assert asked == [one.worker_id, two.worker_id]


def test_it_is_believed_for_less_than_a_wait(monkeypatch):
    """After the wait between two looks somebody asks again, whoever comes first; pools are told apart."""
    now = [100.0]
    monkeypatch.setattr("compactor.roles.worker.backoff.time", SimpleNamespace(monotonic=lambda: now[0]))
    shared_looks = SharedLooks()
    shared_looks.found("one", "a")
    assert shared_looks.is_known("two", "a", 10)
    assert not shared_looks.is_known("one", "a", 10)
    assert not shared_looks.is_known("two", None, 10)
    now[0] += 9
    assert not shared_looks.is_known("two", "a", 10)
