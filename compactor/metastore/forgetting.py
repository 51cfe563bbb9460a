"""
What the metastore keeps of aborted writes, forgotten once their directories are gone.

Without its components an aborted transaction is forgotten, and what is forgotten counts as committed. Source: docs/metastore.md; Hive's
MarkCleanedFunction.
"""

from collections.abc import Collection

from sqlalchemy import ColumnElement, Connection, and_, delete, not_, select

from compactor.acid.write_ids import ValidTxnList
from compactor.metastore.database import Database
from compactor.metastore.model import DEFAULT_CATALOG, Entity
from compactor.metastore.sql import batches, of_entity


def forget_aborted(
    connection: Connection, database: Database, entity: Entity, up_to: int | None, write_ids: Collection[int] | None, *, txns: ValidTxnList | None
) -> int:
    """
    Delete components of aborted transactions on exactly this table or partition; returns how many.

    No directory of those write ids may be left: without components the transaction is forgotten, and then counts as committed. Rows without
    a partition on a partitioned table are a dynamic-partition write's: only a call for the whole table deletes them, and only them.

    Args:
        up_to: ids at or below it.
        write_ids: these ids too.
        txns: only of transactions that had ended for this list. A compaction that was rolled back later, and the writers of a table that was created
            anew, have write ids as small as those that were judged.
    """
    components = database.schema.txn_components
    where = _aborted_of(database, entity)
    if txns is not None:
        where = and_(where, components.c.tc_txnid <= txns.high_watermark, *(components.c.tc_txnid.not_in(batch) for batch in batches(txns.open)))
    deleted = 0
    if up_to is not None:
        deleted += connection.execute(delete(components).where(where, components.c.tc_writeid <= up_to)).rowcount
    for batch in batches(sorted(write_ids or ())):
        deleted += connection.execute(delete(components).where(where, components.c.tc_writeid.in_(batch))).rowcount
    return deleted


def forget_vanished(connection: Connection, database: Database, entity: Entity) -> int:
    """
    Delete all components of aborted transactions on a table that isn't in the catalog, or on a partition of one; returns how many.

    One statement looks and deletes: between the two a table of that name could be created and written to.
    """
    schema = database.schema
    tbls, dbs = schema.tbls.c, schema.dbs.c
    named = and_(dbs.ctlg_name == DEFAULT_CATALOG, dbs.name == entity.database.lower(), tbls.tbl_name == entity.table.lower())
    there = select(tbls.tbl_id).join(schema.dbs, tbls.db_id == dbs.db_id).where(named).exists()
    return connection.execute(delete(schema.txn_components).where(_aborted_of(database, entity), not_(there))).rowcount


def _aborted_of(database: Database, entity: Entity) -> ColumnElement[bool]:
    components, txns = database.schema.txn_components, database.schema.txns
    return and_(of_entity(components, "tc", entity), components.c.tc_txnid.in_(select(txns.c.txn_id).where(txns.c.txn_state == "a")))
