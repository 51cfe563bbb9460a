"""
Rename that refuses to replace: Linux's renameat2 with RENAME_NOREPLACE.

Plain rename replaces an empty directory silently, so it is never used instead: a file system that can't refuse is refused.
Source: renameat2(2).
"""

import ctypes
import errno
import os
import platform
import sys
from typing import Final

from compactor.errors import RefusedError
from compactor.reasons import Reason
from compactor.storage.failures import explanation

_CURRENT_DIRECTORY: Final = -100
_NOREPLACE: Final = 1
_SYSTEM_CALLS: Final = {"x86_64": 316, "aarch64": 276, "arm64": 276, "ppc64le": 357, "s390x": 347, "riscv64": 276}
_UNABLE: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})


def rename_noreplace(source: str, target: str) -> None:
    """
    Move `source` to `target` atomically, only if nothing is at `target`.

    Raises:
        FileExistsError: something is there, be it an empty directory.
        FileNotFoundError: no source, or no directory to hold the target.
        RefusedError: UNSUPPORTED_STORE (the operating system or this file system can't), PERMISSION_DENIED, DISK_FULL.
    """
    code = _renameat2(os.fsencode(source), os.fsencode(target))
    if code == 0:
        return
    if code == errno.EEXIST:
        raise FileExistsError(code, os.strerror(code), target)
    if code in {errno.ENOENT, errno.ENOTDIR}:
        raise FileNotFoundError(code, os.strerror(code), source, None, target)
    if code in _UNABLE:
        what = f"can't rename {source!r} to {target!r} without the risk of replacing something"
        raise RefusedError(Reason.UNSUPPORTED_STORE, f"{what}: the file system or the kernel lacks renameat2 with RENAME_NOREPLACE")
    if code == errno.EXDEV:
        raise RefusedError(Reason.UNSUPPORTED_STORE, f"can't rename {source!r} to {target!r}: they are on different file systems")
    raise explanation(OSError(code, os.strerror(code)), f"rename {source!r} to", target)


def _renameat2(source: bytes, target: bytes) -> int:
    """Zero, or the error number. Goes through glibc's wrapper, or through the bare system call where the C library has none."""
    library = ctypes.CDLL(None, use_errno=True)
    arguments = (
        ctypes.c_int(_CURRENT_DIRECTORY),
        ctypes.c_char_p(source),
        ctypes.c_int(_CURRENT_DIRECTORY),
        ctypes.c_char_p(target),
        ctypes.c_uint(_NOREPLACE),
    )
    wrapper = getattr(library, "renameat2", None)
    if wrapper is not None:
        outcome = wrapper(*arguments)
    else:
        number = _SYSTEM_CALLS.get(platform.machine()) if sys.platform == "linux" else None
        if number is None:
            return errno.ENOSYS
        library.syscall.restype = ctypes.c_long
        outcome = library.syscall(ctypes.c_long(number), *arguments)
    return 0 if outcome == 0 else ctypes.get_errno()
