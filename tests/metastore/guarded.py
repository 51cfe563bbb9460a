"""Watches the changes that tests make through the package: none may be decided by a subquery."""

from sqlalchemy import Connection, Engine, event
from sqlalchemy.sql import Delete, Update
from sqlalchemy.sql.selectable import SelectBase
from sqlalchemy.sql.visitors import iterate

DECIDED_BY_ROWS_THAT_CANNOT_COME: dict[tuple[str, str], str] = {
    ("delete", "TXNS"): "a row's components: none is added while the DELETE has its lock, which a foreign key asks for"
}
"""Deletes and updates with a subquery in them: why none of their rows may stop fitting while they wait."""


OF_ANOTHER_PARTY = {"of_another_party": True}
"""Execution options of a statement that stands for Hive's or an operator's."""


def refuse_subqueries() -> None:
    """From now on, on every engine. InnoDB reads a subquery once, then waits, and takes the rows as they are by then."""
    event.listen(Engine, "before_execute", _look)


def _look(connection: Connection, statement: object, *_: object) -> None:
    if (
        not isinstance(statement, Delete | Update)
        or OF_ANOTHER_PARTY.items() <= connection.get_execution_options().items()
    ):
        return
    kind = "delete" if isinstance(statement, Delete) else "update"
    key = (kind, str(statement.table.name).upper())
    if key not in DECIDED_BY_ROWS_THAT_CANNOT_COME and any(isinstance(part, SelectBase) for part in iterate(statement)):
        raise AssertionError(f"a {kind} of {key[1]} is decided by a subquery: {statement}")
