"""
Small pieces of SQL for several modules: rows of one entity, values that fit their columns, lists cut into batches.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    CursorResult,
    Delete,
    FromClause,
    String,
    Table,
    Update,
    and_,
    func,
    select,
)

from compactor.metastore.db.tables import PartitionName
from compactor.metastore.model import Entity

T = TypeVar("T")

BATCH = 1000
"""How many values one IN list may hold."""
_FETCHED = 5000
"""Rows taken from the driver at a time."""
_LONGEST = 100_000
"""Characters of a message: a server may take no more than 1 MB at once."""


def batches(values: Iterable[T], size: int = BATCH) -> Iterator[list[T]]:
    """Cut a sequence into lists of at most `size`."""
    rest = iter(values)
    while batch := list(islice(rest, size)):
        yield batch


def same(column: ColumnElement[Any], value: object) -> ColumnElement[bool]:
    """`column = value`, or `column IS NULL` for None: an index can serve both, unlike IS NOT DISTINCT FROM."""
    return column.is_(None) if value is None else column == value


def of_table(table: FromClause, prefix: str, entity: Entity) -> ColumnElement[bool]:
    """Rows of this table and of all its partitions; `prefix` is that of the columns: `tc`, `ctc`, `cq`, `cc`, `t2w`, `nwi`."""
    return and_(table.c[f"{prefix}_database"] == entity.database, table.c[f"{prefix}_table"] == entity.table)


def of_entity(table: FromClause, prefix: str, entity: Entity) -> ColumnElement[bool]:
    """Rows of exactly this table or partition; a NULL partition matches only itself. `prefix` as for `of_table`."""
    return and_(of_table(table, prefix, entity), same(table.c[f"{prefix}_partition"], entity.partition))


def same_entity(left: FromClause, left_prefix: str, right: FromClause, right_prefix: str) -> ColumnElement[bool]:
    """Both rows are of one table or partition; NULL partitions are equal to each other."""
    mine, other = left.c, right.c
    return and_(
        mine[f"{left_prefix}_database"] == other[f"{right_prefix}_database"],
        mine[f"{left_prefix}_table"] == other[f"{right_prefix}_table"],
        mine[f"{left_prefix}_partition"].is_not_distinct_from(other[f"{right_prefix}_partition"]),
    )


def entity_columns(table: FromClause, prefix: str) -> Sequence[ColumnElement[Any]]:
    """The columns of database, table and partition."""
    return tuple(table.c[f"{prefix}_{part}"] for part in ("database", "table", "partition"))


def told_apart(columns: Sequence[ColumnElement[Any]]) -> Sequence[ColumnElement[Any]]:
    """`entity_columns` for GROUP BY and ORDER BY, which else may take two partitions for one."""
    return tuple(
        chain.from_iterable(
            column.type.told_apart(column) if isinstance(column.type, PartitionName) else (column,)
            for column in columns
        )
    )


def fitting(table: Table, values: Mapping[str, Any]) -> dict[str, Any]:
    """
    The values whose columns this generation of the schema has.

    Texts are cut to their columns' length, `_LONGEST` where those have none; NUL, which not every product can store, is dropped.
    """
    fitted = {}
    for key, value in values.items():
        if key not in table.c:
            continue
        kind = table.c[key].type
        if isinstance(value, str):
            value = value.replace("\0", "")  # noqa: PLW2901 - the value as it is stored
            if isinstance(kind, String):
                value = value[: kind.length or _LONGEST]  # noqa: PLW2901
        fitted[key] = value
    return fitted


def changed(connection: Connection, statement: Delete | Update) -> int:
    """How many rows a statement changes."""
    return connection.execute(statement).rowcount


def fetched(result: CursorResult[Any]) -> Iterator[Sequence[Any]]:
    """Its rows, taken from the driver some thousands at a time: one by one costs more than the rows."""
    return chain.from_iterable(result.partitions(_FETCHED))


def next_number(connection: Connection, column: ColumnElement[Any], count: int = 1) -> int:
    """
    Take `count` numbers from a one-row counter table under its row lock; returns the first.

    Raises:
        LookupError: the counter's row is missing; Hive's schema script seeds it.
    """
    table = column.table
    assert isinstance(table, Table)
    first = connection.scalar(select(column).with_for_update())
    if first is None:
        raise LookupError(f"table {table.name} has lost its only row")
    connection.execute(table.update().values({column.key: int(first) + count}))
    return int(first)


def least(*values: int | None) -> int | None:
    """The smallest value that isn't None; None when all are None."""
    present = [value for value in values if value is not None]
    return min(present) if present else None


def maximum(connection: Connection, column: ColumnElement[Any], *where: ColumnElement[bool]) -> int:
    """max(column), 0 without rows."""
    return int(connection.scalar(select(func.max(column)).where(*where)) or 0)


def minimum(connection: Connection, column: ColumnElement[Any], *where: ColumnElement[bool]) -> int | None:
    """min(column), None without rows."""
    value = connection.scalar(select(func.min(column)).where(*where))
    return None if value is None else int(value)
