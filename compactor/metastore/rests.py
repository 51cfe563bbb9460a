"""
What follows a compaction that was a part of a larger one: noted with its entry by the commit, asked for once when its time has come, whoever is alive then.

    CQ_TBLPROPERTIES  compactor.rest = now | when-cleaned      goes into the history with the entry; taken away when the rest is asked for, in one transaction

Hive's StringableMap on both schemas; Hive's own Cleaner copies it and heeds nothing of it. Source: docs/compaction.md, "In parts".
"""

from enum import StrEnum
from typing import Final

from sqlalchemy import ColumnElement, Connection, Table, select, update

from compactor.acid.compaction import CompactionKind
from compactor.errors import CompactorError
from compactor.metastore.database import Database
from compactor.metastore.model import Enqueued, QueueEntry, QueueState
from compactor.metastore.properties import decode_properties, with_property, without_property
from compactor.metastore.requests import PROPERTIES_LIMIT, REST, Request, Requests
from compactor.metastore.rows import find, read_history, read_queue

_MUTEX_SECONDS: Final = 1.0
"""Who asks has other things to do, and asks again."""
_ACTIVE: Final = frozenset({QueueState.INITIATED, QueueState.WORKING})


class Rest(StrEnum):
    """When the rest of a compaction may be asked for: at once, or when the Cleaner has removed what this part replaced, for it needs the room."""

    NOW = "now"
    WHEN_CLEANED = "when-cleaned"


class _TakenError(CompactorError):
    """Somebody else asks for it."""


class Rests:
    """The rests that are noted in one metastore."""

    def __init__(self, database: Database, requests: Requests) -> None:
        self._database = database
        self._schema = database.schema
        self._requests = requests

    def noted(self, *, history: bool) -> list[QueueEntry]:
        """
        Entries whose compaction is committed and has a rest that wasn't asked for yet.

        Args:
            history: also those that are cleaned; all of the history is read for it.
        """
        schema = self._schema
        queue, past = schema.compaction_queue.c, schema.completed_compactions.c
        ready = queue.cq_state == QueueState.READY_FOR_CLEANING.code

        def look(connection: Connection) -> list[QueueEntry]:
            found: list[QueueEntry] = list(read_queue(connection, schema, ready, _names(queue.cq_tblproperties)))
            if history:
                found += read_history(connection, schema, _names(past.cc_tblproperties))
            return [entry for entry in found if REST in entry.properties]

        return self._database.read(look)

    def ask(self, entry_id: int) -> tuple[Enqueued | None, bool]:
        """
        Queue the rest of a compaction, if it may be; under the same kind, pool and properties.

        Returns what was answered, and whether there is nothing more to do about it: the rest is asked for, or something is that does as much.

        Raises:
            CompactorError: the metastore can't be asked, or another process is at the scheduler's mutex.
        """
        entry = self._database.read(lambda connection: find(connection, self._schema, entry_id))
        if entry is None or REST not in entry.properties or entry.state in _ACTIVE:
            return None, True
        if entry.state is QueueState.READY_FOR_CLEANING and entry.properties[REST] != Rest.NOW:
            return None, False
        request = Request(
            entry.entity,
            entry.kind,
            pool=entry.pool,
            properties={key: value for key, value in entry.properties.items() if key != REST},
            run_as=entry.run_as,
            initiator_id=entry.initiator_id,
            initiator_version=entry.initiator_version,
        )
        if (way := self._database.read(lambda connection: self._in_the_way(connection, request))) is not None:
            return way, False  # looked at often, and perhaps for hours: without the mutex
        with self._database.mutex("CompactionScheduler", _MUTEX_SECONDS):
            try:
                return self._database.write(lambda connection: self._ask(connection, entry, request))
            except _TakenError:
                return None, False  # looked at again: its row may only have moved into the history

    def _in_the_way(self, connection: Connection, request: Request) -> Enqueued | None:
        """What the rest has to wait for; not what does as much."""
        answer = self._requests.in_the_way(connection, request)
        return None if answer is None or self._does_as_much(connection, answer, request.kind) else answer

    def _ask(self, connection: Connection, entry: QueueEntry, request: Request) -> tuple[Enqueued, bool]:
        (answer,) = self._requests.insert(connection, [request])
        settled = answer.accepted or self._does_as_much(connection, answer, request.kind)
        if settled:
            self._strike_out(connection, entry)
        return answer, settled

    def _does_as_much(self, connection: Connection, answer: Enqueued, kind: CompactionKind) -> bool:
        """Whether what stands in the way of a request will do what was asked for; what only waits for the Cleaner won't."""
        there = find(connection, self._schema, answer.id)
        return there is not None and there.state in _ACTIVE and there.kind in {kind, CompactionKind.MAJOR}

    def _strike_out(self, connection: Connection, entry: QueueEntry) -> None:
        """
        Take the note away.

        Raises:
            _TakenError: it isn't there any more, or not as it was.
        """
        schema = self._schema
        past = entry.state is not QueueState.READY_FOR_CLEANING
        table: Table = schema.completed_compactions if past else schema.compaction_queue
        prefix = "cc" if past else "cq"
        text, mine = table.c[f"{prefix}_tblproperties"], table.c[f"{prefix}_id"] == entry.id
        before = connection.scalar(select(text).where(mine).with_for_update())
        if before is None or REST not in decode_properties(before):
            raise _TakenError(f"what follows compaction {entry.id} is asked for by somebody else")
        connection.execute(update(table).where(mine).values({text: without_property(before, REST)}))


def noted(text: str | None, rest: Rest) -> str | None:
    """CQ_TBLPROPERTIES with the note; None where it can't be made: the text is unreadable, or leaves no room for it."""
    try:
        with_note = with_property(text, REST, rest.value)
    except ValueError:
        return None
    return with_note if len(with_note) <= PROPERTIES_LIMIT else None


def _names(column: ColumnElement[str]) -> ColumnElement[bool]:
    return column.contains(REST, autoescape=True)
