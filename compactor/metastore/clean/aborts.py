"""
Lists what aborted transactions left behind, by table and partition, and forgets it once the Cleaner has removed it.

No reader holds this up, because aborted rows are invisible to every reader; only writers that are still open bound it.
Source: docs/metastore.md; Hive's ReadyToCleanAbortHandler, AbortedTxnCleaner.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, case, delete, func, insert, or_, select, update

from compactor.acid.compaction import CompactionKind
from compactor.acid.write_ids import CleanerWriteIdList, ValidTxnList
from compactor.durations import DAY_MS
from compactor.metastore.clean.purge import (
    Proof,
    forget,
    forget_vanished,
    judged,
    last_sign_of_life,
    note_unnamed,
    of_aborted,
    read_components,
    unnoted,
)
from compactor.metastore.compaction_queue.rows import read_queue
from compactor.metastore.db.database import Database
from compactor.metastore.db.sql import batches, entity_columns, fitting, minimum, next_number, of_table, told_apart
from compactor.metastore.model import KIND_CODES, Entity, QueueEntry, QueueState
from compactor.metastore.txn.snapshot import Snapshot
from compactor.metastore.txn.snapshots import snapshots_for
from compactor.planning.forgetting import AbortedComponent, ForgettingVerdict, Ground, by_age

_FIRST_RETRY_MS = 300_000
_LONGEST_RETRY_MS = DAY_MS
_ROWS = 500
"""Rows in one INSERT at most."""


Includes = Callable[[str, str], bool]
"""Whether the caller works on a table, by the names of its database and its own."""


def _all(_: str, __: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class AbortedGroup:
    """
    The aborted writes of one table or partition.

    A partitioned table without a partition stands for a dynamic-partition write that never named one.

    Args:
        entity: as Hive stored it, which may be no partition's name (`metastore.partition_names`).
        count: component rows, leftovers of aborted compactions included.
        oldest_ms: when the oldest of the transactions started.
        retry_retention_ms: for how long a failure put the group off the last time.
    """

    entity: Entity
    count: int
    oldest_ms: int
    retry_retention_ms: int = 0


@dataclass(frozen=True, slots=True)
class AbortTotals:
    """
    Totals of all aborted writes that the metastore knows.

    Args:
        count: component rows.
        oldest_ms: since when, of the one that could be forgotten first, no task may write any more; None: there are
            none.
        crowded: how many tables and partitions have at least the given number of rows whose tasks are over.
    """

    count: int
    oldest_ms: int | None
    crowded: int


@dataclass(frozen=True, slots=True)
class _Remembered:
    """
    A table that was swept, and whose aborted writes stay known because their tasks may still write.

    Args:
        until_ms: from then on a sweep forgets all of them, by the database clock.
        counts: component rows that were left, by partition.
    """

    until_ms: int
    counts: Mapping[str | None, int]


class Aborts:
    """
    The aborted writes of one metastore.

    Remembers, for as long as it lives, which tables were swept and wait only for time.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._schema = database.schema
        self._snapshots = snapshots_for(database)
        self._stores_pauses = "cq_retry_retention" in self._schema.compaction_queue.c
        self._put_off: dict[Entity, tuple[int, int]] = {}
        self._remembered: dict[Entity, _Remembered] = {}

    def groups(
        self, count_threshold: int, age_ms: int, limit: int = 1000, includes: Includes = _all
    ) -> list[AbortedGroup]:
        """
        Groups with more components than `count_threshold`, or with a transaction that started longer than `age_ms` ago.

        With a negative `age_ms` age alone is no ground. Groups that a failure put off are left out until their time has
        come, and so are those of a table that was swept and waits for time (`remember`), unless more than
        `count_threshold` components were added since. Tables with the oldest transactions come first.

        Args:
            limit: tables at most, each with all its groups: the groups of a table are swept together.
            includes: other tables are left out, and don't count against the limit.
        """
        return self._database.read(self._groups, count_threshold, age_ms, limit, includes)

    def totals(self, crowd: int, late_ms: int) -> AbortTotals:
        """
        Totals of aborted writes, those put off included.

        Args:
            crowd: so many rows make a table or partition crowded.
            late_ms: how long after its last heartbeat a transaction's tasks may still write.
        """

        def look(connection: Connection) -> AbortTotals:
            names = entity_columns(self._schema.txn_components, "tc")
            silent_since = self._database.now_ms(connection) - late_ms
            beat = last_sign_of_life(self._schema)
            over = func.sum(case((beat <= silent_since, 1), else_=0))
            query = of_aborted(self._schema, func.count(), over, func.min(beat)).group_by(*told_apart(names))
            groups = [(int(count), int(ended), int(oldest)) for count, ended, oldest in connection.execute(query)]
            oldest_ms = min((oldest + late_ms for *_, oldest in groups), default=None)
            crowded = sum(ended >= crowd for _, ended, _ in groups)
            return AbortTotals(sum(count for count, *_ in groups), oldest_ms, crowded)

        return self._database.read(look)

    def note_unnamed(self) -> int:
        """
        Add components that Hive left out for aborted transactions, so that they are found as groups.

        Returns the number of transactions.
        """
        is_unnoted = select(self._schema.txns.c.txn_id).where(unnoted(self._schema)).limit(1)
        if self._database.read(lambda connection: connection.scalar(is_unnoted)) is None:
            return 0
        return self._database.repeatable(note_unnamed, self._database)

    def snapshot(self) -> Snapshot:
        """The unfinished transactions now, for the `lists` of several tables: with many, reading them takes a second."""
        return self._database.read(self._snapshots.take)

    def lists(self, table: Entity, taken: Snapshot | None = None) -> tuple[ValidTxnList, CleanerWriteIdList]:
        """
        The transactions and write ids under which a table's aborted directories are decided.

        They end below the first open writer of the table.

        Args:
            taken: an earlier `snapshot`: what was open then counts as open, and what came later doesn't count. None: now.
        """

        def look(connection: Connection) -> tuple[ValidTxnList, CleanerWriteIdList]:
            snapshot = taken or self._snapshots.take(connection)
            writer = self._first_writer(connection, table, sorted((*snapshot.open, *snapshot.read_only)))
            found = snapshot.capped(
                snapshot.high_watermark if writer is None else min(snapshot.high_watermark, writer - 1)
            )
            reader = self._snapshots.write_ids(connection, [table.full_name], found)[table.full_name]
            reach = (
                reader.high_watermark if reader.min_open is None else min(reader.high_watermark, reader.min_open - 1)
            )
            return found, CleanerWriteIdList.from_reader(reader, reach)

        return self._database.read(look)

    def _first_writer(self, connection: Connection, table: Entity, open_txns: Sequence[int]) -> int | None:
        """
        The first of these transactions, ascending, with components in a table; found by their ids: no index leads from
        tables to components.
        """
        components, dialect = self._schema.txn_components, self._database.dialect
        its, txn_id = of_table(components, "tc", table), components.c.tc_txnid
        found = (
            minimum(connection, txn_id, its, dialect.among(txn_id, batch))
            for batch in batches(open_txns, dialect.at_once)
        )
        return next((writer for writer in found if writer is not None), None)

    def forget(self, groups: Collection[AbortedGroup], proof: Proof) -> int:
        """Forget what the proof covers of a table, in all partitions that its rows name; returns how many components."""
        return self._forget(groups, lambda connection: forget(connection, self._database, proof))

    def remember(self, proof: Proof) -> tuple[int, int] | None:
        """
        Note, after `forget`, which components of the table stay only because tasks of their transactions may still
        write, and don't look for groups of the table before that is over.

        Returns how many they are, and when it is over; None where there are none.
        """
        rows, counts = self._database.read(
            lambda connection: (judged(connection, self._schema, proof), self._counts(connection, proof.table))
        )
        waiting = [verdict.until_ms for _, verdict in rows if verdict.ground is Ground.MAY_WRITE]
        until_ms = max((until for until in waiting if until is not None), default=None)
        if until_ms is None:
            self._remembered.pop(proof.table, None)
            return None
        self._remembered[proof.table] = _Remembered(until_ms, counts)
        return len(waiting), until_ms

    def _counts(self, connection: Connection, table: Entity) -> dict[str | None, int]:
        """Component rows of a table by partition, as `groups` counts them: Hive may write a row twice."""
        components = self._schema.txn_components
        partition = components.c.tc_partition
        query = of_aborted(self._schema, partition, func.count()).where(of_table(components, "tc", table))
        query = query.group_by(*told_apart((partition,)))
        return {name: int(count) for name, count in connection.execute(query)}

    def may_write(self, table: Entity, late_ms: int) -> list[tuple[AbortedComponent, ForgettingVerdict]]:
        """The components of a table's aborted transactions whose tasks may still write, each with its verdict."""

        def look(connection: Connection) -> list[tuple[AbortedComponent, ForgettingVerdict]]:
            now_ms = self._database.now_ms(connection)
            rows = [row for row in read_components(connection, self._schema, table) if not row.of_another_table]
            return [(row, by_age(row.heartbeat_ms, now_ms, late_ms)) for row in rows]

        return [(row, verdict) for row, verdict in self._database.read(look) if verdict.ground is Ground.MAY_WRITE]

    def count_may_write(self, late_ms: int) -> int:
        """How many aborted transactions stay known because their tasks may still write."""

        def look(connection: Connection) -> int:
            components, txns = self._schema.txn_components, self._schema.txns
            silent_since = self._database.now_ms(connection) - late_ms
            wrote = select(components.c.tc_txnid).where(components.c.tc_txnid == txns.c.txn_id).exists()
            query = (
                select(func.count())
                .select_from(txns)
                .where(txns.c.txn_state == "a", last_sign_of_life(self._schema) > silent_since, wrote)
            )
            return int(connection.execute(query).scalar_one())

        return self._database.read(look)

    def forget_vanished(self, groups: Collection[AbortedGroup], table: Entity) -> int:
        """
        Forget the components of a table that isn't in the catalog and whose write ids aren't counted any more.

        Returns the number of components.
        """
        return self._forget(groups, lambda connection: forget_vanished(connection, self._database, table))

    def _forget(self, groups: Collection[AbortedGroup], change: Callable[[Connection], int]) -> int:
        def forget_and_settle(connection: Connection) -> int:
            deleted = change(connection)  # components before the queue, in the order of Hive's onRename
            known = self._retries(connection, groups)
            self._delete_retries(connection, [number for numbers in known.values() for number in numbers])
            return deleted

        deleted = self._database.repeatable(forget_and_settle)
        for group in groups:
            self._put_off.pop(group.entity, None)
        return deleted

    def end_retries(self, includes: Includes = _all) -> None:
        """
        Delete the rows that put off groups of which nothing is left: a sweep for another group of the table, a
        compaction or Hive's Cleaner forgot them. Those of tables that aren't included stay.
        """
        if self._stores_pauses and (ended := self._database.read(self._ended_retries, includes)):
            self._database.repeatable(self._delete_retries, ended)

    def _ended_retries(self, connection: Connection, includes: Includes) -> list[int]:
        queue, components = self._schema.compaction_queue.c, self._schema.txn_components.c
        names = (queue.cq_database, queue.cq_table, queue.cq_partition)
        waiting = {
            int(number): Entity(*name)
            for number, *name in connection.execute(select(queue.cq_id, *names).where(self._of_aborts))
        }
        if not waiting:
            return []
        aborted = select(self._schema.txns.c.txn_id).where(self._schema.txns.c.txn_state == "a")
        query = select(components.tc_database, components.tc_table, components.tc_partition).distinct()
        query = query.where(components.tc_txnid.in_(aborted))
        there = {Entity(*name) for name in connection.execute(query)}
        return [
            number
            for number, entity in waiting.items()
            if entity not in there and includes(entity.database, entity.table)
        ]

    def _delete_retries(self, connection: Connection, numbers: Collection[int]) -> None:
        queue = self._schema.compaction_queue
        for batch in batches(numbers):
            connection.execute(delete(queue).where(queue.c.cq_id.in_(batch)))

    def retry_later(
        self, groups: Collection[AbortedGroup], message: str, write_ids: Collection[int] | None = None
    ) -> int:
        """
        Put each group off for twice as long as the last time: five minutes at first, a day at most.

        Returns the shortest of these pauses in ms. Takes a few statements for all groups of a table. 3.1 has no rows
        for the pauses, so they are kept in memory. A group whose components were forgotten meanwhile isn't put off,
        because no later sweep would find it again; returns 0 when that is so of all groups.

        Args:
            groups: of one table.
            write_ids: only groups with one of these are put off; the others wait for time alone (`remember`).
        """
        by_pause: dict[int, list[AbortedGroup]] = {}
        for group in self._database.read(self._still_there, groups, write_ids):
            by_pause.setdefault(min(max(2 * group.retry_retention_ms, _FIRST_RETRY_MS), _LONGEST_RETRY_MS), []).append(
                group
            )
        if not by_pause:
            return 0
        if self._stores_pauses:
            with self._database.mutex("CompactionScheduler"):
                self._database.write(self._store_retries, by_pause, message)
        else:
            now = self._database.read(self._database.now_ms)
            self._put_off.update(
                {group.entity: (now + pause, pause) for pause, alike in by_pause.items() for group in alike}
            )
        return min(by_pause)

    def _still_there(
        self, connection: Connection, groups: Collection[AbortedGroup], write_ids: Collection[int] | None
    ) -> list[AbortedGroup]:
        named: set[Entity] = set()
        for table in {group.entity.whole_table() for group in groups}:
            named.update(
                Entity(table.database, table.table, row.partition)
                for row in read_components(connection, self._schema, table)
                if write_ids is None or row.mapped_id in write_ids
            )
        return [group for group in groups if group.entity in named]

    def _store_retries(
        self, connection: Connection, by_pause: Mapping[int, Collection[AbortedGroup]], message: str
    ) -> None:
        queue = self._schema.compaction_queue
        known = self._retries(connection, [group for alike in by_pause.values() for group in alike])
        for pause, alike in by_pause.items():
            values = {"cq_retry_retention": pause, "cq_error_message": message, "cq_commit_time": self._database.now}
            for batch in batches(number for group in alike for number in known.get(group.entity, ())):
                connection.execute(update(queue).where(queue.c.cq_id.in_(batch)).values(fitting(queue, values)))
            missing = [group.entity for group in alike if group.entity not in known]
            if not missing:
                continue
            values |= {
                "cq_state": QueueState.READY_FOR_CLEANING.code,
                "cq_type": KIND_CODES[CompactionKind.ABORT_CLEANUP],
            }
            first = next_number(connection, self._schema.next_compaction_queue_id.c.ncq_next, len(missing))
            rows = (
                {
                    "cq_id": number,
                    "cq_database": entity.database,
                    "cq_table": entity.table,
                    "cq_partition": entity.partition,
                }
                for number, entity in enumerate(missing, first)
            )
            for several in batches(rows, _ROWS):
                connection.execute(insert(queue).values(fitting(queue, values)), several)

    def _retries(self, connection: Connection, groups: Collection[AbortedGroup]) -> Mapping[Entity, list[int]]:
        """Ids of the rows that put groups of one table off."""
        queue = self._schema.compaction_queue
        wanted = {group.entity for group in groups}
        found: dict[Entity, list[int]] = {}
        for table in {entity.whole_table() for entity in wanted}:
            query = select(queue.c.cq_partition, queue.c.cq_id).where(of_table(queue, "cq", table), self._of_aborts)
            for partition, number in connection.execute(query):
                if (entity := Entity(table.database, table.table, partition)) in wanted:
                    found.setdefault(entity, []).append(int(number))
        return found

    def noted(self) -> list[QueueEntry]:
        """The entries of the queue that stand for aborted writes, which a Cleaner couldn't remove yet; none on 3.1."""
        return self._database.read(read_queue, self._schema, self._of_aborts)

    @property
    def _of_aborts(self) -> ColumnElement[bool]:
        return self._schema.compaction_queue.c.cq_type == KIND_CODES[CompactionKind.ABORT_CLEANUP]

    def _groups(
        self, connection: Connection, count_threshold: int, age_ms: int, limit: int, includes: Includes
    ) -> list[AbortedGroup]:
        schema = self._schema
        now = self._database.now_ms(connection)
        waiting = {
            entry.entity: (entry.retry_retention_ms, (entry.commit_ms or 0) + entry.retry_retention_ms)
            for entry in read_queue(connection, self._schema, self._of_aborts)
        }
        waiting |= {entity: (pause, until) for entity, (until, pause) in self._put_off.items()}
        names = entity_columns(schema.txn_components, "tc")
        count, oldest = func.count(), func.min(schema.txns.c.txn_started)
        due = or_(count > count_threshold, oldest < now - age_ms) if age_ms >= 0 else count > count_threshold
        query = of_aborted(schema, *names, count, oldest).group_by(*told_apart(names)).having(due)
        rows = connection.execute(query.order_by(oldest)).all()
        self._remembered = {table: noted for table, noted in self._remembered.items() if now < noted.until_ms}
        groups: dict[Entity, list[AbortedGroup]] = {}
        for database, table, partition, number, started in rows:
            entity = Entity(database, table, partition)
            if not includes(entity.database, entity.table):
                continue
            noted = self._remembered.get(entity.whole_table())
            if noted is not None and number <= noted.counts.get(partition, 0) + count_threshold:
                continue
            pause, until = waiting.get(entity, (0, 0))
            if until <= now and (len(groups) < limit or entity.whole_table() in groups):
                groups.setdefault(entity.whole_table(), []).append(
                    AbortedGroup(entity, int(number), int(started), pause)
                )
        return [group for of_table in groups.values() for group in of_table]
