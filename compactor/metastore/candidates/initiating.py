"""The Initiator's view of one metastore: takes looks, and tells what keeps failing."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, func, select

from compactor.acid.compaction import CompactionKind
from compactor.durations import DAY_MS
from compactor.metastore.candidates.aborts import AbortedIn, Bounds, add_aborted, read_aborted, tables_in_question
from compactor.metastore.candidates.commits import Asked, CommittedWrites
from compactor.metastore.candidates.failures import read_failing, read_unlucky
from compactor.metastore.candidates.look import CandidatePart, Look
from compactor.metastore.candidates.stored_names import as_stored, catalogued
from compactor.metastore.candidates.unnamed import HandedOut, ended, read_handed_out, read_unnamed
from compactor.metastore.db.database import Database
from compactor.metastore.db.sql import batches, entity_columns, fetched, maximum, told_apart
from compactor.metastore.model import KIND_CODES, Candidate, Entity, QueueState
from compactor.metastore.txn.snapshots import snapshots_for

_OF_WHAT_IS_GONE = tuple(KIND_CODES[kind] for kind in (CompactionKind.ABORT_CLEANUP, CompactionKind.DEFERRED_CLEANUP))
"""Kinds of entries that say nothing of what a table of that name holds now."""


@dataclass(frozen=True, slots=True)
class _Known:
    """
    What a look has read before its parts.

    Args:
        asked: as for `CommittedWrites.read`.
        active: what is initiated or working.
        ready: the highest write id of the entries that are ready for cleaning.
        ended: the newest write of each table that ended since the look before.
        waiting: as for `Look`.
    """

    asked: Asked | None
    active: Mapping[Entity, QueueState]
    ready: Mapping[Entity, int]
    aborted: Mapping[Entity, Sequence[AbortedIn]]
    ended: Mapping[Entity, int]
    waiting: AbstractSet[Entity]


class Initiating:
    """The Initiator's view of one metastore."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._schema = database.schema
        self._snapshots = snapshots_for(database)
        self._commits = CommittedWrites(database)

    def last_cycle_ms(self) -> int | None:
        """
        Start of the last completed cycle, of any daemon or Hive, where Hive 4 stores it; None when it isn't known.
        """
        aux = self._schema.aux_table.c
        return self._database.read(maximum, aux.mt_key2, aux.mt_key1 == "Initiator") or None

    def look(
        self,
        first: int | None,
        *,
        also: Iterable[Entity] = (),
        handed_out: HandedOut | None = None,
        aborted_count: int | None = None,
        aborted_age_ms: int | None = None,
    ) -> Look:
        """
        The tables and partitions whose directories may be worth listing.

        Args:
            first: `reached` of an earlier look: only what was committed since, besides aborts and entities that didn't
                initiate or failed last; None: everything that was written and isn't compacted and cleaned.
            also: entities to include, too, if there is anything to see; with `first`, those that are initiated or
                working are only named (`waiting`).
            handed_out: `handed_out` of an earlier look: a table without partitions is a candidate, too, if one of its
                writes ended since and no commit of that write is noted (`unnamed`). None: such tables are left out.
            aborted_count, aborted_age_ms: a candidate because of aborts alone must have more components, or an older
                transaction, than that; None: any.
        """
        others = list(also)

        def look(connection: Connection) -> Look:
            now_ms = self._database.now_ms(connection)
            before_ms = None if aborted_age_ms is None else now_ms - aborted_age_ms if aborted_age_ms >= 0 else 0
            return self._look(connection, first, others, handed_out, Bounds(aborted_count, before_ms))

        return self._database.read(look)

    def candidates(self) -> list[Candidate]:
        """Everything that was written, or aborted, and isn't compacted and cleaned."""
        return self.look(None).whole().candidates

    def failing(self, threshold: int, retry_days: float) -> Collection[Entity]:
        """
        The entities whose newest `threshold` finished compactions all failed.

        The newest failure must be less than `retry_days` old, counted from when it was queued (on 3.1, when it ended); with
        0 or less its age doesn't matter.
        """
        if threshold <= 0:
            return frozenset()

        def look(connection: Connection) -> set[Entity]:
            age_ms = round(retry_days * DAY_MS)
            forgiven_before_ms = self._database.now_ms(connection) - age_ms if retry_days > 0 else None
            return read_failing(connection, self._schema, threshold, forgiven_before_ms)

        return self._database.read(look)

    def _look(
        self,
        connection: Connection,
        first: int | None,
        also: Collection[Entity],
        before: HandedOut | None,
        bounds: Bounds,
    ) -> Look:
        schema = self._schema
        # before the commits are read: a transaction that ends in between is told twice rather than never
        reached = self._snapshots.min_open_or_next(connection)
        # before the commits are read, so that the commit of every ended write can be seen
        handed_out = read_handed_out(connection, self._database, before)
        active = _read_active(connection, self._database)
        waiting = frozenset[Entity]() if first is None else active.keys() & also
        always: dict[Entity, set[str | None]] = {}
        _ask(always, (entity for entity in also if entity not in waiting))
        asked: dict[Entity, set[str | None]] | None = None
        if first is None:
            sizes = self._commits.sizes(connection)
        else:
            asked = {table: set(partitions) for table, partitions in always.items()}
            _ask(asked, read_unlucky(connection, schema))
            for entity in self._commits.since(connection, first):
                asked.setdefault(entity.whole_table(), set()).add(entity.partition)
            sizes = {table: len(partitions) for table, partitions in asked.items()}
        newest = ended(handed_out, before) if before is not None else {}
        among = tables_in_question(connection, self._database, bounds, sizes, always)
        ready = _read_ready(connection, self._database, None if among is None else among | newest.keys())
        aborted = read_aborted(connection, self._database, bounds, sizes, always, among=among, ready=ready)
        for table in (*aborted, *newest):
            sizes[table] = sizes.get(table, 0) + len(aborted.get(table, ())) + 1
        known = _Known(asked, active, ready, aborted, newest, waiting)
        ordered = dict(sorted(sizes.items(), key=lambda size: (size[0].database, size[0].table)))
        return Look(
            reached, handed_out, ordered, lambda tables: self._database.read(self._read, tables, known), waiting
        )

    def _read(self, connection: Connection, tables: Sequence[Entity], known: _Known) -> CandidatePart:
        """The candidates in some tables."""
        written = self._commits.read(connection, tables, known.asked)
        add_aborted(written, tables, known.aborted)
        found = dict(catalogued(connection, self._database, written))
        newest = {table: known.ended[table] for table in tables if table in known.ended}
        unnamed = read_unnamed(connection, self._database, found, newest) if newest else {}
        found |= unnamed
        candidates = [
            replace(candidate, active=known.active.get(entity), ready_for_cleaning_hwm=known.ready.get(entity))
            if entity in known.active or entity in known.ready
            else candidate
            for entity, candidate in found.items()
            if entity not in known.waiting
        ]
        place = {(table.database, table.table): number for number, table in enumerate(tables)}
        candidates.sort(key=lambda candidate: place[candidate.entity.database, candidate.entity.table])
        return CandidatePart(candidates, frozenset(unnamed))


