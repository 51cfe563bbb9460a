"""
Joining ORC files of an insert-only table: 2 GB in 64 files, in stripes that are copied, against Arrow's reading and writing.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyarrow import orc as arrow_orc

from benchmarks import harness, tables
from compactor.orc.format.tail import read_tail
from compactor.orc.joining import Piece, check, join
from compactor.storage.local_fs.files import LocalReader, LocalWriter

FILES, FILE_BYTES, TOGETHER = 64, 32 << 20, 8
OPTIONS = {"compression": "zlib", "compression_block_size": 256 << 10, "dictionary_key_size_threshold": 0.8}


def make(folder: Path) -> None:
    """One file of about 32 MB by Arrow, in stripes of 8 to 32 MB, under 64 names."""
    first, names = folder / "000000_0", [name for name, _ in tables.ORDINARY.columns]
    with arrow_orc.ORCWriter(str(first), stripe_size=64 << 20, **OPTIONS) as writer:
        for batch in tables.batches(1 << 22, 1, content=tables.ORDINARY):
            writer.write(pa.Table.from_arrays(batch.column(5).flatten(), names=names))
            if first.stat().st_size >= FILE_BYTES:
                break
    for number in range(1, FILES):
        os.link(first, folder / f"{number:06}_0")


def joined(paths: list[Path], target: Path, *, recode: bool = False) -> None:
    """Join some files as the compactor does, by copying stripes or encoding them anew, and check the result."""
    readers = [LocalReader(str(path)) for path in paths]
    tails = [read_tail(reader) for reader in readers]
    pieces = [
        Piece(reader, tail, tuple(range(len(tail.stripes))), recode)
        for reader, tail in zip(readers, tails, strict=True)
    ]
    with LocalWriter(str(target)) as sink:
        made = join(pieces, sink, stripe_bytes=64 << 20, digests=True)
    result = LocalReader(str(target))
    check(result, pieces, made)
    for reader in (*readers, result):
        reader.close()


def rewritten(paths: list[Path], target: Path) -> None:
    """What Arrow makes of the same."""
    with arrow_orc.ORCWriter(str(target), stripe_size=64 << 20, **OPTIONS) as writer:
        for path in paths:
            file = arrow_orc.ORCFile(path)
            for stripe in range(file.nstripes):
                writer.write(pa.Table.from_batches([file.read_stripe(stripe)]))


def run() -> list[harness.Result]:
    """Measure the bar."""
    with harness.scratch() as folder:
        source = folder / "source"
        source.mkdir()
        make(source)
        paths = sorted(source.iterdir())
        groups = [paths[at : at + TOGETHER] for at in range(0, FILES, TOGETHER)]

        def cpu(work: Callable[[list[Path], Path], None]) -> float:
            begin = time.process_time()
            for number, group in enumerate(groups):
                target = folder / f"{number:06}_0"
                target.unlink(missing_ok=True)
                work(group, target)
            return time.process_time() - begin

        peer, ours = harness.alternate(lambda: cpu(rewritten), lambda: cpu(joined))
        size = sum(path.stat().st_size for path in paths)
        stripes = len(read_tail(LocalReader(str(paths[0]))).stripes)
    detail = f"{size / 1e9:.1f} GB in {FILES} files of {stripes} stripes to {len(groups)}: {ours:.2f} s against Arrow's {peer:.2f} s of CPU"
    return [harness.at_least("orc_joining", peer / max(ours, 0.01), 6, "x less CPU", detail)]
