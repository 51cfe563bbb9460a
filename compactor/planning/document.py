"""
The plan of one compaction: a value that is carried out, and shown as a document of JSON's types, field by field.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import reduce
from operator import or_
from typing import Any, Final, Self

from compactor.acid.columns import ColumnRule
from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.acid.listing import FileEntry
from compactor.acid.names import DirKind
from compactor.acid.row_id import SyntheticIds

FORMAT = 1
"""The version of that document."""
EVENTS_AT_ONCE = 4_194_304
"""Delete events that a task holds in memory, unless limits say otherwise."""
EVERY_FILE: Final = -1
"""All bits: any of a bucket's delete files may have events of these rows."""


class Action(StrEnum):
    """
    How stripes reach the output: copied as bytes, decoded and written anew, or probed first for deleted rows to choose
    between the two.
    """

    COPY = "copy"
    RECODE = "recode"
    PROBE = "probe"


class Cut(StrEnum):
    """
    Whether the rows that go are cut out of stripes that would be encoded anew otherwise: never, where the task finds
    few enough of them, or surely, as far as tails tell. A probed stripe is copied where no row goes.
    """

    NO = "no"
    PERHAPS = "perhaps"
    YES = "yes"


class FileRole(StrEnum):
    """The meaning of an input file to a reader."""

    BASE = "base"
    DELTA = "delta"
    DELETE_DELTA = "delete-delta"
    ORIGINAL = "original"


@dataclass(frozen=True, slots=True)
class InputFile:
    """
    A file that the compaction reads. Publishing checks that the file is still there, with this length, time and
    version.

    Args:
        path: relative to the partition directory.
        directory: the ACID directory that holds the file; empty for original files.
        bucket: the number in the file's name.
        min_write_id, max_write_id: of the directory; a base holds 0 … N.
        may_hold_aborted: rows of aborted write ids may stand between valid ones. So in streaming deltas, and in
            compacted ones, because Hive's merge compaction joins files unchanged; readers leave such rows out of any
            delta.
        side_file: path of the file's `_flush_length` file when readers heed it, else None.
    """

    path: str
    length: int
    mtime_ms: int
    role: FileRole
    directory: str
    bucket: int
    min_write_id: int = 0
    max_write_id: int = 0
    statement_id: int = 0
    raw: bool = False
    may_hold_aborted: bool = False
    side_file: str | None = None
    logical_length: int | None = None
    rows: int = 0
    synthetic: SyntheticIds | None = None
    version: str = ""

    @classmethod
    def of(cls, entry: FileEntry, role: FileRole, directory: str, bucket: int, **facts: Any) -> Self:
        """A file of a listing, with what is known of it beside; the arguments are the fields."""
        return cls(entry.path, entry.length, entry.mtime_ms, role, directory, bucket, version=entry.version, **facts)

    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]:
        """Pickled by its fields alone: a plan may have 100,000 of them, and a dataclass with slots takes five times as long."""
        return type(self), tuple(getattr(self, name) for name in self.__slots__)

    @property
    def empty(self) -> bool:
        """Whether it has no bytes, which are no rows to readers."""
        return self.length == 0 and self.side_file is None


@dataclass(frozen=True, slots=True)
class Segment:
    """
    Neighbouring stripes of one file with one action.

    Args:
        chunk: segments with the same number are recoded together, in one task; -1 for COPY.
        reason: the cause of the action, in a few words.
        bytes: of the stripes in the source.
        events: delete events between the keys of the stripes.
        cut: how the stripes are recoded; NO for COPY.
        hit_by: the bucket's delete files that have events between the keys of the stripes, a bit each.
    """

    action: Action
    path: str
    stripes: tuple[int, ...]
    reason: str
    rows: int
    bytes: int
    chunk: int = -1
    events: int = 0
    cut: Cut = Cut.NO
    hit_by: int = EVERY_FILE


def all_hit_by(masks: Iterable[int]) -> int:
    """The delete files of several masks together."""
    return reduce(or_, masks, 0)


def chosen_by(mask: int, files: Sequence[InputFile]) -> list[InputFile]:
    """The delete files of a bucket whose bits are set."""
    return [file for number, file in enumerate(files) if mask >> number & 1]


