"""
What a reader reads of a partition as it is, or as if directories were gone or back.

Pure: takes listings. Knows names; opens nothing.
Source: docs/layout.md.
"""

from collections.abc import Iterable

from compactor.acid.listing import Listing
from compactor.acid.snapshot import AcidState


def seen(state: AcidState) -> tuple[str, ...]:
    """What a reader reads: names of the base and the deltas in reading order, then paths of original files."""
    base = () if state.base is None else (state.base.name,)
    return (*base, *(listed.name for listed in state.deltas), *(file.path for file in state.originals))


def without(listing: Listing, names: Iterable[str]) -> Listing:
    """A listing as if directories or files at the top level weren't there."""
    gone = set(names)

    def stays(path: str) -> bool:
        return path.split("/", 1)[0] not in gone

    return Listing(
        tuple(file for file in listing.files if stays(file.path)),
        tuple(directory for directory in listing.directories if stays(directory)),
        tuple(item for item in listing.formats if item[0] not in gone),
        tuple(item for item in listing.replaced if item[0] not in gone),
    )


def beside(listing: Listing, inside: Listing, names: Iterable[str]) -> Listing:
    """A listing as if directories or files at the top level of another one were there, too."""
    wanted = frozenset(names)

    def is_of(path: str) -> bool:
        return path.split("/", 1)[0] in wanted

    return Listing(
        (*listing.files, *(file for file in inside.files if is_of(file.path))),
        (*listing.directories, *(directory for directory in inside.directories if is_of(directory))),
        (*listing.formats, *(item for item in inside.formats if item[0] in wanted)),
        (*listing.replaced, *(item for item in inside.replaced if item[0] in wanted)),
    )


def files_of(listing: Listing) -> dict[str, dict[str, int]]:
    """Name at the top level → path → length; a directory without files has none."""
    found: dict[str, dict[str, int]] = {name: {} for name in listing.directories if "/" not in name}
    for file in listing.files:
        found.setdefault(file.path.split("/", 1)[0], {})[file.path] = file.length
    return found
