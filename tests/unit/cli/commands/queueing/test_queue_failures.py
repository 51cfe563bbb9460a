"""
queue and explain: how often an entry broke down, why the last time, and that there is no room for it, with the figures.
"""

from dataclasses import replace

import pytest

from compactor.acid.compaction import CompactionKind
from compactor.coordination import open_coordinator
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.model import Entity, QueueEntry, QueueState
from compactor.roles.worker.failures import Failures, StoredFailure
from compactor.settings import load_settings
from compactor.status.daemons import Daemons

FIGURES = "shop.orders: a major of all would write about 900 bytes, and the file system at /w leaves 100"


@pytest.fixture
def told(shop, request):
    """Two entries, of the first of which a daemon has noted something: `times`, `room`."""
    shop.json("enqueue", "shop.orders")
    shop.json("enqueue", "shop.events/day=2024-01-01/path=a/b")
    with shop.open() as database:
        coordinator = open_coordinator(load_settings(shop.config), lambda: database)
        coordinator.connect()
        noting = Failures(lambda: coordinator, lambda _: True)
        (entry,) = Queue(database).entries(entity=Entity("shop", "orders"))
        for number in range(request.param.get("times", 0)):
            noting.count(
                replace(entry, worker_id="compactor-edge1-x-1", start_ms=number),
                f"ExecutorLostFailure {number}",
                died=False,
            )
        if request.param.get("room"):
            noting.waits(entry, "disk-full", FIGURES)
    return shop


@pytest.mark.parametrize("told", [{"times": 2}], indirect=True)
def test_how_often_it_broke_down(told):
    """For people a sentence; for programs the count and the reason, of this entry alone."""
    first, second = told.json("queue")
    assert (first["failures"], first["last_failure"]) == (2, "ExecutorLostFailure 1")
    assert (second["failures"], second["last_failure"], second["broke_down"]) == (0, None, None)
    for command in ("queue", "explain"):
        drawn = told.run(command, "shop.orders")
        assert drawn.exit_code == 0, drawn.stderr
        assert "broke down 2 of 3 times, last: ExecutorLostFailure 1" in drawn.stdout
    (entry,) = told.json("explain", "shop.orders")["queue"]
    assert (entry["failures"], entry["last_failure"]) == (2, "ExecutorLostFailure 1")
    heading, row, _ = told.run("-o", "tsv", "queue").stdout.splitlines()
    assert dict(zip(heading.split("\t"), row.split("\t"), strict=True))["failures"] == "2"


@pytest.mark.parametrize("told", [{"room": True}], indirect=True)
def test_that_there_is_no_room(told):
    """It waits, by a code and a sentence with the figures, where all that waits is told."""
    first, second = told.json("queue")
    assert (first["waits"], first["waits_because"], first["failures"]) == ("disk-full", FIGURES, 0)
    assert second["waits"] == "no-worker"
    assert FIGURES in told.run("queue").stdout
    assert f"waits (disk-full): {FIGURES}" in told.run("explain", "shop.orders").stdout
    (entry,) = told.json("explain", "shop.orders")["queue"]
    assert entry["waits"] == "disk-full"
    told.run("pause", "--all", "--reason", "x")
    assert [entry["waits"] for entry in told.json("queue")] == ["paused", "paused"]


@pytest.mark.parametrize("told", [{}], indirect=True)
def test_without_anything_noted_nothing_is_told(told):
    """No column for it, as before anything ever broke down."""
    assert "BROKE DOWN" not in told.run("queue").stdout
    assert [(entry["waits"], entry["failures"]) for entry in told.json("queue")] == [("no-worker", 0)] * 2


def test_entries_that_nobody_tries_any_more_have_no_failures():
    """What is stored of an entry that waits for cleaning is of an earlier time."""
    stored = StoredFailure(2, "ExecutorLostFailure", "disk-full", FIGURES)
    waiting = QueueEntry(1, Entity("db", "t"), CompactionKind.MAJOR, QueueState.WORKING)
    daemons = Daemons(failures={1: stored})
    assert daemons.failure(waiting) == stored
    assert daemons.failure(replace(waiting, state=QueueState.READY_FOR_CLEANING)) == StoredFailure()
