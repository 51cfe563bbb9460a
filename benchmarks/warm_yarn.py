"""One compaction of 10 KB on YARN and HDFS in a session that is warm: from the claim until the entry is ready for cleaning, with the time of each step."""

import os
import statistics
import sys
import time

from sqlalchemy import update

from benchmarks import harness
from benchmarks.lab import DATABASE, Lab
from compactor.demo.tables import DemoTable
from compactor.settings.stores import Hdfs
from compactor.storage.options import StorageOptions
from compactor.storage.registry import configure, storage_for
from tests.cluster import yarn
from tests.cluster.hadoop.servers import HadoopServer
from tests.cluster.mirror import put

ROUNDS = 5
FILES, ROWS = 5, 60
WARM = {"spark.dynamicAllocation.minExecutors": "1", "spark.executor.cores": "2", "spark.driver.host": "127.0.0.1"}
"""One executor stays: what makes a session warm. The rest is as delivered, but for the memory of a small machine."""


class Stopwatch:
    """When each step was passed."""

    def __init__(self) -> None:
        self.passed: list[tuple[str, float]] = []

    def __call__(self, step: str, _: object) -> None:
        self.passed.append((step, time.perf_counter()))

    def line(self) -> str:
        """Seconds of each step."""
        pairs = zip(self.passed, self.passed[1:], strict=False)
        return ", ".join(f"{after[0].partition('.')[2]} {after[1] - before[1]:.2f}" for before, after in pairs)


def table(lab: Lab, name: str, top: str) -> DemoTable:
    """10 KB in some deltas, and deletes; on HDFS."""
    made = lab.warehouse.create_table(DATABASE, name, [("id", "int"), ("v", "string")])
    for number in range(FILES):
        with lab.warehouse.begin() as txn:
            txn.insert(made, [(number * ROWS + i, f"{(number * ROWS + i) * 2654435761 % (1 << 64):016x}" * 2) for i in range(ROWS)])
    with lab.warehouse.begin() as txn:
        txn.delete(made, lambda row: row[0] % 50 == 0)
    location = f"{top}/{name}"
    storage_for(location).mkdir(location)
    put(made.location, location)
    sds, tbls = lab.services.database.schema.sds, lab.services.database.schema.tbls
    here = update(sds).where(sds.c.sd_id.in_(tbls.select().with_only_columns(tbls.c.sd_id).where(tbls.c.tbl_name == name)))
    lab.services.database.write(lambda connection: connection.execute(here.values({sds.c.location: location})))
    return made


def measure(*, say: bool = False) -> list[float]:
    """Seconds of each round."""
    with harness.scratch() as folder:
        for name in ("hdfs", "yarn", "lab"):
            (folder / name).mkdir()
        with HadoopServer("hdfs", folder / "hdfs", 1) as hdfs, yarn.running(folder / "yarn", hdfs) as server:
            os.environ["HADOOP_CONF_DIR"] = str(server.conf)
            options = Hdfs(conf_dir=server.conf)
            configure(StorageOptions(hdfs=options))
            top = f"{hdfs.root}/warehouse"
            with Lab(folder / "lab", hdfs=options, spark={"master": "yarn", "queue": "default", "conf": yarn.SMALL | WARM}) as lab:
                lab.warm_up()
                lab.compact(table(lab, "first", top))
                took = []
                for number in range(ROUNDS):
                    made = table(lab, f"t{number}", top)
                    watch = Stopwatch()
                    lab.services.steps = type(lab.services.steps)([watch])
                    took.append(harness.seconds(lambda made=made: lab.compact(made)))  # type: ignore[misc]
                    if say:
                        sys.stderr.write(f"{took[-1]:.2f} s: {watch.line()}\n")
                return took


def run() -> list[harness.Result]:
    """The bar."""
    took = measure()
    detail = f"median of {ROUNDS}, longest {max(took):.2f} s; one executor kept, one DataNode, all on this machine"
    return [harness.at_most("warm_yarn", statistics.median(took), 5, "s", detail)]


if __name__ == "__main__":
    measure(say=True)
