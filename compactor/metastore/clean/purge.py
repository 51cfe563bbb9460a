"""
Forgets what the metastore keeps of aborted writes once nothing is left of them, and nothing can come; the only module
that does so.

A row of TXN_COMPONENTS says that an aborted transaction may have left files, or may leave some yet. Without such a row
Hive forgets the transaction, then its write ids, and a forgotten write id counts as committed. So a row is deleted only
by a proof, of which `planning.forgetting` decides what it proves.
Source: docs/metastore.md, *Forgetting*; Hive's MarkCleanedFunction, HIVE-21052, HIVE-24481.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    case,
    delete,
    exists,
    false,
    func,
    insert,
    literal,
    not_,
    or_,
    select,
    update,
)

from compactor.errors import RefusedError, RetryableError
from compactor.metastore.db.database import Database
from compactor.metastore.db.schema import HiveSchema
from compactor.metastore.db.sql import batches, of_entity, of_table, same
from compactor.metastore.model import DEFAULT_CATALOG, Entity
from compactor.metastore.partition_names import is_plain
from compactor.metastore.txn.snapshots import REPLICATION, REPLICATION_TIMEOUT_MS
from compactor.metastore.worker_ids import parse_worker_id
from compactor.planning.forgetting import AbortedComponent, ForgettingVerdict, Search, may_be_forgotten
from compactor.reasons import Reason

NOTED = "compactor: what it may have written is in TXN_COMPONENTS"
"""Mark in TXN_META_INFO of an aborted transaction (`note_unnamed`), after Hive 4's reason for the abort."""

_META_INFO = 128
"""Characters that TXN_META_INFO holds."""

_PAIRS = 500


@dataclass(frozen=True, slots=True)
class Proof:
    """
    What a sweep has shown of a table; only a sweep makes one (`roles.cleaner.cleared`).

    Args:
        table, tbl_id: the swept table; a table that was created anew under the name is another.
    """

    table: Entity
    tbl_id: int
    search: Search


def judged(
    connection: Connection, schema: HiveSchema, proof: Proof
) -> list[tuple[AbortedComponent, ForgettingVerdict]]:
    """The components of aborted transactions on the proof's table, each with what becomes of it by this proof."""
    return [(row, may_be_forgotten(row, proof.search)) for row in read_components(connection, schema, proof.table)]


def read_components(connection: Connection, schema: HiveSchema, table: Entity) -> list[AbortedComponent]:
    """The components of aborted transactions on a table, without repeated rows."""
    components, beat, mapped = schema.txn_components.c, last_sign_of_life(schema), _mapped_id(schema)
    named = components.tc_txnid, components.tc_operation_type, components.tc_partition, components.tc_writeid
    query = of_aborted(schema, *named, beat, mapped, schema.txns.c.txn_agent_info).distinct()
    return [
        AbortedComponent(
            int(txn_id),
            operation,
            partition,
            None if write_id is None else int(write_id),
            None if heartbeat is None else int(heartbeat),
            None if mapped is None else int(mapped),
            is_ours=parse_worker_id(agent) is not None,
        )
        for txn_id, operation, partition, write_id, heartbeat, mapped, agent in connection.execute(
            query.where(of_table(schema.txn_components, "tc", table))
        )
    ]


def of_aborted(schema: HiveSchema, *columns: ColumnElement[Any]) -> Select[Any]:
    """Columns of the components of aborted transactions, and of these."""
    components, txns = schema.txn_components, schema.txns
    origin = components.join(txns, txns.c.txn_id == components.c.tc_txnid)
    return select(*columns).select_from(origin).where(txns.c.txn_state == "a")


def last_sign_of_life(schema: HiveSchema) -> ColumnElement[int]:
    """
    Until when the tasks of an aborted transaction were surely under way: its last heartbeat, which an abort leaves as
    it is.

    Replication never heartbeats; its transactions may be open for as long as they have until they time out.
    """
    txns = schema.txns.c
    beat = txns.txn_last_heartbeat
    return case((func.coalesce(txns.txn_type, 0) == REPLICATION, beat + REPLICATION_TIMEOUT_MS), else_=beat)


