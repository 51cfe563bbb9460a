"""
What every storage driver promises. A new driver is added to `RENAMING` or `PREPARING` and must pass all of it.

Those that need a server are marked `cluster`; the fixture that starts it is asked for by name.
"""

import itertools
import threading
from collections.abc import Callable

import pytest

from compactor.acid.listing import FileEntry
from compactor.errors import CorruptFileError, RefusedError
from compactor.reasons import Reason
from compactor.storage.base import Storage
from compactor.storage.location import join, parent
from compactor.storage.registry import storage_for


def local(prefix: str) -> Callable[[pytest.FixtureRequest], str]:
    """An empty directory on this machine, named with a prefix."""
    return lambda request: f"{prefix}{request.getfixturevalue('tmp_path')}"


RENAMING = [
    pytest.param(local(""), id="local, plain path"),
    pytest.param(local("file:"), id="local, file: location"),
    pytest.param(local("file://"), id="local, file:// location"),
    pytest.param(lambda request: request.getfixturevalue("hdfs_directory"), id="hdfs", marks=pytest.mark.cluster),
]
PREPARING = [
    pytest.param(lambda request: request.getfixturevalue("s3_directory"), id="s3"),
]
IN_PLACE = [
    pytest.param(lambda request: request.getfixturevalue("fsspec_directory"), id="fsspec"),
]
"""Those that rename directories, those where files are prepared and then appear, and those that can only copy. Each makes the location of an empty directory."""


def _place(request: pytest.FixtureRequest) -> tuple[Storage, str]:
    """A driver and a location of an empty directory."""
    location = request.param(request)
    return storage_for(location), location


place = pytest.fixture(params=[*RENAMING, *PREPARING, *IN_PLACE], name="place")(_place)
exclusive = pytest.fixture(params=[*RENAMING, *PREPARING], name="exclusive")(_place)
renaming = pytest.fixture(params=RENAMING, name="renaming")(_place)
preparing = pytest.fixture(params=[*PREPARING, *IN_PLACE], name="preparing")(_place)
completing = pytest.fixture(params=PREPARING, name="completing")(_place)


def put(storage: Storage, location: str, data: bytes = b"") -> None:
    storage.write_small(location, data)


def tree(storage: Storage, top: str, *paths: str) -> None:
    """Make files (and, with a trailing slash, directories) with their parents."""
    for path in paths:
        parts = path.split("/")
        for depth in range(1, len(parts)):
            directory = join(top, *parts[:depth])
            if not storage.exists(directory):
                storage.mkdir(directory)
        if parts[-1]:
            put(storage, join(top, path), path.encode())


def test_listing_is_recursive_with_lengths_and_empty_directories(place):
    """Every file with its relative path and length, and every directory, empty ones too."""
    storage, top = place
    tree(storage, top, "delta_1_1/bucket_00000", "delta_1_1/_orc_acid_version", "base_5/", "sub/deep/000000_0", "000000_0")
    listing = storage.list_tree(top)
    assert [(f.path, f.length) for f in listing.files] == [
        ("000000_0", 8),
        ("delta_1_1/_orc_acid_version", 27),
        ("delta_1_1/bucket_00000", 22),
        ("sub/deep/000000_0", 17),
    ]
    assert listing.directories == ("base_5", "delta_1_1", "sub", "sub/deep")


def test_listing_stays_out_of_hidden_directories_of_the_top_level(place):
    """Hidden top-level directories are named, their contents aren't looked at; hidden ones further down are."""
    storage, top = place
    tree(storage, top, ".hive-staging_1/delta_1_1/x", "_tmp_2/y", "delta_1_1/_hidden/z")
    listing = storage.list_tree(top)
    assert [f.path for f in listing.files] == ["delta_1_1/_hidden/z"]
    assert listing.directories == (".hive-staging_1", "_tmp_2", "delta_1_1", "delta_1_1/_hidden")


