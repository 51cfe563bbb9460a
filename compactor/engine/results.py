"""
What tasks report and a run ends with.

Values only: they travel from executors to the worker, so everything in them is a plain value.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from compactor.acid.names import DirKind
from compactor.acid.row_id import RowKey
from compactor.orc.digest import NO_DIGEST, Digest
from compactor.planning.document import Action


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Rows of the inputs and what became of them: `read` = `written` + `deleted` + `aborted`."""

    read: int = 0
    written: int = 0
    deleted: int = 0
    aborted: int = 0

    def __add__(self, other: "RowCounts") -> "RowCounts":
        return RowCounts(self.read + other.read, self.written + other.written, self.deleted + other.deleted, self.aborted + other.aborted)

    @property
    def balanced(self) -> bool:
        return self.read == self.written + self.deleted + self.aborted


@dataclass(frozen=True, slots=True)
class Origin:
    """
    Where neighbouring stripes of an output file come from.

    Args:
        path: the input whose stripe was copied as bytes; None for recoded ones.
        stripe: its number in that input.
        count: stripes of the output file that this stands for (1 for a copied one).
    """

    path: str | None
    stripe: int
    count: int


def counted(origins: Sequence[Origin], stripe_rows: Sequence[int]) -> tuple[Origin, ...]:
    """Turn the rows of recoded parts into the stripes that hold them."""
    stripes = []
    at = 0
    for origin in origins:
        start, rows = at, 0
        while origin.path is None and rows < origin.count:
            rows += stripe_rows[at]
            at += 1
        at += origin.path is not None
        if at > start:
            stripes.append(Origin(origin.path, origin.stripe, at - start))
    return tuple(stripes)


@dataclass(frozen=True, slots=True)
class OutputFile:
    """
    One file that a task has finished.

    Args:
        path: relative to the staging directory.
        directory, name: where it belongs.
        checksum: CRC-32 of its last 64 KiB.
        rows: what became of the inputs' rows; for delete deltas `read` counts distinct events.
        copied_bytes, recoded_bytes: of the inputs' stripes.
        probed: what became of the stripes that this task had to look at.
        digest: of the rows of its recoded stripes, as they were read from the inputs; without columns where values aren't verified.
    """

    path: str
    directory: str
    kind: DirKind
    name: str
    bucket: int
    length: int
    checksum: int
    rows: RowCounts = RowCounts()
    stripes: int = 0
    first: RowKey | None = None
    last: RowKey | None = None
    origins: tuple[Origin, ...] = ()
    copied_bytes: int = 0
    recoded_bytes: int = 0
    probed: tuple[Action, ...] = ()
    digest: Digest = NO_DIGEST


@dataclass(frozen=True, slots=True)
class StagedResult:
    """
    A finished run, not yet visible.

    Args:
        files: accepted and moved to their places, without markers.
        empty: of buckets whose rows are all gone; they have no file.
        settled: how many stripes that had to be looked at were (copied, recoded).
    """

    files: tuple[OutputFile, ...]
    directories: tuple[str, ...]
    empty: tuple[OutputFile, ...] = ()
    settled: tuple[int, int] = (0, 0)

    @property
    def copied_bytes(self) -> int:
        return sum(file.copied_bytes for file in self.files)

    @property
    def recoded_bytes(self) -> int:
        return sum(file.recoded_bytes for file in self.files)

    @property
    def bytes(self) -> int:
        """Of its files."""
        return sum(file.length for file in self.files)

    @property
    def rows(self) -> RowCounts:
        return sum((file.rows for file in self.files + self.empty), RowCounts())
