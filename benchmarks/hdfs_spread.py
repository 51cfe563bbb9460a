"""
A large file on HDFS that many tasks write: 2 GB in one bucket that nothing hits, with two DataNodes.

Every step is measured alone, one task after the other, and the time on many cores is counted from that for a terabyte:
the layout of a file with as many stripes, the pieces (each core takes the next one), concat (its time a file), and
Spark's time a job. Against it stands what one task took for its bytes, divided by the cores.
"""

import heapq
import pickle
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks import harness, tables
from benchmarks.hdfs_untouched import move, upload
from benchmarks.lab import Lab
from compactor.acid.row_id import RowKey
from compactor.engine.compaction import Compaction
from compactor.engine.output_format import output_format
from compactor.engine.tasks.layout import Layout
from compactor.orc.format.proto import orc_pb2
from compactor.orc.format.tail import Tail, read_tail
from compactor.orc.writing.splice import Splicer
from compactor.planning import document
from compactor.settings.stores import Hdfs
from compactor.spark.concat import Concat, HdfsConcat
from compactor.spark.results import run_partition
from compactor.spark.submitter import JobName, Submitter
from compactor.storage.local_fs.driver import LocalStorage
from compactor.storage.location import join
from compactor.storage.registry import StorageOptions, configure, storage_for
from tests.cluster.hadoop.servers import HadoopServer
from tests.compacting import Attempt, NothingRuns, settings

BYTES = 2 << 30
TERABYTE = 1 << 40
STRIPE = 64 << 20
CORES = (16, 100)
ROUNDS = 3
FILES = 300
"""Put together to see what a file of a concat costs."""


