"""
Claims: chooses which entry of the compaction queue a worker takes next.

A worker takes the most urgent entry of its pool (`urgency`) among those that may begin now. The update that takes a row
names the state that was read before: of several workers only one gets the row. Workers of one process share what was
read (`window`). Entries of a table or partition of which another entry is worked on are passed over, since one of the
two would be compacted in vain. That is no guard: two processes may claim two such entries within a second, and then the
first that commits wins (`rivals`).
Source: docs/metastore.md, docs/control.md; Hive's NextCompactionFunction.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    false,
    func,
    not_,
    or_,
    select,
    true,
    update,
)

from compactor.acid.compaction import SUPPORTED
from compactor.durations import HOUR_MS
from compactor.log import get_logger
from compactor.metastore.compaction_queue.properties import encode_properties
from compactor.metastore.compaction_queue.rivals import places_at_work
from compactor.metastore.compaction_queue.rows import find_queued
from compactor.metastore.compaction_queue.urgency import rank_column
from compactor.metastore.compaction_queue.window import SIZE, Place, QueueWindow, Reading
from compactor.metastore.db.database import Database
from compactor.metastore.db.sql import batches, entity_columns, fitting, next_number
from compactor.metastore.model import HIVES_OWN_PROPERTIES, KIND_CODES, Entity, QueueEntry, QueueState
from compactor.metastore.partition_names import FoldedEntity, folded_entity

Found = TypeVar("Found")
Look = Callable[[Connection, int], Found | None]
"""Takes or looks at the entry with this id; None: it is another worker's by now."""

_log = get_logger(__name__)
POOL_TIMEOUT_MS = 12 * HOUR_MS
"""
After this long an entry of a pool without workers may be claimed by any worker
(`metastore.compactor.worker.pool.timeout`).
"""

_CLAIM_AT_ONCE = 50
_AT_MOST = 5000
"""Entries read in one query: there may be thousands of entries that are passed over."""
_BEFORE_ALL = -1_000_000
"""A rank before that of every entry."""


