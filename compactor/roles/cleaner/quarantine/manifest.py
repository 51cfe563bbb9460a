"""
What a quarantine directory says of itself: since when and until when it is kept, what lies in it, and what replaced it.

The Cleaner writes the manifest before the directory becomes quarantine. It alone proves the age of the directory, and
which rows in it were rolled back: the metastore forgets both. Pure: knows names, lengths and ids; opens nothing.
Source: docs/operations.md, Quarantine.
"""

import json
import zlib
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar

MANIFEST: Final = "_compactor_quarantine"
"""File directly in a quarantine directory. Where it strays into a partition, readers pass over it."""
LIMIT: Final = 1 << 26
"""Bytes of the longest manifest that is read."""
_VERSION: Final = 1
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class KeptFiles:
    """
    A directory with its files, or one file, at the top level of a partition.

    Args:
        files: path relative to the partition, and length in bytes.
    """

    name: str
    files: tuple[tuple[str, int], ...]

    @property
    def length(self) -> int:
        """In bytes."""
        return sum(length for _, length in self.files)


@dataclass(frozen=True, slots=True)
class KeptDirectory(KeptFiles):
    """
    What the Cleaner moved into quarantine under one name.

    Args:
        replaced: a compaction replaced it; False: it was rolled back, dropped, or taken away by a restore.
        aborted: aborted write ids whose rows it holds, or may hold.
    """

    replaced: bool
    aborted: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class QuarantineManifest:
    """
    The content of `_compactor_quarantine`.

    Args:
        entry: id of the queue entry; None for aborted writes that were removed without one.
        what: the table or partition, `db.t/p=1`.
        tbl_id: TBL_ID in the catalog; 0 where it isn't known.
        part_id: PART_ID of the partition; None of a table, and where it isn't known.
        kept_ms, until_ms: by the database clock.
        highest_write_id: the highest write id that the compaction covers.
        result: the base or deltas which replaced the directories; empty where that isn't known.
        read_before: what a reader reads where the result isn't there: names of bases and deltas in reading order, then
            paths of original files.
        first_look: no Cleaner had begun to clean the entry before, so everything that the compaction replaced was still
            there. False also where the metastore doesn't tell (3.1).
        taken_back: a restore took the result of the entry away; it lies in this directory, and what `read_before`
            names is read again.
    """

    entry: int | None
    what: str
    tbl_id: int
    kept_ms: int
    until_ms: int
    directories: tuple[KeptDirectory, ...]
    part_id: int | None = None
    highest_write_id: int | None = None
    result: tuple[KeptFiles, ...] = ()
    read_before: tuple[str, ...] = ()
    first_look: bool = False
    taken_back: bool = False

    @property
    def length(self) -> int:
        """Bytes in quarantine."""
        return sum(directory.length for directory in self.directories)

    def encode(self) -> bytes:
        """The content of the file."""
        content = asdict(self)
        return json.dumps({"version": _VERSION, "crc32": _crc32(content), **content}).encode()


def decode(content: bytes) -> QuarantineManifest | None:
    """
    What `QuarantineManifest.encode` was given; None for any other content, because an unreadable manifest proves
    nothing.
    """
    try:
        found = json.loads(content)
        if found.pop("version") != _VERSION or found.pop("crc32") != _crc32(found):
            return None
        directories = tuple(
            KeptDirectory(
                **_files(one),
                replaced=_one(bool, one["replaced"]),
                aborted=tuple(_one(int, write_id) for write_id in one["aborted"]),
            )
            for one in found.pop("directories")
        )
        result = tuple(KeptFiles(**_files(one)) for one in found.pop("result"))
        before = tuple(_one(str, name) for name in found.pop("read_before"))
        manifest = QuarantineManifest(**found, directories=directories, result=result, read_before=before)
        for number in (manifest.kept_ms, manifest.until_ms, manifest.tbl_id):
            _one(int, number)
        for known in (manifest.entry, manifest.part_id, manifest.highest_write_id):
            if known is not None:
                _one(int, known)
        _one(str, manifest.what), _one(bool, manifest.first_look), _one(bool, manifest.taken_back)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return manifest


def _crc32(content: dict[str, Any]) -> int:
    """Of the content as it is written: a digit that was damaged still makes a manifest."""
    return zlib.crc32(json.dumps(content).encode())


def _files(one: dict[str, Any]) -> dict[str, Any]:
    files = tuple((_one(str, path), _one(int, length)) for path, length in one["files"])
    return {"name": _one(str, one["name"]), "files": files}


def _one(kind: type[Value], value: object) -> Value:
    """A value of exactly this type: True is no number."""
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value
