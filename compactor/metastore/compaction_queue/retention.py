"""
Decides how long finished compactions stay in the history.

Source: Hive's PurgeCompactionHistoryFunction.
"""

from dataclasses import dataclass

from sqlalchemy import Connection, select

from compactor.acid.compaction import CompactionKind
from compactor.durations import DAY_MS
from compactor.metastore.db.schema import HiveSchema
from compactor.metastore.db.sql import entity_columns, told_apart
from compactor.metastore.model import KIND_CODES, QueueState


@dataclass(frozen=True, slots=True)
class Retention:
    """
    How many finished compactions of each end state are kept per table and partition
    (`metastore.compactor.history.retention.*`).

    Args:
        timeout_ms: the age at which a compaction that didn't succeed goes when a later one made up for it; 0 or less:
            never for that reason.
    """

    succeeded: int = 3
    failed: int = 3
    did_not_initiate: int = 2
    refused: int = 3
    timeout_ms: int = 7 * DAY_MS

    def limit(self, code: str) -> int | None:
        """How many rows are kept in this state; None: all of them."""
        limits = {
            QueueState.SUCCEEDED.code: self.succeeded,
            QueueState.FAILED.code: self.failed,
            QueueState.DID_NOT_INITIATE.code: self.did_not_initiate,
            QueueState.REFUSED.code: self.refused,
        }
        return limits.get(code)


def expired(
    connection: Connection, schema: HiveSchema, retention: Retention, now_ms: int, *, ended_before: int | None = None
) -> list[int]:
    """
    Ids of history rows to delete: rows beyond the newest few of their state, and overtaken rows.

    A row that didn't succeed is overtaken when it is older than the time-out and a newer compaction of the same table
    or partition succeeded that was a major one, or a minor one like the row itself.

    Args:
        ended_before: only rows that ended before that time.
    """
    table = schema.completed_compactions
    columns = (
        *entity_columns(table, "cc"),
        table.c.cc_id,
        table.c.cc_state,
        table.c.cc_type,
        table.c.cc_start,
        table.c.cc_end,
    )
    rows = connection.execute(select(*columns).order_by(*told_apart(entity_columns(table, "cc")), table.c.cc_id.desc()))
    major, minor = KIND_CODES[CompactionKind.MAJOR], KIND_CODES[CompactionKind.MINOR]
    gone: list[int] = []
    current: tuple[str, str, str | None] | None = None
    kept: dict[str, int] = {}
    made_up: set[str] = set()
    for database, name, partition, number, state, kind, start, end in rows:
        if (database, name, partition) != current:
            current, kept, made_up = (database, name, partition), {}, set()
        if state == QueueState.SUCCEEDED.code:
            made_up.add(kind)
        limit = retention.limit(state)
        if limit is None:
            continue
        kept[state] = kept.get(state, 0) + 1
        overtaken = state != QueueState.SUCCEEDED.code and (major in made_up or (minor in made_up and kind == minor))
        late = 0 < retention.timeout_ms < now_ms - (start or end or now_ms)
        beyond = kept[state] > limit
        if (beyond or (overtaken and late)) and (ended_before is None or (end or 0) < ended_before):
            gone.append(number)
    return gone
