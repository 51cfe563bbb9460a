"""
Symbolic links on the way to a local place.

Places are compared by their names (`location`): through a link below a root, what belongs to another has a second name. A few calls of lstat for each question; a link
that is put there later than that is not seen.
Source: docs/storage.md.
"""

import os
import stat as modes
from typing import Final

from compactor.storage.failures import explained
from compactor.storage.location import Place

LOCAL: Final = "file://"
"""The first part of a place on this machine's file systems."""


def link_below(root: Place, place: Place) -> str | None:
    """
    The first symbolic link among the parts of a place below its root; None where there is none, or the place isn't local.

    Raises:
        RefusedError, UnreachableError: a part can't be looked at.
    """
    if place[0] != LOCAL:
        return None
    for depth in range(len(root) + 1, len(place) + 1):
        path = "/" + "/".join(place[1:depth])
        try:
            with explained("look at", path):
                found = os.lstat(path)
        except FileNotFoundError:
            return None
        if modes.S_ISLNK(found.st_mode):
            return path
    return None
