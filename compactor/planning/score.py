"""
How urgent a compaction is: bytes a reader is spared per byte we write.

Pure. A reader pays for every byte of rows, for every file it opens, and once for the delete events per directory it merges them into. The figures order
partitions among each other; they promise no time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from compactor.acid.compaction import CompactionKind
from compactor.acid.listing import FileEntry
from compactor.acid.names import parse_bucket_file, parse_original_file

OPENING_BYTES: Final = 1 << 20
"""Opening a file and reading its tail costs a reader about as much as this many bytes of rows."""


@dataclass(frozen=True, slots=True)
class Load:
    """
    What a reader of the whole partition must do.

    Args:
        files: files to open.
        row_bytes: bytes of base, original files and insert deltas.
        delete_bytes: bytes of delete deltas.
        merges: directories with rows that delete events are merged into.
    """

    files: int
    row_bytes: int
    delete_bytes: int
    merges: int

    @property
    def cost(self) -> int:
        return self.row_bytes + self.delete_bytes * max(1, self.merges) + self.files * OPENING_BYTES


def score(kind: CompactionKind, under: Sequence[FileEntry], inserts: Sequence[Sequence[FileEntry]], deletes: Sequence[Sequence[FileEntry]]) -> float:
    """
    Bytes spared per byte written; never negative.

    Args:
        kind: major or minor.
        under: files of the base, or original files.
        inserts: files of each insert delta that would be taken.
        deletes: files of each delete delta that would be taken.
    """
    inserted = [f for files in inserts for f in files]
    deleted = [f for files in deletes for f in files]
    before = Load(len(under) + len(inserted) + len(deleted), _bytes(under) + _bytes(inserted), _bytes(deleted), len(inserts) + bool(under))
    if kind is CompactionKind.MINOR:
        files = len(under) + _buckets(inserted) + _buckets(deleted)
        after = Load(files, before.row_bytes, before.delete_bytes, bool(inserts) + bool(under))
        written = _bytes(inserted) + _bytes(deleted)
    else:
        after = Load(_buckets([*under, *inserted]), before.row_bytes, 0, 1)
        written = before.row_bytes
    return max(0, before.cost - after.cost) / max(1, written)


def _bytes(files: Iterable[FileEntry]) -> int:
    return sum(f.length for f in files)


def _buckets(files: Iterable[FileEntry]) -> int:
    """Files a compaction makes of these: one a bucket; a name that tells none counts as its own."""
    return len({_bucket(f) for f in files})


def _bucket(entry: FileEntry) -> int | str:
    if (bucket := parse_bucket_file(entry.name)) is not None:
        return bucket.bucket
    original = parse_original_file(entry.name)
    return entry.path if original is None else original.bucket
