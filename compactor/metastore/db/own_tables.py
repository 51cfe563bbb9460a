"""
The compactor's own tables beside Hive's: COMPACTOR_STATE (`coordination.sql.table`) and COMPACTOR_WORK
(`compaction_queue.work`).

The first daemon with the right to create tables creates them; else the scripts in deploy/sql do. Without a table
daemons work all the same, only what the table would hold isn't kept.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import BigInteger, Column, MetaData, String, Table, Text, inspect
from sqlalchemy.exc import IntegrityError

from compactor.errors import CompactorError, RetryableError, UnreachableError
from compactor.metastore.db.database import Database

STATE: Final = Table(
    "COMPACTOR_STATE",
    MetaData(),
    Column("CS_KEY", String(255), key="key", primary_key=True),
    Column("CS_VALUE", Text, key="value", nullable=False),
    Column("CS_VERSION", BigInteger, key="version", nullable=False),
    Column("CS_UPDATED", BigInteger, key="updated", nullable=False),
)
WORK: Final = Table(
    "COMPACTOR_WORK",
    MetaData(),
    Column("CW_ID", BigInteger, key="id", primary_key=True, autoincrement=False),
    Column("CW_START", BigInteger, key="start", nullable=False),
    Column("CW_VALUE", Text, key="value", nullable=False),
    Column("CW_UPDATED", BigInteger, key="updated", nullable=False),
)
OWN_TABLES: Final = (STATE, WORK)


class OwnTable:
    """One of the compactor's own tables in one metastore database."""

    def __init__(self, database: Database, table: Table) -> None:
        self._database = database
        self._table = table
        self._there = False

    def exists(self) -> bool:
        """
        Whether the table exists, as far as the user may know; the database is asked until it does.

        A server may refuse to tell a user without any right on the table.
        """
        if not self._there:
            try:
                self._there = self._database.read(lambda connection: inspect(connection).has_table(self._table.name))
            except (UnreachableError, RetryableError):
                raise
            except CompactorError:
                return False
        return self._there

    def require(self) -> None:
        """
        Raise if the table doesn't exist.

        Raises:
            CompactorError: the table doesn't exist.
        """
        if not self.exists():
            raise CompactorError(
                f"table {self._table.name} isn't in {self._database}: a daemon that may create tables makes it; see docs/operations.md, Several daemons"
            )

    def make(self) -> None:
        """
        Create the table unless it exists.

        Raises:
            CompactorError: the table can't be created, and why.
        """
        if self.exists():
            return
        try:
            statement = self._database.dialect.create_table(self._table)
            self._database.write(lambda connection: connection.execute(statement))
        except (UnreachableError, RetryableError):
            raise
        except (CompactorError, IntegrityError):
            # another daemon may have created it at the same time
            if not self.exists():
                raise
        self._there = True


def loaded(text: str) -> Mapping[str, Any]:
    """The JSON object of a stored value; empty for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
