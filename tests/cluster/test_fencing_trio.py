"""
Stopped, succeeded, continued, where three ZooKeeper servers elect and their leader dies meanwhile: rows, directories,
queue and history are as if it had died.
"""

import pytest

from tests.cluster.fencing import HOLDING_STEPS, stop_succeed_continue

pytestmark = [pytest.mark.cluster, pytest.mark.postgres, pytest.mark.timeout(240)]


@pytest.mark.parametrize("fleet", [("postgres-4", 3)], indirect=True)
@pytest.mark.parametrize("step", HOLDING_STEPS)
def test_whose_leader_dies_meanwhile(fleet, zookeeper_trio, step):
    """
    Three ZooKeeper servers, whose leader is killed while the daemon is stopped, on hosts whose clocks differ by a
    quarter of an hour: the same end. What it finds after each of its steps is `test_fencing`'s part.
    """
    stop_succeed_continue(fleet, step, servers=zookeeper_trio, skew=450)
