"""The driver over fsspec: what it reads, that no failure is taken for "not there", and that it changes nothing."""

from dataclasses import replace

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from compactor.acid.listing import FileEntry
from compactor.errors import RefusedError
from compactor.reasons import Reason
from compactor.storage.location import join
from compactor.storage.registry import storage_for

FILES = {
    "000000_0": b"orig",
    "delta_0000001_0000001_0000/bucket_00000": b"rows",
    "delta_0000002_0000002_0000/bucket_00000": b"more rows",
    ".staging/f": b"x",
}


@pytest.fixture
def place(fsspec_directory):
    """A table's directory with files in it."""
    for path, content in FILES.items():
        MemoryFileSystem().pipe_file(f"{fsspec_directory.removeprefix('gs:/')}/{path}", content)
    return fsspec_directory


def test_a_listing_shows_what_readers_may_read(place):
    """Hidden directories of the top level are named and not looked into."""
    storage = storage_for(place)
    listing = storage.list_tree(place)
    assert [(file.path, file.length) for file in listing.files] == [
        (path, len(content)) for path, content in FILES.items() if not path.startswith(".")
    ]
    assert listing.directories == (".staging", "delta_0000001_0000001_0000", "delta_0000002_0000002_0000")
    assert storage.directories(place) == listing.directories


def test_one_entry_and_its_bytes(place):
    """Ranges of a file; a directory and a missing name are no files."""
    storage = storage_for(place)
    assert replace(storage.stat(join(place, "000000_0")), mtime_ms=0) == FileEntry(join(place, "000000_0"), 4)
    with storage.open_read(join(place, "000000_0")) as reader:
        assert (reader.size, reader.read_at(1, 9)) == (4, b"rig")
    for missing in ("000001_0", "delta_0000001_0000001_0000"):
        with pytest.raises(FileNotFoundError):
            storage.open_read(join(place, missing))
    assert storage.exists(join(place, "delta_0000001_0000001_0000"))
    assert storage.stat(join(place, "000001_0")) is None
    assert storage.directories(join(place, "none")) == ()
    for missing in ("none", "000000_0"):
        with pytest.raises(RefusedError) as caught:
            storage.list_tree(join(place, missing))
        assert caught.value.reason is Reason.LOCATION_MISSING


@pytest.mark.parametrize("failing", ["info", "ls"])
def test_a_failure_is_not_taken_for_an_answer(place, monkeypatch, failing):
    """A store that answers 503, of a file or of one directory among others, isn't a store without them."""
    storage, ask = storage_for(place), getattr(MemoryFileSystem, failing)

    def fail(self, path, *args, **named):
        if path.endswith(("000000_0", "delta_0000002_0000002_0000")):
            raise OSError(5, "503 service unavailable")
        return ask(self, path, *args, **named)

    monkeypatch.setattr(MemoryFileSystem, failing, fail)
    file, directory = join(place, "000000_0"), join(place, "delta_0000002_0000002_0000")
    calls = {
        "info": [lambda: storage.stat(file), lambda: storage.exists(directory), lambda: storage.open_read(file)],
        "ls": [lambda: storage.list_tree(place), lambda: storage.directories(directory)],
    }
    for call in calls[failing]:
        with pytest.raises(Exception, match="503"):
            call()


def test_nothing_is_changed(place):
    """Every change is refused by name."""
    storage, file, new = storage_for(place), join(place, "000000_0"), join(place, "new")
    for change in (
        lambda: storage.create(new),
        lambda: storage.write_small(new, b"x"),
        lambda: storage.mkdir(new),
        lambda: storage.link_or_copy(file, new),
        lambda: storage.rename_noreplace(file, new),
        lambda: storage.adopt(place, join(place, "delta_0000001_0000001_0000")),
        lambda: storage.sync_directory(place),
        lambda: storage.delete_file(file),
        lambda: storage.delete_tree(place),
        lambda: storage.withdraw(place, new),
    ):
        with pytest.raises(RefusedError, match="nothing is compacted or removed on this store") as caught:
            change()
        assert caught.value.reason is Reason.UNSUPPORTED_STORE
    assert len(storage.list_tree(place).files) == 3
