"""What an observation of readers holds for: the results that were there before it (Hive 3.1)."""

from types import SimpleNamespace

import pytest

from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.acid.listing import FileEntry, Listing
from compactor.acid.snapshot import resolve
from compactor.acid.write_ids import CleanerWriteIdList
from compactor.errors import RefusedError
from compactor.metastore.model import Entity, QueueEntry, QueueState
from compactor.reasons import Reason
from compactor.roles.cleaner.first_look import look, only_seen, replaced_then, seen_in


def _listing(*names, originals=(), mtime=1):
    files = [FileEntry(f"{name}/bucket_00000", 10, mtime) for name in names]
    return Listing((*files, *(FileEntry(name, 5) for name in originals)), names)


def _replaced(now, seen):
    write_ids = CleanerWriteIdList("db.t", 9)
    state = resolve(now, write_ids, None, LayoutVersion.HIVE_3)
    then = resolve(only_seen(now, seen), write_ids, None, LayoutVersion.HIVE_3)
    return sorted(replaced_then(state, then)[0])


def test_what_was_there_replaces_what_it_covers():
    """As without an observation."""
    listing = _listing("base_5", "delta_4_4", "delta_5_5")
    assert _replaced(listing, seen_in(listing)) == ["delta_4_4", "delta_5_5"]


def test_what_came_later_replaces_nothing():
    """A reader that began in between reads base_3 and the minor's delta_4_6, and nothing waits for it."""
    before = _listing("base_3", "delta_4_4", "delta_5_5", "delta_6_6", "delta_4_6")
    now = _listing("base_3", "base_6", *before.directories[1:])
    assert _replaced(now, seen_in(before)) == ["delta_4_4", "delta_5_5", "delta_6_6"]


def test_a_directory_made_anew_is_another_one():
    """Its name is the same on Hive 3.1; its files aren't."""
    names = ("base_5", "delta_4_4", "delta_5_5")
    assert _replaced(_listing(*names), seen_in(_listing(*names, mtime=2))) == []


def test_without_a_meaning_of_its_own_nothing_is_replaced():
    """What was there may have been replaced, and removed, by now."""
    state = resolve(_listing("base_5", "delta_5_5"), CleanerWriteIdList("db.t", 9), None, LayoutVersion.HIVE_3)
    assert replaced_then(state, None) == (frozenset(), frozenset())


def test_original_files_stay_in_the_listing():
    """They replace nothing, so it doesn't matter when they came; a directory of them is one like any other."""
    listing = _listing("base_5", originals=("000000_0",))
    assert only_seen(listing, {}) == Listing((FileEntry("000000_0", 5),), ())


class _Store:
    """A store in which these directories are there, and no other can be listed."""

    mounts = True

    def __init__(self, there, reason):
        self._there, self._reason = there, reason

    def list_tree(self, location):
        raise RefusedError(self._reason, f"{location} can't be listed")

    def exists(self, location):
        return location in self._there

    def directories(self, location):
        return ("p=2",) if location in self._there else ()


@pytest.mark.parametrize(
    ("there", "reason", "seen"),
    [
        (["/w/t"], Reason.LOCATION_MISSING, {7: {}}),
        ([], Reason.LOCATION_MISSING, {}),
        (["/w/t", "/w/t/p=1"], Reason.UNKNOWN_NAME, {}),
    ],
    ids=["removed", "not mounted", "refused"],
)
def test_what_cannot_be_listed_is_listed_again(there, reason, seen):
    """
    Only a directory that was removed shows nothing. With an empty observation the entry of any other would be cleaned
    once it can be listed, with nothing removed, and what was replaced would stay for good.
    """
    entry = QueueEntry(7, Entity("db", "t", "p=1"), CompactionKind.MAJOR, QueueState.READY_FOR_CLEANING)
    found = {entry.entity: (SimpleNamespace(location="/w/t"), SimpleNamespace(location="/w/t/p=1"))}
    services = SimpleNamespace(
        catalog=SimpleNamespace(facts_for=lambda _: found),
        storage=lambda _: _Store(there, reason),
        settings=SimpleNamespace(cleaner=SimpleNamespace(threads=1)),
    )
    assert look(services, [entry]) == seen
