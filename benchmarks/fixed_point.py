"""
What a compaction leaves alone, counted in stripes of a table that Hive wrote: where nothing changed since the last one,
and where one row was deleted.

A stripe is as it was if its bytes are: the files before and after are compared, not what the compactor says of itself.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks import harness
from benchmarks.beside_hive import fill
from benchmarks.lab import run_once
from benchmarks.side_by_side import services_beside
from compactor.acid.compaction import CompactionKind
from compactor.log import configure
from compactor.metastore.model import Entity
from compactor.orc.format.tail import read_tail
from compactor.roles.cleaner.cleaner import Cleaner
from compactor.roles.services import Services
from compactor.roles.worker.worker import Worker
from compactor.storage.local_fs.files import LocalReader
from tests.hive.server.hive import HiveServer, hive_server
from tests.metastore.servers import postgres_server

ROWS = 2_000_000
DELETES = 10


@dataclass(frozen=True, slots=True)
class Stripe:
    """A stripe of the table's base; equal when its file's name and its bytes are."""

    file: str
    digest: str
    rows: int
    size: int


def stripes(table: Path) -> Counter[Stripe]:
    """The stripes of a table that has one base and nothing else."""
    (base,) = table.glob("base_*")
    found: Counter[Stripe] = Counter()
    for path in sorted(base.glob("bucket_*")):
        reader = LocalReader(str(path))
        tail, data = read_tail(reader), path.read_bytes()
        reader.close()
        for index, stripe in enumerate(tail.stripes):
            size = tail.stripe_length(index)
            digest = hashlib.sha256(data[stripe.offset : stripe.offset + size]).hexdigest()
            found[Stripe(path.name, digest, stripe.number_of_rows, size)] += 1
    return found


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
    first = stripes(table)
    major(services, table)
    again = before = stripes(table)
    largest = max(one.size for one in again)
    changed, most = [], []
    for number in range(1, DELETES + 1):
        hive.sql(f"delete from t where id = {ROWS // (DELETES + 1) * number}")
        major(services, table)
        now = stripes(table)
        changed.append(sum(one.size for one in (now - before).elements()))
        most.append(max(one.rows for one in now))
        before = now
    if not all(changed):
        raise RuntimeError(f"a delete changed no stripe: {changed}")
    there, rows = f"of {first.total()}", max(one.rows for one in again)
    detail = f"{there}, as bytes of the largest; the most of {DELETES} deletes"
    return [
        harness.at_most("fixed_point/again", (again - first).total(), 0, "stripes", there),
        harness.at_most("fixed_point/one_delete", max(changed) / largest, 1, "stripes", detail),
        harness.at_most("fixed_point/growth", max(most) / rows, 1, "x the rows", f"{rows:,} in the largest stripe"),
    ]


def run() -> list[harness.Result]:
    """Count all bars."""
    configure("error", "console")
    with postgres_server() as postgres, hive_server("4", postgres, memory="4g") as hive:
        fill(hive, ROWS)
        services = services_beside(hive)
        try:
            return counted(hive, services)
        finally:
            services.close()
