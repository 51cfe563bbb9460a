"""What only the local driver has: kernel calls, their fallbacks, and the operating system's errors."""

import errno
import os
import resource
import shutil
import subprocess

import pytest

from compactor.errors import CompactorError, OutcomeUnknownError, RefusedError, UnreachableError
from compactor.reasons import Reason
from compactor.storage.failures import explanation
from compactor.storage.local_fs import beneath, driver, files, renameat2
from compactor.storage.local_fs.driver import LocalStorage
from tests.needs import missing

STORAGE = LocalStorage()


def test_rename_works_through_the_bare_system_call(tmp_path, monkeypatch):
    """A C library without renameat2 is no obstacle: the system call refuses an existing target just the same."""
    real = renameat2.ctypes.CDLL(None, use_errno=True)

    class Old:
        syscall = real.syscall

    monkeypatch.setattr(renameat2.ctypes, "CDLL", lambda *_, **__: Old)
    for name in ("a", "b", "taken"):
        (tmp_path / name).mkdir()
    STORAGE.rename_noreplace(str(tmp_path / "a"), str(tmp_path / "c"))
    with pytest.raises(FileExistsError):
        STORAGE.rename_noreplace(str(tmp_path / "b"), str(tmp_path / "taken"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b", "c", "taken"]


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV])
def test_a_file_system_that_cannot_refuse_is_refused(tmp_path, monkeypatch, code):
    """There is no fall-back to plain rename: nothing is moved."""
    monkeypatch.setattr(renameat2, "_renameat2", lambda *_: code)
    (tmp_path / "a").mkdir()
    with pytest.raises(RefusedError, match="can't rename") as caught:
        STORAGE.rename_noreplace(str(tmp_path / "a"), str(tmp_path / "b"))
    assert caught.value.reason is Reason.UNSUPPORTED_STORE
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_an_unknown_machine_without_the_wrapper_is_refused(tmp_path, monkeypatch):
    """No guess at a system call's number."""
    monkeypatch.setattr(renameat2.ctypes, "CDLL", lambda *_, **__: object())
    monkeypatch.setattr(renameat2.platform, "machine", lambda: "pdp11")
    with pytest.raises(RefusedError, match="RENAME_NOREPLACE"):
        STORAGE.rename_noreplace(str(tmp_path / "a"), str(tmp_path / "b"))


def test_a_rename_that_cannot_be_made_durable_has_an_unknown_outcome(tmp_path, monkeypatch):
    """The directory has moved, and the error says that nobody knows whether it stays so."""

    def fail(_descriptor):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(driver.os, "fsync", fail)
    (tmp_path / "a").mkdir()
    with pytest.raises(OutcomeUnknownError, match="Input/output error"):
        STORAGE.rename_noreplace(str(tmp_path / "a"), str(tmp_path / "b"))
    assert (tmp_path / "b").is_dir()


@pytest.mark.parametrize("code", [errno.EXDEV, errno.ENOSYS, errno.EINVAL])
def test_copying_works_without_the_kernels_help(tmp_path, monkeypatch, code):
    """
    Where copy_file_range isn't possible, even half-way, the rest goes through this process; the bytes are the same.
    """
    data = os.urandom(3 << 20)
    (tmp_path / "source").write_bytes(data)
    real = os.copy_file_range
    calls: list[int] = []

    def sometimes(source, target, count, offset):
        calls.append(count)
        if len(calls) > 1:
            raise OSError(code, os.strerror(code))
        return real(source, target, min(count, 1_000_000), offset)

    monkeypatch.setattr(files.os, "copy_file_range", sometimes)
    with STORAGE.open_read(str(tmp_path / "source")) as reader, STORAGE.create(str(tmp_path / "copy")) as writer:
        writer.copy_from(reader, 5, len(data) - 5)
    assert (tmp_path / "copy").read_bytes() == data[5:]
    assert len(calls) == 2


