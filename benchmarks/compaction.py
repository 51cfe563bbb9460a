"""
Measures compactions in a process of its own, and prints the figures as JSON.

    python -m benchmarks.compaction copy FOLDER ROWS SHARE ROUNDS
        seconds of a major compaction with SHARE of the stripes hit, against cp and fsync
    python -m benchmarks.compaction recode FOLDER ROWS ROUNDS CODEC EVERY
        CPU of a major compaction with every stripe hit, against Arrow reading and writing; each EVERYth row is
        deleted, and if EVERY is 0, one in each stripe
    python -m benchmarks.compaction digest FOLDER ROWS ROUNDS CONTENT
        CPU of the same with and without verifying values
    python -m benchmarks.compaction once FOLDER FILE CORES EVERY
        seconds of one major compaction of FILE with every stripe hit, and peak memory of a Python worker
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import dataset, orc
from pyarrow.fs import LocalFileSystem

from benchmarks import processes, tables
from benchmarks.harness import alternate, seconds
from benchmarks.lab import Lab


def stripe_starts(path: Path) -> list[int]:
    """Row number of the first row of each stripe."""
    file = orc.ORCFile(path)
    starts, position = [], 0
    for stripe in range(file.nstripes):
        starts.append(position)
        position += len(file.read_stripe(stripe, columns=["rowId"]))
    return starts


def hit(path: Path, share: float) -> list[int]:
    """Row ids of one row in each stripe to be hit, evenly spread; at least one when `share` is above 0."""
    starts = stripe_starts(path)
    count = 0 if share == 0 else max(1, -(-len(starts) * share // 1))
    step = max(1, len(starts) // int(count)) if count else 1
    return [start + 1000 for start in starts[::step][: int(count)]]


def deleted(path: Path, every: int) -> list[int]:
    """Row ids of each so-many-th row; of one in each stripe if `every` is 0."""
    return list(range(0, orc.ORCFile(path).nrows, every)) if every else hit(path, 1)


def settle() -> None:
    """Write all dirty pages to disk, so that no round pays for the writes of the round before."""
    os.sync()


def copied(source: Path, target: Path) -> float:
    """Seconds of `cp` and fsync of the same bytes."""
    settle()
    begin = time.perf_counter()
    subprocess.run(["cp", "--reflink=never", source, target], check=True)
    descriptor = os.open(target, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
    took = time.perf_counter() - begin
    target.unlink()
    return took


def copy(folder: Path, rows: int, share: float, rounds: int) -> dict[str, float]:
    source = folder / "source.orc"
    tables.write_raw(source, rows, 1)
    row_ids = hit(source, share)
    with Lab(folder) as lab:
        lab.warm_up()
        numbers = iter(range(rounds))

        def ours() -> float:
            table = lab.table(f"t{next(numbers)}", source, row_ids)
            settle()
            took = seconds(lambda: lab.compact(table))
            for directory in table.location.glob("base_*"):
                subprocess.run(["rm", "-rf", directory], check=True)
            return took

        peer, mine = alternate(lambda: copied(source, folder / "copy"), ours, rounds)
    return {
        "peer": peer,
        "ours": mine,
        "bytes": source.stat().st_size,
        "stripes": orc.ORCFile(source).nstripes,
        "hit": len(row_ids),
    }


def arrow(source: Path, target: Path, row_ids: list[int], codec: str) -> float:
    """CPU of reading all rows, dropping the deleted ones and writing the rest, stripe by stripe, in this process."""
    gone = pa.array(row_ids)

    def work() -> None:
        file = orc.ORCFile(source)
        with orc.ORCWriter(
            str(target),
            compression=codec,
            compression_block_size=256 << 10,
            dictionary_key_size_threshold=0.8,
            batch_size=16_384,
        ) as writer:
            for stripe in range(file.nstripes):
                batch = file.read_stripe(stripe)
                writer.write(pa.Table.from_batches([batch]).filter(pc.invert(pc.is_in(batch.column("rowId"), gone))))

    begin = time.process_time()
    work()
    return time.process_time() - begin


def recode(folder: Path, rows: int, rounds: int, codec: str, every: int) -> dict[str, float]:
    source = folder / "source.orc"
    tables.write_raw(source, rows, 1, codec)
    row_ids = deleted(source, every)
    with Lab(folder) as lab:
        lab.warm_up()
        numbers = iter(range(rounds))

        def ours() -> float:
            table = lab.table(f"t{next(numbers)}", source, row_ids)
            with processes.Meter(os.getpid()) as meter:
                lab.compact(table)
            return meter.seconds

        peer, mine = alternate(lambda: arrow(source, folder / "copy", row_ids, codec), ours, rounds)
    return {"peer": peer, "ours": mine, "bytes": source.stat().st_size, "stripes": len(stripe_starts(source))}


def read(source: Path) -> float:
    """CPU of reading a file's values once with Arrow, in batches: any check of the values needs at least this."""
    begin = time.process_time()
    fragment = dataset.OrcFileFormat().make_fragment(str(source), filesystem=LocalFileSystem())
    for _ in fragment.to_batches(batch_size=1 << 16, batch_readahead=1, fragment_readahead=0, use_threads=False):
        pass
    return time.process_time() - begin


def digest(folder: Path, rows: int, rounds: int, content: tables.Content) -> dict[str, float]:
    source = folder / "source.orc"
    tables.write_raw(source, rows, 1, "zlib", content=content)
    row_ids = hit(source, 1)
    with Lab(folder, content=content) as lab:
        lab.warm_up()
        numbers = iter(range(2 * rounds))

        def compacted(*, verify_values: bool) -> float:
            settings = lab.services.settings
            lab.services.settings = settings.model_copy(
                update={"recode": settings.recode.model_copy(update={"verify_values": verify_values})}
            )
            table = lab.table(f"t{next(numbers)}", source, row_ids)
            with processes.Meter(os.getpid()) as meter:
                lab.compact(table)
            return meter.seconds

        without, verified = alternate(
            lambda: compacted(verify_values=False), lambda: compacted(verify_values=True), rounds
        )
    return {
        "without": without,
        "with": verified,
        "read": read(source),
        "bytes": source.stat().st_size,
        "stripes": len(row_ids),
    }


def once(folder: Path, source: Path, cores: int, every: int) -> dict[str, float]:
    row_ids = deleted(source, every)
    with Lab(folder, cores) as lab:
        lab.warm_up()
        table = lab.table("t", source, row_ids)
        took = seconds(lambda: lab.compact(table))
        return {
            "seconds": took,
            "peak": processes.python_workers_peak(os.getpid()),
            "bytes": source.stat().st_size,
        }


def main() -> None:
    kind, folder, *rest = sys.argv[1:]
    with tempfile.TemporaryDirectory(dir=folder) as work:
        root = Path(work)
        match kind:
            case "copy":
                answer = copy(root, int(rest[0]), float(rest[1]), int(rest[2]))
            case "recode":
                answer = recode(root, int(rest[0]), int(rest[1]), rest[2], int(rest[3]))
            case "digest":
                answer = digest(root, int(rest[0]), int(rest[1]), getattr(tables, rest[2]))
            case "once":
                answer = once(root, Path(rest[0]), int(rest[1]), int(rest[2]))
            case _:
                raise SystemExit(f"no measurement named {kind}")
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
