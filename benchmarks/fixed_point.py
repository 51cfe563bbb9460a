"""
What a compaction leaves alone, counted in stripes of a table that Hive wrote: where nothing changed since the last one,
and where one row was deleted.

A stripe is as it was if its bytes are: the files before and after are compared, not what the compactor says of itself.
"""

import hashlib
from collections import Counter
from pathlib import Path

from benchmarks import harness
from benchmarks.beside_hive import fill
from benchmarks.lab import run_once
from compactor.acid.compaction import CompactionKind
from compactor.log import configure
from compactor.metastore.model import Entity
from compactor.orc.format.tail import read_tail
from compactor.roles.cleaner.cleaner import Cleaner
from compactor.roles.services import Services
from compactor.roles.worker.worker import Worker
from compactor.settings import Settings
from compactor.storage.local_fs.files import LocalReader
from tests.hive.server.hive import HiveServer, hive_server
from tests.metastore.servers import postgres_server

ROWS = 2_000_000
DELETES = 10


def stripes(table: Path) -> tuple[Counter[str], int]:
    """The stripes of a table's one base, as digests of their bytes, and the most rows of one."""
    (base,) = table.glob("base_*")
    found: Counter[str] = Counter()
    most = 0
    for path in sorted(base.glob("bucket_*")):
        reader = LocalReader(str(path))
        tail, data = read_tail(reader), path.read_bytes()
        reader.close()
        for index, stripe in enumerate(tail.stripes):
            content = data[stripe.offset : stripe.offset + tail.stripe_length(index)]
            found[path.name + hashlib.sha256(content).hexdigest()] += 1
            most = max(most, stripe.number_of_rows)
    return found, most


def major(services: Services, table: Path) -> None:
    """Compact the table, and clean until one base is left."""
    services.queue.enqueue(Entity("default", table.name, None), CompactionKind.MAJOR)
    run_once(Worker(services, 0))
    while len([*table.iterdir()]) > 1:
        Cleaner(services).run_once()


def counted(hive: HiveServer, services: Services) -> list[harness.Result]:
    """All bars, on the table `t`."""
    table = hive.warehouse / "t"
    hive.sql("insert into t select * from source where id < 10")
    major(services, table)
    first, rows = stripes(table)
    major(services, table)
    again, _ = stripes(table)
    fresh, largest, before = [], [rows], again
    for number in range(1, DELETES + 1):
        hive.sql(f"delete from t where id = {ROWS // (DELETES + 1) * number}")
        major(services, table)
        now, most = stripes(table)
        fresh.append((now - before).total())
        largest.append(most)
        before = now
    if not all(fresh):
        raise RuntimeError(f"a delete changed no stripe: {fresh}")
    there = f"of {first.total()}"
    return [
        harness.at_most("fixed_point/again", (again - first).total(), 0, "stripes", there),
        harness.at_most("fixed_point/one_delete", max(fresh), 1, "stripes", f"{there}, the most of {DELETES} deletes"),
        harness.at_most("fixed_point/growth", max(largest) / rows, 1, "x the rows", f"{rows:,} in the largest stripe"),
    ]


def run() -> list[harness.Result]:
    """Count all bars."""
    configure("error", "console")
    with postgres_server() as postgres, hive_server("4", postgres, memory="4g") as hive:
        fill(hive, ROWS)
        services = Services.open(
            Settings(
                database={"url": hive.database},
                warehouse={"roots": [f"file:{hive.warehouse}"]},
                spark={"master": "local[2]"},
                cleaner={"listing_wait_seconds": 0},
                http={"enabled": False},
                log={"level": "error"},
            )
        )
        try:
            return counted(hive, services)
        finally:
            services.close()
