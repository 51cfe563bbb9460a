"""
Translates errors of the operating system into those of `compactor.errors`.

FileNotFoundError and FileExistsError pass through, because callers decide on them. Every other error becomes one of
`compactor.errors`, in one line with the path.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from compactor.errors import CompactorError, RefusedError, UnreachableError
from compactor.reasons import Reason

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_FORBIDDEN: Final = frozenset({errno.EACCES, errno.EPERM})
_GONE: Final = frozenset({errno.EIO, errno.ESTALE, errno.ENODEV, errno.ENXIO, errno.ETIMEDOUT, errno.EROFS})
"""A file system becomes read-only when its disk fails, or while an operator repairs it: that passes."""


@contextmanager
def explained(doing: str, path: str) -> Iterator[None]:
    """
    Translate an OSError raised inside the block into the error that says what to do about it. `doing` is the verb of
    the message, as in "can't write".
    """
    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError as error:
        raise explanation(error, doing, path) from error


def explanation(error: OSError, doing: str, path: str) -> CompactorError:
    """The error to raise for an OSError other than FileNotFoundError and FileExistsError."""
    what = f"can't {doing} {path!r}: {error.strerror or error}"
    if isinstance(error, NotADirectoryError):
        return RefusedError(Reason.LOCATION_MISSING, what)
    if error.errno in _FULL:
        return RefusedError(Reason.DISK_FULL, f"{what}; free some space, then retry")
    if error.errno in _FORBIDDEN:
        return RefusedError(Reason.PERMISSION_DENIED, f"{what}; the daemon's user needs read and write access there")
    if error.errno in _GONE:
        return UnreachableError(what)
    return CompactorError(what)


def missing(path: str) -> FileNotFoundError:
    """The error for a path where nothing is."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def taken(path: str) -> FileExistsError:
    """The error for a path where something is already."""
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
