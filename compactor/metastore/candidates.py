"""
Tells the Initiator which tables and partitions were written or aborted since its last look, which are queued, and which
keep failing.

A fixed number of statements per call, for any number of tables. Source: docs/metastore.md; Hive's
FindPotentialCompactionsFunction, CheckFailedCompactionsHandler, TableOptimizer.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, bindparam, case, exists, func, not_, or_, select

from compactor.acid.compaction import CompactionKind
from compactor.metastore.compaction_queue.rows import read_history
from compactor.metastore.db.database import Database
from compactor.metastore.db.sql import batches, entity_columns, least, maximum, same_entity, told_apart
from compactor.metastore.model import DEFAULT_CATALOG, KIND_CODES, Candidate, Entity, QueueState
from compactor.metastore.partition_names import folded, is_plain, spellings
from compactor.metastore.txn.snapshots import snapshots_for

_FETCHED = 5000
"""Rows taken from the driver at a time: one by one costs more than the rows, all at once holds them twice."""

_FEW = 1000
"""Tables that are asked for by name; for more it is cheaper to read everything that was written."""

_SOME = 100_000
"""For so many candidates it is cheaper to read all aborted components than to look for the tables that matter."""

_CONDITIONS = 100
_OF_WHAT_IS_GONE = (CompactionKind.ABORT_CLEANUP, CompactionKind.DEFERRED_CLEANUP)
"""Kinds of entries that say nothing of what a table of that name holds now."""

_COUNTED = (QueueState.SUCCEEDED, QueueState.FAILED)
"""End states that tell whether compactions of a table or partition fail."""


HandedOut = Mapping[Entity, tuple[int, frozenset[int]]]
"""For each table the write id that is handed out next, and which ids before it belong to open transactions."""

_NEVER: tuple[int, frozenset[int]] = (1, frozenset())


@dataclass(frozen=True, slots=True)
class Look:
    """
    The result of one look.

    Args:
        reached: every transaction below this id had ended: for a look from here on only commits of this and later
            transactions are new, however long they ran.
        handed_out: of every table, for the next look.
        unnamed: candidates with a newer write than any commit tells of.
    """

    candidates: list[Candidate]
    reached: int
    handed_out: HandedOut
    unnamed: frozenset[Entity] = frozenset()


class Initiating:
    """The Initiator's view of one metastore."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._schema = database.schema
        self._snapshots = snapshots_for(database)

    def last_cycle_ms(self) -> int | None:
        """
        Start of the last completed cycle, of any daemon or Hive, where Hive 4 stores it; None when it isn't known.
        """
        aux = self._schema.aux_table.c
        return (
            self._database.read(lambda connection: maximum(connection, aux.mt_key2, aux.mt_key1 == "Initiator")) or None
        )

    def look(
        self,
        first: int | None,
        *,
        also: Collection[Entity] = (),
        handed_out: HandedOut | None = None,
        aborted_count: int | None = None,
        aborted_age_ms: int | None = None,
    ) -> Look:
        """
        The tables and partitions whose directories may be worth listing.

        Args:
            first: `reached` of an earlier look: only what was committed since, besides aborts and entities that didn't
                initiate or failed last; None: everything that was written and isn't compacted and cleaned.
            also: entities to include, too, if there is anything to see.
            handed_out: `handed_out` of an earlier look: a table without partitions is a candidate, too, if one of its
                writes ended since and no commit of that write is noted (an INSERT into a table from which it reads has
                no component: Hive's LockRequestBuilder keeps the reader's of its two locks). None: such tables are left
                out.
            aborted_count, aborted_age_ms: a candidate because of aborts alone must have more components, or an older
                transaction, than that; None: any.
        """
        return self._database.read(
            lambda connection: self._look(connection, first, set(also), handed_out, (aborted_count, aborted_age_ms))
        )

    def candidates(self) -> list[Candidate]:
        """Everything that was written, or aborted, and isn't compacted and cleaned."""
        return self.look(None).candidates

    def failing(self, entities: Iterable[Entity], threshold: int, retry_days: float) -> set[Entity]:
        """
        The entities whose newest `threshold` finished compactions all failed.

        The newest failure must be less than `retry_days` old, counted from when it was queued (on 3.1, when it ended); with
        0 or less its age doesn't matter.
        """
        if threshold <= 0:
            return set()
        failing = self._database.read(lambda connection: self._failing(connection, threshold, retry_days))
        return failing.intersection(entities) if failing else failing

    # Candidates

    def _look(
        self,
        connection: Connection,
        first: int | None,
        also: set[Entity],
        before: HandedOut | None,
        aborts: tuple[int | None, int | None],
    ) -> Look:
        now = self._database.now_ms(connection)
        also = {stored for entity in also for stored in _as_stored(entity)}
        reached = self._snapshots.min_open_or_next(
            connection
        )  # before the commits are read: a transaction that ends in between is told twice rather than never
        handed_out = self._handed_out(
            connection, before
        )  # before the commits are read, so that the commit of every ended write can be seen
        covered = self._covered(connection)
        unlucky = self._unlucky(connection) if first is not None else set()
        found = self._committed(
            connection, first, also | {stored for entity in unlucky for stored in _as_stored(entity)}
        )
        self._add_aborted(connection, found, now=now, aborts=aborts, always=also)
        found = self._catalogued(connection, found)
        unnamed = self._unnamed(connection, found, _ended(handed_out, before)) if before is not None else {}
        found |= unnamed
        candidates = (
            [self._with_queue(candidate, covered) for candidate in found.values()] if covered else list(found.values())
        )
        return Look(candidates, reached, handed_out, frozenset(unnamed))

    def _handed_out(self, connection: Connection, before: HandedOut | None) -> HandedOut:
        counters, mapped, txns = self._schema.next_write_id.c, self._schema.txn_to_write_id.c, self._schema.txns.c
        # The counters first: an id that is handed out in between isn't below them, and is open in the next look or has
        # ended by then.
        rows = connection.execute(select(counters.nwi_database, counters.nwi_table, counters.nwi_next))
        following = {Entity(database, table): int(number) for database, table, number in rows}
        origin = self._schema.txn_to_write_id.join(self._schema.txns, txns.txn_id == mapped.t2w_txnid)
        query = (
            select(mapped.t2w_database, mapped.t2w_table, mapped.t2w_writeid)
            .select_from(origin)
            .where(txns.txn_state == "o")
        )
        queries = [query]
        if before is not None:
            written = [table for table, number in following.items() if before.get(table) != (number, frozenset())]
            if len(written) <= _FEW:  # by its index: the table is large where an old transaction holds up its purge
                queries = [
                    query.where(self._named(mapped.t2w_database, mapped.t2w_table, batch))
                    for batch in batches(written, _CONDITIONS)
                ]
        writing: dict[Entity, set[int]] = {}
        for database, table, write_id in chain.from_iterable(connection.execute(each) for each in queries):
            writing.setdefault(Entity(database, table), set()).add(int(write_id))
        return {table: (number, frozenset(writing.get(table, ()))) for table, number in following.items()}

    def _unnamed(
        self, connection: Connection, found: Mapping[Entity, Candidate], ended: Mapping[Entity, int]
    ) -> dict[Entity, Candidate]:
        """
        Candidates from the newest ended write of each table, unless a commit in `found` is that write.

        A table with partitions is left out: nothing names the partition of such a write.
        """
        newer = {
            table: replace(found[table], newest_write_id=write_id)
            for table, write_id in ended.items()
            if table in found
        }
        newer = {
            table: candidate
            for table, candidate in newer.items()
            if candidate.newest_write_id > found[table].newest_write_id
        }
        named = {entity.whole_table() for entity in found}
        others = [table for table in ended if table not in named]
        dbs, tbls, keys = self._schema.dbs.c, self._schema.tbls.c, self._schema.partition_keys.c
        origin = self._schema.tbls.join(self._schema.dbs, tbls.db_id == dbs.db_id)
        plain = and_(dbs.ctlg_name == DEFAULT_CATALOG, not_(exists().where(keys.tbl_id == tbls.tbl_id)))
        query = select(dbs.name, tbls.tbl_name).select_from(origin).where(plain)
        for batch in batches(others, _CONDITIONS):
            for database, table in connection.execute(query.where(self._named(dbs.name, tbls.tbl_name, batch))):
                entity = Entity(database, table)
                newer[entity] = Candidate(entity, newest_write_id=ended[entity])
        return newer

    def _named(
        self, database: ColumnElement[str], table: ColumnElement[str], names: Iterable[Entity]
    ) -> ColumnElement[bool]:
        return self._database.dialect.among_pairs(database, table, [(one.database, one.table) for one in names])

    def _committed(self, connection: Connection, first: int | None, also: set[Entity]) -> dict[Entity, Candidate]:
        completed = self._schema.completed_txn_components
        names = entity_columns(completed, "ctc")
        newest = func.max(completed.c.ctc_txnid)
        query: Any = select(*names, func.max(completed.c.ctc_writeid), newest, func.count()).group_by(
            *told_apart(names)
        )
        answers: Iterator[Sequence[Any]]
        asked: dict[Entity, list[str | None]] = {}
        if first is not None:
            # No index leads to transactions, but one leads to names: what was written since is read once, and only that
            # is counted.
            since = connection.execute(select(*names).where(completed.c.ctc_txnid >= first).distinct())
            also = also | {Entity(*row) for row in since}
            for entity in also:
                asked.setdefault(entity.whole_table(), []).append(entity.partition)
        if first is None or len(asked) > _FEW:
            answers = chain.from_iterable(connection.execute(query).partitions(_FETCHED))
        else:
            answers = self._of_names(connection, query, asked)
        found = {}
        for database, table, partition, write_id, txn_id, commits in answers:
            entity = Entity(database, table, partition)
            if first is None or entity in also:
                found[entity] = Candidate(entity, int(write_id or 0), int(txn_id), int(commits))
        return found

    def _of_names(
        self, connection: Connection, query: Any, asked: Mapping[Entity, list[str | None]]
    ) -> Iterator[Sequence[Any]]:
        """The rows of the query for partitions of some tables, and for these tables where None is asked for."""
        completed, dialect = self._schema.completed_txn_components.c, self._database.dialect
        of_table = and_(completed.ctc_database == bindparam("database"), completed.ctc_table == bindparam("table_name"))
        named = query.where(of_table, dialect.among(completed.ctc_partition, "partitions"))
        whole = query.where(of_table, completed.ctc_partition.is_(None))
        for table, partitions in asked.items():
            given = {"database": table.database, "table_name": table.table}
            for batch in batches((name for name in partitions if name is not None), dialect.at_once):
                yield from connection.execute(named, given | {"partitions": batch})
            if None in partitions:
                yield from connection.execute(whole, given)

    def _add_aborted(
        self,
        connection: Connection,
        found: dict[Entity, Candidate],
        *,
        now: int,
        aborts: tuple[int | None, int | None],
        always: set[Entity],
    ) -> None:
        """
        Count components of aborted transactions, without leftovers of compactions.

        Components that an entry ready for cleaning covers don't count: a major compaction takes their rows out.
        """
        schema = self._schema
        components, txns, queue = schema.txn_components, schema.txns, schema.compaction_queue
        names = entity_columns(queue, "cq")
        ready = queue.c.cq_state == QueueState.READY_FOR_CLEANING.code
        covered = (
            select(*names, func.max(queue.c.cq_highest_write_id).label("covered"))
            .where(ready)
            .group_by(*told_apart(names))
            .subquery()
        )
        names = entity_columns(components, "tc")
        origin = components.join(txns, txns.c.txn_id == components.c.tc_txnid).outerjoin(
            covered, same_entity(components, "tc", covered, "cq")
        )
        counts = and_(
            txns.c.txn_state == "a",
            components.c.tc_operation_type != "c",
            func.coalesce(components.c.tc_writeid, 0) > func.coalesce(covered.c.covered, -1),
        )
        query: Any = (
            select(*names, func.count(), func.min(txns.c.txn_started))
            .select_from(origin)
            .where(counts)
            .group_by(*told_apart(names))
        )
        least_count, least_age = aborts
        queries = [query]
        if len(found) < _SOME and least_count is not None and least_age is not None:
            tables = self._often_aborted(connection, least_count, now - least_age)
            tables |= {entity.whole_table() for entity in (*found, *always)}
            if len(tables) <= _FEW:
                among = self._database.dialect.among
                queries = [
                    query.where(among(components.c.tc_table, batch))
                    for batch in batches({entity.table for entity in tables}, self._database.dialect.at_once)
                ]
        for database, table, partition, count, oldest in chain.from_iterable(
            connection.execute(each) for each in queries
        ):
            entity = Entity(database, table, partition)
            many = least_count is None or count > least_count
            old = least_age is None or 0 <= least_age < now - oldest
            known = found.get(entity)
            if known is None and not (many or old or entity in always):
                continue
            found[entity] = replace(known or Candidate(entity), aborted_count=int(count), oldest_abort_ms=int(oldest))

    def _often_aborted(self, connection: Connection, least_count: int, before_ms: int) -> set[Entity]:
        """
        Tables, partitions together, with more components of aborted transactions, or an older one.

        There are far fewer tables than partitions, and most have neither.
        """
        components, txns = self._schema.txn_components.c, self._schema.txns.c
        query = (
            select(components.tc_database, components.tc_table)
            .select_from(self._schema.txn_components.join(self._schema.txns, txns.txn_id == components.tc_txnid))
            .where(txns.txn_state == "a", components.tc_operation_type != "c")
            .group_by(components.tc_database, components.tc_table)
            .having(or_(func.count() > least_count, func.min(txns.txn_started) < before_ms))
        )
        return {Entity(database, table) for database, table in connection.execute(query)}

    def _catalogued(self, connection: Connection, found: dict[Entity, Candidate]) -> dict[Entity, Candidate]:
        """
        Candidates under the catalog's names instead of the names that Hive stored.

        When a stored name may mean several partitions, each of them becomes a candidate. The names of the tables
        concerned are read in one go; tables with plain names only aren't read.
        """
        doubtful: dict[Entity, dict[str, list[Candidate]]] = {}
        for entity, candidate in found.items():
            if entity.partition is not None and not is_plain(entity.partition):
                doubtful.setdefault(entity.whole_table(), {}).setdefault(folded(entity.partition), []).append(candidate)
        if not doubtful:
            return found
        sure = {
            entity: candidate
            for entity, candidate in found.items()
            if entity.partition is None or is_plain(entity.partition)
        }
        gone = {
            candidate.entity: candidate
            for names in doubtful.values()
            for alike in names.values()
            for candidate in alike
        }
        dbs, tbls, partitions = self._schema.dbs.c, self._schema.tbls.c, self._schema.partitions.c
        origin = self._schema.partitions.join(self._schema.tbls, partitions.tbl_id == tbls.tbl_id).join(
            self._schema.dbs, tbls.db_id == dbs.db_id
        )
        query = (
            select(dbs.name, tbls.tbl_name, partitions.part_name)
            .select_from(origin)
            .where(dbs.ctlg_name == DEFAULT_CATALOG)
        )
        for batch in batches(doubtful, _CONDITIONS):
            for rows in connection.execute(query.where(self._named(dbs.name, tbls.tbl_name, batch))).partitions(
                _FETCHED
            ):
                for database, table, partition in rows:
                    for candidate in doubtful[Entity(database, table)].get(folded(partition), ()):
                        entity = Entity(database, table, partition)
                        sure[entity] = _both(sure.get(entity), replace(candidate, entity=entity))
                        gone.pop(candidate.entity, None)
        return gone | sure

    def _unlucky(self, connection: Connection) -> set[Entity]:
        """Entities whose newest compaction didn't initiate or failed: they are looked at again without a new write."""
        history = self._schema.completed_compactions
        names = entity_columns(history, "cc")
        newest = select(func.max(history.c.cc_id)).group_by(*told_apart(names))
        unlucky = history.c.cc_state.in_([QueueState.DID_NOT_INITIATE.code, QueueState.FAILED.code])
        rows = connection.execute(select(*names).where(unlucky, history.c.cc_id.in_(newest)))
        return {Entity(database, table, partition) for database, table, partition in rows}

    def _covered(self, connection: Connection) -> Mapping[Entity, tuple[QueueState | None, int | None]]:
        """
        The queue's state for each entity.

        It is the state of an entry that is initiated or working, and the highest write id of entries that are ready for
        cleaning.
        """
        queue = self._schema.compaction_queue
        names = entity_columns(queue, "cq")
        query: Any = select(*names, queue.c.cq_state, func.max(queue.c.cq_highest_write_id)).group_by(
            *told_apart(names), queue.c.cq_state
        )
        query = query.where(queue.c.cq_type.not_in([KIND_CODES[kind] for kind in _OF_WHAT_IS_GONE]))
        found: dict[Entity, tuple[QueueState | None, int | None]] = {}
        for database, table, partition, code, highest in connection.execute(query):
            entity = Entity(database, table, partition)
            active, ready = found.get(entity, (None, None))
            match QueueState.from_code(code):
                case QueueState.READY_FOR_CLEANING:
                    ready = None if highest is None else int(highest)
                case QueueState.INITIATED | QueueState.WORKING as state:
                    active = QueueState.WORKING if QueueState.WORKING in {active, state} else state
            found[entity] = (active, ready)
        return found

    @staticmethod
    def _with_queue(candidate: Candidate, covered: Mapping[Entity, tuple[QueueState | None, int | None]]) -> Candidate:
        if candidate.entity not in covered:
            return candidate
        active, ready = covered[candidate.entity]
        return replace(candidate, active=active, ready_for_cleaning_hwm=ready)

    # Failures

    def _failing(self, connection: Connection, threshold: int, retry_days: float) -> set[Entity]:
        """The failing entities; only the history of entities with enough failures is read."""
        history = self._schema.completed_compactions
        names = entity_columns(history, "cc")
        failures = func.sum(case((history.c.cc_state == QueueState.FAILED.code, 1), else_=0))
        failed = select(*names).group_by(*told_apart(names)).having(failures >= threshold).subquery()
        theirs = select(history.c.cc_id).join(failed, same_entity(history, "cc", failed, "cc"))
        states = history.c.cc_state.in_([state.code for state in _COUNTED])
        forgiven_before = self._database.now_ms(connection) - round(retry_days * 86_400_000) if retry_days > 0 else None
        by_entity: dict[Entity, list[tuple[QueueState, int]]] = {}
        for entry in read_history(connection, self._schema, states, history.c.cc_id.in_(theirs)):
            if entry.state not in _COUNTED:
                continue  # Hive 3.1 stores the state as failed (`rows`)
            by_entity.setdefault(entry.entity, []).append(
                (entry.state, entry.enqueue_ms or entry.end_ms or entry.start_ms or 0)
            )
        blocked = set()
        for entity, finished in by_entity.items():
            latest = finished[:threshold]
            if len(latest) < threshold or any(state is not QueueState.FAILED for state, _ in latest):
                continue
            if forgiven_before is None or max(moment for _, moment in latest) >= forgiven_before:
                blocked.add(entity)
        return blocked


