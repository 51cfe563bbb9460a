"""
Builds the warehouse of `make demo`: five small tables of a shop that have not been compacted for a while.

The same seed makes the same warehouse. Each table shows one case: many small deltas, partitions fed by streaming,
buckets and MERGE, an insert-only table, files from before ACID.
"""

import datetime as dt
import random
from collections.abc import Set as AbstractSet
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from compactor.metastore.db.database import Database
from tests.demo.rows import CatalogRows, MetastoreLedger
from tests.demo.tables import DemoTable
from tests.demo.warehouse import Warehouse

DATABASE = "shop"
_STATES = ("new", "paid", "packed", "sent", "returned")
_DAYS = ("2024-03-01", "2024-03-02", "2024-03-03")
_CITIES = ("Aarhus", "Bergen", "Gdańsk", "Kraków", "Malmö", "Tartu", "Vaasa", "Zürich")


def build_sample(root: Path, database: Database, *, rows: int = 80_000, seed: int = 1) -> Warehouse:
    """
    Write the warehouse below `root` and its metastore rows into an empty metastore database.

    Args:
        rows: about how many rows all tables have together.
    """
    warehouse = Warehouse(root, MetastoreLedger(database), CatalogRows(database))
    dice = random.Random(seed)  # sample data, no secrets
    _orders(warehouse, dice, rows // 2)
    _events(warehouse, dice, rows // 4)
    _customers(warehouse, dice, rows // 8)
    _clicks(warehouse, dice, rows // 16)
    _legacy(warehouse, dice, rows // 16)
    return warehouse


def _orders(warehouse: Warehouse, dice: random.Random, count: int) -> DemoTable:
    """One big load, then a day of small inserts, corrections and deletes, and an aborted insert."""
    columns = [
        ("id", "bigint"),
        ("customer", "int"),
        ("state", "string"),
        ("amount", "decimal(10,2)"),
        ("at", "timestamp"),
    ]
    table = warehouse.create_table(DATABASE, "orders", columns)
    start = dt.datetime(2024, 3, 1, tzinfo=dt.UTC)

    def order(number: int) -> tuple[object, ...]:
        return (
            number,
            dice.randrange(5000),
            dice.choice(_STATES),
            Decimal(dice.randrange(100, 99999)).scaleb(-2),
            start + dt.timedelta(seconds=7 * number),
        )

    with warehouse.begin() as txn:
        txn.insert(table, [order(number) for number in range(count)], writers=2)
    for step in range(12):
        with warehouse.begin() as txn:
            txn.insert(table, [order(count + 20 * step + number) for number in range(20)])
        wanted = frozenset(dice.sample(range(count), 15))
        with warehouse.begin() as txn:
            if step % 3 == 2:
                txn.delete(table, partial(_is_one_of, wanted))
            else:
                txn.update(table, partial(_is_one_of, wanted), lambda row: (*row[:2], "corrected", *row[3:]))
    lost = warehouse.begin()
    lost.insert(table, [order(-1)])
    lost.abort()
    return table


def _events(warehouse: Warehouse, dice: random.Random, count: int) -> DemoTable:
    """Partitioned by day; a streaming client writes it in batches of three transactions."""
    columns = [("device", "int"), ("kind", "string"), ("reading", "double"), ("tags", "array<string>")]
    table = warehouse.create_table(DATABASE, "events", columns, partition_keys=[("day", "string")])
    share = count // (len(_DAYS) * 6 * 3) or 1
    for day in _DAYS:
        for _ in range(6):
            rows = [
                [
                    (dice.randrange(400), "temperature", dice.gauss(20, 4), ["indoor"] * dice.randrange(3))
                    for _ in range(share)
                ]
                for _ in range(3)
            ]
            batch = warehouse.stream(table, rows, [day])
            for index in range(3):
                batch.finish(index, commit=dice.random() > 0.1)
        with warehouse.begin() as txn:
            txn.delete(table, lambda row: row[0] == 7, [day])
    return table


def _customers(warehouse: Warehouse, dice: random.Random, count: int) -> DemoTable:
    """Four buckets; a MERGE changes it every night."""
    columns = [("id", "int"), ("name", "string"), ("city", "string"), ("address", "struct<street:string,number:int>")]
    table = warehouse.create_table(DATABASE, "customers", columns, buckets=4, bucket_columns=["id"])

    def customer(number: int) -> tuple[object, ...]:
        return (number, f"customer {number}", dice.choice(_CITIES), ("Main Street", dice.randrange(200)))

    with warehouse.begin() as txn:
        txn.insert(table, [customer(number) for number in range(count)])
    for night in range(6):
        moved = frozenset(dice.sample(range(count), 10))
        with warehouse.begin() as txn:
            txn.delete(table, partial(_is_one_of, {night}))
            txn.update(table, partial(_is_one_of, moved), lambda row: (*row[:2], dice.choice(_CITIES), row[3]))
            txn.insert(table, [customer(count + 5 * night + number) for number in range(5)])
    return table


def _clicks(warehouse: Warehouse, dice: random.Random, count: int) -> DemoTable:
    """Insert-only: compaction copies whole files."""
    table = warehouse.create_table(DATABASE, "clicks", [("page", "string"), ("visitor", "int")], insert_only=True)
    for _ in range(14):
        with warehouse.begin() as txn:
            txn.insert(table, [(f"/page/{dice.randrange(50)}", dice.randrange(9000)) for _ in range(count // 14 or 1)])
    return table


def _legacy(warehouse: Warehouse, dice: random.Random, count: int) -> DemoTable:
    """A plain ORC table that was made transactional, was updated, got a column, and got more rows since."""
    table = warehouse.create_table(DATABASE, "legacy", [("id", "int"), ("note", "varchar(40)")], transactional=False)
    warehouse.write_original(table, [(number, f"note {number}") for number in range(count)])
    warehouse.write_original(table, [(number, f"note {number}") for number in range(count, count + 20)])
    warehouse.convert(table)
    with warehouse.begin() as txn:
        txn.update(table, lambda row: row[0] % 100 == 3, lambda row: (row[0], "changed"))
    warehouse.add_columns(table, [("grade", "char(2)")])
    for step in range(3):
        with warehouse.begin() as txn:
            txn.insert(table, [(count + 100 + step, "late", dice.choice(("a", "b")))])
    return table


def _is_one_of(numbers: AbstractSet[int], row: tuple[Any, ...]) -> bool:
    return row[0] in numbers
