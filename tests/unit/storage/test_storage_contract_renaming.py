"""The contract of every driver (see conftest.py): what publishing by renaming promises."""

import pytest

from compactor.storage.location import join
from tests.unit.storage.contract import meanwhile, together, tree, won


def test_rename_moves_a_directory_with_everything_below(renaming):
    """After the rename the tree is at the target and gone at the source."""
    storage, top = renaming
    tree(storage, top, "staging/out/bucket_00000", "staging/out/_orc_acid_version")
    storage.rename_noreplace(join(top, "staging/out"), join(top, "base_5"))
    assert [f.path for f in storage.list_tree(top).files] == ["base_5/_orc_acid_version", "base_5/bucket_00000"]
    assert not storage.exists(join(top, "staging/out"))


@pytest.mark.parametrize("target", ["empty/", "full/x", "file"])
@pytest.mark.parametrize("source", ["from/y", "from_file"])
def test_rename_refuses_whatever_is_at_the_target(renaming, source, target):
    """An empty directory, a full one and a file all stop it; nothing is nested, nothing is replaced."""
    storage, top = renaming
    tree(storage, top, source, target)
    before = storage.list_tree(top)
    with pytest.raises(FileExistsError):
        storage.rename_noreplace(join(top, source.split("/")[0]), join(top, target.split("/")[0]))
    assert storage.list_tree(top) == before


def test_rename_needs_its_source_and_the_targets_parent(renaming):
    """A source that is gone fails the rename: that is the fence against a paused process."""
    storage, top = renaming
    tree(storage, top, "here/x", "taken/x")
    for source, target in (("gone", "new"), ("gone", "taken"), ("here", "nowhere/new")):
        with pytest.raises(FileNotFoundError):
            storage.rename_noreplace(join(top, source), join(top, target))
    assert storage.exists(join(top, "here/x"))


def test_of_many_renames_to_one_target_exactly_one_wins(renaming):
    """The refusal is atomic: of concurrent renames one succeeds, the others find the target taken."""
    storage, top = renaming
    tree(storage, top, *(f"s{i}/x" for i in range(8)))
    outcomes = together(
        8, lambda number: won(lambda: storage.rename_noreplace(join(top, f"s{number}"), join(top, "base_1")))
    )
    assert sorted(outcomes) == [False] * 7 + [True]
    assert len(storage.directories(top)) == 8


def test_a_lister_beside_a_publisher_sees_whole_directories(renaming):
    """
    A directory that is moved in meanwhile is listed with everything that is in it, or not at all; no error comes of it.
    """
    storage, top = renaming
    names = ("a", "b", "c")
    tree(storage, top, "partition/", *(f"staging/{number}/{name}" for number in range(8) for name in names))

    def publish() -> None:
        for number in range(8):
            storage.rename_noreplace(join(top, "staging", f"{number}"), join(top, "partition", f"base_{number}"))

    seen = 0
    for listing in meanwhile(publish, lambda: storage.list_tree(join(top, "partition"))):
        assert [file.path for file in listing.files] == [
            f"{directory}/{name}" for directory in listing.directories for name in names
        ]
        assert seen <= len(listing.directories)
        seen = len(listing.directories)
    assert seen == 8
