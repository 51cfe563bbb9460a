"""
The results that tasks report, and the result of a whole run.

Values only: they travel from executors to the worker, so all their fields are plain values.

Also the manifest of a staged directory, which is compared with the directory found after publishing, and the marker
files beside its data.
Source: docs/layout.md; Hive's OrcAcidVersion, AcidUtils.MetaDataFile.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from compactor.acid.compaction import LayoutVersion
from compactor.acid.listing import FileEntry, Listing
from compactor.acid.names import (
    METADATA_FILE,
    METADATA_FILE_CONTENT,
    ORIGINALS_FILE,
    VERSION_FILE,
    VERSION_FILE_CONTENT,
    DirKind,
)
from compactor.acid.originals import encode_originals
from compactor.acid.row_id import RowKey
from compactor.orc.digests.digest import NO_DIGEST, Digest
from compactor.planning.document import EVERY_FILE, CompactionPlan, FileRole


def markers_of(plan: CompactionPlan, directory: str) -> Mapping[str, bytes]:
    """
    Name and content of each marker of one output directory.

    The version file is always made, so that an empty directory is seen on every store. On 3.1 a base also has a file
    that marks it as compacted. A base of original files lists them: the Cleaner removes only originals in such a list.
    """
    markers = {VERSION_FILE: VERSION_FILE_CONTENT}
    if plan.output(directory).kind is not DirKind.BASE:
        return markers
    if plan.layout is LayoutVersion.HIVE_3:
        markers[METADATA_FILE] = METADATA_FILE_CONTENT
    originals = [
        FileEntry(file.path, file.length, file.mtime_ms, file.version)
        for file in plan.inputs
        if file.role is FileRole.ORIGINAL
    ]
    if originals:
        markers[ORIGINALS_FILE] = encode_originals(originals)
    return markers


@dataclass(frozen=True, slots=True)
class Manifest:
    """
    A directory as it was staged; the directory found after the rename must equal it. Its files have no times: publishing
    may change them.
    """

    directory: str
    kind: DirKind
    files: tuple[FileEntry, ...]

    @property
    def bytes(self) -> int:
        return sum(file.length for file in self.files)


def files_below(listing: Listing, directory: str) -> tuple[FileEntry, ...]:
    """The files of a listing below one of its directories (empty: its top), with paths relative to that, ascending."""
    prefix = f"{directory}/" if directory else ""
    return tuple(
        FileEntry(entry.path.removeprefix(prefix), entry.length)
        for entry in sorted(listing.files)
        if entry.path.startswith(prefix)
    )


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Rows read from the inputs, by how they were treated: `read` = `written` + `deleted` + `aborted`."""

    read: int = 0
    written: int = 0
    deleted: int = 0
    aborted: int = 0

    def __add__(self, other: "RowCounts") -> "RowCounts":
        return RowCounts(
            self.read + other.read,
            self.written + other.written,
            self.deleted + other.deleted,
            self.aborted + other.aborted,
        )

    @property
    def balanced(self) -> bool:
        return self.read == self.written + self.deleted + self.aborted


@dataclass(frozen=True, slots=True)
class Origin:
    """
    The origin of one or more neighbouring stripes of an output file.

    Args:
        path: the input whose stripe was copied as bytes; None for recoded stripes.
        stripe: the stripe's number in that input; -1 for recoded stripes.
        count: number of these stripes in the output file (1 for a copied one). For recoded stripes it is the number of
            rows until `counted` replaces it.
        checksum: CRC-32 of a recoded stripe out of which rows were cut; None for all others.
        hit_by: of recoded stripes the delete files that may have events of their rows, as in `Segment.hit_by`.
    """

    path: str | None
    stripe: int
    count: int
    checksum: int | None = None
    hit_by: int = EVERY_FILE


def counted(origins: Sequence[Origin], stripe_rows: Sequence[int]) -> tuple[Origin, ...]:
    """Replace the row count of each recoded origin by the number of stripes that hold these rows."""
    stripes = []
    at = 0
    for origin in origins:
        start, rows = at, 0
        while origin.path is None and rows < origin.count:
            rows += stripe_rows[at]
            at += 1
        at += origin.path is not None
        if at > start:
            stripes.append(replace(origin, count=at - start))
    return tuple(stripes)


@dataclass(frozen=True, slots=True)
class OutputFile:
    """
    One file that a task has finished.

    Args:
        path: relative to the staging directory; empty when the file has no rows and isn't published.
        directory, name: the output directory, and the name there.
        checksum: CRC-32 of the last 64 KiB.
        rows: how the inputs' rows were treated; for delete deltas `read` counts distinct events.
        copied_bytes, recoded_bytes: bytes of the inputs' stripes that were copied, and recoded.
        digest: digest of the rows of the stripes that were encoded anew, as they were read from the inputs; without
            columns where values aren't verified.
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
    digest: Digest = NO_DIGEST


@dataclass(frozen=True, slots=True)
class Checked:
    """
    What the check of some stripes of a file found.

    Args:
        digest: digest of the recoded stripes that were read; without columns where the file's task made no digest.
        wrong: the first difference, where the file was checked by the task that wrote it; None: there is none.
    """

    directory: str
    name: str
    digest: Digest = NO_DIGEST
    wrong: str | None = None


@dataclass(frozen=True, slots=True)
class Staged:
    """
    The result of a plan in the staging directory: not verified, not visible.

    Args:
        plan: as it was executed.
        files: the accepted files, moved to their places, without markers.
        empty: the results for buckets without remaining rows; these have no file.
        checked: what the tasks that wrote the files found when they read them again; None: that is still to be done.
    """

    plan: CompactionPlan
    files: tuple[OutputFile, ...]
    directories: tuple[str, ...]
    empty: tuple[OutputFile, ...] = ()
    checked: tuple[Checked, ...] | None = None

    @property
    def copied_bytes(self) -> int:
        """Bytes of the inputs' stripes, or whole files, that were copied."""
        return sum(file.copied_bytes for file in self.files)

    @property
    def recoded_bytes(self) -> int:
        """Bytes of the inputs' stripes that were recoded."""
        return sum(file.recoded_bytes for file in self.files)

    @property
    def bytes(self) -> int:
        """Bytes of the files."""
        return sum(file.length for file in self.files)

    @property
    def rows(self) -> RowCounts:
        return sum((file.rows for file in self.files + self.empty), RowCounts())