class Timed(NothingRuns):  # type: ignore[misc]  # the tests' classes have no types
    """Runs tasks here, one by one, and HDFS' concat where Spark's driver is; the seconds of each, by function."""

    def __init__(self, spark: Submitter) -> None:
        self.seconds: defaultdict[str, list[float]] = defaultdict(list)
        self._spark = spark

    def run(
        self,
        job: JobName,
        function: Callable[[Any], Any],
        given: Sequence[Any],
        *,
        progress: Callable[[float], None] = lambda _: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> list[Any]:
        """As `Submitter.run`."""
        if isinstance(function, HdfsConcat):
            begin = time.perf_counter()
            answers = self._spark.run(job, function, given, progress=progress, cancelled=cancelled)
            self.seconds["concat"].append(time.perf_counter() - begin)
            return answers
        results = []
        for task in given:
            begin = time.perf_counter()
            (result,) = run_partition(function, [pickle.loads(pickle.dumps(task))])
            kind = "layout" if isinstance(result, Layout) else function.__name__
            self.seconds[kind].append(time.perf_counter() - begin)
            if isinstance(result, BaseException):
                raise result
            results.append(result)
        return results


def double(number: int) -> int:
    """Nothing to speak of, as a task."""
    return 2 * number


def on_cores(pieces: Sequence[float], count: int, cores: int) -> float:
    """Seconds until so many pieces are written, the measured ones again and again."""
    free = [0.0] * cores
    for seconds in islice(cycle(pieces), count):
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


def many_stripes(path: Path, folder: Path) -> None:
    """A file of as many stripes as a terabyte has, of ten rows each; no reader could read it, for they are all alike."""
    one, storage, columns = folder / "one.orc", LocalStorage(), tuple(tables.RANDOM.columns)
    tables.write_raw(one, 10, 1)
    with storage.open_read(str(one)) as reader, storage.create(str(path)) as sink:
        tail = read_tail(reader)
        splicer = Splicer(sink, output_format(columns, document.FormatSpec(codec="none", stride=tail.stride)))
        for number in range(TERABYTE // STRIPE):
            metadata = orc_pb2.Metadata()
            metadata.CopyFrom(tail.metadata)
            ids = metadata.stripe_stats[0].columns[4].integers
            ids.minimum, ids.maximum, ids.sum = 10 * number, 10 * number + 9, 100 * number + 45
            shown = Tail(tail.name, tail.postscript, tail.footer, metadata, tail.length)
            splicer.add_stripe(reader, shown, 0, RowKey(1, tables.BUCKET_PROPERTY, ids.maximum))
        splicer.finish("insert")


def concat_seconds(lab: Lab, location: str) -> float:
    """Seconds of concat for one file more."""
    storage, names = storage_for(location), [f"f{number:05d}" for number in range(FILES)]
    storage.mkdir(location)
    with ThreadPoolExecutor(storage.side_by_side) as pool:
        list(pool.map(lambda name: storage.write_small(join(location, name), b"0"), names))
    paths = [join(location, name) for name in names]

    def once(part: Sequence[str]) -> float:
        task = Concat(part[0], tuple(part[1:]), len(part))
        return harness.seconds(
            lambda: lab.services.submitter.run(
                JobName("bench", "concat"), HdfsConcat(), [task], progress=lambda _: None, cancelled=lambda: False
            )
        )

    once(paths[:2])
    few = once(paths[2:4])
    return max(0.0, once(paths[4:]) - few) / (FILES - 6)


def measure(size: int) -> list[harness.Result]:
    """A bar for each number of cores."""
    with harness.scratch() as folder, HadoopServer("hdfs", folder / "hdfs", 2) as server:
        options = Hdfs(conf_dir=server.conf)
        (folder / "lab").mkdir()
        local = folder / "lab" / "source.orc"
        tables.write_raw(local, size // tables.ROW_BYTES, 1)
        configure(StorageOptions(hdfs=options))
        top = f"{server.root}/warehouse"
        storage = storage_for(top)
        upload(local, join(top, local.name))
        with Lab(folder / "lab", hdfs=options) as lab:
            lab.warm_up()

            def no_work() -> object:
                return lab.services.submitter.run(
                    JobName("bench", "job"), double, range(2), progress=lambda _: None, cancelled=lambda: False
                )

            job = sorted(harness.seconds(no_work) for _ in range(ROUNDS))[ROUNDS // 2]
            file = concat_seconds(lab, f"{top}/files")

            def staged(name: str, source: Path, least: int, **sections: Any) -> dict[str, list[float]]:
                table, location = lab.table(name, source), f"{top}/{name}"
                move(lab, table, location, join(top, source.name))
                with mock.patch.object(document, "SPREAD_BYTES", least):
                    timed = Timed(lab.services.submitter)
                    request = Attempt(lab.warehouse, table, attempt=name, submitter=timed).request
                    one = Compaction(replace(request, location=location), storage, timed, settings(**sections))
                    one.stage(one.plan(one.observe()))
                storage.delete_tree(location)
                shutil.rmtree(table.location)
                return dict(timed.seconds)

            rounds = [(staged(f"alone{n}", local, 1 << 60), staged(f"many{n}", local, 1 << 30)) for n in range(ROUNDS)]
            stripes = folder / "lab" / "stripes.orc"
            many_stripes(stripes, folder)
            upload(stripes, f"{top}/{stripes.name}")
            (layout,) = staged("stripes", stripes, 1, splice={"min_stripe_bytes": 1})["layout"]
        alone = sorted(sum(one["run_task"]) for one, _ in rounds)[ROUNDS // 2]
        many = sorted((many for _, many in rounds), key=lambda one: sum(one["write_piece"]))[ROUNDS // 2]
    speed = size / alone
    pieces = TERABYTE // document.PIECE_BYTES
    results = []
    for cores in CORES:
        path = 3 * job + layout + on_cores(many["write_piece"], pieces, cores) + 2 * job + pieces * file
        ideal = TERABYTE / (cores * speed)
        detail = (
            f"{path:.0f} s for a terabyte on {cores} cores against {ideal:.0f} s; one task: {speed / 1e6:.0f} MB/s; layout "
            f"{layout:.1f} s, concat {pieces * file:.2f} s, a job {job:.2f} s"
        )
        results.append(harness.at_most(f"hdfs_spread/{cores}", path / ideal, 2, "x ideal time", detail))
    return results


def run(size: int = BYTES) -> list[harness.Result]:
    """Measure the bars."""
    return measure(size)
