"""Who coordinates: ZooKeeper where the settings name it, else the metastore's database."""

from collections.abc import Callable

from compactor.coordination.base import Coordinator
from compactor.coordination.database import DatabaseCoordinator
from compactor.coordination.zookeeper import ZooKeeperCoordinator
from compactor.metastore.database import Database
from compactor.settings import Settings


def open_coordinator(settings: Settings, database: Callable[[], Database], *, patience_seconds: float | None = None) -> Coordinator:
    """
    The coordinator that the settings ask for; not connected yet.

    Args:
        database: the metastore's; asked for only where it coordinates.
        patience_seconds: who only looks, or changes control state, waits for ZooKeeper no longer, however long a member's session goes on; None: as members do.

    Raises:
        SettingsError: a password file can't be read.
    """
    if settings.zookeeper.hosts is None:
        return DatabaseCoordinator(database(), settings.members.heartbeat_seconds)
    zookeeper = settings.zookeeper
    if patience_seconds is not None:
        zookeeper = zookeeper.model_copy(update={"session_timeout_seconds": min(patience_seconds, zookeeper.session_timeout_seconds)})
    return ZooKeeperCoordinator(zookeeper, settings.members.heartbeat_seconds)
