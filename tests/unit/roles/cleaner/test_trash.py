"""Removal in two steps: what is decided goes, what isn't comes back, wherever it was cut off."""

import pytest
from structlog.testing import capture_logs

from compactor.acid.names import TRASH_PREFIX
from compactor.errors import OwnershipLostError, RefusedError, RetryableError
from compactor.reasons import Reason
from compactor.roles.cleaner.quarantine.manifest import MANIFEST
from compactor.roles.cleaner.trash import KEPT, Removal, Trash, put_back, remove_hidden, settle, staging_directories
from compactor.roles.cleaner.trash_in_place import TrashInPlace
from compactor.storage.location import join
from compactor.storage.registry import storage_for


@pytest.fixture
def place(tmp_path):
    """A partition with a base, a delta and an original file."""
    for name in ("base_0000005/bucket_00000", "delta_0000006_0000006_0000/bucket_00000", "000000_0"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(name.encode())
    return tmp_path


def removals(place, *names):
    listing = storage_for(str(place)).list_tree(str(place))
    return [Removal(name, tuple(file for file in listing.files if file.path.split("/")[0] == name)) for name in names]


def trash_for(place, tag=7):
    trash = Trash(storage_for(str(place)), str(place), tag)
    trash.open()
    return trash


def names(place):
    return sorted(path.name for path in place.iterdir())


def test_what_is_as_decided_goes(place):
    """Moved, compared, decided, deleted: nothing is left of it, and the rest is untouched."""
    trash = trash_for(place)
    trash.take(removals(place, "delta_0000006_0000006_0000", "000000_0"))
    assert names(place) == [trash.name, "base_0000005"]
    trash.check()
    trash.decide()
    trash.delete()
    assert names(place) == ["base_0000005"]


@pytest.mark.parametrize("change", ["longer", "new", "gone", "touched", "stranger"])
def test_a_difference_is_noticed_and_everything_comes_back(place, change):
    """A file that changed, appeared or vanished since the decision: nothing is deleted."""
    wanted = removals(place, "delta_0000006_0000006_0000")
    delta = place / "delta_0000006_0000006_0000"
    trash = trash_for(place)
    match change:
        case "longer":
            (delta / "bucket_00000").write_bytes(b"x" * 99)
        case "new":
            (delta / "bucket_00001").write_bytes(b"x")
        case "gone":
            (delta / "bucket_00000").unlink()
        case "touched":
            import os

            os.utime(delta / "bucket_00000", (1, 1))
        case "stranger":
            pass
    trash.take(wanted)
    if change == "stranger":
        (place / trash.name / "other").mkdir()
    with pytest.raises(RefusedError, match="everything was put back") as caught:
        trash.check()
    assert caught.value.reason is Reason.INPUT_CHANGED
    trash.put_back()
    assert {"000000_0", "base_0000005", "delta_0000006_0000006_0000"} <= set(names(place))
    assert not any(name.startswith(TRASH_PREFIX) for name in names(place))


def test_a_crash_before_the_decision_is_put_back(place):
    """Whoever comes next finds an undecided trash directory and moves everything back."""
    trash = trash_for(place)
    trash.take(removals(place, "delta_0000006_0000006_0000", "000000_0"))
    storage = storage_for(str(place))
    assert settle(storage, str(place), storage.directories(str(place))) == 1
    assert names(place) == ["000000_0", "base_0000005", "delta_0000006_0000006_0000"]


def test_a_crash_after_the_decision_is_finished(place):
    """A decided trash directory is deleted."""
    trash = trash_for(place)
    trash.take(removals(place, "delta_0000006_0000006_0000"))
    trash.check()
    trash.decide()
    storage = storage_for(str(place))
    assert settle(storage, str(place), storage.directories(str(place))) == 1
    assert names(place) == ["000000_0", "base_0000005"]


def test_quarantine_is_left_alone(place):
    """`-kept` directories are neither deleted nor put back."""
    trash = trash_for(place)
    trash.take(removals(place, "000000_0"))
    trash.check()
    trash.keep(b"{}")
    storage = storage_for(str(place))
    assert settle(storage, str(place), storage.directories(str(place))) == 0
    assert (place / f"{trash.name}-kept" / "000000_0").is_file()


def test_a_taken_name_is_never_overwritten(place):
    """What was created meanwhile under the same name stays; ours stays in the trash for a human."""
    trash = trash_for(place)
    trash.take(removals(place, "000000_0"))
    (place / "000000_0").write_bytes(b"new")
    put_back(storage_for(str(place)), str(place), trash.name)
    assert (place / "000000_0").read_bytes() == b"new"
    assert (place / f"{trash.name}-back" / "000000_0").read_bytes() == b"000000_0"


def test_what_cannot_be_put_back_is_refused(place):
    """As long as it lies there, nothing about the partition is decided: what is in it may be rolled back, or read."""
    trash = trash_for(place)
    trash.take(removals(place, "000000_0"))
    (place / "000000_0").write_bytes(b"new")
    storage = storage_for(str(place))
    with pytest.raises(RetryableError):
        settle(storage, str(place), storage.directories(str(place)))
    for _ in range(2):
        with pytest.raises(RefusedError, match=f"{trash.name}-back was to be removed and can't be put back") as caught:
            settle(storage, str(place), storage.directories(str(place)))
        assert caught.value.reason is Reason.INPUT_CHANGED
    (place / "000000_0").unlink()
    assert settle(storage, str(place), storage.directories(str(place))) == 1
    assert names(place) == ["000000_0", "base_0000005", "delta_0000006_0000006_0000"]


def test_one_who_was_stopped_can_neither_go_on_nor_decide(place):
    """
    Its successor has put everything back: what it would move finds no place, what it would decide on isn't there;
    nothing is missing.
    """
    stopped = trash_for(place)
    first, second = removals(place, "delta_0000006_0000006_0000", "000000_0")
    stopped.take([first])
    storage = storage_for(str(place))
    assert settle(storage, str(place), storage.directories(str(place))) == 1
    with pytest.raises(FileNotFoundError):
        stopped.take([second])
    for end in (stopped.decide, lambda: stopped.keep(b"{}")):
        with pytest.raises(OwnershipLostError):
            end()
    stopped.put_back()
    assert names(place) == ["000000_0", "base_0000005", "delta_0000006_0000006_0000"]


def test_putting_back_may_be_cut_off(place):
    """A directory that is being put back is put back by whoever comes next."""
    trash = trash_for(place)
    trash.take(removals(place, "delta_0000006_0000006_0000", "000000_0"))
    (place / trash.name).rename(place / f"{trash.name}-back")
    storage = storage_for(str(place))
    assert settle(storage, str(place), storage.directories(str(place))) == 1
    assert names(place) == ["000000_0", "base_0000005", "delta_0000006_0000006_0000"]


@pytest.mark.parametrize("word", ["-back", "-delete"])
def test_a_rename_that_arrives_late_is_waited_for(place, word):
    """
    A request that got no answer is carried out between the look and the settling: the place isn't taken for settled
    while a part of it is out of sight, and the next visit settles it.
    """
    trash = trash_for(place)
    trash.take(removals(place, "delta_0000006_0000006_0000"))
    storage = storage_for(str(place))
    seen = storage.directories(str(place))
    (place / trash.name).rename(place / f"{trash.name}{word}")
    with pytest.raises(RetryableError, match=f"{trash.name}{word} in .* isn't put back or finished yet"):
        settle(storage, str(place), seen)
    assert settle(storage, str(place), storage.directories(str(place))) == 1
    left = {
        "-back": ["000000_0", "base_0000005", "delta_0000006_0000006_0000"],
        "-delete": ["000000_0", "base_0000005"],
    }
    assert names(place) == left[word]


def test_hidden_directories_vanish_in_one_step(place):
    """A removed staging directory is no longer a source for a rename, at once; one that is gone already is fine."""
    staging = place / ".compactor-7-abc"
    (staging / "out").mkdir(parents=True)
    (place / ".compactor-77-abc").mkdir()
    storage = storage_for(str(place))
    assert staging_directories(storage.directories(str(place)), 7) == [".compactor-7-abc"]
    assert remove_hidden(storage, str(place), [".compactor-7-abc", ".compactor-7-gone"]) == [".compactor-7-abc"]
    assert ".compactor-77-abc" in names(place)
    assert not any(name.startswith((TRASH_PREFIX, ".compactor-7-")) for name in names(place))


@pytest.mark.parametrize(
    "name",
    [
        f"{TRASH_PREFIX}aborted-12345678-kept-2026-01",  # quarantine that was renamed by hand
        f"{TRASH_PREFIX}7-12345678-kept.old",
        f"{TRASH_PREFIX}mine",
        f"{TRASH_PREFIX}7-1234567-delete",
        f"{TRASH_PREFIX}seven-12345678",
    ],
)
def test_what_is_called_otherwise_is_left_alone_and_told(place, name):
    """What lies in it may have been rolled back and forgotten: put back it would be read."""
    kept = place / name / "delta_0000004_0000004_0000"
    kept.mkdir(parents=True)
    storage = storage_for(str(place))
    with capture_logs() as lines:
        assert settle(storage, str(place), storage.directories(str(place))) == 0
    assert kept.is_dir()
    assert "delta_0000004_0000004_0000" not in names(place)
    assert [line["directory"] for line in lines if line["log_level"] == "warning"] == [name]


def test_in_place_a_directory_of_original_files_loses_only_what_was_compared(s3_directory):
    """
    A file that is put there after the last look stays: such a name may be used again, that of a write id by a table
    that is dropped and re-created.
    """
    place = s3_directory
    storage = storage_for(place)
    for directory in ("part", "part/sub", "delta_0000001_0000001_0000"):
        storage.mkdir(join(place, directory))
    for path in ("part/000000_0", "part/sub/000000_0", "delta_0000001_0000001_0000/bucket_00000"):
        storage.write_small(join(place, path), b"x")
    files = storage.list_tree(place).files
    trash = TrashInPlace(storage, storage.uploads, place, 7, lambda: None)
    trash.open()
    trash.take(
        [
            Removal(name, tuple(file for file in files if file.path.startswith(f"{name}/")))
            for name in ("part", "delta_0000001_0000001_0000")
        ]
    )
    trash.check()
    trash.decide()
    for path in ("part/000001_0", "delta_0000001_0000001_0000/late"):
        storage.write_small(join(place, path), b"late")
    trash.delete()
    assert [file.path for file in storage.list_tree(place).files] == [
        "delta_0000001_0000001_0000/late",
        "part/000001_0",
    ]


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("end", [Killed, RetryableError])
def test_a_quarantine_that_was_cut_off_in_copying_claims_nothing(s3_directory, monkeypatch, end):
    """No manifest says that everything is in it; nothing was deleted; after an error the copies are gone too."""
    storage, delta = storage_for(s3_directory), "delta_0000001_0000001_0000"
    storage.mkdir(join(s3_directory, delta))
    for number in range(3):
        storage.write_small(join(s3_directory, delta, f"bucket_0000{number}"), b"x")
    files = storage.list_tree(s3_directory).files
    trash = TrashInPlace(storage, storage.uploads, s3_directory, 7, lambda: None)
    trash.open()
    trash.take([Removal(delta, files)])
    trash.check()
    driver, copy = type(storage), type(storage).link_or_copy

    def cut_off(self, source, target):
        if source.endswith("2"):
            raise end("stop")
        copy(self, source, target)

    monkeypatch.setattr(driver, "link_or_copy", cut_off)
    with pytest.raises(end):
        trash.keep(b"{}")
    kept = join(s3_directory, trash.name + KEPT)
    assert storage.list_tree(s3_directory).files == files
    assert storage.stat(join(kept, MANIFEST)) is None
    assert storage.exists(kept) is (end is Killed)
