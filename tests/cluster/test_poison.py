"""
As tests/crash/test_poison.py, where ZooKeeper keeps the count: a daemon that starts gives back what the dead one had
claimed before it has reached ZooKeeper.
"""

import itertools

import pytest

from tests.crash.scene import url_of
from tests.crash.test_poison import Poisoned, is_set_aside

pytestmark = [pytest.mark.cluster, pytest.mark.postgres, pytest.mark.timeout(240)]
_roots = itertools.count(1)


@pytest.fixture
def scene(request, tmp_path, zookeeper_1):
    """On PostgreSQL, with ZooKeeper."""
    section = {"hosts": zookeeper_1.hosts, "root": f"/poison-{next(_roots)}", "session_timeout_seconds": 1}
    made = Poisoned(url_of("postgres-4", request, tmp_path), tmp_path, zookeeper=section)
    yield made
    made.end()


def test_a_poisonous_entry_ends_after_three_daemons(scene):
    """The entry is failed and says why, and no row has changed."""
    is_set_aside(scene)
