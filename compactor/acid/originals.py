"""
The list of the original files that a base has replaced. The compaction writes the list into the base before the base is
published; the Cleaner reads it before removing any of the files.

The list is the only proof that a file from before the table was transactional is replaced: its name states no write id,
and a file that was put there later looks the same. A base without such a list (from Hive's compactor, from INSERT
OVERWRITE) proves nothing about original files.
Pure. Source: docs/layout.md.
"""

import json
from collections.abc import Iterable

from compactor.acid.listing import FileEntry
from compactor.acid.names import ORIGINALS_FILE, has_hidden_part, looks_acid


def encode_originals(files: Iterable[FileEntry]) -> bytes:
    """The content of `_compactor_originals`."""
    return json.dumps(
        {"originals": [[file.path, file.length, file.mtime_ms, file.version] for file in sorted(files)]}
    ).encode()


def decode_originals(content: bytes) -> tuple[FileEntry, ...]:
    """
    The files that `encode_originals` was given, ascending; nothing for any other content, because an unreadable list
    proves nothing.
    """
    try:
        rows = json.loads(content)["originals"]
        return tuple(
            sorted(
                FileEntry(str(path), int(length), int(mtime_ms), str(version))
                for path, length, mtime_ms, version in rows
            )
        )
    except (ValueError, KeyError, TypeError):
        return ()


def lists_in(files: Iterable[FileEntry]) -> tuple[str, ...]:
    """
    Paths of the `_compactor_originals` files in a listing; none where no file could be an original one, because the
    lists are not needed then.
    """
    lists, originals = [], False
    for file in files:
        top, slash, rest = file.path.partition("/")
        if rest == ORIGINALS_FILE and top.startswith("base_"):
            lists.append(file.path)
        originals = originals or not ((slash and looks_acid(top)) or has_hidden_part(file.path))
    return tuple(lists) if originals else ()
