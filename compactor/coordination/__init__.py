"""
Who leads, who is there, and a little shared control state: by ZooKeeper, or by the metastore's database alone.

Elects and informs; never stores truth about data. Whatever is decided here may be wrong for a while after a pause or a partition, and nothing may depend on it
that could harm rows: that is fenced by the database and by the directories themselves (docs/operations.md).
"""

from compactor.coordination.base import NOTHING_NEW, Alone, Coordinator
from compactor.coordination.model import Activity, ConflictError, Connection, Member, Role, SeenMember, Term, Value
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
    "open_coordinator",
]
