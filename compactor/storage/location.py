"""
Locations: Hadoop path strings, with or without a scheme.

They are never percent-encoded: `k=c%2Fd` is literally that directory's name. Only the scheme is stripped, nothing is decoded.
"""

import re
from dataclasses import dataclass
from typing import Final

from compactor.errors import RefusedError
from compactor.reasons import Reason

_SCHEME: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?://(?P<authority>[^/]*))?(?P<path>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Parts:
    """
    A location taken apart.

    Args:
        scheme: in lower case; empty for a plain path.
        authority: host and port, name service or bucket; may be empty.
        path: absolute, without a slash at its end.
    """

    scheme: str
    authority: str
    path: str


def split(location: str) -> Parts:
    """
    Take a location apart.

    Raises:
        RefusedError: UNSUPPORTED_STORE (a relative path).
    """
    match = _SCHEME.fullmatch(location)
    scheme, authority, path = (match["scheme"].lower(), match["authority"] or "", match["path"]) if match is not None else ("", "", location)
    if not path.startswith("/") and not (authority and not path):
        raise RefusedError(Reason.UNSUPPORTED_STORE, f"location {location!r} isn't an absolute path")
    return Parts(scheme, authority, "/" + path.strip("/"))


def local_path(location: str) -> str:
    """
    The path of a `file:` location or of a plain one.

    Raises:
        RefusedError: UNSUPPORTED_STORE (another scheme, a host, a relative path).
    """
    parts = split(location)
    if parts.scheme not in {"", "file"} or parts.authority:
        raise RefusedError(Reason.UNSUPPORTED_STORE, f"location {location!r} isn't on a local file system")
    return parts.path


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
    """The location of the directory that holds it; a root holds itself."""
    match = _SCHEME.fullmatch(location)
    path = location if match is None else match["path"]
    above = path.rstrip("/").rpartition("/")[0] or "/"
    return location[: len(location) - len(path)] + above


def name(location: str) -> str:
    """The last part of a location."""
    return location.rstrip("/").rpartition("/")[2]
