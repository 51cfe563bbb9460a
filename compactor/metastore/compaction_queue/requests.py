"""
Queues requests for compactions: many at once, none twice.

Source: docs/metastore.md; Hive's CompactFunction, GenerateCompactionQueueIdFunction.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, insert, or_, select

from compactor.acid.compaction import CompactionKind
from compactor.acid.write_ids import CompactorWriteIdList
from compactor.errors import UsageError
from compactor.metastore.compaction_queue.properties import encode_properties
from compactor.metastore.compaction_queue.urgency import MOST, URGENCY, is_persons
from compactor.metastore.db.database import Database
from compactor.metastore.db.sql import batches, entity_columns, fitting, next_number
from compactor.metastore.model import HIVES_OWN_PROPERTIES, KIND_CODES, KINDS, Enqueued, Entity, QueueState
from compactor.metastore.txn.snapshots import snapshots_for

PROPERTIES_LIMIT = 2048
POOL_CHARACTERS = 128
"""Longest name of a pool; the queue keeps so much of a longer one, which a table's property may hold."""
FOLLOW_UP = "compactor.follow-up"
"""A property that only a commit notes (`follow_ups`); a request must not set it."""
NOT_ASKED_FOR = HIVES_OWN_PROPERTIES | {FOLLOW_UP}
"""Properties that are dropped from every request."""


@dataclass(frozen=True, slots=True)
class Request:
    """
    A compaction to be queued.

    Args:
        initiator_id: `<host>-manual` for a person's request.
        urgency: 0..`urgency.MOST`; a property that names it, and a person's request, count more.
    """

    entity: Entity
    kind: CompactionKind
    pool: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    run_as: str | None = None
    initiator_id: str | None = None
    initiator_version: str | None = None
    urgency: int = 0


