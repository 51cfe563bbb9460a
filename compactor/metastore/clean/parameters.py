"""
Parameters of the tables and partitions of queue entries, in the statement that reads the entries: the server joins
queue and catalog while rows of other entries are on their way, since there may be many and hardly any has a parameter.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, FromClause, and_

from compactor.metastore.db.schema import HiveSchema
from compactor.metastore.model import DEFAULT_CATALOG, Parameters


def beside(
    schema: HiveSchema, origin: FromClause, keys: Collection[str]
) -> tuple[FromClause, Sequence[ColumnElement[Any]]]:
    """
    A source of rows with the queue in it, joined with the parameters that have these names, and the columns of these
    for `told`. An entry with several has several rows.
    """
    queue, dbs, tbls, partitions = schema.compaction_queue.c, schema.dbs.c, schema.tbls.c, schema.partitions.c
    of_table, of_partition = schema.table_params.c, schema.partition_params.c
    joined = (
        origin.outerjoin(schema.dbs, and_(dbs.name == queue.cq_database, dbs.ctlg_name == DEFAULT_CATALOG))
        .outerjoin(schema.tbls, and_(tbls.db_id == dbs.db_id, tbls.tbl_name == queue.cq_table))
        .outerjoin(schema.table_params, and_(of_table.tbl_id == tbls.tbl_id, of_table.param_key.in_(keys)))
        .outerjoin(
            schema.partitions, and_(partitions.tbl_id == tbls.tbl_id, queue.cq_partition == partitions.part_name)
        )
        .outerjoin(
            schema.partition_params,
            and_(of_partition.part_id == partitions.part_id, of_partition.param_key.in_(keys)),
        )
    )
    return joined, (of_table.param_key, of_table.param_value, of_partition.param_key, of_partition.param_value)


def told(rows: Iterable[Sequence[Any]]) -> dict[int, Parameters]:
    """The parameters in rows that begin with the entry's id and end with the columns of `beside`, by id."""
    found: dict[int, Parameters] = {}
    for row in rows:
        if row[-4] is not None:
            found.setdefault(int(row[0]), ({}, {}))[0][row[-4]] = row[-3] or ""
        if row[-2] is not None:
            found.setdefault(int(row[0]), ({}, {}))[1][row[-2]] = row[-1] or ""
    return found
