"""What Hive itself does in a metastore, as far as its tables tell: its workers, its Initiator, its housekeeping."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple, Self

from compactor.durations import DAY_MS
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.db.database import Database
from compactor.metastore.housekeeping import Housekeeping
from compactor.metastore.model import QueueEntry
from compactor.metastore.worker_ids import parse_worker_id

DAYS: Final = 3
"""For how long what Hive's own Initiator queued counts."""
_RECENT: Final = 200
"""Entries of the history among which Hive's own workers are looked for."""
_HIVES_VERSION: Final = re.compile(r"(?:[3-9]|\d\d+)\.")
"""A CQ_WORKER_VERSION of Hive's, such as 4.0.1 or a vendor's 3.1.3000; ours are lower."""
_INITIATOR: Final = re.compile(r"(?P<host>.+)-\d+")
"""Its CQ_INITIATOR_ID: host and thread. Source: Hive's InitiatorBase.getInitiatorId."""


class HiveSide(NamedTuple):
    """
    What Hive does beside the daemons. Whether its Cleaner is on, no table tells.

    Args:
        recent, by_hive: the latest compactions, and how many of them Hive's own workers did.
        initiators: by host how many compactions its Initiator queued within `DAYS`, and when the last; None: Hive 3.1
            doesn't note who queued.
    """

    schema: str
    recent: int
    by_hive: int
    initiators: Mapping[str, tuple[int, int]] | None

    @classmethod
    def read(cls, database: Database) -> Self:
        queue = Queue(database)
        recent = [*queue.working(), *queue.history(limit=_RECENT)]
        initiators = queue.initiators(DAYS * DAY_MS)
        by_host = None if initiators is None else _by_host(initiators)
        return cls(database.schema.schema_version, len(recent), sum(map(_is_hives, recent)), by_host)


def undone(database: Database) -> Mapping[str, str]:
    """By duty of Hive's housekeeping, why it seems that no process does it; nothing of an embedded database."""
    if database.embedded:
        return {}
    return {duty.value: one.sentence for duty, one in Housekeeping(database).who_does_it().items() if one.ours}


def _by_host(initiators: Mapping[str, tuple[int, int]]) -> Mapping[str, tuple[int, int]]:
    hosts: dict[str, tuple[int, int]] = {}
    for name, (count, last) in initiators.items():
        if parse_worker_id(name) is None and (found := _INITIATOR.fullmatch(name)) is not None:
            before = hosts.get(found["host"], (0, 0))
            hosts[found["host"]] = (before[0] + count, max(before[1], last))
    return hosts


def _is_hives(entry: QueueEntry) -> bool:
    """
    The history keeps no worker of a compaction that succeeded, but its job, where that was MapReduce's, and on Hive 4
    the worker's version. Of a query-based one of Hive 3.1 nothing tells.
    """
    if entry.worker_id is not None:
        return parse_worker_id(entry.worker_id) is None
    return (entry.job_id or "").startswith("job_") or _HIVES_VERSION.match(entry.worker_version or "") is not None
