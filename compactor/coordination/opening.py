"""Who coordinates: ZooKeeper where the settings name it, else the metastore's database."""

from collections.abc import Callable

from compactor.coordination.base import Coordinator
from compactor.coordination.database import DatabaseCoordinator
from compactor.coordination.zookeeper import ZooKeeperCoordinator
from compactor.metastore.database import Database
from compactor.settings import Settings


def open_coordinator(settings: Settings, database: Callable[[], Database]) -> Coordinator:
    """
    The coordinator that the settings ask for; not connected yet.

    Args:
        database: the metastore's; asked for only where it coordinates.

    Raises:
        SettingsError: a password file can't be read.
    """
    if settings.zookeeper.hosts is None:
        return DatabaseCoordinator(database(), settings.members.heartbeat_seconds)
    return ZooKeeperCoordinator(settings.zookeeper, settings.members.heartbeat_seconds)
