"""What a process opens before it works."""

import contextlib

import pytest

from compactor.errors import UnreachableError
from compactor.metastore.db import database as database_module
from compactor.metastore.db.database import Database
from compactor.roles.services import Services
from compactor.settings import Settings
from tests.compacting import NothingRuns


@pytest.mark.parametrize(
    ("sections", "connections"),
    [
        ({"worker": {"threads": 2}}, 26),
        ({"worker": {"threads": 16, "pools": {"etl": 2}}}, 74),
        ({"worker": {"threads": 0}, "cleaner": {"enabled": False}}, 16),
        ({"worker": {"threads": 16}, "database": {"connections": 20}}, 20),
    ],
)
def test_there_is_a_connection_for_everybody(tmp_path, monkeypatch, sections, connections):
    """
    Each worker may use three at once, each of the Cleaner's threads one, all else sixteen, unless the settings say how
    many: so many can be had, and no more.
    """
    monkeypatch.setattr(database_module, "WAIT_SECONDS", 0.01)
    url = f"sqlite:///{tmp_path}/x.db"
    with Database(url, create=True):
        pass
    settings = Settings(**sections | {"database": {"url": url, **sections.get("database", {})}})
    services = Services.open(settings, submitter=NothingRuns())
    with contextlib.closing(services), contextlib.ExitStack() as stack:
        for _ in range(connections):
            stack.enter_context(services.database.reading())
        with pytest.raises(UnreachableError, match=rf"all {connections} connections .* database\.connections"):
            services.now_ms()
