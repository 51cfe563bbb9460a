"""
Names of directories and files below a table or partition: which generation, which write ids, which bucket.

Pure: knows the grammar, opens nothing. Numbers are written with a minimum width and read with any width.
Source: docs/layout.md; Hive's AcidUtils (ParsedBaseLight, ParsedDeltaLight, BUCKET_PATTERN, ORIGINAL_PATTERN,
ORIGINAL_PATTERN_COPY), MetaDataFile.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from compactor.acid.compaction import LayoutVersion
from compactor.errors import RefusedError
from compactor.reasons import Reason

VERSION_FILE: Final = "_orc_acid_version"
VERSION_FILE_CONTENT: Final = b"2"
METADATA_FILE: Final = "_metadata_acid"
METADATA_FILE_CONTENT: Final = b'{"thisFileVersion":"0","dataFormat":"compacted"}'
ORIGINALS_FILE: Final = "_compactor_originals"
"""
File in a base that replaces original files: the original files that its compaction listed (`compactor.acid.originals`).
Readers pass over the file because its name begins with `_`.
"""
SIDE_FILE_SUFFIX: Final = "_flush_length"
STAGING_PREFIX: Final = ".compactor-"
TRASH_PREFIX: Final = ".trash-compactor-"

ONLY_ORIGINALS_WRITE_ID: Final = -(2**63)
"""Write id in the base name that Hive's MapReduce compactor gives a table that has only original files."""

_BASE: Final = "base_"
_DELTA: Final = "delta_"
_DELETE_DELTA: Final = "delete_delta_"
_BASE_PATTERN: Final = re.compile(r"base_(?P<max>-?[0-9]+)(?:_v(?P<visibility>[0-9]+))?")
_DELTA_PATTERN: Final = re.compile(
    r"(?:delete_)?delta_(?P<min>[0-9]+)_(?P<max>[0-9]+)(?:_(?P<statement>[0-9]+))?(?:_v(?P<visibility>[0-9]+))?"
)
_BUCKET_PATTERN: Final = re.compile(r"bucket_([0-9]+)(?:_([0-9]+))?")
_ORIGINAL_PATTERN: Final = re.compile(r"([0-9]+)_[0-9]+(?:_copy_([0-9]+))?")
_LARGEST: Final = 2**63 - 1
_HIDDEN: Final = ("_", ".", "-tmp.", "-ext-", "-mr-")
_HIDDEN_PART: Final = re.compile(r"(?:^|/)(?:[_.]|-tmp\.|-ext-|-mr-)")


class MalformedNameError(RefusedError):
    """A directory name starts like an ACID one and can't be parsed: every Hive reader of the partition fails on it."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(
            Reason.UNKNOWN_NAME,
            f"directory {name!r} starts like an ACID directory but {why}: rename it or move it away",
        )
        self.name = name
        self.why = why

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.name, self.why)


class DirKind(StrEnum):
    """What a directory of a partition holds."""

    BASE = "base"
    DELTA = "delta"
    DELETE_DELTA = "delete-delta"


@dataclass(frozen=True, slots=True)
class AcidDir:
    """
    A parsed directory name.

    Args:
        kind: base, insert delta or delete delta.
        min_write_id: lowest write id that may be inside; 0 for a base.
        max_write_id: highest write id that may be inside; `ONLY_ORIGINALS_WRITE_ID` for a base made of originals by
            Hive's MapReduce compactor.
        statement_id: ordinal of the statement in its transaction; None for compacted and streamed deltas and for bases.
        visibility_txn: the compaction's transaction; 0 means that every reader sees the directory.
        name: the name as listed.
    """

    kind: DirKind
    min_write_id: int
    max_write_id: int
    statement_id: int | None
    visibility_txn: int
    name: str

    @property
    def is_base(self) -> bool:
        return self.kind is DirKind.BASE

    @property
    def span(self) -> tuple[int, int]:
        """The lowest and the highest write id that may be inside."""
        return self.min_write_id, self.max_write_id

    @property
    def first_written(self) -> int:
        """
        The lowest write id whose rows a writer may have left in the directory; for a base, as INSERT OVERWRITE makes
        it, the base's own write id.
        """
        return self.max_write_id if self.is_base else self.min_write_id


@dataclass(frozen=True, slots=True)
class BucketFile:
    """`bucket_00003` or `bucket_00003_1`; `attempt` is the task attempt that Hive 4's inserts append."""

    bucket: int
    attempt: int | None


@dataclass(frozen=True, slots=True)
class OriginalFile:
    """
    `000003_0` or `000003_0_copy_2`: a file without ACID columns, from LOAD DATA or from the time before the table was
    transactional.
    """

    bucket: int
    copy: int


def looks_acid(name: str) -> bool:
    """
    Whether readers take a directory of this name for a base, delta or delete delta, even if the name can't be parsed.
    """
    return name.startswith((_BASE, _DELTA, _DELETE_DELTA))


