"""Which renames undo a compaction: one look stands for every state on the way, at a cost that grows with the listings."""

from dataclasses import replace

import pytest
from hypothesis import event, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from compactor.acid.compaction import LayoutVersion
from compactor.acid.listing import FileEntry, Listing
from compactor.acid.names import base_name, delta_name
from compactor.acid.snapshot import ReadSnapshot
from compactor.acid.write_ids import ValidTxnList, ValidWriteIdList
from compactor.errors import RefusedError
from compactor.roles.cleaner.quarantine.manifest import KeptDirectory, KeptFiles, QuarantineManifest
from compactor.roles.cleaner.quarantine.sight import beside, seen
from compactor.roles.cleaner.quarantine.undo import require_none_aborted, undo_of
from tests import strategies


def listing(names):
    """Directories with a file each; a name with no prefix of a directory is a file."""
    directories = tuple(name for name in names if not name.startswith("0"))
    files = tuple(FileEntry(f"{name}/bucket_00000" if name in directories else name, 7) for name in names)
    return Listing(files, directories)


def kept_files(name, of=KeptFiles, **more):
    return of(name, ((f"{name}/bucket_00000", 7),), **more)


@given(
    st.lists(strategies.names_in_a_partition(), max_size=5, unique=True),
    st.lists(strategies.names_in_a_partition(), min_size=1, max_size=5, unique=True),
    strategies.write_id_lists(),
    strategies.txn_lists(),
    st.data(),
)
@hypothesis_settings(max_examples=400)
def test_what_is_not_read_all_together_is_read_in_no_part(here, back, write_ids, txns, data):
    """Whatever of it is back, and in whatever order: readers read what they read before, or all together shows it."""
    back = [name for name in back if name not in here]
    now, inside, sight = listing(here), listing(back), ReadSnapshot(LayoutVersion.HIVE_4, write_ids, txns)
    try:
        before = seen(sight.resolve(now))
        together = seen(sight.resolve(beside(now, inside, back)))
    except RefusedError:
        return
    event("read beside" if together != before else "not read")
    if together == before:
        part = data.draw(st.lists(st.sampled_from(back), unique=True) if back else st.just([]))
        assert seen(sight.resolve(beside(now, inside, part))) == before


def many(count):
    """A major compaction of so many deltas, all of them in quarantine."""
    names = [delta_name(number, number, 0) for number in range(1, count + 1)]
    result = base_name(count, 900)
    manifest = QuarantineManifest(
        entry=1,
        what="db.t",
        tbl_id=1,
        kept_ms=0,
        until_ms=1,
        directories=tuple(kept_files(name, KeptDirectory, replaced=True) for name in names),
        highest_write_id=count,
        result=(kept_files(result),),
        read_before=tuple(names),
    )
    return manifest, listing([result]), listing(names)


@pytest.mark.parametrize("count", [3, 300])
def test_the_rules_of_readers_are_asked_as_often_for_many_directories_as_for_few(monkeypatch, count):
    """Each time costs as much as the partition is large, so once for each directory would be too often."""
    asked = []
    resolve = ReadSnapshot.resolve
    monkeypatch.setattr(ReadSnapshot, "resolve", lambda its, found: (asked.append(1), resolve(its, found))[1])
    manifest, here, inside = many(count)
    sight = ReadSnapshot(LayoutVersion.HIVE_4, ValidWriteIdList("db.t", count), ValidTxnList(900))
    undo = undo_of("kept", manifest, here, inside, sight)
    require_none_aborted(undo, {})
    assert len(undo.back) == count
    assert len(asked) == 3


def test_what_is_to_be_there_is_told_by_names_and_lengths():
    """A file that is missing, longer or new is another state; what is hidden isn't looked at."""
    manifest, here, inside = many(2)
    sight = ReadSnapshot(LayoutVersion.HIVE_4, ValidWriteIdList("db.t", 2), ValidTxnList(900))
    undo = undo_of("kept", manifest, here, inside, sight)
    assert undo.is_before(undo.before)
    hidden = Listing(undo.before.files, (*undo.before.directories, ".trash-compactor-1-12345678-undo"))
    assert undo.is_before(hidden)
    for other in (
        Listing(undo.before.files[1:], undo.before.directories),
        Listing((FileEntry(undo.before.files[0].path, 8), *undo.before.files[1:]), undo.before.directories),
        Listing(undo.before.files, (*undo.before.directories, "delta_0000003_0000003_0000")),
    ):
        assert not undo.is_before(other)


def test_a_manifest_that_names_a_directory_twice_is_refused():
    """The second rename would find nothing."""
    manifest, here, inside = many(2)
    twice = replace(manifest, directories=(*manifest.directories, manifest.directories[0]))
    sight = ReadSnapshot(LayoutVersion.HIVE_4, ValidWriteIdList("db.t", 2), ValidTxnList(900))
    with pytest.raises(RefusedError, match="twice"):
        undo_of("kept", twice, here, inside, sight)


@pytest.mark.parametrize(
    ("left", "read"),
    [
        (["delta_0000001_0000003_v0000009"], ("delta_0000001_0000003_v0000009",)),
        (["delete_delta_0000001_0000003_v0000009"], ("delete_delta_0000001_0000003_v0000009",)),
    ],
)
def test_half_of_a_result_of_two_hides_all_that_was_replaced(left, read):
    """Deleted rows would be shown, or the rows of all deltas be missing: therefore such a result is never taken away."""
    back = ["delta_0000001_0000001_0000", "delta_0000002_0000002_0000", "delete_delta_0000003_0000003_0000"]
    sight = ReadSnapshot(LayoutVersion.HIVE_4, ValidWriteIdList("db.t", 3), ValidTxnList(9))
    assert seen(sight.resolve(listing([*left, *back]))) == read
    manifest, _, inside = many(3)
    two = replace(
        manifest,
        result=(kept_files("delta_0000001_0000003_v0000009"), kept_files("delete_delta_0000001_0000003_v0000009")),
    )
    with pytest.raises(RefusedError, match="no file system takes both away in one step"):
        undo_of("kept", two, listing([one.name for one in two.result]), inside, sight)
