"""The contract of every driver (see conftest.py): what reading, writing and removing promise."""

import itertools

import pytest

from compactor.errors import CorruptFileError, RefusedError
from compactor.storage.location import join
from tests.unit.storage.contract import put, together, tree, won


def test_create_never_overwrites(place):
    """Creating over an existing file or directory fails and leaves it alone; parents are never made."""
    storage, top = place
    tree(storage, top, "d/f")
    for taken in ("d/f", "d"):
        with pytest.raises(FileExistsError):
            storage.create(join(top, taken))
    with pytest.raises(FileNotFoundError):
        storage.create(join(top, "nowhere/f"))
    assert storage.read_small(join(top, "d/f")) == b"d/f"


def test_mkdir_is_exclusive_and_makes_no_parents(place):
    """A directory that exists is an error, and a missing parent is one."""
    storage, top = place
    storage.mkdir(join(top, "d"))
    with pytest.raises(FileExistsError):
        storage.mkdir(join(top, "d"))
    with pytest.raises(FileNotFoundError):
        storage.mkdir(join(top, "nowhere/d"))


def test_a_file_holds_no_others(place):
    """What is to be made below a file is refused, one way or the other, and nothing is made."""
    storage, top = place
    tree(storage, top, "file")
    for make in (storage.create, storage.mkdir):
        with pytest.raises((FileNotFoundError, RefusedError)):
            make(join(top, "file", "below"))
    assert [(file.path, file.length) for file in storage.list_tree(top).files] == [("file", 4)]


def test_of_many_creators_of_one_file_exactly_one_wins(place):
    """Creating is refuse-if-exists under concurrency too, and so is making a directory."""
    storage, top = place
    files = together(6, lambda number: won(lambda: storage.write_small(join(top, "f"), b"%d" % number)))
    directories = together(6, lambda _: won(lambda: storage.mkdir(join(top, "d"))))
    assert (sorted(files), sorted(directories)) == ([False] * 5 + [True], [False] * 5 + [True])
    assert storage.read_small(join(top, "f")) == b"%d" % files.index(True)


@pytest.mark.parametrize("sizes", [(0,), (1, 2, 3), (1 << 20,), ((1 << 20) - 1, 5, 3 << 20, 7)])
def test_what_is_written_is_read(place, sizes):
    """Bytes come back as written, whatever the sizes of the pieces; `position` counts them."""
    storage, top = place
    pieces = [bytes([i + 1]) * size for i, size in enumerate(sizes)]
    with storage.create(join(top, "f")) as writer:
        for total, piece in zip(itertools.accumulate(sizes), pieces, strict=True):
            writer.write(piece)
            assert writer.position == total
    with storage.open_read(join(top, "f")) as reader:
        assert reader.size == sum(sizes)
        assert reader.read_at(0, reader.size) == b"".join(pieces)


def test_copying_ranges(place):
    """Ranges of another file are appended between written pieces, in order."""
    storage, top = place
    source = bytes(range(256)) * 8192
    put(storage, join(top, "source"), source)
    with storage.open_read(join(top, "source")) as reader, storage.create(join(top, "f")) as writer:
        writer.write(b"head")
        writer.copy_from(reader, 100, 1_500_000)
        writer.write(b"middle")
        writer.copy_from(reader, 7, 0)
        writer.copy_from(reader, 0, 3)
        assert writer.position == 4 + 1_500_000 + 6 + 3
    assert storage.read_small(join(top, "f"), 1 << 22) == b"head" + source[100:1_500_100] + b"middle" + source[:3]


def test_reading_and_copying_past_the_end(place):
    """A read ends where the file ends; a copy that can't be whole says that the source is truncated."""
    storage, top = place
    put(storage, join(top, "short"), b"12345")
    with storage.open_read(join(top, "short")) as reader, storage.create(join(top, "f")) as writer:
        assert [reader.read_at(offset, 4) for offset in (0, 3, 5, 9)] == [b"1234", b"45", b"", b""]
        with pytest.raises(CorruptFileError, match="truncated"):
            writer.copy_from(reader, 3, 4)


def test_a_copy_that_breaks_off_leaves_no_file(place):
    """A source that ends early fails the copy, and the file that was being made is gone."""
    storage, top = place
    put(storage, join(top, "short"), b"12345")

    def copy() -> None:
        with storage.open_read(join(top, "short")) as reader, storage.create(join(top, "f")) as writer:
            writer.write(b"head")
            writer.copy_from(reader, 3, 4)

    with pytest.raises(CorruptFileError, match="truncated"):
        copy()
    assert [file.path for file in storage.list_tree(top).files] == ["short"]


