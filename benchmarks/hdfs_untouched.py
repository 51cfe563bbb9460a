"""
A major compaction of untouched data on HDFS: 2 GB in one bucket, from claim to commit, against copying the same file by
the same client.
"""

import shutil
import sys
from functools import partial
from itertools import count
from pathlib import Path

from sqlalchemy import update

from benchmarks import harness, tables
from benchmarks.lab import Lab
from compactor.settings.stores import Hdfs
from compactor.storage.location import join
from compactor.storage.registry import StorageOptions, configure, storage_for
from tests.cluster.hadoop.servers import HadoopServer
from tests.cluster.mirror import put
from tests.demo.tables import DemoTable

BYTES = 2 << 30
ROUNDS = 3


def move(lab: Lab, table: DemoTable, location: str, source: str) -> None:
    """Move a table to HDFS: its large file is copied from `source` on HDFS, all other files from this machine."""
    (large,) = (path for path in table.location.rglob("bucket_*") if path.stat().st_nlink > 1)
    large.unlink()
    storage = storage_for(location)
    storage.mkdir(location)
    put(table.location, location)
    storage.link_or_copy(source, join(location, str(large.relative_to(table.location))))
    sds, tbls = lab.services.database.schema.sds, lab.services.database.schema.tbls
    here = update(sds).where(
        sds.c.sd_id.in_(tbls.select().with_only_columns(tbls.c.sd_id).where(tbls.c.tbl_name == table.name))
    )
    lab.services.database.write(lambda connection: connection.execute(here.values({sds.c.location: location})))
    lab.allow(location)


def upload(path: Path, location: str) -> None:
    """Upload one large file in pieces."""
    with path.open("rb") as file, storage_for(location).create(location) as writer:
        for piece in iter(partial(file.read, 8 << 20), b""):
            writer.write(piece)


def measure(size: int) -> tuple[float, float]:
    """Median seconds of copying, and of compacting."""
    with harness.scratch() as folder, HadoopServer("hdfs", folder / "hdfs", 1) as server:
        options = Hdfs(conf_dir=server.conf)
        (folder / "lab").mkdir()
        local = folder / "lab" / "source.orc"
        tables.write_raw(local, size // tables.ROW_BYTES, 1)
        configure(StorageOptions(hdfs=options))
        top = f"{server.root}/warehouse"
        storage, source, numbers = storage_for(top), f"{top}/source.orc", count()
        upload(local, source)
        with Lab(folder / "lab", hdfs=options) as lab:
            lab.warm_up()

            def copied() -> float:
                took = harness.seconds(lambda: storage.link_or_copy(source, f"{top}/copy"))
                storage.delete_file(f"{top}/copy")
                return took

            def compacted() -> float:
                number = next(numbers)
                table = lab.table(f"t{number}", local)
                location = f"{top}/t{number}"
                move(lab, table, location, source)
                took = harness.seconds(lambda: lab.compact(table))
                storage.delete_tree(location)
                shutil.rmtree(table.location)
                return took

            return harness.alternate(copied, compacted, ROUNDS)


def run(size: int = BYTES) -> list[harness.Result]:
    """Measure the bar."""
    peer, ours = measure(size)
    detail = f"{size / 1e9:.1f} GB, one DataNode here: {ours:.2f} s against {peer:.2f} s of copying"
    return [harness.at_most("hdfs_untouched", ours / peer, 1.5, "x copy time", detail)]


if __name__ == "__main__":
    print(run(int(sys.argv[1]))[0].line())
