"""Servers and networks that the cluster tests share: servers are started when first asked for."""

import itertools

import pytest

from tests.cluster.daemons import Fleet
from tests.cluster.network import Island
from tests.cluster.network import UnavailableError as NoNetworkError
from tests.cluster.zookeeper_servers import zookeeper
from tests.crash.scene import url_of
from tests.metastore.databases import mariadb, postgres  # noqa: F401 - fixtures
from tests.metastore.servers import UnavailableError
from tests.needs import missing

_ROOTS = itertools.count(1)


def _ensemble(tmp_path_factory, nodes):
    try:
        servers = zookeeper(tmp_path_factory.mktemp("zookeeper"), nodes)
        started = servers.__enter__()
    except UnavailableError as error:
        missing(str(error))
    yield started
    servers.__exit__(None, None, None)


@pytest.fixture(scope="session")
def zookeeper_1(tmp_path_factory):
    """One ZooKeeper server, for the whole run."""
    yield from _ensemble(tmp_path_factory, 1)


@pytest.fixture(scope="session")
def zookeeper_trio(tmp_path_factory):
    """Three ZooKeeper servers, for the whole run: whoever kills one starts it again."""
    yield from _ensemble(tmp_path_factory, 3)


@pytest.fixture
def zookeeper_3(tmp_path_factory):
    """Three ZooKeeper servers, new for each test: they are killed and stopped."""
    yield from _ensemble(tmp_path_factory, 3)


@pytest.fixture
def island():
    """A network of its own for a process, with a cable to ours that can be pulled."""
    try:
        made = Island().__enter__()
    except NoNetworkError as error:
        missing(str(error))
    yield made
    made.__exit__(None, None, None)


@pytest.fixture
def fleet(request, tmp_path):
    """Daemons on a shared metastore; the parameter says of which kind, and how many ZooKeeper servers elect."""
    kind, servers = getattr(request, "param", ("postgres-4", 1))
    name = {1: "zookeeper_1", 3: "zookeeper_trio"}.get(servers)
    section = {"hosts": request.getfixturevalue(name).hosts, "root": f"/fencing-{next(_ROOTS)}"} if name else None
    made = Fleet(url_of(kind, request, tmp_path), tmp_path, section)
    yield made
    made.end()
