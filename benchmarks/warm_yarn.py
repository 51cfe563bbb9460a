"""
One compaction of 10 KB on YARN and HDFS in a warm session, and in a session that isn't warm: from `enqueue` until the
entry is ready for cleaning, with the time of each step.
"""

import os
import statistics
import sys
import time
from dataclasses import dataclass

from sqlalchemy import update

from benchmarks import harness
from benchmarks.lab import DATABASE, Lab
from compactor.settings.stores import Hdfs
from compactor.storage.registry import StorageOptions, configure, storage_for
from tests.cluster import yarn
from tests.cluster.hadoop.servers import HadoopServer
from tests.cluster.mirror import put
from tests.demo.tables import DemoTable

ROUNDS = 5
FILES, ROWS = 5, 60
COLD_ROUNDS = 2
HERE = {"spark.executor.cores": "2", "spark.driver.host": "127.0.0.1"}
WARM = HERE | {"spark.dynamicAllocation.minExecutors": "1"}
"""
One executor stays, which makes the session warm (docs/spark.md). The rest is as delivered, but for the memory of a
small machine.
"""
COLD = HERE | {"spark.dynamicAllocation.executorIdleTimeout": "5s"}
"""No executor stays, as delivered; but here executors end after 5 s without a task instead of a minute."""


class Stopwatch:
    """Notes when the compaction passes each step."""

    def __init__(self) -> None:
        self.passed: list[tuple[str, float]] = []

    def __call__(self, step: str, _: object) -> None:
        self.passed.append((step, time.perf_counter()))

    def line(self) -> str:
        """Seconds of each step."""
        pairs = zip(self.passed, self.passed[1:], strict=False)
        return ", ".join(f"{after[0].partition('.')[2]} {after[1] - before[1]:.2f}" for before, after in pairs)


def table(lab: Lab, name: str, top: str) -> DemoTable:
    """Make a table on HDFS: 10 KB in five deltas and a delete delta."""
    made = lab.warehouse.create_table(DATABASE, name, [("id", "int"), ("v", "string")])
    for number in range(FILES):
        with lab.warehouse.begin() as txn:
            txn.insert(
                made,
                [(number * ROWS + i, f"{(number * ROWS + i) * 2654435761 % (1 << 64):016x}" * 2) for i in range(ROWS)],
            )
    with lab.warehouse.begin() as txn:
        txn.delete(made, lambda row: row[0] % 50 == 0)
    location = f"{top}/{name}"
    storage_for(location).mkdir(location)
    put(made.location, location)
    sds, tbls = lab.services.database.schema.sds, lab.services.database.schema.tbls
    here = update(sds).where(
        sds.c.sd_id.in_(tbls.select().with_only_columns(tbls.c.sd_id).where(tbls.c.tbl_name == name))
    )
    lab.services.database.write(lambda connection: connection.execute(here.values({sds.c.location: location})))
    lab.allow(location)
    return made


@dataclass(frozen=True, slots=True)
class Measured:
    """
    Seconds of each round.

    Args:
        warm: an executor waits.
        cold: the session is there, but no executor.
        first: the session isn't there either.
    """

    warm: list[float]
    cold: list[float]
    first: float


def until_no_executor(server: yarn.Yarn) -> None:
    """Wait until the session's application has only the container of its application master."""
    while [one for one in server.applications() if one.state == "RUNNING" and one.containers != "1"]:
        time.sleep(0.2)


def measure(*, say: bool = False) -> Measured:
    """Measure on a cluster whose servers all run on this machine."""
    with harness.scratch() as folder:
        for name in ("hdfs", "yarn", "warm", "cold"):
            (folder / name).mkdir()
        with HadoopServer("hdfs", folder / "hdfs", 1) as hdfs, yarn.running(folder / "yarn", hdfs) as server:
            os.environ["HADOOP_CONF_DIR"] = str(server.conf)
            options = Hdfs(conf_dir=server.conf)
            configure(StorageOptions(hdfs=options))
            top = f"{hdfs.root}/warehouse"
            spark = {"master": "yarn", "queue": "default"}
            with Lab(folder / "warm", hdfs=options, spark=spark | {"conf": yarn.SMALL | WARM}) as lab:
                lab.warm_up()
                lab.compact(table(lab, "first", top))
                warm = [one(lab, table(lab, f"t{number}", top), say=say) for number in range(ROUNDS)]
            with Lab(folder / "cold", hdfs=options, spark=spark | {"conf": yarn.SMALL | COLD}) as lab:
                first = one(lab, table(lab, "c0", top), say=say)
                cold = []
                for number in range(1, COLD_ROUNDS + 1):
                    made = table(lab, f"c{number}", top)
                    until_no_executor(server)
                    cold.append(one(lab, made, say=say))
            return Measured(warm, cold, first)


def one(lab: Lab, made: DemoTable, *, say: bool) -> float:
    """Seconds of one compaction."""
    watch = Stopwatch()
    lab.services.steps = type(lab.services.steps)([watch])
    took = harness.seconds(lambda: lab.compact(made))
    if say:
        sys.stderr.write(f"{took:.2f} s: {watch.line()}\n")
    return took


def run() -> list[harness.Result]:
    """Measure the bar."""
    took = measure()
    detail = f"median of {ROUNDS}, longest {max(took.warm):.2f} s; one executor kept, one DataNode, all on this machine"
    detail += (
        f"; {statistics.median(took.cold):.1f} s where the executors had gone, {took.first:.1f} s where the session had"
    )
    return [harness.at_most("warm_yarn", statistics.median(took.warm), 5, "s", detail)]


if __name__ == "__main__":
    measure(say=True)
