"""
Sorts what lies in a partition, before the valid write ids are applied: ACID directories with their files, original
files, and paths that no rule explains.

Pure: takes a listing. Knows names and positions; knows nothing of write ids.
Source: docs/layout.md; Hive's AcidUtils (getChildState, bucketFileFilter, HIDDEN_FILES_PATH_FILTER, MetaDataFile).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from compactor.acid.compaction import LayoutVersion
from compactor.acid.listing import FileEntry, Listing
from compactor.acid.names import (
    METADATA_FILE,
    VERSION_FILE,
    AcidDir,
    has_hidden_part,
    is_hidden,
    is_side_file,
    looks_acid,
    parse_bucket_file,
    parse_dir,
    parse_original_file,
)
from compactor.errors import RefusedError
from compactor.reasons import Reason

COMPACTED: Final = "compacted"
_FORMATS: Final = {
    LayoutVersion.HIVE_3: frozenset({COMPACTED}),
    LayoutVersion.HIVE_4: frozenset({COMPACTED, "truncated", "dropped"}),
}
_HIDDEN_BELOW: Final = re.compile(r"/[_.]")
_ILLEGAL_IN_URI: Final = re.compile(r"[\x00-\x20\"#%<>?\[\\\]^`{|}\x7f]")


@dataclass(frozen=True, slots=True)
class ListedDir:
    """
    One base, delta or delete delta as found.

    Args:
        acid: the directory's parsed name.
        files: everything below the directory, hidden files too; paths relative to the partition.
        format: `dataFormat` of a base's `_metadata_acid`, if there is one.
        compacted: whether the directory is known to be a compaction's output (visibility suffix, or a base whose format
            is `compacted`).
    """

    acid: AcidDir
    files: tuple[FileEntry, ...]
    format: str | None
    compacted: bool

    @property
    def name(self) -> str:
        return self.acid.name


@dataclass(frozen=True, slots=True)
class Children:
    """
    What lies directly in a partition, sorted by position and name. `unknown` and `hidden` are as in `AcidState`;
    originals are in path order.
    """

    acid: tuple[ListedDir, ...]
    originals: tuple[FileEntry, ...]
    unknown: tuple[str, ...]
    hidden: tuple[str, ...]


def children_of(listing: Listing, layout: LayoutVersion) -> Children:
    """
    Tell ACID directories, original files and everything else apart.

    Raises:
        MalformedNameError, RefusedError: the refusals of names, nesting and formats that `snapshot.resolve` documents.
    """
    _refuse_nested(listing)
    below: dict[str, list[FileEntry]] = {d.partition("/")[0]: [] for d in listing.directories}
    originals: list[FileEntry] = []
    hidden: set[str] = set()
    for entry in listing.files:
        top, slash, _ = entry.path.partition("/")
        if slash:
            below.setdefault(top, []).append(entry)
        elif is_hidden(top):
            hidden.add(top)
        else:
            originals.append(entry)
    formats = dict(listing.formats)
    acid: list[ListedDir] = []
    unknown: list[str] = []
    for name, files in below.items():
        if is_hidden(name):
            hidden.add(name)
            continue
        parsed = parse_dir(name, layout)
        if parsed is not None:
            acid.append(_listed(parsed, files, formats.get(name), layout))
            continue
        visible = [f for f in files if not has_hidden_part(f.path)]
        originals.extend(visible)
        if not visible:
            unknown.append(name)
    unknown += [f.path for f in originals if parse_original_file(f.name) is None]
    return Children(tuple(acid), _in_path_order(originals), tuple(sorted(unknown)), tuple(sorted(hidden)))


def data_files(listed: ListedDir, insert_only: bool) -> tuple[FileEntry, ...]:
    """
    The files of a directory that hold rows, in path order.

    Insert-only tables and bases: every visible file. Deltas of full ACID tables: `bucket_*` except side files, and
    files named like originals (LOAD DATA).

    Source: Hive's AcidUtils.bucketFileFilter, originalBucketFilter, HIDDEN_FILES_PATH_FILTER.
    """
    return _in_path_order([f for f in _visible(listed) if _holds_rows(f, listed, insert_only)])


def stray_files(listed: ListedDir, insert_only: bool) -> tuple[FileEntry, ...]:
    """Visible files of a directory that readers skip and no rule explains: neither data files nor side files."""
    return tuple(f for f in _visible(listed) if not _holds_rows(f, listed, insert_only) and not is_side_file(f.name))


def side_files(listed: ListedDir) -> tuple[FileEntry, ...]:
    """The logical-length files that streaming writers keep beside their bucket files."""
    return tuple(f for f in _visible(listed) if is_side_file(f.name))


def shows_a_file(listed: ListedDir) -> bool:
    """
    Whether a listing by files finds the directory, as Hive 4 does: by a file that isn't hidden, or by a marker.

    Source: Hive 4's AcidUtils.getHdfsDirSnapshots, acidHiddenFileFilter, acidTempDirFilter.
    """
    for file in listed.files:
        above, _, name = file.path.rpartition("/")
        marker = name.startswith((METADATA_FILE, VERSION_FILE))
        if not _HIDDEN_BELOW.search(above if marker else file.path):
            return True
    return False


def uri_order(path: str) -> bytes:
    """
    Sort key of a path, in the order of Hive: Java compares Hadoop paths as URIs (illegal ASCII characters
    percent-encoded) by UTF-16 code unit.

    The order of the original files determines the ids of their rows, so the order must be exactly Hive's.
    """
    encoded = _ILLEGAL_IN_URI.sub(lambda found: f"%{ord(found[0]):02X}", path)
    return encoded.encode("utf-16-be", "surrogatepass")


def _refuse_nested(listing: Listing) -> None:
    directories = {*listing.directories, *(f.path.rpartition("/")[0] for f in listing.files)}
    for directory in (found for found in directories if "/" in found):
        top, slash, rest = directory.partition("/")
        if slash and not has_hidden_part(directory) and any(looks_acid(part) for part in rest.split("/")):
            message = f"directory {directory!r} lies inside {top!r}: some readers see it as a directory of its own, some don't; move it away (HIVE-26394)"
            raise RefusedError(Reason.NESTED_DIRECTORY, message)
        if (
            looks_acid(top)
            and not has_hidden_part(directory)
            and parse_bucket_file(directory.rpartition("/")[2]) is not None
        ):
            raise RefusedError(
                Reason.NESTED_DIRECTORY,
                f"{directory!r} is a directory where readers look for a file with rows: move it away",
            )


def _listed(acid: AcidDir, files: Iterable[FileEntry], data_format: str | None, layout: LayoutVersion) -> ListedDir:
    data_format = data_format if acid.is_base else None
    if data_format is not None and data_format not in _FORMATS[layout]:
        message = f"{acid.name}/_metadata_acid says dataFormat {data_format!r}, which {layout.value} readers refuse"
        raise RefusedError(Reason.UNSUPPORTED_FORMAT, message)
    compacted = acid.visibility_txn > 0 or data_format == COMPACTED
    return ListedDir(acid, tuple(sorted(files)), data_format, compacted=compacted)


def _in_path_order(files: list[FileEntry]) -> tuple[FileEntry, ...]:
    return tuple(sorted(files, key=lambda entry: uri_order(entry.path)) if len(files) > 1 else files)


def _visible(listed: ListedDir) -> tuple[FileEntry, ...]:
    return tuple(f for f in listed.files if not has_hidden_part(f.path))


def _holds_rows(entry: FileEntry, listed: ListedDir, insert_only: bool) -> bool:
    if insert_only or listed.acid.is_base:
        return True
    is_bucket = entry.name.startswith("bucket_")
    return not is_side_file(entry.name) if is_bucket else parse_original_file(entry.name) is not None
