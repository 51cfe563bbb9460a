"""
Locations: Hadoop path strings, with or without a scheme.

They are never percent-encoded: `k=c%2Fd` is literally that directory's name. Only the scheme is stripped, nothing is decoded.
"""

import re
from typing import Final

from compactor.errors import RefusedError
from compactor.reasons import Reason

_SCHEME: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?://(?P<authority>[^/]*))?(?P<path>.*)", re.DOTALL)


def local_path(location: str) -> str:
    """
    The path of a `file:` location or of a plain one.

    Raises:
        RefusedError: UNSUPPORTED_STORE (another scheme, a host, a relative path).
    """
    match = _SCHEME.fullmatch(location)
    path = location if match is None else match["path"]
    if match is not None and (match["scheme"].lower() != "file" or match["authority"]):
        raise RefusedError(Reason.UNSUPPORTED_STORE, f"location {location!r} isn't on a local file system: only file: locations and plain paths are supported")
    if not path.startswith("/"):
        raise RefusedError(Reason.UNSUPPORTED_STORE, f"location {location!r} isn't an absolute path")
    return "/" + path.strip("/")


def join(location: str, *parts: str) -> str:
    """
    A location below another; parts may hold `/` themselves.

    Raises:
        ValueError: a part is empty, absolute, or climbs out by `..`.
    """
    for part in parts:
        if not part or part.startswith("/") or ".." in part.split("/"):
            raise ValueError(f"{part!r} isn't a path below {location!r}")
    return "/".join((location.rstrip("/"), *(p.rstrip("/") for p in parts)))


def parent(location: str) -> str:
    """The location of the directory that holds it."""
    return location.rstrip("/").rpartition("/")[0] or "/"


def name(location: str) -> str:
    """The last part of a location."""
    return location.rstrip("/").rpartition("/")[2]