def forget(connection: Connection, database: Database, proof: Proof) -> int:
    """
    Delete the components of aborted transactions that may be forgotten by the proof; returns how many.

    Returns 0 when the table isn't the one that was swept. Also deletes components of writes to a table of that name
    that was dropped or renamed while its components were noted (`note_unnamed`, Hive's lock): their write ids are no
    longer this table's, no proof would ever name them, and the transactions would be remembered for good.

    Raises:
        RefusedError: the table became another one meanwhile: each statement sees what was committed before it. The
            transaction must be rolled back.
    """
    schema = database.schema
    note_unnamed(connection, database)
    if connection.scalar(_tbl_id(schema, proof.table)) != proof.tbl_id:
        return 0
    covered, others = [], set()
    for row, verdict in judged(connection, schema, proof):
        if row.of_another_table:
            others.add(row.txn_id)
        if verdict.forgets:
            covered.append((row.txn_id, row.partition, row.operation, row.write_id))
    deleted = _delete_exactly(connection, database, proof.table, covered)
    if any(_have_write_ids(connection, schema, proof.table, txn_ids) for txn_ids in batches(sorted(others))):
        # a rename moved them here meanwhile, with components that may be the very ones
        raise RefusedError(
            Reason.INPUT_CHANGED,
            f"{proof.table} got another table's writes while its aborted ones were being forgotten; nothing was",
        )
    for txn_ids in batches(sorted(others)):
        _add_unnamed(connection, schema, txn_ids)
    if connection.scalar(_tbl_id(schema, proof.table)) != proof.tbl_id:
        raise RefusedError(
            Reason.INPUT_CHANGED,
            f"{proof.table} was dropped or re-created while its aborted writes were being forgotten; nothing was",
        )
    return deleted


def forget_commits(connection: Connection, database: Database, entity: Entity, up_to: int | None) -> None:
    """
    Delete committed components of exactly this table or partition: they only tell what may be worth a compaction.

    Deletes them under each name that Hive may have stored for the partition, except names that may mean another
    partition: that one would never become a candidate again.

    On 3.1 the newest one that updated or deleted stays where a materialized view reads the table: a rebuild asks this
    table alone whether rows went since the last one, and else adds what is new and keeps what was deleted (HIVE-24840).
    4.x also looks for compactions (GetMaterializationInvalidationInfoFunction).

    Args:
        up_to: only components with write ids at or below it; None: all.
    """
    schema = database.schema
    completed = schema.completed_txn_components
    columns = completed.c
    where = [or_(false(), *(of_entity(completed, "ctc", named) for named in only_its(connection, schema, entity)))]
    if up_to is not None:
        where.append(columns.ctc_writeid <= up_to)
        updated = columns.ctc_update_delete == "Y"
        if _has_view(connection, schema, entity):
            newest = connection.scalar(select(func.max(columns.ctc_writeid)).where(*where, updated))
            if newest is not None:
                where.append(not_(and_(updated, columns.ctc_writeid == newest)))
    connection.execute(delete(completed).where(*where))


def _has_view(connection: Connection, schema: HiveSchema, entity: Entity) -> bool:
    """Whether a materialized view of Hive 3.1 reads the table."""
    if schema.mv_tables_used is None:
        return False
    used = schema.mv_tables_used.c
    query = select(used.tbl_id).where(used.tbl_id.in_(_tbl_id(schema, entity)))
    return connection.scalar(query.limit(1)) is not None


def is_catalogued(connection: Connection, schema: HiveSchema, entity: Entity) -> bool:
    """Whether the catalog has the table, and the partition if the entity is one."""
    tbl_ids, partitions = _tbl_id(schema, entity), schema.partitions.c
    if entity.partition is None:
        return connection.scalar(tbl_ids) is not None
    query = select(partitions.part_id).where(partitions.tbl_id.in_(tbl_ids), partitions.part_name == entity.partition)
    return connection.scalar(query.limit(1)) is not None


