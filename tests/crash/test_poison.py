"""
A compaction that takes its daemon down each time it is tried: after three deaths its entry is set aside, and the daemon
goes on with the others.
"""

import signal

import pytest
import yaml

from compactor.acid.compaction import CompactionKind
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.db.database import Database
from compactor.metastore.model import Entity, QueueState
from compactor.roles import steps
from compactor.roles.worker.failures import ATTEMPTS
from tests.crash.scene import Scene, ended

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]


class Poisoned(Scene):
    """A scene in which nothing is queued but one entry, and that one kills."""

    def __init__(self, url, folder, **sections):
        super().__init__(url, folder)
        settings = yaml.safe_load(self.config.read_text(encoding="utf-8"))
        settings["initiator"]["thresholds"]["delta_count"] = 1000
        self.config.write_text(yaml.safe_dump(settings | sections), encoding="utf-8")
        with Database(url) as database:
            assert Queue(database).enqueue(Entity("db", "t"), CompactionKind.MAJOR).accepted

    def failed(self):
        return Queue(self.metastore).history(QueueState.FAILED)


def is_set_aside(scene):
    """Three daemons are killed while they work on it; the fourth, which would be too, doesn't try it."""
    for _ in range(ATTEMPTS):
        assert ended(scene.start(kill_at=steps.WORKER_RAN)) == -signal.SIGKILL, scene.said()[-4000:]
    starts = scene.starts()
    fourth = scene.start(kill_at=steps.WORKER_RAN)
    scene.until(fourth, lambda: scene.starts() > starts and scene.failed(), "set aside")
    (entry,) = scene.failed()
    assert entry.error_message.startswith("broke down 3 times, the latest: its worker compactor-here-")
    assert scene.drain(fourth) == 0
    scene.assert_rows()
    assert not [name for name in scene.names() if name.startswith(("base", "."))]


@pytest.fixture
def scene(tmp_path):
    """On an embedded metastore."""
    made = Poisoned(f"sqlite:///{tmp_path}/metastore.db", tmp_path)
    yield made
    made.end()


def test_a_poisonous_entry_ends_after_three_daemons(scene):
    """The entry is failed and says why, and no row has changed."""
    is_set_aside(scene)
