"""
TERM to the daemon and everything that it started, at once: as systemd's KillMode=control-group sends it, or a terminal
that closes.
"""

import contextlib
import os
import signal

import pytest

from benchmarks.processes import below
from compactor.roles import steps
from tests.crash.scene import ended, given_back_and_compacted

pytestmark = [pytest.mark.crash, pytest.mark.spark, pytest.mark.timeout(240)]


def test_a_session_that_is_ended_with_the_daemon_fails_no_entry(scene):
    """
    Spark's JVM dies of it while it works: the entry is undone and given back, nothing is failed, and the next start
    compacts it.
    """
    scene.unhurried()
    process = scene.start(spark=True)
    at_work = lambda: any(event.get("step") == steps.WORKER_STATE_STORED for event in scene.events())  # noqa: E731
    scene.until(process, at_work, "at work")
    for pid in list(below(process.pid)):
        with contextlib.suppress(ProcessLookupError):  # Spark's ends with another
            os.kill(pid, signal.SIGTERM)
    assert ended(process) == 0
    given_back_and_compacted(scene)
