"""
The compactor's own table of the work on queue entries: what was predicted, how far it is, and what it achieved.

    COMPACTOR_WORK(CW_ID primary key, CW_START, CW_VALUE JSON, CW_UPDATED database clock in ms)

CW_ID is the entry's id in COMPACTION_QUEUE and COMPLETED_COMPACTIONS, CW_START the time of the claim: an attempt never
writes over the row of a later one. No decision depends on this table.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

from sqlalchemy import Connection, Row, delete, exists, insert, not_, select, update
from sqlalchemy.exc import IntegrityError

from compactor.metastore.db.database import Database
from compactor.metastore.db.own_tables import WORK, OwnTable, loaded
from compactor.metastore.db.sql import BATCH, batches, changed

SHARE_STEP: Final = 0.1
"""By how much the share of a running compaction grows until it is stored again."""


@dataclass(frozen=True, slots=True)
class Work:
    """
    The work of one attempt on an entry; None: not known, or not yet.

    Args:
        worker: the worker's id, which names its host.
        compacted_as: the kind of compaction that was done.
        share: 0..1 of the writing that is done.
        predicted_read, predicted_written: bytes.
        predicted_files: files after the compaction.
        waiting_seconds: from the request to the claim.
        planning_seconds, writing_seconds, checking_seconds, publishing_seconds: from the claim to the commit.
        files_before, bytes_before: of the inputs.
        files_after, bytes_after: of the result.
        copied_bytes, recoded_bytes: bytes of the inputs' stripes that were copied, and encoded anew.
        rows_before, rows_after: rows of the data files; delete events don't count.
        undone_by, undone_ms: who took the result away again by `compactor restore`, and when by the database clock.
    """

    worker: str | None = None
    compacted_as: str | None = None
    share: float | None = None
    predicted_read: int | None = None
    predicted_written: int | None = None
    predicted_files: int | None = None
    waiting_seconds: float | None = None
    planning_seconds: float | None = None
    writing_seconds: float | None = None
    checking_seconds: float | None = None
    publishing_seconds: float | None = None
    files_before: int | None = None
    files_after: int | None = None
    bytes_before: int | None = None
    bytes_after: int | None = None
    copied_bytes: int | None = None
    recoded_bytes: int | None = None
    rows_before: int | None = None
    rows_after: int | None = None
    undone_by: str | None = None
    undone_ms: int | None = None

    def record(self) -> dict[str, Any]:
        """The known fields, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def of(cls, record: Mapping[str, object]) -> "Work":
        """The inverse of `record`; what another release wrote otherwise is left out."""
        values: dict[str, Any] = {}
        for field in fields(cls):
            value = record.get(field.name)
            if _fits(field.name, value):
                values[field.name] = value
        return cls(**values)


_WORDS: Final = frozenset({"worker", "compacted_as", "undone_by"})
_MOST: Final = (1 << 63) - 1


def _fits(name: str, value: object) -> bool:
    """Whether a field may have this value: a word, a whole number, or of shares and seconds any number but NaN."""
    if name in _WORDS:
        return isinstance(value, str)
    if type(value) is int:
        return 0 <= value <= _MOST
    return type(value) is float and (name == "share" or name.endswith("_seconds")) and 0 <= value <= _MOST


@dataclass(frozen=True, slots=True)
class StoredWork:
    """
    A row of the table.

    Args:
        start_ms: CQ_START of the claim that the work belongs to.
        updated_ms: when the row was written. Both are of the database's clock.
    """

    start_ms: int
    updated_ms: int
    work: Work

    def expected_end_ms(self, now_ms: int) -> int | None:
        """
        When the writing will end if it goes on as it did; None before the first share of it is done.

        The share is stored each time it has grown by `SHARE_STEP`. So work that has become slower since is expected to
        end later.
        """
        work = self.work
        if not work.share or work.planning_seconds is None:
            return None
        began = self.start_ms + work.planning_seconds * 1000
        most = min(1.0, work.share + SHARE_STEP)
        return round(began + max((self.updated_ms - began) / work.share, (now_ms - began) / most))


class WorkTable(OwnTable):
    """COMPACTOR_WORK of one metastore."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, WORK)

    def put(self, entry_id: int, start_ms: int, work: Work) -> bool:
        """
        Store the work of the attempt that claimed the entry at `start_ms`; tried once.

        Returns False when the row belongs to a later attempt, and stays.

        Raises:
            CompactorError: the table can't be created or written.
        """
        self.make()
        values = {"start": start_ms, "value": json.dumps(work.record()), "updated": self._database.now}
        change = update(WORK).where(WORK.c.id == entry_id, WORK.c.start <= start_ms).values(values)
        try:
            with self._database.transaction() as connection:
                if connection.execute(change).rowcount == 0:
                    connection.execute(insert(WORK).values(id=entry_id, **values))
        except IntegrityError:
            return False
        return True

    def put_undone(self, entry_id: int, start_ms: int, by: str, now_ms: int) -> None:
        """
        Store that the result of the attempt that claimed the entry at `start_ms` was taken away again.

        Raises:
            CompactorError: as `put`.
        """
        stored = self.find([entry_id]).get(entry_id)
        work = stored.work if stored is not None and stored.start_ms == start_ms else Work()
        self.put(entry_id, start_ms, replace(work, undone_by=by, undone_ms=now_ms))

    def find(self, ids: Collection[int]) -> dict[int, StoredWork]:
        """The stored work on these entries; entries without a row are left out."""
        if not ids or not self.exists():
            return {}

        def look(connection: Connection) -> list[Row[Any]]:
            return [
                row
                for some in batches(ids)
                for row in connection.execute(select(WORK).where(WORK.c.id.in_(some))).all()
            ]

        return {
            int(row.id): StoredWork(int(row.start), int(row.updated), Work.of(loaded(row.value)))
            for row in self._database.read(look)
        }

    def forget_gone(self) -> int:
        """
        Delete rows whose entry is in neither queue nor history, `BATCH` at most; returns how many.

        The ids come from one statement, which sees an entry that is moved in one of both places. An id that is gone
        never comes back.
        """
        if not self.exists():
            return 0
        queue, history = self._database.schema.compaction_queue, self._database.schema.completed_compactions
        gone = (
            select(WORK.c.id)
            .where(not_(exists().where(queue.c.cq_id == WORK.c.id)))
            .where(not_(exists().where(history.c.cc_id == WORK.c.id)))
            .order_by(WORK.c.id)
            .limit(BATCH)
        )
        ids = self._database.read(lambda connection: connection.scalars(gone).all())
        if not ids:
            return 0
        old = delete(WORK).where(WORK.c.id.in_(ids))
        return self._database.repeatable(changed, old)
