"""
Which server answers, by which ways: a replica may show what isn't so any more, and the Cleaner removes files by it.

Source: docs/metastore.md, "Failover".
"""

from compactor.errors import SettingsError
from compactor.metastore.db.database import Database
from compactor.metastore.db.dialects.base import Shortcoming
from compactor.metastore.db.tables import CataloguedName, CataloguedPlace, PartitionName

_LOOKS = 4
"""A proxy may send every second look elsewhere."""


def shortcomings(database: Database) -> list[Shortcoming]:
    """What the database's server, and what stands before it, lack for the daemon; the grave first."""
    if database.embedded:
        return []
    names = {
        f"{table.name}.{column.name}".upper()
        for table in database.schema.metadata.tables.values()
        for column in table.columns
        if isinstance(column.type, CataloguedName | CataloguedPlace | PartitionName)
    }
    found = [*_split(database), *_pooled(database)]
    found += database.read(lambda connection: list(database.dialect.shortcomings(connection, names)))
    return sorted(found, key=lambda one: (not one.grave, one.harmless))


def require_one(database: Database) -> None:
    """
    Raises:
        SettingsError: what the daemon would decide by may come from a replica, or it couldn't write.
    """
    for one in shortcomings(database):
        if one.grave:
            raise SettingsError(f"database.url: {one.sentence}; it needs {one.remedy}")


def _split(database: Database) -> list[Shortcoming]:
    """Looks outside transactions beside those in one: a proxy leads the former to a replica."""
    dialect, table = database.dialect, database.schema.dbs
    ways = (database.glance, database.read)
    seen = {way(lambda connection: dialect.server_seen(connection, table)) for _ in range(_LOOKS) for way in ways}
    if len(seen) == 1:
        return []
    told = " and ".join(sorted(", ".join(map(str, server)) for server in seen))
    return [
        Shortcoming(
            f"looks outside transactions and in one are answered by several servers: {told}",
            "database.url that leads to the primary alone, or a proxy that doesn't split reads",
            grave=True,
        )
    ]


def _pooled(database: Database) -> list[Shortcoming]:
    """Two connections at once, one of them in a transaction: a pooler may give both the same session, or change one's."""
    seen = database.dialect.session_seen
    with database.outside_transactions() as apart:
        first = seen(apart)
        with database.reading() as other:
            second, third = seen(other), seen(apart)
    if first is None or (first == third and first != second):
        return []
    return [
        Shortcoming(
            "a pooler gives each transaction another session of the server",
            "session pooling (PgBouncer: pool_mode = session), or none",
            grave=True,
        )
    ]
