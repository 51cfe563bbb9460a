"""
One cycle of the Initiator over 20,000 partitions on PostgreSQL: all changed, and none changed since the last full scan.
"""

import os
import statistics
from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import insert, select

from benchmarks import harness
from compactor.log import configure
from compactor.metastore.db.database import Database
from compactor.roles.initiator.initiator import Initiator
from compactor.roles.services import Services
from compactor.settings import Settings
from tests.demo import files
from tests.demo.rows import CatalogRows, MetastoreLedger
from tests.demo.tables import DemoTable
from tests.demo.warehouse import Warehouse
from tests.metastore.servers import postgres_server

PARTITIONS = 20_000
LINKS = 50_000
"""Hard links that are made to one file; ext4 allows 65,000."""
COLUMNS = (("id", "int"), ("name", "string"))


def run() -> list[harness.Result]:
    """Measure both bars."""
    configure("error", "console")
    with postgres_server() as server, harness.scratch() as folder:
        url = server.create("4.0.0")
        build(folder, url, PARTITIONS)
        # a full scan in each cycle: the most that a cycle ever has to do
        settings = Settings(
            database={"url": url},
            initiator={"interval_seconds": 0.001, "full_scan_seconds": 0.001},
            http={"enabled": False},
            log={"level": "error"},
        )
        services = Services.open(settings)
        changed, unchanged = [], []
        try:
            for _ in range(3):
                initiator = Initiator(services)  # a new Initiator takes everything for changed
                changed.append(harness.seconds(initiator.run_once))
                unchanged.append(harness.seconds(initiator.run_once))
        finally:
            services.close()
    first, again = statistics.median(changed), statistics.median(unchanged)
    return [
        harness.at_least(
            "initiator/changed",
            PARTITIONS / first,
            2_000,
            "partitions/s",
            f"{PARTITIONS:,} partitions in {first:.2f} s",
        ),
        harness.at_least(
            "initiator/unchanged",
            PARTITIONS / again,
            20_000,
            "partitions/s",
            f"{PARTITIONS:,} partitions in {again:.2f} s",
        ),
    ]


def build(folder: Path, url: str, partitions: int) -> None:
    """
    Make a table of many partitions, each with a base and a delta below the thresholds; the files are links to two real
    ones.
    """
    database = Database(url).connect()
    ledger = MetastoreLedger(database)
    warehouse = Warehouse(folder / "warehouse", ledger, CatalogRows(database))
    table = warehouse.create_table("bench", "parts", COLUMNS, partition_keys=[("p", "int")])
    sources = [(folder / f"large-{number}", folder / f"small-{number}") for number in range(partitions // LINKS + 1)]
    for large, small in sources:
        files.write_acid(
            large, COLUMNS, [(0, 1, 1 << 29, number, 1, (number, f"name {number * 7919}")) for number in range(2000)]
        )
        files.write_acid(small, COLUMNS, [(0, 2, 1 << 29, 0, 2, (1, "one"))])
    txns = [ledger.open(), ledger.open()]
    write_ids = [ledger.write_id(txn, table.database, table.name) for txn in txns]
    for number in range(partitions):
        large, small = sources[number // LINKS]
        place = table.location / f"p={number}"
        for name, source in (("base_0000001", large), (f"delta_{write_ids[1]:07d}_{write_ids[1]:07d}_0000", small)):
            (place / name).mkdir(parents=True)
            os.link(source, place / name / "bucket_00000_0")
    register(database, table, {txns[1]: write_ids[1]}, partitions)
    for txn in txns:
        ledger.commit(txn)
    database.close()


def register(database: Database, table: DemoTable, writes: Mapping[int, int], partitions: int) -> None:
    """
    Insert the partitions `p=0`, `p=1`, … and their noted writes into the metastore in bulk.

    Args:
        writes: transaction → its write id; each has written to every partition.
    """
    schema = database.schema
    first = 1_000_000
    numbers = range(partitions)
    names = [f"p={number}" for number in numbers]
    with database.transaction() as connection:
        tbl_id, sd_id = connection.execute(
            select(schema.tbls.c.tbl_id, schema.tbls.c.sd_id).where(schema.tbls.c.tbl_name == table.name)
        ).one()
        cd_id, serde_id, input_format = connection.execute(
            select(schema.sds.c.cd_id, schema.sds.c.serde_id, schema.sds.c.input_format).where(
                schema.sds.c.sd_id == sd_id
            )
        ).one()
        sds = {
            "cd_id": cd_id,
            "serde_id": serde_id,
            "input_format": input_format,
            "num_buckets": -1,
            "is_compressed": False,
            "is_storedassubdirectories": False,
        }
        connection.execute(
            insert(schema.sds),
            [{**sds, "sd_id": first + n, "location": f"file:{table.location}/{names[n]}"} for n in numbers],
        )
        parts = {"tbl_id": tbl_id, "create_time": 0, "last_access_time": 0}
        connection.execute(
            insert(schema.partitions),
            [{**parts, "part_id": first + n, "part_name": names[n], "sd_id": first + n} for n in numbers],
        )
        components = {"tc_database": table.database, "tc_table": table.name, "tc_operation_type": "i"}
        connection.execute(
            insert(schema.txn_components),
            [
                {**components, "tc_txnid": txn, "tc_writeid": write_id, "tc_partition": name}
                for txn, write_id in writes.items()
                for name in names
            ],
        )
