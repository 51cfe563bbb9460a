"""
Locations: Hadoop path strings, with or without a scheme.

Locations are never percent-encoded: `k=c%2Fd` is literally that directory's name. Parsing strips only the scheme and
decodes nothing. A path has one spelling: a path with `.`, `..`, an empty part or a control character is refused, so
that two places are compared part by part, and never as text.
"""

import re
from dataclasses import dataclass
from typing import Final

from compactor.errors import RefusedError
from compactor.reasons import Reason

_UNSAFE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_ONE_STORE: Final = {"": "file", "s3a": "s3", "s3n": "s3", "abfss": "abfs", "viewfs": "hdfs"}
_SCHEME: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?://(?P<authority>[^/]*))?(?P<path>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class LocationParts:
    """
    The parts of a location.

    Args:
        scheme: in lower case; empty for a plain path.
        authority: host and port, name service or bucket; may be empty.
        path: absolute, without a slash at its end.
    """

    scheme: str
    authority: str
    path: str

    @property
    def names(self) -> tuple[str, ...]:
        """The parts of the path; none for a root."""
        return tuple(self.path[1:].split("/")) if self.path != "/" else ()


Place = tuple[str, ...]
"""A store and the parts of a path. A place inside another one begins with it."""
LOCAL: Final = "file://"
"""The first part of a place on this machine's file systems."""


def split(location: str) -> LocationParts:
    """
    Split a location into its parts.

    Raises:
        RefusedError: UNSUPPORTED_STORE (a relative path), UNSAFE_LOCATION (the path has several spellings, or can't be
            shown).
    """
    match = _SCHEME.fullmatch(location)
    scheme, authority, path = (
        (match["scheme"].lower(), match["authority"] or "", match["path"]) if match is not None else ("", "", location)
    )
    if not path.startswith("/") and not (authority and not path):
        raise RefusedError(Reason.UNSUPPORTED_STORE, f"location {location!r} isn't an absolute path")
    names = path[1:].removesuffix("/")
    if names and not {"", ".", ".."}.isdisjoint(names.split("/")):
        raise RefusedError(Reason.UNSAFE_LOCATION, f"location {location!r} has '.', '..' or an empty part in its path")
    if _UNSAFE.search(location):
        raise RefusedError(Reason.UNSAFE_LOCATION, f"location {location!r} has a control character in it")
    return LocationParts(scheme, authority, "/" + names)


def place_of(location: str, *, any_host: bool = False) -> Place:
    """
    A location as a value that is compared part by part.

    Args:
        any_host: ignore the host on HDFS and local file systems: one NameNode may have several names.

    Raises:
        RefusedError: as `split`.
    """
    parts = split(location)
    scheme = _ONE_STORE.get(parts.scheme, parts.scheme)
    authority = "" if any_host and scheme in {"hdfs", "file"} else parts.authority.lower()
    return (f"{scheme}://{authority}", *parts.names)


def is_at_or_inside(place: Place, outer: Place) -> bool:
    """Whether a place is the other one, or lies anywhere below it."""
    return place[: len(outer)] == outer


def local_path(location: str) -> str:
    """
    The path of a `file:` location or of a plain path.

    Raises:
        RefusedError: UNSUPPORTED_STORE (another scheme, a host, a relative path).
    """
    parts = split(location)
    if parts.scheme not in {"", "file"} or parts.authority:
        raise RefusedError(Reason.UNSUPPORTED_STORE, f"location {location!r} isn't on a local file system")
    return parts.path


def join(location: str, *parts: str) -> str:
    """
    A location below another one. Each of `parts` may contain `/`.

    Raises:
        ValueError: a part is empty, absolute, or has `.`, `..` or an empty part in it.
    """
    for part in parts:
        if not {"", ".", ".."}.isdisjoint(part.removesuffix("/").split("/")):
            raise ValueError(f"{part!r} isn't a path below {location!r}")
    return "/".join((location.rstrip("/"), *(p.rstrip("/") for p in parts)))


def parent(location: str) -> str:
    """The location of the directory that holds a location; a root holds itself."""
    match = _SCHEME.fullmatch(location)
    path = location if match is None else match["path"]
    above = path.rstrip("/").rpartition("/")[0] or "/"
    return location[: len(location) - len(path)] + above


def name(location: str) -> str:
    """The last part of a location."""
    return location.rstrip("/").rpartition("/")[2]
