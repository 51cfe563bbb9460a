"""
What a finished compaction may have removed, by what lay in its directory when it was first observed (Hive 3.1).

An observation of readers says only of results that were visible before it that every later reader finds them. A result
that appears afterwards may replace what such a reader still reads: an entry given back by a dead worker, a later
compaction, one that is at work. On Hive 3.1 no name tells which compaction made a directory, so the listing stays with
the observation, and what wasn't there replaces nothing for that entry: the entry of its own compaction removes it.

Pure: compares listings. There may be a hundred thousand observations, so each keeps eight bytes for a directory.
Source: docs/protocol.md, *Hive 3.1: only what was replaced when the entry was first observed*.
"""

from array import array
from collections.abc import Mapping
from typing import Final

from compactor.acid.listing import FileEntry, Listing
from compactor.acid.snapshot import AcidState

Seen = bytes
"""Eight bytes for each directory that lay in a partition: a mark that differs when the name or the files do."""
NOTHING: Final[Seen] = b""


def marks_in(listing: Listing) -> Mapping[str, int]:
    """A mark of each directory at the top of a listing, and its files; comparable within one process."""
    files: dict[str, list[FileEntry]] = {name: [] for name in listing.directories if "/" not in name}
    for file in listing.files:
        name, slash, _ = file.path.partition("/")
        if slash:
            files.setdefault(name, []).append(file)
    return {name: hash((name, *sorted(those))) for name, those in files.items()}


def seen_of(marks: Mapping[str, int]) -> Seen:
    """What is kept of them."""
    return array("q", sorted(marks.values())).tobytes()


def only_seen(listing: Listing, seen: Seen) -> Listing:
    """
    The listing without directories that weren't there then, or weren't what they are now.

    Original files stay: a file replaces nothing.
    """
    now, then = marks_in(listing), frozenset(array("q", seen))

    def was_there(path: str) -> bool:
        name, slash, _ = path.partition("/")
        return (not slash and name not in now) or (name in now and now[name] in then)

    return Listing(
        files=tuple(file for file in listing.files if was_there(file.path)),
        directories=tuple(name for name in listing.directories if was_there(name)),
        formats=tuple((name, value) for name, value in listing.formats if was_there(f"{name}/")),
        replaced=tuple((name, files) for name, files in listing.replaced if was_there(f"{name}/")),
    )


def replaced_then(state: AcidState, then: AcidState | None) -> tuple[frozenset[str], frozenset[FileEntry]]:
    """
    Directories and original files that are replaced now and were so by what lay there then.

    Args:
        then: what the part of the listing that was there then means; None: it has no meaning by itself.
    """
    if then is None:
        return frozenset(), frozenset()
    names = {listed.name for listed in then.obsolete}
    directories = frozenset(listed.name for listed in state.obsolete if listed.name in names)
    return directories, frozenset(state.obsolete_originals) & frozenset(then.obsolete_originals)