def test_an_aborted_file_is_gone(place):
    """Neither an abort nor an exception leaves a half-written file; an abort after the end changes nothing."""
    storage, top = place
    storage.create(join(top, "a")).abort()

    def fail() -> None:
        with storage.create(join(top, "b")) as writer:
            writer.write(b"x" * (2 << 20))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    whole = storage.create(join(top, "c"))
    whole.close()
    whole.abort()
    assert [f.path for f in storage.list_tree(top).files] == ["c"]


def test_small_files_are_bounded(place):
    """A file that should be small and isn't is refused without reading it."""
    storage, top = place
    put(storage, join(top, "f"), b"12345")
    assert storage.read_small(join(top, "f"), 5) == b"12345"
    with pytest.raises(RefusedError, match="more than the 4"):
        storage.read_small(join(top, "f"), 4)
    with pytest.raises(FileNotFoundError):
        storage.read_small(join(top, "gone"))


def test_one_open_file_is_read_by_many_threads(place):
    """Positioned reads don't disturb one another."""
    storage, top = place
    data = bytes(range(256)) * 4096
    put(storage, join(top, "f"), data)

    def read(seed: int) -> list[int]:
        offsets = [(seed * 7919 + step * 104_729) % (len(data) - 5000) for step in range(20)]
        return [offset for offset in offsets if reader.read_at(offset, 5000) != data[offset : offset + 5000]]

    with storage.open_read(join(top, "f")) as reader:
        assert together(4, read) == [[]] * 4


def test_link_or_copy_leaves_the_source(place):
    """The same bytes under two names; deleting one leaves the other; an existing target stops it."""
    storage, top = place
    tree(storage, top, "a", "taken")
    storage.link_or_copy(join(top, "a"), join(top, "b"))
    with pytest.raises(FileExistsError):
        storage.link_or_copy(join(top, "a"), join(top, "taken"))
    with pytest.raises(FileNotFoundError):
        storage.link_or_copy(join(top, "gone"), join(top, "c"))
    storage.delete_file(join(top, "a"))
    assert storage.read_small(join(top, "b")) == b"a"
    assert storage.read_small(join(top, "taken")) == b"taken"


def test_deleting_is_idempotent(place):
    """Deleting what isn't there is fine, for a process may die between deleting and noting it."""
    storage, top = place
    tree(storage, top, "d/e/f", "d/g")
    for _ in range(2):
        storage.delete_file(join(top, "d/g"))
        storage.delete_tree(join(top, "d"))
    assert storage.list_tree(top).directories == ()


def test_withdrawing_takes_all_of_a_directory(place):
    """Once; where nothing is there it says so."""
    storage, top = place
    tree(storage, top, "base_5/x", "base_5/y", "other/z")
    assert storage.withdraw(join(top, "base_5"), join(top, ".aside"))
    assert not storage.withdraw(join(top, "base_5"), join(top, ".aside"))
    assert storage.list_tree(top).directories == ("other",)


def test_space_owner_and_sync(place):
    """Free space and the owner are known; a directory's names can be made durable."""
    storage, top = place
    tree(storage, top, "d/f")
    room = storage.room(top)
    assert room.bytes is None or room.bytes > 0
    assert room.names is None or room.names > 0
    with pytest.raises(FileNotFoundError):
        storage.room(join(top, "gone"))
    assert storage.owner(join(top, "d/f")) == storage.owner(top) != ""
    storage.sync_directory(join(top, "d"))
    with pytest.raises(FileNotFoundError):
        storage.owner(join(top, "gone"))


def test_adopting_is_repeatable_and_needs_both(place):
    """A finished directory takes over what belongs to the table; twice is as good as once; what isn't there is told."""
    storage, top = place
    tree(storage, top, "partition/.staging/out/bucket_00000")
    partition = join(top, "partition")
    out = join(partition, ".staging", "out")
    for _ in range(2):
        storage.adopt(partition, out)
    assert storage.owner(join(out, "bucket_00000")) == storage.owner(partition)
    for source, target in ((join(top, "gone"), out), (partition, join(top, "gone"))):
        with pytest.raises(FileNotFoundError):
            storage.adopt(source, target)
