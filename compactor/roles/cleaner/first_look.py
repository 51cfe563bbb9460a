"""
What lay in a partition when the Cleaner first observed a finished compaction of it (Hive 3.1), and what that decides.

An observation of readers says only of results that were visible before it that every later reader finds them. A result
that appears afterwards may replace what such a reader still reads: an entry given back by a dead worker, a later
compaction, one that is at work. On Hive 3.1 no name tells which compaction made a directory, so the listing stays with
the observation, and what wasn't there replaces nothing for that entry: the entry of its own compaction removes it.
Source: docs/operations.md, *Cleaner*.
"""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from compactor.acid.listing import FileEntry, Listing
from compactor.acid.snapshot import AcidState
from compactor.errors import CompactorError, RefusedError
from compactor.log import get_logger
from compactor.metastore.clean.readers import Seen
from compactor.metastore.model import QueueEntry
from compactor.reasons import Reason
from compactor.roles.cleaner.trash import undecided
from compactor.roles.unreachable import AwayStores, require_removed
from compactor.storage.base import Storage
from compactor.storage.location import join

if TYPE_CHECKING:
    from compactor.roles.services import Services

_log = get_logger(__name__)
LOOK_SECONDS: Final = 60.0
"""No directory is listed after this time: the entries that are left are observed in the next cycle."""


def seen_in(listing: Listing) -> Seen:
    """The directories at the top of a listing, each with a mark of its files."""
    files: dict[str, list[FileEntry]] = {name: [] for name in listing.directories if "/" not in name}
    for file in listing.files:
        name, slash, _ = file.path.partition("/")
        if slash:
            files.setdefault(name, []).append(file)
    return {name: hash(tuple(sorted(those))) for name, those in files.items()}


def only_seen(listing: Listing, seen: Seen) -> Listing:
    """
    The listing without directories that weren't there then, or weren't what they are now.

    Original files stay: a file replaces nothing.
    """
    now = seen_in(listing)

    def was_there(path: str) -> bool:
        name, slash, _ = path.partition("/")
        return (not slash and name not in now) or (name in seen and seen[name] == now[name])

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


def seen_at(storage: Storage, location: str, table_location: str | None) -> Seen:
    """
    What lies in a directory now; nothing where it was removed.

    What a Cleaner holds that died in a removal is there too: it was replaced when it was moved, and is put back where it
    was.

    Raises:
        UnreachableError: it is missing, and its file system may not be mounted.
        CompactorError: it can't be listed.
    """
    try:
        seen = dict(seen_in(storage.list_tree(location)))
        held = storage.uploads is None and undecided(storage.directories(location))
        if held:
            for name in held:
                seen |= _held_in(storage, join(location, name))
            seen |= seen_in(storage.list_tree(location))  # what was put back meanwhile
    except RefusedError as error:
        if error.reason is not Reason.LOCATION_MISSING:
            raise
        require_removed(storage, location, table_location)
        return {}
    return seen


def _held_in(storage: Storage, trash: str) -> Seen:
    try:
        return seen_in(storage.list_tree(trash))
    except RefusedError as error:
        if error.reason is not Reason.LOCATION_MISSING:
            raise
        return {}


def look(services: "Services", entries: Sequence[QueueEntry]) -> Mapping[int, Seen]:
    """
    What lies in the directories of these entries now, by the entry's id; those are left out that can't be listed now.

    One that is refused, or missing because its file system isn't mounted, is listed again: what lies there was there,
    and no later entry may come to remove it. So is one where nothing is, for it may be between the two steps of a
    rename. The cleaning says what is wrong.
    """
    facts = services.catalog.facts_for({entry.entity for entry in entries})
    until = time.monotonic() + LOOK_SECONDS
    away = AwayStores()
    away.begin()

    def one(entry: QueueEntry) -> tuple[int, Seen | None]:
        table, partition = facts.get(entry.entity, (None, None))
        location = partition.location if partition else table.location if table else None
        if not location:
            return entry.id, None
        if time.monotonic() >= until:
            return entry.id, None
        try:
            away.check(location)
            return entry.id, seen_at(services.storage(location), location, table.location if table else None) or None
        except (CompactorError, OSError) as error:
            away.note(error)
            _log.debug("entry.not_observed", entry=entry.id, error=str(error))
            return entry.id, None

    with ThreadPoolExecutor(services.settings.cleaner.threads, thread_name_prefix="observing") as pool:
        return {number: seen for number, seen in pool.map(one, entries) if seen is not None}