def forget_vanished(connection: Connection, database: Database, table: Entity) -> int:
    """
    Delete all components of aborted transactions on a table that the metastore doesn't know any more; returns how many.

    A table's absence from the catalog isn't enough: a CREATE TABLE AS that failed never had a table there, yet its
    files lie where a later table of that name looks for its own, and that table goes on with the write ids
    (NEXT_WRITE_ID). When these aren't known either, no remembered id stands for the files.

    Raises:
        RetryableError: the table became known meanwhile. The transaction must be rolled back.
    """
    schema, components = database.schema, database.schema.txn_components
    if _is_known(connection, schema, table):
        return 0
    named = components.c
    columns = named.tc_txnid, named.tc_partition, named.tc_operation_type, named.tc_writeid
    aborted = of_aborted(schema, *columns).where(of_table(components, "tc", table))
    rows = connection.execute(aborted.distinct()).all()
    deleted = _delete_exactly(connection, database, table, rows)
    if not deleted:
        return 0
    # The rows were looked up by name, and a rename moves others under it: the DELETE may have waited for that rename
    # and found its rows. They came with their write ids, so the table is known now.
    if _is_known(connection, schema, table):
        raise RetryableError(f"{table} came (back) while what was left of an earlier one was forgotten; nothing was")
    for batch in batches(sorted({int(row[0]) for row in rows})):
        _add_unnamed(connection, schema, batch)  # the table may have been renamed while its components were noted
    return deleted


def _is_known(connection: Connection, schema: HiveSchema, table: Entity) -> bool:
    """
    Whether the catalog has the table, or its write ids are counted or remembered. A statement of its own each time, and
    so with what was committed by then: InnoDB reads a DELETE's subquery once, before it waits for the rows.
    """
    known = or_(
        _tbl_id(schema, table).exists(),
        exists().where(of_table(schema.next_write_id, "nwi", table)),
        exists().where(of_table(schema.txn_to_write_id, "t2w", table)),
    )
    return bool(connection.scalar(select(case((known, 1), else_=0))))


def _delete_exactly(connection: Connection, database: Database, table: Entity, rows: Iterable[Sequence[Any]]) -> int:
    """
    Delete a table's components with exactly these transactions, partitions, operations and write ids; returns how many.

    All that the DELETE compares are values. What decided about the rows must be asked again after it.
    """
    components = database.schema.txn_components
    alike: dict[tuple[str | None, str], list[tuple[int, int]]] = {}
    unnumbered: dict[tuple[str | None, str], list[int]] = {}
    for txn_id, partition, operation, write_id in rows:
        if write_id is None:
            unnumbered.setdefault((partition, operation), []).append(txn_id)
        else:
            alike.setdefault((partition, operation), []).append((txn_id, write_id))
    deleted = 0

    def delete_these(named: tuple[str | None, str], these: ColumnElement[bool]) -> int:
        partition, operation = named
        of_these = and_(
            of_table(components, "tc", table),
            same(components.c.tc_partition, partition),
            components.c.tc_operation_type == operation,
        )
        return connection.execute(delete(components).where(of_these, these)).rowcount

    for named, pairs in alike.items():
        for batch in batches(pairs, _PAIRS):
            these = database.dialect.among_pairs(components.c.tc_txnid, components.c.tc_writeid, batch)
            deleted += delete_these(named, these)
    for named, txn_ids in unnumbered.items():
        for several in batches(txn_ids):
            of_txns = and_(components.c.tc_txnid.in_(several), components.c.tc_writeid.is_(None))
            deleted += delete_these(named, of_txns)
    return deleted


def note_unnamed(connection: Connection, database: Database) -> int:
    """
    Add the components that Hive left out of TXN_COMPONENTS for aborted transactions; returns for how many transactions.

    Hive 3.1 writes the components of a dynamic-partition or streaming write only at its end (HIVE-21052). Hive 3.1 and
    4 write none for an INSERT into a table from which it reads: of its two locks on the table, both shared,
    LockRequestBuilder keeps the reader's. Hive's purge, and the compactor's, would take such a transaction for empty
    and bring its rows to life. Each write id gets a component without a partition: the whole table is swept for it. The
    transaction is marked as done, or it would be done again after the sweep.
    """
    schema = database.schema
    txns = schema.txns
    found = [
        int(txn_id)
        for txn_id in connection.scalars(select(txns.c.txn_id).where(unnoted(schema)).order_by(txns.c.txn_id))
    ]
    before = func.substr(func.coalesce(txns.c.txn_meta_info, ""), 1, _META_INFO - len(NOTED))
    noted = 0
    for batch in batches(found):
        locked = _add_unnamed(connection, schema, batch)
        connection.execute(update(txns).where(txns.c.txn_id.in_(locked)).values(txn_meta_info=before.concat(NOTED)))
        noted += len(locked)
    return noted


