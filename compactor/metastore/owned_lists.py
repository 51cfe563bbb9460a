"""
Small lists that belong to rows of other tables (parameters, columns, partition keys), several kinds by one statement.

Building a statement costs more than running it: make an `OwnedLists` once, and read with it often.
"""

from collections.abc import Collection, Iterable
from itertools import zip_longest
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, Table, literal, null, select, union_all

from compactor.metastore.db.dialects.base import Dialect
from compactor.metastore.db.sql import batches, fetched

Pair = tuple[str, str | None]


class OwnedList(NamedTuple):
    """
    One kind of list.

    Args:
        owner: the column with the id of the row that a list belongs to.
        names: of one or two columns.
        without: first values to leave out.
    """

    table: Table
    owner: str
    names: tuple[str, ...]
    without: tuple[str, ...] = ()


def parameters_in(table: Table, owner: str, without: tuple[str, ...] = ()) -> OwnedList:
    """Names and values of a table of parameters."""
    return OwnedList(table, owner, ("param_key", "param_value"), without)


def by_key(pairs: Iterable[Pair]) -> dict[str, str]:
    """Parameters, by name; NULL is an empty text."""
    return {key: value or "" for key, value in pairs}


class OwnedLists:
    """The statement that reads some kinds of lists; `owners_0` and so on are its parameters."""

    def __init__(self, dialect: Dialect, *wanted: OwnedList) -> None:
        self._at_once = dialect.at_once
        self._kinds = len(wanted)
        selects = []
        for number, (table, owner, names, without) in enumerate(wanted):
            pair = [table.c[name] for name in names]
            position = table.c["integer_idx"] if "integer_idx" in table.c else literal(0)
            columns = (
                literal(number),
                table.c[owner],
                pair[0],
                dialect.long_text(pair[1] if pair[1:] else null()),
                position.label("position"),
            )
            query: Select[Any] = select(*columns).where(dialect.among(table.c[owner], f"owners_{number}"))
            selects.append(query.where(pair[0].not_in(without)) if without else query)
        self._statement = union_all(*selects).order_by("position")

    def read(self, connection: Connection, *owners: Collection[int]) -> list[dict[int, list[Pair]]]:
        """For each kind the pairs of its owners, in order."""
        found: list[dict[int, list[Pair]]] = [{} for _ in range(self._kinds)]
        for batched in zip_longest(*(batches(some, self._at_once) for some in owners), fillvalue=()):
            given = {f"owners_{number}": list(batch) for number, batch in enumerate(batched)}
            for number, owner, first, second, _ in fetched(connection.execute(self._statement, given)):
                found[number].setdefault(owner, []).append((first, second))
        return found
