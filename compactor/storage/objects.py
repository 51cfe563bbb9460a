"""
Objects seen as files and directories.

An object store has no directories: one is there when the key of an object begins with its name and a slash. Hadoop's clients mark empty ones with an object of
no bytes, named `<directory>/` (S3A) or `<directory>_$folder$` (s3n, EMR). Such markers are directories here, never files.
Pure: knows keys, asks no store. Source: Hadoop's S3AFileSystem, "Directory markers".
"""

from collections.abc import Iterable
from typing import Final

from compactor.acid.listing import FileEntry
from compactor.acid.names import is_hidden
from compactor.errors import RefusedError
from compactor.reasons import Reason

FOLDER_SUFFIX: Final = "_$folder$"


def files_and_directories(entries: Iterable[FileEntry], location: str) -> tuple[tuple[FileEntry, ...], tuple[str, ...]]:
    """
    Files and directories of a listing, as `Listing` has them, from all keys below a location.

    Args:
        entries: paths relative to the location; a marker's ends with `/` (the location's own is empty).

    Raises:
        RefusedError: UNKNOWN_NAME (a key with an empty part, which no file system could show).
    """
    files: list[FileEntry] = []
    directories: set[str] = set()
    for entry in entries:
        path, is_marker = marked(entry.path, entry.length)
        if not path:
            continue
        parts = path.split("/")
        if is_hidden(parts[0]) and (len(parts) > 1 or is_marker):
            directories.add(parts[0])
            continue
        if not all(parts):
            raise RefusedError(Reason.UNKNOWN_NAME, f"'{location}/{entry.path}' has an empty part in its name: move it away")
        directories.update("/".join(parts[:depth]) for depth in range(1, len(parts)))
        if is_marker:
            directories.add(path)
        else:
            files.append(entry)
    return tuple(sorted(files)), tuple(sorted(directories))


def marked(path: str, length: int) -> tuple[str, bool]:
    """The path that a key stands for, and whether it is a directory's marker."""
    if path.endswith("/"):
        return path.removesuffix("/"), True
    if length == 0 and path.endswith(FOLDER_SUFFIX):
        return path.removesuffix(FOLDER_SUFFIX), True
    return path, path == ""
