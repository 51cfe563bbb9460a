"""
Lists the directories of finished compactions of which no observation has a listing yet (Hive 3.1).

What such a listing decides is the business of `planning.observed`.
Source: docs/operations.md, *Cleaner*.
"""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from compactor.errors import CompactorError, RefusedError
from compactor.log import get_logger
from compactor.metastore.model import QueueEntry
from compactor.planning.observed import NOTHING, Seen, marks_in, seen_of
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
        listing = storage.list_tree(location)
        marks = dict(marks_in(listing))
        if storage.uploads is None and (held := undecided(listing.directories)):
            for name in held:
                marks |= _held_in(storage, join(location, name))
            marks |= marks_in(storage.list_tree(location))  # what was put back meanwhile
    except RefusedError as error:
        if error.reason is not Reason.LOCATION_MISSING:
            raise
        require_removed(storage, location, table_location)
        return NOTHING
    return seen_of(marks)


def _held_in(storage: Storage, trash: str) -> Mapping[str, int]:
    try:
        return marks_in(storage.list_tree(trash))
    except RefusedError as error:
        if error.reason is not Reason.LOCATION_MISSING:
            raise
        return {}


def look(services: "Services", entries: Sequence[QueueEntry]) -> Mapping[int, Seen | None]:
    """
    What lies in the directories of these entries now, by the entry's id: None if it can't be listed now. Entries that
    weren't reached in time are left out, and so are those of tables that aren't included (`control.only`).

    One that is refused, or missing because its file system isn't mounted, is listed again: what lies there was there,
    and no later entry may come to remove it. So is one where nothing is, for it may be between the two steps of a
    rename. The cleaning says what is wrong.
    """
    included = [entry for entry in entries if services.control.includes(entry.entity.database, entry.entity.table)]
    facts = services.catalog.facts_for({entry.entity for entry in included})
    until = time.monotonic() + LOOK_SECONDS
    away = AwayStores()
    away.begin()

    def one(entry: QueueEntry) -> tuple[int, Seen | None] | None:
        table, partition = facts.get(entry.entity, (None, None))
        location = partition.location if partition else table.location if table else None
        if not location:
            return entry.id, None
        if time.monotonic() >= until:
            return None
        try:
            away.check(location)
            return entry.id, seen_at(services.storage(location), location, table.location if table else None) or None
        except (CompactorError, OSError) as error:
            away.note(error)
            _log.debug("entry.not_observed", entry=entry.id, error=str(error))
            return entry.id, None

    with ThreadPoolExecutor(services.settings.cleaner.threads, thread_name_prefix="observing") as pool:
        return dict(reached for reached in pool.map(one, included) if reached is not None)