def _add_unnamed(connection: Connection, schema: HiveSchema, txn_ids: Collection[int]) -> Sequence[int]:
    """
    Give aborted transactions the components that they lack.

    A transaction gets one for each table of which it has a write id and no component, or on 3.1 no component for the
    whole table. Returns the transactions that still exist.
    """
    txns, components, mappings = schema.txns.c, schema.txn_components, schema.txn_to_write_id.c
    there = exists().where(
        components.c.tc_txnid == mappings.t2w_txnid,
        components.c.tc_database == mappings.t2w_database,
        components.c.tc_table == mappings.t2w_table,
    )
    if schema.generation.notes_components_late:  # there may be those of some statements of several
        there = there.where(components.c.tc_partition.is_(None))
    columns = ("tc_txnid", "tc_database", "tc_table", "tc_operation_type", "tc_writeid")
    values = (mappings.t2w_txnid, mappings.t2w_database, mappings.t2w_table, literal("i"), mappings.t2w_writeid)
    # aborted is final; the rows are locked, so that no purge takes them away meanwhile
    locked = connection.scalars(
        select(txns.txn_id).where(txns.txn_id.in_(txn_ids)).order_by(txns.txn_id).with_for_update()
    ).all()
    missing = select(*values).where(mappings.t2w_txnid.in_(locked), not_(there))
    connection.execute(insert(components).from_select(columns, missing))
    return locked


def unnoted(schema: HiveSchema) -> ColumnElement[bool]:
    """
    Aborted transactions with write ids for which TXN_COMPONENTS may be incomplete, before `note_unnamed`.

    They don't count as empty, even without components.
    """
    txns, mappings = schema.txns.c, schema.txn_to_write_id.c
    # no empty text in place of NULL: a product may take the one for the other
    not_noted = or_(txns.txn_meta_info.is_(None), txns.txn_meta_info.not_like(f"%{NOTED}"))
    return and_(txns.txn_state == "a", not_noted, exists().where(mappings.t2w_txnid == txns.txn_id))


def _tbl_id(schema: HiveSchema, table: Entity) -> Select[Any]:
    tbls, dbs = schema.tbls.c, schema.dbs.c
    named = and_(dbs.ctlg_name == DEFAULT_CATALOG, dbs.name == table.database, tbls.tbl_name == table.table)
    return select(tbls.tbl_id).join(schema.dbs, tbls.db_id == dbs.db_id).where(named)


def _have_write_ids(connection: Connection, schema: HiveSchema, table: Entity, txn_ids: Sequence[int]) -> bool:
    """Whether one of these transactions has a write id of the table."""
    mappings = schema.txn_to_write_id
    query = select(mappings.c.t2w_txnid).where(of_table(mappings, "t2w", table), mappings.c.t2w_txnid.in_(txn_ids))
    return connection.scalar(query.limit(1)) is not None


def _mapped_id(schema: HiveSchema) -> ColumnElement[int | None]:
    """
    The write id that a component's transaction has of the table; NULL: it wrote to another table of the same name.

    The other table has the name now, or had it then. An aborted transaction keeps its write ids for as long as it is
    remembered; a DROP TABLE takes them away and a rename moves them, each together with the components that it sees.
    Such a component guards nothing here: an id without a transaction counts as committed.
    """
    components, mappings = schema.txn_components.c, schema.txn_to_write_id.c
    query = select(func.max(mappings.t2w_writeid)).where(
        mappings.t2w_txnid == components.tc_txnid,
        mappings.t2w_database == components.tc_database,
        mappings.t2w_table == components.tc_table,
    )
    return query.correlate(schema.txn_components).scalar_subquery()


def only_its(connection: Connection, schema: HiveSchema, entity: Entity) -> list[Entity]:
    """
    The entity under the names by which this generation of Hive stores it and no other partition of the catalog.

    The list may be empty.
    """
    name = entity.partition
    if name is None:
        return [entity]
    generation, part_name = schema.generation, schema.partitions.c.part_name
    mine = generation.stored_as(name)
    if len(mine) == 1 and is_plain(name):
        return [entity]
    its, alike = schema.partitions.c.tbl_id.in_(_tbl_id(schema, entity)), generation.locked_alike(part_name, name)
    others = connection.scalars(select(part_name).where(its, alike, part_name != name))
    taken = {spelling for other in others for spelling in generation.stored_as(other)}
    return [Entity(entity.database, entity.table, spelling) for spelling in mine if spelling not in taken]