def test_the_disk_gets_a_large_file_while_it_is_made(tmp_path, monkeypatch):
    """Each byte is given to the disk once, after it was put and in order, whether written or copied in the kernel."""
    piece, data = 64 << 10, os.urandom(3 << 20)
    (tmp_path / "source").write_bytes(data)
    given: list[tuple[int, int, int]] = []
    real = os.posix_fadvise

    def note(descriptor, offset, length, advice):
        given.append((offset, length, os.fstat(descriptor).st_size))
        real(descriptor, offset, length, advice)

    monkeypatch.setattr(files, "_STORE_CHUNK", piece)
    monkeypatch.setattr(files.os, "posix_fadvise", note)
    with STORAGE.open_read(str(tmp_path / "source")) as reader, STORAGE.create(str(tmp_path / "copy")) as writer:
        for start in range(0, 1 << 20, 50_000):
            writer.write(data[start : min(start + 50_000, 1 << 20)])
        writer.copy_from(reader, 1 << 20, 1 << 20)
        writer.write(data[2 << 20 :])
    assert (tmp_path / "copy").read_bytes() == data
    ends = [0]
    for offset, length, size in given:
        assert offset == ends[-1]
        assert offset + length == size
        ends.append(size)
    assert len(given) > 10
    assert len(data) - ends[-1] < piece


