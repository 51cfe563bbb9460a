"""The scene of each test, and servers for its metastore."""

import pytest

from tests.crash.scene import Scene, url_of
from tests.metastore.databases import mariadb, postgres  # noqa: F401 - fixtures


@pytest.fixture
def scene(tmp_path, request):
    """On an embedded metastore unless the test's parameter says otherwise."""
    made = Scene(url_of(getattr(request, "param", "sqlite"), request, tmp_path), tmp_path)
    yield made
    made.end()