def _ended(now: HandedOut, before: HandedOut) -> dict[Entity, int]:
    """The newest write of each table that ended since the earlier look."""
    ended = {}
    for table, (following, writing) in now.items():
        first, then_writing = before.get(table, _NEVER)
        if following < first:
            first, then_writing = _NEVER  # the table was dropped, and this is another one
        if following == first and not then_writing:
            continue
        newest = next(number for number in range(following - 1, -1, -1) if number not in writing)
        newest = newest if newest >= first else max(then_writing - writing, default=0)
        if newest:
            ended[table] = newest
    return ended


def _as_stored(entity: Entity) -> list[Entity]:
    """The entity under all names that Hive may have stored."""
    return (
        [entity]
        if entity.partition is None
        else [Entity(entity.database, entity.table, name) for name in spellings(entity.partition)]
    )


def _both(one: Candidate | None, other: Candidate) -> Candidate:
    """The candidate of one partition that was stored under two names."""
    if one is None:
        return other
    return Candidate(
        other.entity,
        newest_write_id=max(one.newest_write_id, other.newest_write_id),
        newest_txn_id=max(one.newest_txn_id, other.newest_txn_id),
        commits=one.commits + other.commits,
        aborted_count=one.aborted_count + other.aborted_count,
        oldest_abort_ms=least(one.oldest_abort_ms, other.oldest_abort_ms),
    )
