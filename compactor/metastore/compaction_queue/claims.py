"""
Claims: chooses which entry of the compaction queue a worker takes next.

A worker takes the oldest entry of its pool among those that may begin now. The update that takes a row names the state
that was read before: of several workers only one gets the row.
Source: docs/metastore.md, docs/control.md; Hive's NextCompactionFunction.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    func,
    or_,
    select,
    true,
    update,
)

from compactor.acid.compaction import SUPPORTED
from compactor.log import get_logger
from compactor.metastore.compaction_queue.properties import encode_properties
from compactor.metastore.compaction_queue.rows import find_queued
from compactor.metastore.db.database import Database
from compactor.metastore.db.sql import fitting, next_number
from compactor.metastore.model import HIVES_OWN_PROPERTIES, KIND_CODES, QueueEntry, QueueState

Found = TypeVar("Found")
Look = Callable[[Connection, int], Found | None]
"""Takes or looks at the entry with this id; None: it is another worker's by now."""

_log = get_logger(__name__)
POOL_TIMEOUT_MS = 12 * 3_600_000
"""
After this long an entry of a pool without workers may be claimed by any worker
(`metastore.compactor.worker.pool.timeout`).
"""

_CLAIM_AT_ONCE = 50
_AT_MOST = 5000
"""Entries read in one query: there may be thousands of entries that are passed over."""


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
    """Moves an entry from the queue to a worker."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._schema = database.schema
        self._table = self._schema.compaction_queue
        self._looks: dict[str | None, Select[tuple[Any]]] = {}

    def claim(
        self,
        worker_id: str,
        version: str,
        pool: str | None,
        *,
        without: Collection[int],
        among: Collection[int] | None,
        gate: ClaimGate | None,
    ) -> QueueEntry | None:
        """Implements `Queue.claim`."""
        values = {
            "cq_state": QueueState.WORKING.code,
            "cq_worker_id": worker_id,
            "cq_worker_version": version,
            "cq_start": self._database.now,
        }
        wanted = _Wanted(pool, without, among)
        if gate is None:
            return self._database.write(lambda connection: self._claim(connection, values, wanted))
        return self._database.write(lambda connection: self._claim_by(connection, values, wanted, gate))

    def claimable(
        self, pool: str | None, *, without: Collection[int], among: Collection[int] | None, gate: ClaimGate | None
    ) -> int | None:
        """Implements `Queue.claimable`."""
        wanted = _Wanted(pool, without, among)

        def look(_: Connection, number: int) -> int | None:
            return number

        if gate is None:
            return self._database.read(lambda connection: self._oldest(connection, wanted, look))
        return self._database.read(lambda connection: self._oldest_by(connection, wanted, gate, look))

    def _claim(self, connection: Connection, values: Mapping[str, object], wanted: _Wanted) -> QueueEntry | None:
        return self._oldest(connection, wanted, lambda connection, number: self._take(connection, number, values))

    def _oldest(self, connection: Connection, wanted: _Wanted, look: Look[Found]) -> Found | None:
        after, most = 0, _CLAIM_AT_ONCE
        while True:
            numbers = connection.scalars(self._look(wanted.pool), {"after": after, "most": most}).all()
            for number in numbers:
                if wanted.has(number) and (found := look(connection, number)) is not None:
                    return found
            if len(numbers) < most:
                return None
            after, most = numbers[-1], min(4 * most, _AT_MOST)

    def _look(self, pool: str | None) -> Select[tuple[Any]]:
        """
        The query for waiting entries above an id.

        It is built once per pool: idle workers ask every second, and building it costs more than running it.
        """
        if (known := self._looks.get(pool)) is None:
            queue = self._table.c
            known = (
                select(queue.cq_id)
                .where(self._waiting(pool), queue.cq_id > bindparam("after"))
                .order_by(queue.cq_id)
                .limit(bindparam("most"))
            )
            self._looks[pool] = known
        return known

    def _claim_by(
        self, connection: Connection, values: Mapping[str, object], wanted: _Wanted, gate: ClaimGate
    ) -> QueueEntry | None:
        if gate.counts:
            next_number(
                connection, self._schema.next_compaction_queue_id.c.ncq_next, 0
            )  # the row's lock: two claims at once would count the same entries
        return self._oldest_by(
            connection, wanted, gate, lambda connection, number: self._take(connection, number, values)
        )

    def _oldest_by(self, connection: Connection, wanted: _Wanted, gate: ClaimGate, look: Look[Found]) -> Found | None:
        """
        Find the oldest entry that the gate lets through.

        The gate is asked once for each table and pool: however many partitions of a table wait, they are one row here.
        """
        queue = self._table.c
        place = [queue.cq_database, queue.cq_table, *([queue.cq_pool_name] if "cq_pool_name" in queue else [])]
        working: list[tuple[str, str, str | None]] = []
        if gate.counts:
            rows = connection.execute(
                select(*place).where(queue.cq_state == QueueState.WORKING.code, self._kinds())
            ).all()
            working = [_place(row) for row in rows]
        may = gate.open(working)
        oldest = func.min(queue.cq_id)
        left = [queue.cq_id.not_in(_numbers("without", wanted.without))]
        if wanted.among is not None:
            left.append(queue.cq_id.in_(_numbers("among", wanted.among)))
        query = select(*place, oldest).where(self._waiting(wanted.pool), *left).group_by(*place).order_by(oldest)
        for _ in range(_CLAIM_AT_ONCE):
            number = next((int(row[-1]) for row in connection.execute(query) if may(*_place(row[:-1]))), None)
            if number is None:
                return None
            if (found := look(connection, number)) is not None:
                return found
        return None  # each time another worker was quicker; the worker claims again later

    def _take(self, connection: Connection, number: int, values: Mapping[str, object]) -> QueueEntry | None:
        """
        Claim one row, unless another worker has claimed it by now.

        Properties that only Hive may set for a directory are taken out of the row: the Cleaner that handles the entry
        later may be Hive's.
        """
        queue = self._table.c
        mine = (queue.cq_id == number, queue.cq_state == QueueState.INITIATED.code)
        if connection.execute(update(self._table).where(*mine).values(fitting(self._table, values))).rowcount != 1:
            return None
        entry = find_queued(connection, self._schema, number)
        assert entry is not None  # `_waiting` passes over what a later Hive wrote
        if HIVES_OWN_PROPERTIES.isdisjoint(entry.properties):
            return entry
        kept = {key: value for key, value in entry.properties.items() if key not in HIVES_OWN_PROPERTIES}
        _log.warning(
            "properties.removed",
            id=number,
            properties=sorted(HIVES_OWN_PROPERTIES & entry.properties.keys()),
        )
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


def _numbers(name: str, numbers: Collection[int]) -> BindParameter[list[int]]:
    """
    A list of numbers written into the statement: it may be longer than the number of parameters a statement may have.
    """
    return bindparam(name, list(numbers), expanding=True, literal_execute=True)


def _place(row: Sequence[Any]) -> tuple[str, str, str | None]:
    """Database, table and, where the schema has pools, the pool."""
    return row[0], row[1], row[2] if len(row) > 2 else None