class Requests:
    """The part of `Queue` by which entries come in."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._schema = database.schema
        self._snapshots = snapshots_for(database)

    def enqueue(
        self,
        entity: Entity,
        kind: CompactionKind,
        *,
        pool: str | None = None,
        properties: Mapping[str, str] | None = None,
        run_as: str | None = None,
        initiator_id: str | None = None,
        initiator_version: str | None = None,
    ) -> Enqueued:
        """Queue one compaction; errors as for `enqueue_all`."""
        return self.enqueue_all(
            [Request(entity, kind, pool, properties or {}, run_as, initiator_id, initiator_version)]
        )[0]

    def enqueue_all(self, requests: Iterable[Request], still: Callable[[], None] = lambda: None) -> list[Enqueued]:
        """
        Queue many requests under Hive's scheduler mutex; returns one answer each, in their order. Duplicates aren't
        accepted.

        A request is a duplicate when an entry of the same table and partition, of any kind, is initiated or working; on
        4.x also when one is ready for cleaning at the write id that a compaction started now would cover.

        Args:
            still: called when no other process can queue an entry; an error that it raises ends the call, and nothing
                was queued.

        Raises:
            UsageError: properties are too long for their column.
            RetryableError: Hive or another daemon kept the scheduler's mutex.
            OutcomeUnknownError: the connection was lost while committing; look at the queue.
        """
        wanted = list(requests)
        _require_short(wanted)
        if not wanted:
            return []
        with self._database.mutex("CompactionScheduler"):
            return self._database.write(self.insert, wanted, still)

    def insert(
        self, connection: Connection, requests: Sequence[Request], still: Callable[[], None] = lambda: None
    ) -> list[Enqueued]:
        """Do `enqueue_all` in the caller's transaction; the caller holds the scheduler's mutex."""
        # The counter's row lock joins reading and inserting: a process that was stopped after it took the scheduler's
        # mutex may have lost the mutex by now.
        next_number(connection, self._schema.next_compaction_queue_id.c.ncq_next, 0)
        # When the process is stopped after this, the server ends this transaction before the mutex's: it has been
        # silent for longer.
        still()
        standing = self.in_the_way(connection, requests)
        new = {request.entity: request for request in reversed(requests) if request.entity not in standing}
        first = next_number(connection, self._schema.next_compaction_queue_id.c.ncq_next, len(new)) if new else 0
        ids = {
            entity: first + number
            for number, entity in enumerate(
                dict.fromkeys(request.entity for request in requests if request.entity in new)
            )
        }
        if new:
            queue = self._schema.compaction_queue
            statement = insert(queue).values(
                {"cq_enqueue_time": self._database.now} if "cq_enqueue_time" in queue.c else {}
            )
            connection.execute(statement, [self._row(ids[entity], request) for entity, request in new.items()])
            self._database.dialect.announce(connection)
        answers = []
        for request in requests:
            if (answer := standing.get(request.entity)) is not None:
                answers.append(answer)
            elif new[request.entity] is request:
                words = f"{request.kind.value} compaction of {request.entity} is queued with id {ids[request.entity]}"
                answers.append(Enqueued(ids[request.entity], True, QueueState.INITIATED, words))
            else:
                words = f"{request.entity} was asked for twice: see {ids[request.entity]}"
                answers.append(Enqueued(ids[request.entity], False, QueueState.INITIATED, words))
        return answers

    def preview(self, requests: Iterable[Request]) -> dict[Entity, Enqueued]:
        """
        The answers of those requests that `enqueue_all` wouldn't accept now; nothing is locked or written.

        Raises:
            UsageError: as `enqueue_all`.
        """
        wanted = list(requests)
        _require_short(wanted)
        return self._database.read(self.in_the_way, wanted)

    def in_the_way(self, connection: Connection, requests: Sequence[Request]) -> dict[Entity, Enqueued]:
        """The answers that requests would get now if they weren't accepted; nothing is locked or written."""
        queue = self._schema.compaction_queue
        states = [QueueState.INITIATED.code, QueueState.WORKING.code]
        relevant: ColumnElement[bool] = queue.c.cq_state.in_(states)
        if self._schema.generation.ready_counts_as_queued:
            relevant = or_(
                relevant,
                and_(queue.c.cq_state == QueueState.READY_FOR_CLEANING.code, queue.c.cq_highest_write_id.is_not(None)),
            )
        columns: list[ColumnElement[Any]] = [
            *entity_columns(queue, "cq"),
            queue.c.cq_id,
            queue.c.cq_state,
            queue.c.cq_type,
            queue.c.cq_highest_write_id,
        ]
        wanted = {request.entity for request in requests}
        found: dict[Entity, Enqueued] = {}
        done: list[tuple[Entity, int, Enqueued]] = []
        for tables in batches(sorted({entity.table for entity in wanted})):
            for database, table, partition, number, code, kind, write_id in connection.execute(
                select(*columns).where(relevant, queue.c.cq_table.in_(tables))
            ):
                entity = Entity(database, table, partition)
                state = QueueState.from_code(code)
                if entity not in wanted or state is None:
                    continue
                what = f"{KINDS[kind].value if kind in KINDS else 'a'} compaction {number} is {state.value}"
                answer = Enqueued(int(number), False, state, f"{entity} is already scheduled: {what}")
                if state is QueueState.READY_FOR_CLEANING:
                    done.append((entity, write_id, answer))
                else:
                    found[entity] = answer
        reach = self._reach(connection, {entity.full_name for entity, *_ in done})
        for entity, write_id, answer in done:
            if write_id == reach[entity.full_name]:
                found.setdefault(entity, answer)
        return found

    def _reach(self, connection: Connection, tables: Iterable[str]) -> dict[str, int]:
        """The write id that a compaction of each table would cover if it began now."""
        names = list(tables)
        if not names:
            return {}
        txns = self._snapshots.take(connection).as_seen_by(None)
        found = self._snapshots.write_ids(connection, names, txns)
        return {name: CompactorWriteIdList.from_reader(write_ids).high_watermark for name, write_ids in found.items()}

    def _row(self, number: int, request: Request) -> dict[str, object]:
        values = {
            "cq_id": number,
            "cq_database": request.entity.database,
            "cq_table": request.entity.table,
            "cq_partition": request.entity.partition,
            "cq_state": QueueState.INITIATED.code,
            "cq_type": KIND_CODES[request.kind],
            "cq_tblproperties": self._properties(request),
            "cq_run_as": request.run_as,
            "cq_pool_name": request.pool,
            "cq_initiator_id": request.initiator_id,
            "cq_initiator_version": request.initiator_version,
            "cq_retry_retention": 0,
        }
        return fitting(self._schema.compaction_queue, values)

    def _properties(self, request: Request) -> str | None:
        """CQ_TBLPROPERTIES of a request, with its urgency where no other column tells it."""
        asked = {key: value for key, value in request.properties.items() if key not in NOT_ASKED_FOR}
        urgency = request.urgency
        if is_persons(request.initiator_id):
            urgency = 0 if "cq_initiator_id" in self._schema.compaction_queue.c else MOST
        if not urgency or URGENCY in asked:
            return encode_properties(asked)
        text = encode_properties(asked | {URGENCY: str(urgency)})
        return text if len(text or "") <= PROPERTIES_LIMIT else encode_properties(asked)


def _require_short(requests: Iterable[Request]) -> None:
    for request in requests:
        if len(encode_properties(request.properties) or "") > PROPERTIES_LIMIT:
            raise UsageError(f"{request.entity}: properties are longer than the queue's {PROPERTIES_LIMIT} characters")
