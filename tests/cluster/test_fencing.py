"""
Stopped at a named step, succeeded by another daemon, continued later: rows, directories, queue and history are as if it
had died.
"""

import signal

import pytest

from compactor.roles import steps
from tests.cluster.fencing import OWN_STEPS, assert_as_if_one, go_on, stop_succeed_continue
from tests.crash.scene import ended

pytestmark = [pytest.mark.cluster, pytest.mark.postgres, pytest.mark.timeout(240)]


@pytest.mark.parametrize("step", OWN_STEPS)
def test_elected_by_zookeeper(fleet, step):
    """
    Its session expires, its transactions end, its claims are given back: the second does everything, the first finds
    nothing left to do.
    """
    stop_succeed_continue(fleet, step)


@pytest.mark.parametrize("fleet", [("postgres-3", 1)], indirect=True)
@pytest.mark.parametrize("step", [steps.WORKER_VERIFIED, steps.WORKER_PUBLISHED, steps.CLEANER_TRASHED])
def test_on_hive_3(fleet, step):
    """Without transactions the rename is the commit, and the staging directory the fence."""
    stop_succeed_continue(fleet, step)


@pytest.mark.parametrize(
    ("fleet", "step"),
    [
        *((("postgres-4", 1), step) for step in steps.RECOVERY_STEPS),
        *((("postgres-3", 1), step) for step in steps.RECOVERY_STEPS if step != steps.RECOVERY_ABORTED),
    ],
    indirect=["fleet"],
)
def test_clearing_up_after_the_dead(fleet, step):
    """
    A worker is killed in its work; who clears up after it is stopped, a third one does it all; continued, the second
    takes nothing away that isn't the dead one's.
    """
    dead = fleet.daemon("dead", stop_at=steps.WORKER_RAN)
    fleet.wait(dead.stopped, "at work")
    dead.send(signal.SIGKILL)
    stopped = fleet.daemon("second", stop_at=step)
    fleet.wait(stopped.stopped, f"stopped at {step}")
    third = fleet.daemon("third")
    fleet.wait(fleet.settled, "settled by the third")
    fleet.assert_rows()
    go_on(fleet, stopped, "housekeeper")
    for running in (stopped, third):
        running.send(signal.SIGTERM)
        assert ended(running.process) == 0
    assert_as_if_one(fleet)
