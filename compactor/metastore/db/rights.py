"""
Checks which rights the database's user lacks for the compactor's work.

The server is asked for the rights; nothing is tried or written. The dialect names the script that gives these rights.
"""

from collections.abc import Mapping
from typing import Final

from compactor.metastore.db.database import Database
from compactor.metastore.db.own_tables import OWN_TABLES, OwnTable

WRITES: Final[Mapping[str, str]] = {
    "txns": "UPDATE, DELETE",
    "txn_components": "INSERT, DELETE",
    "completed_txn_components": "DELETE",
    "txn_to_write_id": "DELETE",
    "min_history_level": "DELETE",
    "write_set": "DELETE",
    "hive_locks": "INSERT, UPDATE, DELETE",
    "next_lock_id": "UPDATE",
    "compaction_queue": "INSERT, UPDATE, DELETE",
    "next_compaction_queue_id": "UPDATE",
    "completed_compactions": "INSERT, UPDATE, DELETE",
    "aux_table": "INSERT, UPDATE",
}
"""Rights needed beside SELECT, which every table of the schema needs."""
WRITES_4: Final[Mapping[str, str]] = {
    "txns": "INSERT",
    "min_history_level": "INSERT",
    "min_history_write_id": "INSERT, DELETE",
    "txn_lock_tbl": "UPDATE",
}
"""Rights needed in addition where compactions have transactions (4.x)."""
_OWN: Final = "SELECT, INSERT, UPDATE, DELETE"
"""Rights needed on the compactor's own tables."""


def missing_rights(database: Database) -> list[str]:
    """
    Rights that the database's user lacks, as `INSERT on TXN_COMPONENTS`; none on an embedded database.

    The compactor's own tables count where they exist (`lacking_tables`).

    Args:
        database: not `read_only`; a server may refuse to tell of rights to write on a connection that may not.
    """
    schema = database.schema
    more = {} if schema.generation.rename_commits else WRITES_4
    wanted = []
    for table in schema.metadata.sorted_tables:
        name = table.name.lower()
        rights = ["SELECT", WRITES.get(name, ""), more.get(name, "")]
        wanted += [(table, right) for words in rights for right in words.split(", ") if right]
    own = [table for table in OWN_TABLES if OwnTable(database, table).exists()]
    wanted += [(table, right) for table in own for right in _OWN.split(", ")]
    lacking = database.read(database.dialect.lacking, wanted)
    return [f"{right} on {table.name.upper()}" for table, right in lacking]


def lacking_tables(database: Database) -> list[str]:
    """The compactor's own tables that don't exist, or on which the user has no right; none on an embedded database."""
    if database.embedded:
        return []
    return [table.name for table in OWN_TABLES if not OwnTable(database, table).exists()]
