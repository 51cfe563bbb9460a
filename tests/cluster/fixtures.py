"""
Servers of a cluster as fixtures, each started once for all tests of the process; imported by tests/conftest.py, so that
every package may ask for them.
"""

import itertools

import pytest

from compactor.settings.stores import Hdfs
from compactor.storage.registry import StorageOptions, configure, configured, storage_for
from tests.cluster.hadoop.servers import HadoopServer, UnavailableError
from tests.needs import missing

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def hdfs_server(tmp_path_factory):
    """A NameNode and two DataNodes; files are kept once."""
    yield from _started("hdfs", tmp_path_factory, 2)


@pytest.fixture(scope="session")
def ha_server(tmp_path_factory):
    """Two NameNodes behind the name service ns1, and a DataNode."""
    yield from _started("ha", tmp_path_factory, 1)


@pytest.fixture(scope="session")
def zones_server(tmp_path_factory):
    """A NameNode with a KMS, and a DataNode; `zone make PATH` makes an encryption zone."""
    yield from _started("zones", tmp_path_factory, 1)


def _started(kind, tmp_path_factory, *arguments, conf=None):
    try:
        server = HadoopServer(kind, tmp_path_factory.mktemp(kind), *arguments, conf=conf)
    except UnavailableError as error:
        missing(str(error))
    with server:
        yield server


@pytest.fixture(scope="session")
def yarn_server(hdfs_server, tmp_path_factory):
    """
    A ResourceManager with the queues default and compaction, and a NodeManager of 4 GiB, over the HDFS server; both
    share one configuration.
    """
    yield from _started("yarn", tmp_path_factory, 1, 4096, conf=hdfs_server.conf)


@pytest.fixture
def hdfs(hdfs_server):
    """The HDFS server, and this process configured to use it."""
    yield from configured_for(hdfs_server, _options(hdfs_server))


@pytest.fixture
def ha(ha_server):
    """The HDFS server with two NameNodes, and this process configured to use it."""
    yield from configured_for(ha_server, _options(ha_server))


@pytest.fixture
def zones(zones_server):
    """The HDFS server with a KMS, and this process configured to use it."""
    yield from configured_for(zones_server, _options(zones_server))


def _options(server):
    return StorageOptions(hdfs=Hdfs(conf_dir=server.conf))


def configured_for(what, options):
    """The body of a fixture: this process reaches stores so until the test is over."""
    before = configured()
    configure(options)
    yield what
    configure(before)


@pytest.fixture
def hdfs_directory(hdfs):
    """The location of an empty directory."""
    location = f"{hdfs.root}/warehouse/test{next(_NUMBERS)}"
    storage_for(location).mkdir(location)
    yield location
    storage_for(location).delete_tree(location)
