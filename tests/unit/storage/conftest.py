"""
The drivers that are held to the contract of docs/storage.md (test_storage_contract_*). A new driver is added to one of
the two lists and must pass all of it.

Those that need a server are marked `cluster`; the fixture that starts it is asked for by name.
"""

from collections.abc import Callable

import pytest

from compactor.storage.base import Storage
from compactor.storage.location import local_path, parent
from compactor.storage.registry import storage_for


def _local(prefix: str) -> Callable[[pytest.FixtureRequest], str]:
    """An empty directory on this machine, named with a prefix."""
    return lambda request: f"{prefix}{request.getfixturevalue('tmp_path')}"


RENAMING = [
    pytest.param(_local(""), id="local, plain path"),
    pytest.param(_local("file:"), id="local, file: location"),
    pytest.param(_local("file://"), id="local, file:// location"),
    pytest.param(lambda request: request.getfixturevalue("hdfs_directory"), id="hdfs", marks=pytest.mark.cluster),
]
PREPARING = [
    pytest.param(lambda request: request.getfixturevalue("s3_directory"), id="s3"),
    pytest.param(lambda request: request.getfixturevalue("s3_whole_keys"), id="s3 as MinIO lists uploads"),
]
"""
Those that rename directories, and those where files are prepared and then appear. Each makes the location of an empty
directory.
"""


def _place(request: pytest.FixtureRequest) -> tuple[Storage, str]:
    """
    A driver and a location of an empty directory; of `file:` locations the directory above is the trusted root, a plain
    path has none.
    """
    location = request.param(request)
    root = parent(local_path(location)) if location.startswith("file:") else None
    return storage_for(location, lambda _: root), location


place = pytest.fixture(params=[*RENAMING, *PREPARING], name="place")(_place)
renaming = pytest.fixture(params=RENAMING, name="renaming")(_place)
preparing = pytest.fixture(params=PREPARING, name="preparing")(_place)
