"""
Queues the follow-up of a compaction that was only a part of a larger one.

The commit notes the follow-up with the entry. Once its time has come, any living process queues it, exactly once.

    CQ_TBLPROPERTIES  compactor.follow-up = now | when-cleaned

The note goes into the history with the entry. It is removed in the transaction that queues the follow-up. Its form is
Hive's StringableMap on both schemas; Hive's own Cleaner copies the note and ignores it. Source: docs/compaction.md, "In
parts".
"""

from enum import StrEnum
from typing import Final

from sqlalchemy import ColumnElement, Connection, Table, select, update

from compactor.acid.compaction import CompactionKind
from compactor.errors import CompactorError
from compactor.metastore.compaction_queue.properties import decode_properties, with_property, without_property
from compactor.metastore.compaction_queue.requests import FOLLOW_UP, PROPERTIES_LIMIT, Request, Requests
from compactor.metastore.compaction_queue.rows import find, read_history, read_queue
from compactor.metastore.db.database import Database
from compactor.metastore.model import Enqueued, QueueEntry, QueueState

_MUTEX_SECONDS: Final = 1.0
"""The caller has other work to do, and asks again."""
_ACTIVE: Final = frozenset({QueueState.INITIATED, QueueState.WORKING})


class FollowUp(StrEnum):
    """
    When the follow-up of a compaction may be queued.

    NOW: at once. WHEN_CLEANED: when the Cleaner has removed what this part replaced, because the follow-up needs the
    room.
    """

    NOW = "now"
    WHEN_CLEANED = "when-cleaned"


class _TakenError(CompactorError):
    """Another process queues the follow-up."""


class FollowUpStore:
    """The follow-ups that are noted in one metastore."""

    def __init__(self, database: Database, requests: Requests) -> None:
        self._database = database
        self._schema = database.schema
        self._requests = requests

    def noted(self, *, history: bool) -> list[QueueEntry]:
        """
        Entries whose compaction is committed and whose follow-up isn't queued yet.

        Args:
            history: include cleaned entries; this reads all of the history.
        """
        schema = self._schema
        queue, past = schema.compaction_queue.c, schema.completed_compactions.c
        ready = queue.cq_state == QueueState.READY_FOR_CLEANING.code

        def look(connection: Connection) -> list[QueueEntry]:
            found: list[QueueEntry] = list(read_queue(connection, schema, ready, _names(queue.cq_tblproperties)))
            if history:
                found += read_history(connection, schema, _names(past.cc_tblproperties))
            return [entry for entry in found if FOLLOW_UP in entry.properties]

        return self._database.read(look)

    def ask(self, entry_id: int) -> tuple[Enqueued | None, bool]:
        """
        Queue the follow-up of a compaction if it may begin, with the same kind, pool and properties.

        Returns the answer to the request, and whether nothing more has to be done: the follow-up is queued, or another
        entry in the queue does as much.

        Raises:
            CompactorError: the metastore can't be asked, or another process holds the scheduler's mutex.
        """
        entry = self._database.read(find, self._schema, entry_id)
        if entry is None or FOLLOW_UP not in entry.properties or entry.state in _ACTIVE:
            return None, True
        if entry.state is QueueState.READY_FOR_CLEANING and entry.properties[FOLLOW_UP] != FollowUp.NOW:
            return None, False
        request = Request(
            entry.entity,
            entry.kind,
            pool=entry.pool,
            properties={key: value for key, value in entry.properties.items() if key != FOLLOW_UP},
            run_as=entry.run_as,
            initiator_id=entry.initiator_id,
            initiator_version=entry.initiator_version,
        )
        if (way := self._database.read(self._in_the_way, request)) is not None:
            return way, False  # asked often, and perhaps for hours: so without the mutex
        with self._database.mutex("CompactionScheduler", _MUTEX_SECONDS):
            try:
                return self._database.write(self._ask, entry, request)
            except _TakenError:
                return None, False  # asked again later: the entry's row may only have moved into the history

    def _in_the_way(self, connection: Connection, request: Request) -> Enqueued | None:
        """The entry that the follow-up has to wait for; an entry that does as much doesn't count."""
        answer = self._requests.in_the_way(connection, [request]).get(request.entity)
        return None if answer is None or self._does_as_much(connection, answer, request.kind) else answer

    def _ask(self, connection: Connection, entry: QueueEntry, request: Request) -> tuple[Enqueued, bool]:
        (answer,) = self._requests.insert(connection, [request])
        settled = answer.accepted or self._does_as_much(connection, answer, request.kind)
        if settled:
            self._strike_out(connection, entry)
        return answer, settled

    def _does_as_much(self, connection: Connection, answer: Enqueued, kind: CompactionKind) -> bool:
        """
        Whether the entry in the way of a request will do what was asked for.

        An entry that only waits for the Cleaner won't.
        """
        there = find(connection, self._schema, answer.id)
        return there is not None and there.state in _ACTIVE and there.kind in {kind, CompactionKind.MAJOR}

    def _strike_out(self, connection: Connection, entry: QueueEntry) -> None:
        """
        Remove the note of a follow-up from its row.

        Raises:
            _TakenError: the note isn't there any more, or the row has moved.
        """
        schema = self._schema
        past = entry.state is not QueueState.READY_FOR_CLEANING
        table: Table = schema.completed_compactions if past else schema.compaction_queue
        prefix = "cc" if past else "cq"
        text, mine = table.c[f"{prefix}_tblproperties"], table.c[f"{prefix}_id"] == entry.id
        before = connection.scalar(select(text).where(mine).with_for_update())
        if before is None or FOLLOW_UP not in decode_properties(before):
            raise _TakenError(f"what follows compaction {entry.id} was requested by another process")
        connection.execute(update(table).where(mine).values({text: without_property(before, FOLLOW_UP)}))


def noted(text: str | None, follow_up: FollowUp) -> str | None:
    """
    CQ_TBLPROPERTIES with the note; None when the note can't be added.

    That is so when the text is unreadable, or leaves no room for the note.
    """
    try:
        with_note = with_property(text, FOLLOW_UP, follow_up.value)
    except ValueError:
        return None
    return with_note if len(with_note) <= PROPERTIES_LIMIT else None


def _names(column: ColumnElement[str]) -> ColumnElement[bool]:
    return column.contains(FOLLOW_UP, autoescape=True)
