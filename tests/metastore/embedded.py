"""The tables of Hive 3.1 in an embedded database: our own scripts for it make those of Hive 4 alone."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from sqlalchemy import create_engine

from compactor.metastore.db.dialects.sqlite import SQLite
from compactor.metastore.db.generation import HIVE_3
from compactor.metastore.db.schema import _build

COLUMNS = Path(__file__).resolve().parents[1] / "fixtures" / "metastore_columns.txt"


@cache
def columns(product: str, version: str) -> Mapping[str, Mapping[str, str]]:
    """Type of each column of each table, by upper-case names, as Hive's script for the product makes them."""
    found: dict[str, dict[str, str]] = {}
    table: dict[str, str] = {}
    for line in COLUMNS.read_text().splitlines():
        if not line.startswith(" "):
            whose, generation, name = line.split()
            table = {}
            if (whose, generation) == (product, version):
                found[name] = table
        else:
            column, _, kind = line.strip().partition(" ")
            table[column] = kind
    return found


def create_hive_3(path: Path) -> None:
    """An SQLite database with the tables of Hive 3.1, and the rows that Hive's script seeds."""
    found = columns("oracle", "3.1.0")
    names = {name: name for name in found}
    wanted = {name: {column: column for column in found[name]} for name in found}
    schema = _build(SQLite(), HIVE_3, "3.1.0", names, wanted)
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        schema.metadata.create_all(connection)
        connection.execute(schema.metadata.tables["VERSION"].insert().values(ver_id=1, schema_version="3.1.0"))
        connection.execute(schema.ctlgs.insert().values(ctlg_id=1, name="hive", location_uri="TBD"))
        for counter in (schema.next_txn_id, schema.next_lock_id, schema.next_compaction_queue_id):
            connection.execute(counter.insert().values({counter.columns.keys()[0]: 1}))
    engine.dispose()
