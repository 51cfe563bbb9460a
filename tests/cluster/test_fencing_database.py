"""
Stopped, succeeded, continued, where nothing but the database elects: rows, directories, queue and history are as if it
had died.
"""

import pytest

from tests.cluster.fencing import OWN_STEPS, stop_succeed_continue

pytestmark = [pytest.mark.cluster, pytest.mark.postgres, pytest.mark.timeout(240)]


@pytest.mark.parametrize("fleet", [("4.0.0", 0)], indirect=True)
@pytest.mark.parametrize("step", OWN_STEPS)
def test_elected_by_the_database_alone(fleet, step):
    """The server ends the silent transaction that holds the mutex; whoever held it notices."""
    stop_succeed_continue(fleet, step)