def test_a_disk_that_fills_up_is_refused_and_leaves_no_file(tmp_path, monkeypatch):
    """ENOSPC becomes one line with the path and what to do; the half-written file is removed."""

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "write", full)
    with pytest.raises(RefusedError, match=r"bucket_00000.*No space left.*free some space") as caught:
        STORAGE.write_small(str(tmp_path / "bucket_00000"), b"x")
    assert caught.value.reason is Reason.DISK_FULL
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_can_be_opened_and_no_more_is_named(tmp_path, monkeypatch):
    """What a server of NFS says of a file that it has forgotten meanwhile; no descriptor is left open."""
    (tmp_path / "f").write_bytes(b"x")
    fstat, opened = os.fstat, list[int]()

    def stale(descriptor):
        if opened:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        opened.append(descriptor)
        return fstat(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(files.os, "fstat", stale)
        with pytest.raises(UnreachableError, match=r"can't read '.*/f': Stale"):
            STORAGE.open_read(str(tmp_path / "f"))
    with pytest.raises(OSError, match="Bad file descriptor"):
        fstat(opened[0])


def test_what_was_read_stays_read_when_the_file_cannot_be_closed(tmp_path, monkeypatch):
    """An error in closing says something of writes alone."""
    (tmp_path / "f").write_bytes(b"x")
    close = os.close

    def failing(descriptor):
        close(descriptor)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched, STORAGE.open_read(str(tmp_path / "f")) as reader:
        assert reader.read_at(0, 1) == b"x"
        patched.setattr(files.os, "close", failing)


@pytest.mark.parametrize("copying", [False, True])
def test_a_real_limit_on_file_size_is_reported_as_full(tmp_path, copying):
    """The kernel's own refusal, when writing and when copying inside the kernel."""
    (tmp_path / "source").write_bytes(bytes(1 << 20))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill() -> None:
        with STORAGE.open_read(str(tmp_path / "source")) as reader, STORAGE.create(str(tmp_path / "f")) as writer:
            if copying:
                writer.copy_from(reader, 0, 1 << 20)
            else:
                writer.write(bytes(1 << 20))

    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        with pytest.raises(RefusedError) as caught:
            fill()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.reason is Reason.DISK_FULL
    assert not (tmp_path / "f").exists()


@pytest.mark.parametrize(
    ("code", "kind", "reason"),
    [
        (errno.ENOSPC, RefusedError, Reason.DISK_FULL),
        (errno.EDQUOT, RefusedError, Reason.DISK_FULL),
        (errno.EACCES, RefusedError, Reason.PERMISSION_DENIED),
        (errno.ENOTDIR, RefusedError, Reason.LOCATION_MISSING),
        (errno.EIO, UnreachableError, None),
        (errno.ESTALE, UnreachableError, None),
        (errno.EROFS, UnreachableError, None),  # for as long as its disk is looked after: no table counts a failure
        (errno.EMFILE, CompactorError, None),
    ],
)
def test_what_an_error_of_the_operating_system_means(code, kind, reason):
    """Full, forbidden and unreachable are told apart, each with the path."""
    error = explanation(OSError(code, os.strerror(code)), "write", "/some/path")
    assert type(error) is kind
    assert getattr(error, "reason", None) is reason
    assert "/some/path" in str(error)


def test_hard_links_where_possible(tmp_path):
    """Carrying a file over costs no bytes on one file system."""
    (tmp_path / "a").write_bytes(b"x")
    STORAGE.link_or_copy(str(tmp_path / "a"), str(tmp_path / "b"))
    assert (tmp_path / "a").stat().st_ino == (tmp_path / "b").stat().st_ino


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_copies_where_a_link_is_not_possible(tmp_path, monkeypatch, code):
    """
    Another file system, a forbidding one or too many links: the bytes are copied, an existing target still stops it.
    """

    def refuse(*_, **__):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(driver.os, "link", refuse)
    (tmp_path / "a").write_bytes(b"abc")
    STORAGE.link_or_copy(str(tmp_path / "a"), str(tmp_path / "b"))
    assert (tmp_path / "b").read_bytes() == b"abc"
    assert (tmp_path / "a").stat().st_ino != (tmp_path / "b").stat().st_ino
    with pytest.raises(FileExistsError):
        STORAGE.link_or_copy(str(tmp_path / "a"), str(tmp_path / "b"))


def test_a_link_that_fails_for_another_cause_is_an_error(tmp_path, monkeypatch):
    """A full disk isn't answered with a copy."""

    def refuse(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(driver.os, "link", refuse)
    (tmp_path / "a").write_bytes(b"abc")
    with pytest.raises(RefusedError, match="No space"):
        STORAGE.link_or_copy(str(tmp_path / "a"), str(tmp_path / "b"))


def test_visible_links_and_devices_are_refused_hidden_ones_ignored(tmp_path):
    """What can't be explained is not compacted around."""
    (tmp_path / ".link").symlink_to("/")
    (tmp_path / "000000_0").write_bytes(b"")
    assert [f.path for f in STORAGE.list_tree(str(tmp_path)).files] == ["000000_0"]
    for make in (lambda p: p.symlink_to("000000_0"), lambda p: p.symlink_to("/"), os.mkfifo):
        odd = tmp_path / "odd"
        make(odd)
        with pytest.raises(RefusedError, match="odd") as caught:
            STORAGE.list_tree(str(tmp_path))
        assert caught.value.reason is Reason.UNKNOWN_NAME
        odd.unlink()


def test_deleting_a_tree_does_not_follow_links(tmp_path):
    """A link inside, or instead of, the tree is removed; what it points to stays."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "f").write_bytes(b"")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    STORAGE.delete_tree(str(tmp_path / "tree"))
    STORAGE.delete_tree(str(tmp_path / "link"))
    assert [str(p.relative_to(tmp_path)) for p in sorted(tmp_path.rglob("*"))] == ["kept", "kept/f"]


def test_entries_that_vanish_while_listing_are_left_out(tmp_path, monkeypatch):
    """A staging directory or file that disappears between two looks is no error."""
    (tmp_path / "staging").mkdir()
    (tmp_path / "staging" / "x").write_bytes(b"")
    (tmp_path / "000000_0").write_bytes(b"")
    real = beneath.open_directory

    def vanishing(entry):
        if entry.name == "staging":
            raise FileNotFoundError(entry.path)
        return real(entry)

    monkeypatch.setattr(driver, "open_directory", vanishing)
    listing = STORAGE.list_tree(str(tmp_path))
    assert (listing.directories, [f.path for f in listing.files]) == ((), ["000000_0"])


def test_metadata_that_vanishes_while_listing_is_left_out(tmp_path, monkeypatch):
    """A base that is being removed has no format any more."""
    (tmp_path / "base_5").mkdir()
    (tmp_path / "base_5" / "_metadata_acid").write_bytes(b"{}")

    def gone(_self, location, _limit):
        raise FileNotFoundError(location)

    monkeypatch.setattr(LocalStorage, "read_small", gone)
    assert STORAGE.list_tree(str(tmp_path)).formats == ()


def test_an_owner_without_a_name_is_shown_as_a_number(tmp_path, monkeypatch):
    """Containers often run as a user that no password file knows."""

    def unknown(_number):
        raise KeyError

    monkeypatch.setattr(driver.pwd, "getpwuid", unknown)
    assert STORAGE.owner(str(tmp_path)) == str(os.getuid())


@pytest.fixture
def secret(tmp_path):
    """A file that only the daemon may read."""
    path = tmp_path / "keytab"
    path.write_text("secret")
    path.chmod(0o600)
    return path


def test_adopting_follows_no_link(tmp_path, secret):
    """A link that the partition's owner put into the staging directory: what it leads to keeps its permission."""
    out = tmp_path / "part" / ".compactor-1-x"
    out.mkdir(parents=True)
    (tmp_path / "part").chmod(0o777)
    (out / "bucket_00000").symlink_to(secret)
    with pytest.raises(RefusedError, match="isn't a file") as caught:
        STORAGE.adopt(str(tmp_path / "part"), str(out))
    assert caught.value.reason is Reason.UNKNOWN_NAME
    assert secret.stat().st_mode & 0o777 == 0o600


def test_a_directory_that_became_a_link_is_not_adopted(tmp_path, secret):
    """The staging directory itself was exchanged."""
    (tmp_path / "part").mkdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    secret.rename(tmp_path / "elsewhere" / "keytab")
    (tmp_path / "part" / "out").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RefusedError, match="is a symbolic link"):
        STORAGE.adopt(str(tmp_path / "part"), str(tmp_path / "part" / "out"))
    assert (tmp_path / "elsewhere").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("what", ["file", "directory", "pipe"])
def test_a_link_in_the_place_of_an_input_is_neither_read_nor_published(tmp_path, secret, what):
    """Neither a file nor its directory is followed elsewhere, and nothing waits for the other end of a pipe."""
    directory = tmp_path / "delta"
    match what:
        case "file":
            directory.mkdir()
            (directory / "keytab").symlink_to(secret)
        case "directory":
            directory.symlink_to(tmp_path)
        case _:
            directory.mkdir()
            os.mkfifo(directory / "keytab")
    with pytest.raises(RefusedError, match=r"move it away|give the location"):
        STORAGE.open_read(str(directory / "keytab"))
    with pytest.raises(RefusedError, match=r"move it away|give the location"):
        STORAGE.link_or_copy(str(directory / "keytab"), str(tmp_path / "copy"))
    assert not os.path.lexists(tmp_path / "copy")


def test_a_link_is_made_to_the_file_that_was_opened(tmp_path):
    """The second name is the same file, with its permission, and the first keeps its place."""
    (tmp_path / "f").write_text("x")
    STORAGE.link_or_copy(str(tmp_path / "f"), str(tmp_path / "g"))
    assert (tmp_path / "f").stat().st_ino == (tmp_path / "g").stat().st_ino


def test_nothing_is_created_through_a_linked_directory(tmp_path):
    """A staging directory that was exchanged for a link gets no file."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RefusedError, match="is a symbolic link"):
        STORAGE.create(str(tmp_path / "out" / "f"))
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_name_is_there_or_not(tmp_path):
    """
    Below a file there is none; without a root links on the way are followed, and one that leads nowhere is a name.
    """
    storage = LocalStorage()
    (tmp_path / "real" / "d").mkdir(parents=True)
    (tmp_path / "file").write_text("x", encoding="utf-8")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    found = [
        storage.exists(f"file:{tmp_path}/{name}")
        for name in ("link/d", "dangling", "file/x", "file/x/y", "link/nothing")
    ]
    assert found == [True, True, False, False, False]


def test_a_list_that_the_place_does_not_have_is_taken_away(tmp_path):
    """What staging got from a directory above goes where the partition itself has no list: its mode says all."""
    if shutil.which("setfacl") is None:
        missing("setfacl isn't installed")
    place, made = tmp_path / "place", tmp_path / "place" / "made"
    made.mkdir(parents=True)
    (made / "file").write_text("x", encoding="utf-8")
    for path in (made, made / "file"):
        subprocess.run(["setfacl", "-m", "u:65534:rwx", str(path)], check=True)
    subprocess.run(["setfacl", "-d", "-m", "u:65534:rwx", str(made)], check=True)
    place.chmod(0o750)
    LocalStorage().adopt(str(place), str(made))
    assert [os.listxattr(path) for path in (made, made / "file")] == [[], []]
    assert [path.stat().st_mode & 0o777 for path in (made, made / "file")] == [0o750, 0o640]


def test_directories_inside_an_adopted_one_keep_what_they_have(tmp_path):
    """Each of a staging directory's is given away by itself (spark.proxy_user)."""
    (tmp_path / "place" / "tasks").mkdir(parents=True)
    (tmp_path / "place" / "file").write_text("x", encoding="utf-8")
    (tmp_path / "place" / "tasks").chmod(0o700)
    tmp_path.chmod(0o750)
    LocalStorage().adopt(str(tmp_path), str(tmp_path / "place"))
    assert [(tmp_path / "place" / name).stat().st_mode & 0o777 for name in (".", "tasks", "file")] == [
        0o750,
        0o700,
        0o640,
    ]


@pytest.fixture(params=["xfs", "btrfs"])
def sharing(request, tmp_path):
    """A file system that shares blocks between files, in a file."""
    kind = request.param
    if shutil.which(f"mkfs.{kind}") is None:
        missing(f"mkfs.{kind} isn't installed")
    image, place = tmp_path / "image", tmp_path / "a place"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(400 << 20)
    subprocess.run([f"mkfs.{kind}", "-q", str(image)], check=True, capture_output=True)
    if subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=False, capture_output=True).returncode:
        pytest.xfail(
            "file systems can't be mounted here"
        )  # a container may not; nothing is missing that could be installed
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_copied_stripes_share_their_blocks(sharing):
    """Wherever a range begins and ends, only its first and its last block are written."""
    content = os.urandom(5 << 20)
    (sharing / "source").write_bytes(content)
    ranges = [(3, 1 << 20), (1_234_567, 2 << 20), (4096, 65_536), (77, 100)]
    places = []
    with STORAGE.open_read(str(sharing / "source")) as source, STORAGE.create(str(sharing / "copy")) as sink:
        sink.write(b"ORC")
        for offset, length in ranges:
            sink.write(bytes(sink.gap_before(offset, length)))
            places.append(sink.position)
            sink.copy_from(source, offset, length)
        sink.write(b"the end")
    copied = (sharing / "copy").read_bytes()
    for (offset, length), place in zip(ranges, places, strict=True):
        assert copied[place : place + length] == content[offset : offset + length]
    assert copied.endswith(b"the end")
    said = subprocess.run(["filefrag", "-v", str(sharing / "copy")], check=True, capture_output=True, text=True).stdout
    extents = [line.split(":") for line in said.splitlines() if line.strip()[:1].isdigit()]
    shared = sum(int(extent[3]) for extent in extents if "shared" in extent[-1])
    assert shared * 4096 > (3 << 20) - 4 * 4096


def test_nothing_is_left_out_where_blocks_cant_be_shared(tmp_path, monkeypatch):
    """On other file systems files are as dense as ever; also where the mounts can't be read."""
    for mounts in (files._MOUNTS, tmp_path / "none"):
        monkeypatch.setattr(files, "_MOUNTS", mounts)
        with STORAGE.create(str(tmp_path / mounts.name)) as sink:
            sink.write(b"ORC")
            assert sink.gap_before(1_234_567, 2 << 20) == 0
