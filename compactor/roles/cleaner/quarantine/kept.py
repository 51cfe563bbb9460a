"""
Describes what the Cleaner keeps in quarantine, and removes it when its time is over.

Only a manifest proves how old a quarantine directory is (`manifest`). Without a readable one the directory stays, and
the log says so once. Times are those of the database clock.
Source: docs/operations.md, Quarantine.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from compactor.errors import RefusedError, UsageError
from compactor.log import get_logger
from compactor.metastore.model import TableFacts
from compactor.planning.thresholds import quarantine_hours
from compactor.reasons import Reason
from compactor.roles.cleaner.quarantine.manifest import LIMIT, MANIFEST, QuarantineManifest, decode
from compactor.roles.cleaner.trash import is_quarantine, remove_hidden
from compactor.roles.services import Services
from compactor.storage.base import Storage
from compactor.storage.location import join

_log = get_logger(__name__)
_told: Final[set[str]] = set()
"""Quarantine directories without a readable manifest of which the log has told."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One quarantine directory; without a readable manifest, `manifest` is None."""

    name: str
    manifest: QuarantineManifest | None


def hours_for(services: Services, table: TableFacts | None) -> float:
    """
    For how many hours what is removed from a table stays in quarantine; 0: not at all.

    Raises:
        RefusedError: BAD_PROPERTY: the table's property can't be read.
    """
    default = services.settings.cleaner.quarantine_hours
    try:
        return default if table is None else quarantine_hours(default, table.parameters)
    except UsageError as error:
        raise RefusedError(Reason.BAD_PROPERTY, str(error)) from None


def kept_in(storage: Storage, location: str, names: Iterable[str]) -> tuple[Kept, ...]:
    """
    The quarantine directories among the names in a directory, ascending. One that vanishes meanwhile has no manifest.
    """
    return tuple(Kept(name, read_manifest(storage, location, name)) for name in sorted(names) if is_quarantine(name))


def read_manifest(storage: Storage, location: str, name: str) -> QuarantineManifest | None:
    """The manifest of a quarantine directory; None where it is missing or can't be read."""
    try:
        return decode(storage.read_small(join(location, name, MANIFEST), LIMIT))
    except FileNotFoundError:
        return None
    except RefusedError as error:
        if error.reason is not Reason.CORRUPT_FILE:
            raise
        return None


def holds_nothing(storage: Storage, location: str, name: str) -> bool:
    """Whether nothing but a manifest is in a quarantine directory: everything went back, or nothing had come yet."""
    try:
        left = storage.list_tree(join(location, name))
    except RefusedError as error:
        if error.reason is not Reason.LOCATION_MISSING:
            raise
        return False
    return not left.directories and all(file.path == MANIFEST for file in left.files)


def remove_overdue(storage: Storage, location: str, names: Iterable[str], now_ms: int) -> int:
    """
    Remove the quarantine directories whose time is over; only for the holder of the Cleaner's mutex.

    Args:
        names: of what lies directly in the location.

    Returns how many with a readable manifest are left.
    """
    left = 0
    for kept in kept_in(storage, location, names):
        place = join(location, kept.name)
        if kept.manifest is None:
            if holds_nothing(storage, location, kept.name):
                remove_hidden(storage, location, [kept.name])
            elif place not in _told and storage.exists(place):
                _told.add(place)
                _log.warning("quarantine.unproven", directory=place, why=f"it has no readable {MANIFEST}: it stays")
        elif now_ms >= kept.manifest.until_ms:
            remove_hidden(storage, location, [kept.name])
            _log.info("quarantine.removed", directory=place, bytes=kept.manifest.length)
        else:
            left += 1
    return left