def together(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    """The same stripes, with one segment where neighbours are of one file, treated alike, and their numbers ascend."""
    runs: list[list[Segment]] = []
    for segment in segments:
        last = runs[-1][-1] if runs else None
        if (
            last is not None
            and (last.action, last.path, last.reason, last.chunk, last.cut)
            == (segment.action, segment.path, segment.reason, segment.chunk, segment.cut)
            and last.stripes[-1:] < segment.stripes[:1]
        ):
            runs[-1].append(segment)
        else:
            runs.append([segment])
    return tuple(
        replace(
            run[0],
            stripes=tuple(number for segment in run for number in segment.stripes),
            rows=sum(segment.rows for segment in run),
            bytes=sum(segment.bytes for segment in run),
            events=sum(segment.events for segment in run),
            hit_by=all_hit_by(segment.hit_by for segment in run),
        )
        for run in runs
    )


@dataclass(frozen=True, slots=True)
class BucketPlan:
    """
    One output file. Segments stand in the order of their keys.

    Args:
        deletes: delete files whose events are applied to the rows (in a delete delta: whose events are written).
        delete_events: distinct valid events in these files.
    """

    bucket: int
    name: str
    segments: tuple[Segment, ...] = ()
    deletes: tuple[str, ...] = ()
    delete_events: int = 0


@dataclass(frozen=True, slots=True)
class FileCopy:
    """
    A whole file of an insert-only table, copied under a new name.

    Args:
        reason: why it isn't joined with others, in a few words.
    """

    path: str
    name: str
    bytes: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class FileJoin:
    """
    Several files of an insert-only table that become one.

    Args:
        format: as in `FileFormat.name`.
        segments: in the order of the files; `stripes` are the numbers of stripes, row groups or blocks, empty for a
            whole content without such parts.
    """

    name: str
    format: str
    segments: tuple[Segment, ...]

    @property
    def bytes(self) -> int:
        return sum(segment.bytes for segment in self.segments)

    @property
    def paths(self) -> tuple[str, ...]:
        """The files, in their order."""
        return tuple(dict.fromkeys(segment.path for segment in self.segments))


@dataclass(frozen=True, slots=True)
class OutputDir:
    """One directory to publish."""

    kind: DirKind
    name: str
    buckets: tuple[BucketPlan, ...] = ()
    copies: tuple[FileCopy, ...] = ()
    joins: tuple[FileJoin, ...] = ()

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments of the directory's files."""
        groups = [bucket.segments for bucket in self.buckets] + [join.segments for join in self.joins]
        return tuple(segment for group in groups for segment in group)


@dataclass(frozen=True, slots=True)
class FormatSpec:
    """
    How the output is written. Codec, block size, rows per index entry and (with `one_zone`) the time zone are the same
    for all stripes of a file.

    Args:
        stripe_bytes: size of a recoded stripe in the writer's memory.
        stripe_rows: most rows of a recoded stripe; None: as many as fill `stripe_bytes`.
        columns_by: how the table's readers find its columns in the inputs.
    """

    codec: str = "zlib"
    block_size: int = 262_144
    stride: int = 10_000
    stripe_bytes: int = 64 * 1024 * 1024
    stripe_rows: int | None = None
    bloom_columns: tuple[str, ...] = ()
    bloom_fpp: float = 0.05
    one_zone: bool = False
    columns_by: ColumnRule = ColumnRule.NAME


@dataclass(frozen=True, slots=True)
class Prediction:
    """
    Predicted bytes to be read, copied unchanged, probed, decoded and written; and processor seconds, roughly.

    Args:
        recoded: of stripes that are decoded and encoded anew, and of those that perhaps are.
        cut: of stripes out of which rows are cut.
        joined: the part of `recoded` that is encoded anew only because the stripes or row groups are small.
        files_before, files_after: that a reader opens.
        stripes_before, stripes_after: stripes with rows, or row groups; of insert-only tables only those of files that
            are joined.
        tasks: of the Spark job that has most.
        driver_bytes: memory that these take in the heap of Spark's driver, with Spark itself.
    """

    read: int = 0
    copied: int = 0
    probed: int = 0
    recoded: int = 0
    written: int = 0
    seconds: float = 0.0
    cut: int = 0
    joined: int = 0
    files_before: int = 0
    files_after: int = 0
    stripes_before: int = 0
    stripes_after: int = 0
    tasks: int = 0
    driver_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PlanParts:
    """
    The place of a plan among several: a compaction that would exceed a limit is split into smaller ones, and this is
    the first of those that remain.

    Args:
        total: number of remaining parts, this one included, as far as can be foreseen.
        reason: a sentence: which limit, by how much, and what this part is.
        wait: the next part must wait until the Cleaner has removed what this part replaces, because it needs the space.
    """

    total: int
    reason: str
    wait: bool = False


class DeleteScope(StrEnum):
    """
    Which delete events are applied to rows: all (major), none (minor), or those of the same write id (a minor of one
    write id).
    """

    ALL = "all"
    NONE = "none"
    OWN = "own"

    def applies(self, own: int) -> bool:
        """Whether it applies any of a bucket's events, so many of which are of the same write id as their rows."""
        return self is DeleteScope.ALL or (self is DeleteScope.OWN and own > 0)


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """
    Everything that the execution of a compaction needs.

    Args:
        requested: the kind that the queue entry asks for; `kind` may be major where a minor can't be published safely.
        name_write_id: the N of `base_N`, or the end of a minor's range: the highest write id that is included.
        highest_write_id: to be stored in CQ_HIGHEST_WRITE_ID.
        write_ids: the write-id list that the plan was made under, in Hive's string form.
        aborted: aborted write ids that may occur in the inputs.
        parts: None when this plan is all that was asked for.
        events_at_once: delete events that a task may hold in memory.
        one_by_one: each bucket is one task that recodes its chunks one after the other: slower, but no chunk exists
            twice.
    """

    entity: str
    location: str
    requested: CompactionKind
    kind: CompactionKind
    layout: LayoutVersion
    insert_only: bool
    write_ids: str
    name_write_id: int
    min_write_id: int
    max_write_id: int
    highest_write_id: int
    visibility_txn: int | None
    columns: tuple[tuple[str, str], ...]
    outputs: tuple[OutputDir, ...]
    inputs: tuple[InputFile, ...]
    format: FormatSpec = FormatSpec()
    delete_scope: DeleteScope = DeleteScope.ALL
    aborted: tuple[int, ...] = ()
    prediction: Prediction = Prediction()
    warnings: tuple[str, ...] = ()
    parts: PlanParts | None = None
    events_at_once: int = EVENTS_AT_ONCE
    one_by_one: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Directories that may be published; a minor's delta or delete delta that turns out empty isn't."""
        return tuple(output.name for output in self.outputs)

    def output(self, directory: str) -> OutputDir:
        """The output directory of a name."""
        return next(output for output in self.outputs if output.name == directory)

    def apart(self, bucket: BucketPlan, together: int) -> list[tuple[Segment, ...]]:
        """
        The chunks of a bucket that tasks of their own recode; none where one task writes the whole file.

        Args:
            together: bytes of a bucket's chunks up to which one task recodes them all.
        """
        chunks: dict[int, list[Segment]] = {}
        for segment in bucket.segments:
            if segment.action is not Action.COPY:
                chunks.setdefault(segment.chunk, []).append(segment)
        size = sum(segment.bytes for chunk in chunks.values() for segment in chunk)
        if self.one_by_one or len(chunks) <= 1 or size <= together:
            return []
        return [tuple(chunk) for chunk in chunks.values()]

    @property
    def bytes_needed(self) -> int:
        """
        Most bytes that the compaction has written beside the inputs at any time. Chunks that are recoded in tasks of
        their own exist twice for a while.
        """
        deletes = (
            0
            if self.kind.makes_base
            else sum(file.length for file in self.inputs if file.role is FileRole.DELETE_DELTA)
        )
        twice = 0 if self.one_by_one else self.prediction.recoded + self.prediction.cut
        return self.prediction.written + deletes + twice

    @property
    def names_needed(self) -> int:
        """
        Most files and directories that the compaction has created at any time: the staging directory, each task's
        directory and file, output directories and their two markers.
        """
        files = sum(len(output.buckets) + len(output.copies) + len(output.joins) for output in self.outputs)
        return 3 + 3 * len(self.outputs) + 2 * (files + (0 if self.one_by_one else self.chunks))

    @property
    def chunks(self) -> int:
        """Number of chunks that are recoded."""
        buckets = (bucket for output in self.outputs for bucket in output.buckets)
        return sum(len({segment.chunk for segment in bucket.segments if segment.chunk >= 0}) for bucket in buckets)
