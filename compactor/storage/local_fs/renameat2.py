"""
Renames without replacing: Linux's renameat2 with RENAME_NOREPLACE.

Plain rename replaces an empty directory silently, so it is never used instead: where the file system lacks
RENAME_NOREPLACE, the call is refused.
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
from compactor.storage.local_fs.beneath import Entry

_NOREPLACE: Final = 1
_SYSTEM_CALLS: Final = {"x86_64": 316, "aarch64": 276, "arm64": 276, "ppc64le": 357, "s390x": 347, "riscv64": 276}
_UNABLE: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})


def rename_noreplace(source: Entry, target: Entry) -> None:
    """
    Move `source` to `target` atomically, only if nothing is at `target`.

    Raises:
        FileExistsError: the target exists, even as an empty directory.
        FileNotFoundError: the source or the target's directory doesn't exist.
        RefusedError: UNSUPPORTED_STORE (the operating system or the file system can't do it).
        OSError: any other failure.
    """
    code = _renameat2(source, target)
    if code == 0:
        return
    if code == errno.EEXIST:
        raise FileExistsError(code, os.strerror(code), target.path)
    if code in {errno.ENOENT, errno.ENOTDIR}:
        raise FileNotFoundError(code, os.strerror(code), source.path, None, target.path)
    if code in _UNABLE:
        what = f"can't rename {source.path!r} to {target.path!r} without the risk of replacing another file"
        raise RefusedError(
            Reason.UNSUPPORTED_STORE, f"{what}: the file system or the kernel lacks renameat2 with RENAME_NOREPLACE"
        )
    if code == errno.EXDEV:
        raise RefusedError(
            Reason.UNSUPPORTED_STORE,
            f"can't rename {source.path!r} to {target.path!r}: they are on different file systems",
        )
    raise OSError(code, os.strerror(code), source.path, None, target.path)


def _renameat2(source: Entry, target: Entry) -> int:
    """
    Call renameat2; returns 0 or the error number. Uses glibc's wrapper, or the bare system call where the C library has
    no wrapper.
    """
    library = ctypes.CDLL(None, use_errno=True)
    arguments = (
        ctypes.c_int(source.directory),
        ctypes.c_char_p(os.fsencode(source.name)),
        ctypes.c_int(target.directory),
        ctypes.c_char_p(os.fsencode(target.name)),
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
