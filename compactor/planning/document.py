"""
The plan of one compaction: a value that is shown, stored, sent to executors and replayed.

Pure. `to_json` and `from_json` are inverse to each other; a plan of another version of this format is refused.
"""

import json
from dataclasses import dataclass
from enum import StrEnum

from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.acid.names import DirKind
from compactor.errors import UsageError
from compactor.planning.plain import from_plain, to_plain

FORMAT = 1
EVENTS_AT_ONCE = 4_194_304
"""Delete events that a task holds in memory, unless limits say otherwise."""


class Action(StrEnum):
    """What is done with stripes: carried over as bytes, decoded and written anew, or looked at first and then one of the two."""

    COPY = "copy"
    RECODE = "recode"
    PROBE = "probe"


class Role(StrEnum):
    """What an input file is to a reader."""

    BASE = "base"
    DELTA = "delta"
    DELETE_DELTA = "delete-delta"
    ORIGINAL = "original"


@dataclass(frozen=True, slots=True)
class SyntheticIds:
    """ROW__IDs of a file that has none: rows are (write_id, bucket_property, first_row_id + ordinal)."""

    write_id: int
    bucket_property: int
    first_row_id: int


@dataclass(frozen=True, slots=True)
class InputFile:
    """
    A file that the compaction reads; publishing checks that it is still there, with this length, time and version.

    Args:
        path: relative to the partition directory.
        directory: the ACID directory it is in, empty for original files.
        bucket: the number in its name.
        min_write_id, max_write_id: of the directory; a base holds 0 … N.
        may_hold_aborted: rows of aborted write ids may stand between valid ones: streaming deltas, and compacted ones too, for Hive's merge compaction joins
            files as they are; readers leave such rows out of any delta.
        side_file: path of its `_flush_length` file when readers heed it, else None.
    """

    path: str
    length: int
    mtime_ms: int
    role: Role
    directory: str
    bucket: int
    min_write_id: int
    max_write_id: int
    statement_id: int = 0
    raw: bool = False
    may_hold_aborted: bool = False
    side_file: str | None = None
    logical_length: int | None = None
    rows: int = 0
    synthetic: SyntheticIds | None = None
    version: str = ""


@dataclass(frozen=True, slots=True)
class Segment:
    """
    Neighbouring stripes of one file with one verdict.

    Args:
        chunk: segments with the same number are recoded together, in one task; -1 for COPY.
        reason: why, in a few words.
        bytes: of the stripes in the source.
        events: delete events between the keys of the stripes.
    """

    action: Action
    path: str
    stripes: tuple[int, ...]
    reason: str
    rows: int
    bytes: int
    chunk: int = -1
    events: int = 0


@dataclass(frozen=True, slots=True)
class BucketPlan:
    """
    One output file. Segments stand in the order of their keys.

    Args:
        deletes: delete files whose events are applied to the rows (or, in a delete delta, are written).
        delete_events: distinct valid events among them.
    """

    bucket: int
    name: str
    segments: tuple[Segment, ...] = ()
    deletes: tuple[str, ...] = ()
    delete_events: int = 0


@dataclass(frozen=True, slots=True)
class FileCopy:
    """A whole file of an insert-only table, carried over under a new name."""

    path: str
    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class OutputDir:
    """One directory to publish."""

    kind: DirKind
    name: str
    buckets: tuple[BucketPlan, ...] = ()
    copies: tuple[FileCopy, ...] = ()


@dataclass(frozen=True, slots=True)
class FormatSpec:
    """How the output is written: codec, block size, rows per index entry and perhaps the time zone are one for all stripes of a file."""

    codec: str = "zlib"
    block_size: int = 262_144
    stride: int = 10_000
    stripe_bytes: int = 64 * 1024 * 1024
    bloom_columns: tuple[str, ...] = ()
    bloom_fpp: float = 0.05
    one_zone: bool = False


@dataclass(frozen=True, slots=True)
class Prediction:
    """Bytes that will be read, copied as they are, decoded and written; processor seconds, roughly."""

    read: int = 0
    copied: int = 0
    probed: int = 0
    recoded: int = 0
    written: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Parts:
    """
    A compaction that would exceed a limit of its own is the first of several smaller ones.

    Args:
        total: how many it takes, this one included, as far as can be foreseen.
        reason: a sentence: which limit, by how much, and what this part is.
        wait: the next part must wait until what this one replaces is removed, for it needs the room.
    """

    total: int
    reason: str
    wait: bool = False


class DeleteScope(StrEnum):
    """Which delete events are applied to rows: all (major), none (minor), or those of the same write id (a minor of one write id)."""

    ALL = "all"
    NONE = "none"
    OWN = "own"


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """
    Everything that running it needs.

    Args:
        requested: what the queue entry asks for; `kind` may be major where a minor can't be published safely.
        name_write_id: the N of `base_N`, or the end of a minor's range: the highest write id that is included.
        highest_write_id: to be stored in CQ_HIGHEST_WRITE_ID.
        write_ids: the write-id list it was made under, as Hive writes it.
        aborted: aborted write ids that may occur in the inputs.
        parts: None when this is all that was asked for.
        events_at_once: delete events that a task may hold in memory.
        one_by_one: each bucket is one task that recodes its chunks one after the other: slower, but no chunk exists twice.
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
    parts: Parts | None = None
    events_at_once: int = EVENTS_AT_ONCE
    one_by_one: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Directories that may be published; a side of a minor that turns out empty isn't."""
        return tuple(output.name for output in self.outputs)

    @property
    def bytes_needed(self) -> int:
        """What running it writes at most at one time beside the inputs; chunks that are recoded apart exist twice for a while."""
        deletes = 0 if self.kind is CompactionKind.MAJOR else sum(file.length for file in self.inputs if file.role is Role.DELETE_DELTA)
        return self.prediction.written + deletes + (0 if self.one_by_one else self.prediction.recoded)

    @property
    def names_needed(self) -> int:
        """Files and directories that running it makes at most at one time: staging, each task's directory and file, output directories and their two markers."""
        needed = 3
        for output in self.outputs:
            chunks = 0 if self.one_by_one else sum(len({segment.chunk for segment in bucket.segments if segment.chunk >= 0}) for bucket in output.buckets)
            needed += 3 + 2 * (len(output.buckets) + chunks + len(output.copies))
        return needed


def to_json(plan: CompactionPlan) -> str:
    """One JSON object; `format` says which version of this document it is."""
    return json.dumps({"compaction-plan": FORMAT, **to_plain(plan)}, ensure_ascii=False)


def from_json(text: str) -> CompactionPlan:
    """
    Read what `to_json` wrote.

    Raises:
        UsageError: it isn't a plan, or one of another version.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise UsageError(f"not a plan: {error}") from None
    if not isinstance(document, dict) or document.pop("compaction-plan", None) != FORMAT:
        raise UsageError(f"not a plan of version {FORMAT} of its format")
    plan: CompactionPlan = from_plain(CompactionPlan, document)
    return plan