class ClaimGate(Protocol):
    """
    Decides which entries may be claimed now, by database, table and pool.

    `counts`: the gate has to be told of every entry that is being worked on, and no other claim may come between that
    and this claim.
    """

    @property
    def counts(self) -> bool: ...

    def open(self, working: Iterable[tuple[str, str, str | None]]) -> Callable[[str, str, str | None], bool]: ...


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The entries that a claim may take: of this pool, except `without`, and only among `among` unless that is None."""

    pool: str | None
    without: Collection[int]
    among: Collection[int] | None

    def has(self, number: int) -> bool:
        return number not in self.without and (self.among is None or number in self.among)


class Claims:
    """The part of `Queue` by which workers take entries."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._schema = database.schema
        self._table = self._schema.compaction_queue
        self._rank = rank_column(self._table)
        self._looks: dict[str | None, Select[Any]] = {}
        self._windows: defaultdict[str | None, QueueWindow] = defaultdict(QueueWindow)

    def claim(
        self,
        worker_id: str,
        version: str,
        pool: str | None = None,
        *,
        without: Collection[int] = (),
        among: Collection[int] | None = None,
        gate: ClaimGate | None = None,
    ) -> QueueEntry | None:
        """
        Claim the most urgent entry (`urgency`) that this worker may take, or None.

        Args:
            pool: entries of this pool only; None: entries without a pool, and those that waited half a day for theirs.
            without: ids of entries to leave.
            among: ids of the only entries that may be claimed; None: all.
            gate: an entry that the gate turns away is left, and the next is tried; None: every entry may be claimed.
        """
        values = {
            "cq_state": QueueState.WORKING.code,
            "cq_worker_id": worker_id,
            "cq_worker_version": version,
            "cq_start": self._database.now,
        }
        wanted = _Wanted(pool, without, among)
        given: list[int] = []
        try:
            return self._database.write(self._claim, values, wanted, gate, given)
        finally:
            self._windows[pool].done(given)

    def _look_again(self) -> None:
        """An entry was given back: it may come before those that were read."""
        for window in tuple(self._windows.values()):
            window.forget()

    def claimable(
        self,
        pool: str | None = None,
        *,
        without: Collection[int] = (),
        among: Collection[int] | None = None,
        gate: ClaimGate | None = None,
    ) -> int | None:
        """The id of the entry that `claim` would take now, or None."""
        wanted = _Wanted(pool, without, among)

        def look(_: Connection, number: int) -> int | None:
            return number

        if gate is None:
            return self._database.read(self._first, wanted, look)
        return self._database.read(
            lambda connection: self._first_by(connection, wanted, gate.open(self._working(connection, gate)), look)
        )

    def _claim(
        self,
        connection: Connection,
        values: Mapping[str, object],
        wanted: _Wanted,
        gate: ClaimGate | None,
        given: list[int],
    ) -> QueueEntry | None:
        """Args: given: gets ids of entries from the window that no other worker is given until `QueueWindow.done`."""

        def take(connection: Connection, number: int) -> QueueEntry | None:
            return self._take(connection, number, values)

        if gate is None:
            may = None
        else:
            if gate.counts:
                # the row's lock: two claims at once would count the same entries
                next_number(connection, self._schema.next_compaction_queue_id.c.ncq_next, 0)
            may = lru_cache(maxsize=None)(gate.open(self._working(connection, gate)))
        more = True
        while more and wanted.among is None:
            number, more = self._windows[wanted.pool].give(
                lambda: self._read_window(connection, wanted.pool),
                lambda number, place: wanted.has(number) and (may is None or may(*place)),
            )
            if number is None:
                break
            given.append(number)
            if (found := take(connection, number)) is not None:
                return found
        if not more:
            return None
        at_work = lru_cache(maxsize=None)(lambda: places_at_work(connection, self._schema))

        def take_alone(connection: Connection, number: int) -> QueueEntry | None:
            return None if self._entity(connection, number) in at_work() else take(connection, number)

        if may is None:
            return self._first(connection, wanted, take_alone)
        return self._first_by(connection, wanted, may, take_alone)

    def _entity(self, connection: Connection, number: int) -> FoldedEntity | None:
        names = select(*entity_columns(self._table, "cq")).where(self._table.c.cq_id == number)
        return next((folded_entity(Entity(*row)) for row in connection.execute(names)), None)

    def _read_window(self, connection: Connection, pool: str | None) -> Reading:
        queue = self._table.c
        query = select(queue.cq_id, queue.cq_partition, *self._place).where(self._waiting(pool))
        rows = connection.execute(query.order_by(self._rank, queue.cq_id).limit(SIZE))
        waiting = [
            (int(number), _place(place), folded_entity(Entity(place[0], place[1], partition)))
            for number, partition, *place in rows
        ]
        return Reading(waiting, places_at_work(connection, self._schema))

    @property
    def _place(self) -> list[ColumnElement[Any]]:
        queue = self._table.c
        return [queue.cq_database, queue.cq_table, *([queue.cq_pool_name] if "cq_pool_name" in queue else [])]

    def _working(self, connection: Connection, gate: ClaimGate) -> list[Place]:
        """What is being worked on, if the gate counts it."""
        if not gate.counts:
            return []
        query = select(*self._place).where(self._table.c.cq_state == QueueState.WORKING.code, self._kinds())
        return [_place(row) for row in connection.execute(query)]

    def _first(self, connection: Connection, wanted: _Wanted, look: Look[Found]) -> Found | None:
        """Find the first entry in the order of claims."""
        rank, number, most = _BEFORE_ALL, 0, _CLAIM_AT_ONCE
        look_for = self._look(wanted.pool)
        if wanted.among is not None:
            look_for = look_for.where(_listed(self._table.c.cq_id, wanted.among))
        while True:
            rows = connection.execute(look_for, {"rank": rank, "number": number, "most": most}).all()
            for _, number in rows:
                if wanted.has(number) and (found := look(connection, number)) is not None:
                    return found
            if len(rows) < most:
                return None
            (rank, number), most = rows[-1], min(4 * most, _AT_MOST)

    def _look(self, pool: str | None) -> Select[Any]:
        """
        The query for waiting entries that come after a rank and an id.

        It is built once per pool: idle workers ask every second, and building it costs more than running it.
        """
        if (known := self._looks.get(pool)) is None:
            order: Sequence[ColumnElement[Any]] = (self._rank, self._table.c.cq_id)
            last = bindparam("rank", type_=BigInteger)
            after = or_(self._rank > last, and_(self._rank == last, self._table.c.cq_id > bindparam("number")))
            known = self._looks[pool] = (
                select(*order).where(self._waiting(pool), after).order_by(*order).limit(bindparam("most"))
            )
        return known

    def _first_by(
        self, connection: Connection, wanted: _Wanted, may: Callable[[str, str, str | None], bool], look: Look[Found]
    ) -> Found | None:
        """
        Find the first entry in the order of claims that the gate lets through.

        The gate is asked once for each table and pool: however many partitions of a table wait, they are one row here.
        """
        queue = self._table.c
        earliest = func.min(self._rank)
        passed = set(wanted.without)
        for _ in range(_CLAIM_AT_ONCE):
            left = [self._waiting(wanted.pool), not_(_listed(queue.cq_id, passed))]
            if wanted.among is not None:
                left.append(_listed(queue.cq_id, wanted.among))
            places = select(*self._place, earliest).where(*left).group_by(*self._place).order_by(earliest)
            rank = next((row[-1] for row in connection.execute(places) if may(*_place(row[:-1]))), None)
            if rank is None:
                return None
            # Several tables may be as early as this one: an Initiator queues all its picks at once.
            entries = select(queue.cq_id, *self._place).where(*left, self._rank == rank).order_by(queue.cq_id)
            for number, *place in connection.execute(entries).all():
                if not may(*_place(place)):
                    continue
                if (found := look(connection, int(number))) is not None:
                    return found
                passed.add(int(number))  # another worker was quicker, or is at work on the same table or partition
                break
        return None  # the worker claims again later

    def _take(self, connection: Connection, number: int, values: Mapping[str, object]) -> QueueEntry | None:
        """
        Claim one row, unless another worker has claimed it by now.

        Names that a client wrote in capitals become the catalog's: Hive compares them exactly when it asks queue and
        history whether the source of a materialized view was compacted, and the Cleaner forgets its DELETEs.

        Properties that only Hive may set for a directory are taken out of the row: the Cleaner that handles the entry
        later may be Hive's.
        """
        queue = self._table.c
        mine = (queue.cq_id == number, queue.cq_state == QueueState.INITIATED.code)
        names = {"cq_database": func.lower(queue.cq_database), "cq_table": func.lower(queue.cq_table)}
        claim = update(self._table).where(*mine).values(fitting(self._table, {**values, **names}))
        if connection.execute(claim).rowcount != 1:
            return None
        entry = find_queued(connection, self._schema, number)
        assert entry is not None  # `_waiting` passes over what a later Hive wrote
        if HIVES_OWN_PROPERTIES.isdisjoint(entry.properties):
            return entry
        kept = {key: value for key, value in entry.properties.items() if key not in HIVES_OWN_PROPERTIES}
        _log.warning("properties.removed", id=number, properties=sorted(HIVES_OWN_PROPERTIES & entry.properties.keys()))
        connection.execute(
            update(self._table).where(queue.cq_id == number).values(cq_tblproperties=encode_properties(kept))
        )
        return replace(entry, properties=kept)

    def _waiting(self, pool: str | None) -> ColumnElement[bool]:
        return and_(self._table.c.cq_state == QueueState.INITIATED.code, self._kinds(), self._in_pool(pool))

    def _kinds(self) -> ColumnElement[bool]:
        """Kinds that the compactor's workers do; Hive's workers, which may run beside them, do the rest."""
        return self._table.c.cq_type.in_(sorted(KIND_CODES[kind] for kind in SUPPORTED))

    def _in_pool(self, pool: str | None) -> ColumnElement[bool]:
        queue = self._table.c
        if "cq_pool_name" not in queue:
            return true()
        if pool is not None:
            return queue.cq_pool_name == pool
        return or_(queue.cq_pool_name.is_(None), queue.cq_enqueue_time < self._database.now - POOL_TIMEOUT_MS)


def _listed(column: ColumnElement[int], numbers: Collection[int]) -> ColumnElement[bool]:
    """
    `column IN (numbers)`, written into the statement: there may be more numbers than a statement may have parameters,
    or a list members.
    """
    lists = [column.in_(bindparam(None, some, expanding=True, literal_execute=True)) for some in batches(numbers)]
    return or_(false(), *lists)


def _place(row: Sequence[Any]) -> tuple[str, str, str | None]:
    """Database and table as the catalog has them, and, where the schema has pools, the pool."""
    return row[0].lower(), row[1].lower(), row[2] if len(row) > 2 else None
