"""
Opens paths of local file systems by descriptors from a trusted root; below the root no symbolic link is followed.

A user who may write inside a table's directory may replace a directory by a link at any moment. So a path is never
checked first and used afterwards. It is opened from its root down, one directory after the other, and the call is made
relative to the last of them. A directory that was replaced by a link before it is opened is refused. A directory that
is replaced later doesn't matter: the call uses the one that was opened.
Source: openat(2) on O_PATH and O_NOFOLLOW; docs/storage.md.
"""

import contextlib
import errno
import os
import stat as modes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from compactor.errors import RefusedError
from compactor.reasons import Reason

Result = TypeVar("Result")

RootOf = Callable[[str], str | None]
"""
Maps a location to the path of the trusted directory at or above it, or to None where there is none. Without a trusted
directory links are followed, except in the last two names of a path that is opened as a file, made, renamed or removed.
"""

_LISTED: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_PASSED: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
"""Flags for a directory on the way; it needn't be readable."""


class Entry(NamedTuple):
    """
    A name in an open directory.

    Args:
        directory: descriptor of the directory, for calls relative to it.
        path: the whole path, for messages.
    """

    directory: int
    name: str
    path: str


def at(path: str, root: str | None, act: Callable[[Entry], Result]) -> Result:
    """
    Make a call with the last name of a path and the directory that holds it.

    When NFS still knew a directory that another machine has removed (ESTALE), the path is opened once more.

    Args:
        root: see `RootOf`.

    Raises:
        RefusedError: UNSAFE_LOCATION, a directory on the way is a symbolic link.
        OSError: a directory on the way can't be opened, or the call failed.
    """
    try:
        return _at(path, root, act)
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
    return _at(path, root, act)


def _at(path: str, root: str | None, act: Callable[[Entry], Result]) -> Result:
    above, _, name = path.rpartition("/")
    directory = _descend(above.rpartition("/")[0] if root is None else above if root == path else root, above)
    try:
        return act(Entry(directory, name or ".", path))
    finally:
        os.close(directory)


def _descend(root: str, path: str) -> int:
    """Open a directory at or below a root; returns its descriptor. An empty path is the root of the file system."""
    directory, reached = os.open(root or "/", _PASSED), root.rstrip("/")
    for name in path[len(reached) + 1 :].split("/") if len(path) > len(reached) else ():
        reached = f"{reached}/{name}"
        try:
            below = _open(Entry(directory, name, reached), _PASSED)
        finally:
            os.close(directory)
        directory = below
    return directory


def _open(entry: Entry, flags: int) -> int:
    try:
        return os.open(entry.name, flags | os.O_NOFOLLOW, dir_fd=entry.directory)
    except OSError as error:
        if error.errno in {errno.ENOTDIR, errno.ELOOP}:  # kernels report a link as one or the other
            _status(entry)
        raise


def open_directory(entry: Entry) -> int:
    """
    Open a directory for listing, syncing and changing; returns its descriptor.

    Raises:
        RefusedError: UNSAFE_LOCATION, the entry is a symbolic link.
        OSError: the directory can't be opened.
    """
    return _open(entry, _LISTED)


@contextlib.contextmanager
def opened(entry: Entry) -> Iterator[int]:
    """As `open_directory`, for a `with` block; closes the descriptor at its end."""
    descriptor = open_directory(entry)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def directory(path: str, root: str | None) -> int:
    """As `open_directory`, for a path. A root itself, or a path without a root, may be a link."""
    return os.open(path, _LISTED) if root is None or root == path else at(path, root, open_directory)


def status(path: str, root: str | None) -> os.stat_result:
    """
    Status of the entry at a path. A root itself, or a path without a root, may be a link. Raises as `at`, also when the
    last name is a link.
    """
    return Path(path).stat() if root is None or root == path else at(path, root, _status)


def exists(path: str, root: str | None) -> bool:
    """
    Whether a name exists, be it a link's. Below a root raises as `at`; without a root, links on the way are followed.
    """
    try:
        if root is None:
            os.lstat(path)
        else:
            at(path, root, lambda entry: os.stat(entry.name, dir_fd=entry.directory, follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _status(entry: Entry) -> os.stat_result:
    """Status of an entry. Raises RefusedError (UNSAFE_LOCATION) when the entry is a symbolic link."""
    found = os.stat(entry.name, dir_fd=entry.directory, follow_symlinks=False)
    if modes.S_ISLNK(found.st_mode):
        why = "is a symbolic link, which isn't followed in a warehouse: give the location that it leads to, or trust it by naming it in warehouse.roots"
        raise RefusedError(Reason.UNSAFE_LOCATION, f"{entry.path} {why}")
    return found


def open_regular(entry: Entry) -> int:
    """
    Open a regular file for reading; returns its descriptor.

    Raises:
        RefusedError: UNKNOWN_NAME, the entry is a symbolic link, a pipe or anything else than a file.
        OSError: the file can't be opened.
    """
    try:
        descriptor = os.open(
            entry.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=entry.directory
        )
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:
            raise _no_file(entry.path) from None
        raise
    if not modes.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _no_file(entry.path)
    return descriptor


def remove_file(entry: Entry) -> None:
    """Unlink a file. A missing file is no error."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(entry.name, dir_fd=entry.directory)


def remove_tree(entry: Entry) -> None:
    """
    Remove a directory with everything below. A missing one is no error. Of a symbolic link the link is removed.

    Raises:
        RefusedError: UNSAFE_LOCATION, a directory became a symbolic link meanwhile.
        OSError: the entry is no directory, or can't be removed.
    """
    with contextlib.suppress(FileNotFoundError):
        if modes.S_ISLNK(os.stat(entry.name, dir_fd=entry.directory, follow_symlinks=False).st_mode):
            os.unlink(entry.name, dir_fd=entry.directory)
            return
        with opened(entry) as directory:
            with os.scandir(directory) as children:
                inside = [(child.name, child.is_dir(follow_symlinks=False)) for child in children]
            for child, is_directory in inside:
                (remove_tree if is_directory else remove_file)(Entry(directory, child, f"{entry.path}/{child}"))
        try:
            os.rmdir(entry.name, dir_fd=entry.directory)
        except NotADirectoryError:
            _status(entry)
            raise


def _no_file(path: str) -> RefusedError:
    return RefusedError(Reason.UNKNOWN_NAME, f"{path!r} isn't a file, but a link, a pipe or a directory: move it away")
