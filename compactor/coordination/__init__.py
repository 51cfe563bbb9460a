"""
Leadership, membership and a little shared control state: by ZooKeeper, or by the metastore's database alone.

Elects and informs; never stores truth about data. A decision made here may be wrong for a while after a paused process
or a network partition. So no step that could harm rows may depend on it: the database and the directories themselves
fence such steps (docs/operations.md).
"""

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
from compactor.coordination.opening import open_coordinator

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
