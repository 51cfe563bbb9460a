"""
The contract of every driver (see conftest.py): what publishing file by file promises, where nothing can be renamed.
"""

import pytest

from compactor.errors import RefusedError
from compactor.reasons import Reason
from compactor.storage.location import join
from tests.unit.storage.contract import meanwhile, put, together, tree, won


def test_a_store_without_rename_refuses_it(preparing):
    """With its reason, and without effect."""
    storage, top = preparing
    tree(storage, top, "d/f")
    with pytest.raises(RefusedError, match="can't rename") as caught:
        storage.rename_noreplace(join(top, "d"), join(top, "e"))
    assert caught.value.reason is Reason.UNSUPPORTED_STORE
    assert [f.path for f in storage.list_tree(top).files] == ["d/f"]


def test_a_prepared_file_is_unseen_until_it_is_completed(preparing):
    """
    Readers see all of it or nothing; who prepared it is known afterwards; its directory counts as there before for
    whoever clears up.
    """
    storage, top = preparing
    tree(storage, top, ".staging/f")
    prepared = storage.uploads.prepare(
        join(top, ".staging/f"), join(top, "base_5/f"), "7-a", join(top, ".staging/noted")
    )
    assert storage.list_tree(top).files == ()
    assert storage.uploads.owner_of(prepared.target) is None
    prepared.complete()
    assert storage.read_small(join(top, "base_5/f")) == b".staging/f"
    assert (storage.uploads.owner_of(prepared.target), storage.uploads.owner_of(join(top, ".staging/f"))) == ("7-a", "")
    assert storage.uploads.contents(top).uploads == ()
    with pytest.raises(FileNotFoundError):
        storage.uploads.prepare(join(top, "gone"), join(top, "base_5/g"), "7-a", join(top, ".staging/noted"))


def test_of_many_completions_of_one_name_exactly_one_wins(preparing):
    """The others find it taken, and what the winner made stays."""
    storage, top = preparing
    tree(storage, top, *(f".s{i}/f" for i in range(4)))
    prepared = [
        storage.uploads.prepare(join(top, f".s{i}/f"), join(top, "base_5/f"), str(i), join(top, f".s{i}/noted"))
        for i in range(4)
    ]
    outcomes = together(4, lambda number: won(prepared[number].complete))
    for upload, complete in zip(prepared, outcomes, strict=True):
        if not complete:
            upload.abort()
    assert [str(number) for number, complete in enumerate(outcomes) if complete] == [
        storage.uploads.owner_of(join(top, "base_5/f"))
    ]
    assert storage.uploads.contents(top).uploads == ()


def test_a_lister_beside_a_completer_sees_whole_files(preparing):
    """A file that appears meanwhile has its whole length from the first moment, and stays; no error comes of it."""
    storage, top = preparing
    data = bytes(range(256)) * 64
    storage.mkdir(join(top, ".staging"))
    put(storage, join(top, ".staging/f"), data)
    prepared = [
        storage.uploads.prepare(
            join(top, ".staging/f"), join(top, f"base_5/{number}"), "7-a", join(top, ".staging/noted")
        )
        for number in range(8)
    ]

    def complete() -> None:
        for item in prepared:
            item.complete()

    seen = 0
    for listing in meanwhile(complete, lambda: storage.list_tree(top)):
        assert {file.length for file in listing.files} <= {len(data)}
        assert seen <= len(listing.files)
        seen = len(listing.files)
    assert seen == 8
    assert all(storage.read_small(item.target) == data for item in prepared)


def test_what_was_withdrawn_never_appears(preparing):
    """
    A process that was paused between preparing and completing finds nothing to complete, and can't prepare again: its
    source is gone.
    """
    storage, top = preparing
    tree(storage, top, ".staging/f", ".staging/g")
    first, second = (
        storage.uploads.prepare(
            join(top, f".staging/{name}"), join(top, f"base_5/{name}"), "7-a", join(top, ".staging/noted")
        )
        for name in "fg"
    )
    first.complete()
    assert "base_5" in storage.directories(top)
    for name in (".staging", "base_5"):
        assert storage.withdraw(join(top, name), join(top, ".aside"))
        assert not storage.withdraw(join(top, name), join(top, ".aside"))
    with pytest.raises(FileNotFoundError):
        second.complete()
    with pytest.raises(FileNotFoundError):
        storage.uploads.prepare(join(top, ".staging/g"), join(top, "base_5/g"), "7-a", join(top, ".staging/noted"))
    assert storage.list_tree(top).files == ()
    assert storage.directories(top) == ()
