"""What an observation of readers holds for: the results that were there before it (Hive 3.1)."""

from compactor.acid.compaction import LayoutVersion
from compactor.acid.listing import FileEntry, Listing
from compactor.acid.snapshot import resolve
from compactor.acid.write_ids import CleanerWriteIdList
from compactor.roles.cleaner.first_look import only_seen, replaced_then, seen_in


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
