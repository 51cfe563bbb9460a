"""
The names of the compactor's workers in the metastore, by which they are told from Hive's own.

Pure. Source: docs/operations.md, *Claims of the dead*.
"""

import re
from dataclasses import dataclass
from typing import Final

PREFIX: Final = "compactor-"
_WORKER_ID: Final = re.compile(r"compactor-(?P<host>.+)-(?P<instance>[0-9a-f]{32})-(?P<role>[a-z0-9]+)")


@dataclass(frozen=True, slots=True)
class WorkerOwner:
    """A daemon's worker id, taken apart."""

    host: str
    instance: str
    role: str


def parse_worker_id(worker_id: str | None) -> WorkerOwner | None:
    """The parts of a daemon's worker id; None for Hive's own workers."""
    found = _WORKER_ID.fullmatch(worker_id or "")
    return WorkerOwner(**found.groupdict()) if found else None
