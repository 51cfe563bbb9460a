"""
The compactor's own table beside Hive's: members and control state where there is no ZooKeeper.

    COMPACTOR_STATE(CS_KEY primary key, CS_VALUE JSON, CS_VERSION, CS_UPDATED database clock in ms)

Without it daemons work all the same, but can't be listed, and control state can't be stored.
"""

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from compactor.coordination.model import ConflictError, Value
from compactor.metastore.db.database import Database
from compactor.metastore.db.own_tables import STATE, OwnTable, loaded
from compactor.metastore.db.sql import changed


class StateTable(OwnTable):
    """COMPACTOR_STATE of one metastore database."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, STATE)

    def read(self, key: str) -> Value | None:
        if not self.exists():
            return None  # without the table no value was ever stored
        query = select(STATE.c.value, STATE.c.version).where(STATE.c.key == key)
        row = self._database.glance(lambda connection: connection.execute(query).first())
        return None if row is None else Value(loaded(row[0]), int(row[1]))

    def versions(self, keys: list[str]) -> dict[str, int]:
        """The versions of the given keys; keys never written are left out."""
        self.require()
        query = select(STATE.c.key, STATE.c.version).where(STATE.c.key.in_(keys))
        found = self._database.glance(lambda connection: connection.execute(query).all())
        return {str(key): int(version) for key, version in found}

    def below(self, prefix: str) -> tuple[int, list[tuple[str, Mapping[str, Any], int]]]:
        """The database clock, and (key, value, time of its last write) of all keys below `prefix/`; times in ms."""
        if not self.exists():
            return self._database.read(self._database.now_ms), []  # no daemon has run yet
        start, end = f"{prefix}/", f"{prefix}0"  # "0" is the character after "/"

        def look(connection: Connection) -> tuple[int, list[tuple[str, Mapping[str, Any], int]]]:
            query = select(STATE.c.key, STATE.c.value, STATE.c.updated).where(STATE.c.key >= start, STATE.c.key < end)
            rows = [
                (str(key), loaded(value), int(updated))
                for key, value, updated in connection.execute(query)
                if str(key).startswith(start)
            ]
            return self._database.now_ms(connection), rows

        return self._database.read(look)

    def compare_and_set(self, key: str, data: Mapping[str, Any], version: int | None) -> Value:
        """Write a key if its version is still this one, as `Coordinator.write`; ConflictError, OutcomeUnknownError."""
        self.require()
        following = (version or 0) + 1
        values = {"value": json.dumps(data), "version": following, "updated": self._database.now}

        def change(connection: Connection) -> int:
            if version is None:
                connection.execute(insert(STATE).values(key=key, **values))
                return 1
            mine = update(STATE).where(STATE.c.key == key, STATE.c.version == version)
            return changed(connection, mine.values(values))

        try:
            if self._database.write(change) == 1:
                return Value(dict(data), following)
        except IntegrityError:
            pass
        raise ConflictError(f"{key} was changed by another process meanwhile")

    def put(self, key: str, data: Mapping[str, Any]) -> None:
        """Write a key that only this process writes, without regard to its version."""
        self.require()
        values = {"value": json.dumps(data), "updated": self._database.now}

        def change(connection: Connection) -> None:
            again = update(STATE).where(STATE.c.key == key).values({**values, "version": STATE.c.version + 1})
            if changed(connection, again) == 0:
                connection.execute(insert(STATE).values(key=key, version=1, **values))

        self._database.repeatable(change)

    def remove(self, key: str) -> None:
        self.require()
        self._database.repeatable(changed, delete(STATE).where(STATE.c.key == key))

    def remove_silent(self, prefix: str, age_ms: int) -> None:
        """Remove keys below `prefix/` whose last write is more than `age_ms` ago."""
        old = delete(STATE).where(
            STATE.c.key >= f"{prefix}/", STATE.c.key < f"{prefix}0", STATE.c.updated < self._database.now - age_ms
        )
        self._database.repeatable(changed, old)
