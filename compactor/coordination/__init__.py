"""
Leadership, membership and a little shared control state: by ZooKeeper, or by the metastore's database alone.

Elects and informs; never stores truth about data. A decision made here may be wrong for a while after a paused process
or a network partition. So no step that could harm rows may depend on it: the database and the directories themselves
fence such steps (docs/operations.md).
"""

from collections.abc import Callable

from compactor.coordination.base import NOTHING_NEW, Alone, Coordinator
from compactor.coordination.model import (
    Activity,
    ConflictError,
    Connection,
    Member,
    Role,
    SeenMember,
    Term,
    Value,
    not_led,
)
from compactor.coordination.sql.coordinator import DatabaseCoordinator
from compactor.coordination.zk.coordinator import ZooKeeperCoordinator
from compactor.metastore.db.database import Database
from compactor.settings import Settings

__all__ = [
    "NOTHING_NEW",
    "Activity",
    "Alone",
    "ConflictError",
    "Connection",
    "Coordinator",
    "Member",
    "Role",
    "SeenMember",
    "Term",
    "Value",
    "not_led",
    "open_coordinator",
]


def open_coordinator(
    settings: Settings, database: Callable[[], Database], *, patience_seconds: float | None = None
) -> Coordinator:
    """
    The coordinator that the settings ask for; not connected yet.

    Args:
        database: the metastore's database; called only where the database coordinates.
        patience_seconds: upper limit of the session time-out, for commands that only look or change control state and
            shall not wait for ZooKeeper as long as a member; None: the session time-out of the settings.

    Raises:
        SettingsError: a password file can't be read.
    """
    if settings.zookeeper.hosts is None:
        return DatabaseCoordinator(database(), settings.members.heartbeat_seconds)
    zookeeper = settings.zookeeper
    if patience_seconds is not None:
        zookeeper = zookeeper.model_copy(
            update={"session_timeout_seconds": min(patience_seconds, zookeeper.session_timeout_seconds)}
        )
    return ZooKeeperCoordinator(zookeeper, settings.members.heartbeat_seconds)
