"""A worker of a daemon begins with what another process queues, long before it would look at the queue."""

import pytest

from compactor.acid.compaction import CompactionKind
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.db.database import Database
from compactor.metastore.model import Entity
from tests.compacting import InProcess
from tests.daemon.lab import cycles, pass_cycles, running, until

pytestmark = pytest.mark.postgres


def test_a_queued_entry_wakes_the_workers(postgres):
    """Each worker of the daemon looks at once; by itself none would for an hour."""
    url = postgres.create("4.0.0")
    with (
        running(url, InProcess(), worker={"threads": 2, "poll_seconds": 3600}) as daemon,
        Database(url) as client,
    ):
        until(lambda: cycles(daemon, "worker") >= 2, "idle")
        until(lambda: cycles(daemon, "announcements") >= 1, "listening")
        idle = cycles(daemon, "worker")
        pass_cycles(daemon, "announcements")
        assert cycles(daemon, "worker") == idle
        assert Queue(client).enqueue(Entity("db", "t"), CompactionKind.MAJOR).accepted
        until(lambda: cycles(daemon, "worker") >= idle + 2, "awake")
        assert daemon.troubles() == []
