"""
POSIX access control lists of local files and directories, as Linux keeps them in extended attributes.

A list is carried over as its bytes: Linux checks them. Of a file's list only the right to execute is taken away.
NFSv4 and CIFS keep lists of another kind, which aren't carried over.
Source: acl(5); Linux' posix_acl_xattr.h.
"""

import errno
import os
import struct
from dataclasses import dataclass
from typing import Final

_ACCESS: Final = "system.posix_acl_access"
_DEFAULT: Final = "system.posix_acl_default"
_ENTRY: Final = struct.Struct("<HHI")
_HEADER: Final = 4
_EXECUTE: Final = 1
_NONE: Final = frozenset({errno.ENODATA, errno.ENOTSUP, errno.ENOSYS})
"""Errors that mean "there is no list": there is none here, or none on this file system."""


@dataclass(frozen=True, slots=True)
class AccessLists:
    """
    The lists of a directory, each None where there is none: then the mode says all.

    Args:
        access: for the directory itself.
        default: for what will be made in it.
    """

    access: bytes | None
    default: bytes | None

    def of_file(self) -> "AccessLists":
        """The lists of a file in the directory: the same people, without the right to execute."""
        if self.access is None:
            return AccessLists(None, None)
        entries = _ENTRY.iter_unpack(self.access[_HEADER:])
        kept = (_ENTRY.pack(tag, rights & ~_EXECUTE, who) for tag, rights, who in entries)
        return AccessLists(self.access[:_HEADER] + b"".join(kept), None)


def access_lists(directory: int) -> AccessLists:
    """The lists of an open directory."""
    return AccessLists(_read(directory, _ACCESS), _read(directory, _DEFAULT))


def give_access_lists(descriptor: int, lists: AccessLists) -> None:
    """Give an open file or directory these lists, and take away those that it got from the directory above."""
    _write(descriptor, _ACCESS, lists.access)
    _write(descriptor, _DEFAULT, lists.default)


def _read(descriptor: int, name: str) -> bytes | None:
    try:
        return os.getxattr(descriptor, name)
    except OSError as error:
        if error.errno not in _NONE:
            raise
        return None


def _write(descriptor: int, name: str, value: bytes | None) -> None:
    if value is not None:
        if _read(descriptor, name) != value:
            os.setxattr(descriptor, name, value)
    elif _read(descriptor, name) is not None:
        os.removexattr(descriptor, name)