def _ask(asked: dict[Entity, set[str | None]], entities: Iterable[Entity]) -> None:
    """Ask for tables and partitions of the catalog, under all names that Hive may have stored."""
    for entity in entities:
        asked.setdefault(entity.whole_table(), set()).update(as_stored(entity.partition))


def _read_active(connection: Connection, database: Database) -> Mapping[Entity, QueueState]:
    """The tables and partitions with an entry that is initiated or working, and which of both; working where both."""
    queue = database.schema.compaction_queue
    query = select(*entity_columns(queue, "cq"), queue.c.cq_state).where(
        queue.c.cq_state.in_([QueueState.INITIATED.code, QueueState.WORKING.code]),
        queue.c.cq_type.not_in(_OF_WHAT_IS_GONE),
    )
    found: dict[Entity, QueueState] = {}
    for *name, code in fetched(connection.execute(query)):
        entity = Entity(*name)
        if code == QueueState.WORKING.code or entity not in found:
            found[entity] = QueueState.WORKING if code == QueueState.WORKING.code else QueueState.INITIATED
    return found


def _read_ready(connection: Connection, database: Database, tables: Collection[Entity] | None) -> Mapping[Entity, int]:
    """
    The highest write id of the entries of each table and partition that are ready for cleaning.

    Args:
        tables: of these only, and maybe of others with the same names; None: of all.
    """
    queue = database.schema.compaction_queue
    names, highest = entity_columns(queue, "cq"), queue.c.cq_highest_write_id
    query: Any = (
        select(*names, func.max(highest))
        .where(
            queue.c.cq_state == QueueState.READY_FOR_CLEANING.code,
            queue.c.cq_type.not_in(_OF_WHAT_IS_GONE),
            highest.is_not(None),
        )
        .group_by(*told_apart(names))
    )
    queries = [query]
    if tables is not None:
        queries = [
            query.where(database.dialect.among(queue.c.cq_table, batch))
            for batch in batches({entity.table for entity in tables}, database.dialect.at_once)
        ]
    return {Entity(*name): int(number) for each in queries for *name, number in fetched(connection.execute(each))}
