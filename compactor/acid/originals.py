"""
The list of original files that a base has replaced: written into the base before it is published, read before any of them is removed.

Nothing else proves that a file of before the table was transactional is replaced: a name tells no write id, and a file that was put there later looks the same. A
base without such a list (of Hive's compactor, of INSERT OVERWRITE) proves nothing about them.
Pure. Source: docs/layout.md.
"""

import json
from collections.abc import Iterable

from compactor.acid.listing import FileEntry
from compactor.acid.names import ORIGINALS_FILE, has_hidden_part, looks_acid


def encode_originals(files: Iterable[FileEntry]) -> bytes:
    """The content of `_compactor_originals`."""
    return json.dumps({"originals": [[file.path, file.length, file.mtime_ms, file.version] for file in sorted(files)]}).encode()


def decode_originals(content: bytes) -> tuple[FileEntry, ...]:
    """What `encode_originals` was given, ascending; nothing where the content is anything else: a list that can't be read proves nothing."""
    try:
        rows = json.loads(content)["originals"]
        return tuple(sorted(FileEntry(str(path), int(length), int(mtime_ms), str(version)) for path, length, mtime_ms, version in rows))
    except (ValueError, KeyError, TypeError):
        return ()


def lists_in(files: Iterable[FileEntry]) -> tuple[str, ...]:
    """Paths of the lists in a listing; none where no file is there that could be an original one, for then nothing asks for them."""
    lists, originals = [], False
    for file in files:
        top, slash, rest = file.path.partition("/")
        if rest == ORIGINALS_FILE and top.startswith("base_"):
            lists.append(file.path)
        originals = originals or not ((slash and looks_acid(top)) or has_hidden_part(file.path))
    return tuple(lists) if originals else ()