@lru_cache(maxsize=4096)  # a write to many partitions gives each of them a directory of the same name
def parse_dir(name: str, layout: LayoutVersion = LayoutVersion.HIVE_4) -> AcidDir | None:
    """
    Read a directory name; None when the name doesn't start like an ACID one.

    Raises:
        MalformedNameError: the name starts like an ACID one and can't be parsed, or carries `_v` in a Hive 3.1 layout
            (Hive 3.1 throws NumberFormatException).

    Source: Hive's AcidUtils.ParsedBaseLight.parseBase, ParsedDeltaLight.parse.
    """
    if not looks_acid(name):
        return None
    is_base = name.startswith(_BASE)
    match = (_BASE_PATTERN if is_base else _DELTA_PATTERN).fullmatch(name)
    if match is None:
        raise MalformedNameError(name, "can't be parsed")
    parts = match.groupdict()
    if parts["visibility"] is not None and layout is LayoutVersion.HIVE_3:
        raise MalformedNameError(name, "has a visibility suffix, which Hive 3.1 can't read")
    high = _long(name, parts["max"])
    visibility = _long(name, parts["visibility"] or "0")
    if is_base:
        if high < 0 and high != ONLY_ORIGINALS_WRITE_ID:
            raise MalformedNameError(name, "its write id is negative")
        return AcidDir(DirKind.BASE, 0, high, None, visibility, name)
    low = _long(name, parts["min"])
    if low > high:
        raise MalformedNameError(name, "its lowest write id is above its highest")
    kind = DirKind.DELTA if name.startswith(_DELTA) else DirKind.DELETE_DELTA
    statement = None if parts["statement"] is None else _long(name, parts["statement"])
    return AcidDir(kind, low, high, statement, visibility, name)


def base_name(write_id: int, visibility_txn: int = 0) -> str:
    """`base_0000024_v0000026`; a visibility transaction of 0 writes no suffix (the only form Hive 3.1 reads)."""
    _must_not_be_negative(write_id, visibility_txn)
    return f"{_BASE}{write_id:07d}{_visibility(visibility_txn)}"


def delta_name(min_write_id: int, max_write_id: int, statement_id: int | None = None, visibility_txn: int = 0) -> str:
    """`delta_0000001_0000004_v0000009`, `delta_0000005_0000005_0001`."""
    return _DELTA + _range(min_write_id, max_write_id, statement_id, visibility_txn)


def delete_delta_name(
    min_write_id: int, max_write_id: int, statement_id: int | None = None, visibility_txn: int = 0
) -> str:
    """`delete_delta_0000001_0000004_v0000009`, `delete_delta_0000005_0000005_0000`."""
    return _DELETE_DELTA + _range(min_write_id, max_write_id, statement_id, visibility_txn)


def parse_bucket_file(name: str) -> BucketFile | None:
    """Read `bucket_<n>[_<attempt>]`; None for anything else, side files included."""
    match = _BUCKET_PATTERN.fullmatch(name)
    if match is None:
        return None
    return BucketFile(int(match[1]), None if match[2] is None else int(match[2]))


def bucket_name(bucket: int) -> str:
    """`bucket_00003`: without an attempt suffix, the one form that every reader matches."""
    _must_not_be_negative(bucket)
    return f"bucket_{bucket:05d}"


def parse_original_file(name: str) -> OriginalFile | None:
    """Read `<bucket>_<n>[_copy_<k>]`; None for a name that states no bucket."""
    match = _ORIGINAL_PATTERN.fullmatch(name)
    return None if match is None else OriginalFile(int(match[1]), int(match[2] or 0))


def original_name(bucket: int) -> str:
    """`000003_0`: the file name of a bucket in an insert-only table."""
    _must_not_be_negative(bucket)
    return f"{bucket:06d}_0"


def is_hidden(name: str) -> bool:
    """
    Whether a name can hold no data of the table: names starting with `_` or `.`, which every reader passes over, and
    those of Hive's running statements.

    Hive 4's writers keep the manifests of a running INSERT in `-tmp.delta_…` of the table's directory; Hive itself
    takes that directory for one of original files.
    Source: Hive's FileUtils.HIDDEN_FILES_PATH_FILTER, Utilities.toTempPath and getManifestDir, Context.EXT_PREFIX and
    MR_PREFIX.
    """
    return name.startswith(_HIDDEN)


def has_hidden_part(path: str) -> bool:
    """Whether the file of this relative path, or a directory on the way to it, is hidden."""
    plain = path[:1].isalnum() and "/_" not in path and "/." not in path and "/-" not in path
    return not plain and _HIDDEN_PART.search(path) is not None


def is_side_file(name: str) -> bool:
    """
    Whether the file is a streaming writer's `bucket_<n>_flush_length`: its last full big-endian long is the bucket
    file's logical length.
    """
    return name.startswith("bucket_") and name.endswith(SIDE_FILE_SUFFIX)


def _range(low: int, high: int, statement_id: int | None, visibility_txn: int) -> str:
    _must_not_be_negative(low, high - low, statement_id or 0, visibility_txn)
    statement = "" if statement_id is None else f"_{statement_id:04d}"
    return f"{low:07d}_{high:07d}{statement}{_visibility(visibility_txn)}"


def _visibility(txn: int) -> str:
    return f"_v{txn:07d}" if txn else ""


def _long(name: str, digits: str) -> int:
    value = int(digits)
    if value > _LARGEST or value < ONLY_ORIGINALS_WRITE_ID:
        raise MalformedNameError(name, f"{digits} doesn't fit 64 bits")
    return value


def _must_not_be_negative(*values: int) -> None:
    if any(value < 0 for value in values):
        raise ValueError(f"ids must be ascending and not negative: {values}")