def test_listing_reads_formats_of_bases(place):
    """`dataFormat` of each base's metadata file is part of the listing; other directories' are not."""
    storage, top = place
    tree(storage, top, "base_5/", "base_7/", "delta_9_9/")
    put(storage, join(top, "base_5", "_metadata_acid"), b'{"thisFileVersion":"0","dataFormat":"truncated"}')
    put(storage, join(top, "base_7", "_metadata_acid"), b'{"thisFileVersion":"0","dataFormat":"compacted"}')
    put(storage, join(top, "delta_9_9", "_metadata_acid"), b"nothing that is read")
    assert storage.list_tree(top).formats == (("base_5", "truncated"), ("base_7", "compacted"))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"dataFormat": 5}', b'{"dataFormat"', b"\xff\xfe", b"x" * 70_000])
def test_malformed_metadata_is_refused(place, content):
    """A `_metadata_acid` that isn't one is refused with its path; at most a small piece of it is ever read."""
    storage, top = place
    tree(storage, top, "base_5/")
    put(storage, join(top, "base_5", "_metadata_acid"), content)
    with pytest.raises(RefusedError, match="_metadata_acid") as caught:
        storage.list_tree(top)
    assert caught.value.reason is Reason.CORRUPT_FILE


def test_listing_of_a_missing_directory_is_refused(place):
    """A location that isn't there is refused in one line, and so is a file in its place."""
    storage, top = place
    put(storage, join(top, "file"))
    for missing in ("nowhere", "file"):
        with pytest.raises(RefusedError, match=missing) as caught:
            storage.list_tree(join(top, missing))
        assert caught.value.reason is Reason.LOCATION_MISSING


@pytest.mark.parametrize("name", ["k=a b", "k=c%2Fd", "k=ü雪", "k=e%3Df%25%3A%23%22%27", "k=12:30", "__HIVE_DEFAULT_PARTITION__"])
def test_partition_names_are_taken_literally(place, name):
    """Nothing is decoded: what Hive escaped stays escaped. A store that can't hold a name (a colon on HDFS, which Hive therefore escapes) says so."""
    storage, top = place
    try:
        tree(storage, top, f"{name}/delta_1_1/bucket_00000")
    except RefusedError as error:
        assert (error.reason, ":" in name) == (Reason.UNKNOWN_NAME, True)  # noqa: PT017 - only some stores refuse
        return
    assert [f.path for f in storage.list_tree(join(top, name)).files] == ["delta_1_1/bucket_00000"]


def test_stat(place):
    """What is there has a length and a time; what isn't has no entry."""
    storage, top = place
    tree(storage, top, "d/f")
    entry = storage.stat(join(top, "d/f"))
    assert entry == FileEntry(join(top, "d/f"), 3, entry.mtime_ms)
    assert entry.mtime_ms > 1_500_000_000_000
    assert storage.stat(join(top, "d")).length == 0
    assert storage.stat(join(top, "nothing")) is None
    assert [storage.exists(join(top, p)) for p in ("d", "d/f", "nothing")] == [True, True, False]


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
    barrier = threading.Barrier(8)
    outcomes: list[str] = []

    def attempt(number: int) -> None:
        barrier.wait()
        try:
            storage.rename_noreplace(join(top, f"s{number}"), join(top, "base_1"))
        except FileExistsError:
            outcomes.append("taken")
        else:
            outcomes.append("won")

    threads = [threading.Thread(target=attempt, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["taken"] * 7 + ["won"]


def test_deleting_is_idempotent(place):
    """Deleting what isn't there is fine, for a process may die between deleting and noting it."""
    storage, top = place
    tree(storage, top, "d/e/f", "d/g")
    for _ in range(2):
        storage.delete_file(join(top, "d/g"))
        storage.delete_tree(join(top, "d"))
    assert storage.list_tree(top).directories == ()


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


def test_directories_are_named_whatever_lies_beside_them(place):
    """Hidden ones too, nothing from below, no files; a place that is gone has none."""
    storage, top = place
    for name in ("b", ".a"):
        storage.mkdir(join(top, name))
    storage.mkdir(join(top, "b", "inside"))
    storage.write_small(join(top, "file"), b"x")
    assert storage.directories(top) == (".a", "b")
    assert storage.directories(join(top, "gone")) == ()


def test_a_lister_beside_a_publisher_sees_whole_directories(renaming):
    """A directory that is moved in meanwhile is listed with everything that is in it, or not at all; no error comes of it."""
    storage, top = renaming
    tree(storage, top, "partition/", "staging/")
    for number in range(8):
        storage.mkdir(join(top, "staging", f"{number}"))
        for name in ("a", "b", "c"):
            put(storage, join(top, "staging", f"{number}", name))
    failures: list[BaseException] = []

    def publish() -> None:
        try:
            for number in range(8):
                storage.rename_noreplace(join(top, "staging", f"{number}"), join(top, "partition", f"base_{number}"))
        except BaseException as error:
            failures.append(error)

    publisher = threading.Thread(target=publish)
    publisher.start()
    seen = 0
    while publisher.is_alive() or seen < 8:
        listing = storage.list_tree(join(top, "partition"))
        files = [f.path for f in listing.files]
        assert files == [f"{directory}/{name}" for directory in listing.directories for name in ("a", "b", "c")]
        seen = len(listing.directories)
        assert not failures
    publisher.join()


def test_deleting_while_listing_is_no_error(place):
    """What vanishes on the way is left out; what stays is always there."""
    storage, top = place
    tree(storage, top, "kept/file", *(f"gone{i}/{j}" for i in range(4) for j in range(2)))
    started = threading.Event()

    def delete() -> None:
        started.wait()
        for i in range(4):
            storage.delete_tree(join(top, f"gone{i}"))

    remover = threading.Thread(target=delete)
    remover.start()
    seen = []
    while remover.is_alive() or not seen:
        listing = storage.list_tree(top)
        started.set()
        seen.append(len(listing.files))
        assert "kept/file" in {f.path for f in listing.files}
        assert "kept" in listing.directories
    remover.join()
    assert [f.path for f in storage.list_tree(top).files] == ["kept/file"]


def test_of_many_creators_of_one_file_exactly_one_wins(exclusive):
    """Creating is refuse-if-exists under concurrency too, and so is making a directory."""
    storage, top = exclusive
    barrier = threading.Barrier(6)
    outcomes: list[str] = []

    def attempt(number: int) -> None:
        barrier.wait()
        for kind, make in (("file", lambda: storage.write_small(join(top, "f"), b"%d" % number)), ("directory", lambda: storage.mkdir(join(top, "d")))):
            try:
                make()
            except FileExistsError:
                outcomes.append(f"{kind} taken")
            else:
                outcomes.append(f"{kind} made")

    threads = [threading.Thread(target=attempt, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["directory made"] + ["directory taken"] * 5 + ["file made"] + ["file taken"] * 5
    assert len(storage.read_small(join(top, "f"))) == 1


def test_one_open_file_is_read_by_many_threads(place):
    """Positioned reads don't disturb one another."""
    storage, top = place
    data = bytes(range(256)) * 4096
    put(storage, join(top, "f"), data)
    wrong: list[int] = []

    def read(seed: int) -> None:
        for step in range(20):
            offset = (seed * 7919 + step * 104_729) % (len(data) - 5000)
            if reader.read_at(offset, 5000) != data[offset : offset + 5000]:
                wrong.append(offset)

    with storage.open_read(join(top, "f")) as reader:
        threads = [threading.Thread(target=read, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


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


def test_the_parent_of_a_location_is_its_directory(place):
    """What is joined is taken apart again, whatever the scheme."""
    storage, top = place
    tree(storage, top, "d/f")
    assert storage.exists(parent(join(top, "d/f")))
    assert storage.directories(parent(join(top, "d"))) == ("d",)


def test_a_renaming_store_has_nothing_pending(renaming):
    """It publishes by renaming: nothing is prepared unseen."""
    storage, top = renaming
    tree(storage, top, "base_5/x")
    assert storage.uploads is None
    assert storage.pending(top) == ()


def test_a_store_without_rename_refuses_it(preparing):
    """With its reason, and without effect."""
    storage, top = preparing
    tree(storage, top, "d/f")
    with pytest.raises(RefusedError, match="can't rename") as caught:
        storage.rename_noreplace(join(top, "d"), join(top, "e"))
    assert caught.value.reason is Reason.UNSUPPORTED_STORE
    assert [f.path for f in storage.list_tree(top).files] == ["d/f"]


def test_a_prepared_file_is_unseen_until_it_is_completed(preparing):
    """Readers see all of it or nothing; who prepared it is known afterwards; its directory counts as there before for whoever clears up."""
    storage, top = preparing
    tree(storage, top, ".staging/f")
    prepared = storage.uploads.prepare(join(top, ".staging/f"), join(top, "base_5/f"), "7-a")
    assert storage.list_tree(top).files == ()
    assert storage.uploads.owner_of(prepared.target) is None
    prepared.complete()
    assert storage.read_small(join(top, "base_5/f")) == b".staging/f"
    assert (storage.uploads.owner_of(prepared.target), storage.uploads.owner_of(join(top, ".staging/f"))) == ("7-a", "")
    assert storage.pending(top) == ()
    with pytest.raises(FileNotFoundError):
        storage.uploads.prepare(join(top, "gone"), join(top, "base_5/g"), "7-a")


def test_of_many_completions_of_one_name_exactly_one_wins(completing):
    """The others find it taken, and what the winner made stays."""
    storage, top = completing
    tree(storage, top, *(f".s{i}/f" for i in range(4)))
    prepared = [storage.uploads.prepare(join(top, f".s{i}/f"), join(top, "base_5/f"), str(i)) for i in range(4)]
    barrier = threading.Barrier(4)
    outcomes: list[str] = []

    def attempt(number: int) -> None:
        barrier.wait()
        try:
            prepared[number].complete()
        except FileExistsError:
            prepared[number].abort()
        else:
            outcomes.append(str(number))

    threads = [threading.Thread(target=attempt, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == [storage.uploads.owner_of(join(top, "base_5/f"))]
    assert storage.pending(top) == ()


def test_what_was_withdrawn_never_appears(preparing):
    """A process that was paused between preparing and completing finds nothing to complete, and can't prepare again: its source is gone."""
    storage, top = preparing
    tree(storage, top, ".staging/f", ".staging/g")
    first, second = (storage.uploads.prepare(join(top, f".staging/{name}"), join(top, f"base_5/{name}"), "7-a") for name in "fg")
    first.complete()
    assert "base_5" in storage.directories(top)
    for name in (".staging", "base_5"):
        assert storage.withdraw(join(top, name), join(top, ".aside"))
        assert not storage.withdraw(join(top, name), join(top, ".aside"))
    with pytest.raises(FileNotFoundError):
        second.complete()
    with pytest.raises(FileNotFoundError):
        storage.uploads.prepare(join(top, ".staging/g"), join(top, "base_5/g"), "7-a")
    assert storage.list_tree(top).files == ()
    assert storage.directories(top) == ()


def test_withdrawing_takes_all_of_a_directory(place):
    """Once; where nothing is there it says so."""
    storage, top = place
    tree(storage, top, "base_5/x", "base_5/y", "other/z")
    assert storage.withdraw(join(top, "base_5"), join(top, ".aside"))
    assert not storage.withdraw(join(top, "base_5"), join(top, ".aside"))
    assert storage.list_tree(top).directories == ("other",)
