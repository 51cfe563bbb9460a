"""
Stopped, succeeded, continued, where nothing but the database elects: rows, directories, queue and history are as if it
had died.
"""

import pytest

from tests.cluster.fencing import HOLDING_STEPS, OWN_STEPS, stop_succeed_continue

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


@pytest.mark.parametrize(
    ("fleet", "step"),
    [
        *(pytest.param(("postgres-4", 0), step, marks=pytest.mark.postgres) for step in OWN_STEPS),
        *(pytest.param(("mariadb-4", 0), step, marks=pytest.mark.mariadb) for step in HOLDING_STEPS),
    ],
    indirect=["fleet"],
)
def test_elected_by_the_database_alone(fleet, step):
    """The server ends the silent transaction that holds the mutex; whoever held it notices."""
    stop_succeed_continue(fleet, step)
