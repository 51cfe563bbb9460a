"""
On a shared file system a table's owner exchanges a directory for a link, under every call of the local driver and at
every moment: nothing outside is touched.

A moment is the one before or after any call of openat, which is all that lies between a path's root and what is done at
its end.
"""

import errno
import itertools
import os
from pathlib import Path

import pytest

from compactor.acid.names import DirKind
from compactor.engine.insert_only.formats import JoinOptions
from compactor.engine.insert_only.tasks import WholeTask, run_whole
from compactor.errors import RefusedError, UnreachableError
from compactor.reasons import Reason
from compactor.spark.results import run_partition
from compactor.storage.local_fs import beneath
from compactor.storage.local_fs.driver import LocalStorage
from compactor.storage.registry import configure, configured

FILES = (
    "delta_1_1/bucket_00000",
    "base_1/_metadata_acid",
    ".staging/out/base_2/bucket_00000",
    ".staging/tasks/1/bucket_00000",
)


class Shared:
    """
    A partition that its owner may exchange, and a directory outside that looks the same and holds what only the daemon
    may read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "warehouse"
        self.partition = self.root / "t" / "p=1"
        self.outside = folder / "outside"
        for top, content in (
            (self.partition, b'{"dataFormat": "own"}'),
            (self.outside / "p=1", b'{"dataFormat": "secret"}'),
        ):
            for path in FILES:
                (top / path).parent.mkdir(parents=True, exist_ok=True)
                (top / path).write_bytes(content)
                (top / path).chmod(0o600)
        self.partition.chmod(0o775)
        self.storage = LocalStorage(lambda _: str(self.root))

    def at(self, path: str) -> str:
        return f"file:{self.partition}/{path}"

    def swap(self, what: str) -> None:
        """
        Move a directory of the partition, or that itself, out of the warehouse, and put a link to its like outside
        there. What was moved or removed stays so.
        """
        victim = self.partition / what
        if victim.exists():
            victim.rename(self.folder / "moved")
            victim.symlink_to(self.outside / "p=1" / what)

    def snapshot(self) -> list[tuple[object, ...]]:
        """Everything outside, with what could be given away."""
        found = []
        for path in sorted(self.outside.rglob("*")):
            status = path.lstat()
            found.append(
                (
                    path,
                    status.st_mode,
                    status.st_nlink,
                    status.st_uid,
                    status.st_ctime_ns,
                    path.read_bytes() if path.is_file() else b"",
                )
            )
        return found


def whole(storage, location):
    """The content, read through the open file."""
    with storage.open_read(location) as reader:
        return reader.read_at(0, reader.size)


def listed(storage, location):
    """The content that a listing tells: a base's format."""
    return dict(storage.list_tree(location).formats).get("base_1", "").encode()


CALLS = {
    "list_tree": lambda s, at: listed(s, at("")[:-1]),
    "directories": lambda s, at: s.directories(at(".staging/out")),
    "stat": lambda s, at: s.stat(at("delta_1_1/bucket_00000")),
    "exists": lambda s, at: s.exists(at("delta_1_1/bucket_00000")),
    "open_read": lambda s, at: whole(s, at("delta_1_1/bucket_00000")),
    "read_small": lambda s, at: s.read_small(at("base_1/_metadata_acid")),
    "create": lambda s, at: s.create(at(".staging/tasks/1/new")).close(),
    "abort": lambda s, at: s.create(at(".staging/tasks/1/new")).abort(),
    "write_small": lambda s, at: s.write_small(at(".staging/out/base_2/_new"), b"x"),
    "mkdir": lambda s, at: s.mkdir(at(".staging/out/new")),
    "rename_noreplace": lambda s, at: s.rename_noreplace(at(".staging/out/base_2"), at("base_2")),
    "rename_noreplace out": lambda s, at: s.rename_noreplace(at("delta_1_1/bucket_00000"), at(".staging/out/taken")),
    "withdraw": lambda s, at: s.withdraw(at("delta_1_1"), at(".staging/out/aside")),
    "delete_file": lambda s, at: s.delete_file(at("delta_1_1/bucket_00000")),
    "delete_tree": lambda s, at: s.delete_tree(at(".staging")),
    "link_or_copy": lambda s, at: s.link_or_copy(at("delta_1_1/bucket_00000"), at(".staging/out/linked")),
    "room": lambda s, at: s.room(at(".staging/out")),
    "adopt": lambda s, at: s.adopt(at("")[:-1], at(".staging/out/base_2")),
    "owner": lambda s, at: s.owner(at("delta_1_1/bucket_00000")),
    "sync_directory": lambda s, at: s.sync_directory(at(".staging/out")),
}


def outcome(shared: Shared, call: str, what: str, moment: int) -> tuple[object, RefusedError | None, bool]:
    """
    A call under which a directory is exchanged before (even moments) or after (odd ones) an openat.

    Returns: what it returned, its refusal, and whether there was such a moment.
    """
    real, moments = os.open, itertools.count()

    def opened(*arguments, **named):
        if next(moments) == moment:
            shared.swap(what)
        descriptor = real(*arguments, **named)
        if next(moments) == moment:
            shared.swap(what)
        return descriptor

    result, refusal = None, None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beneath.os, "open", opened)
        try:
            result = CALLS[call](shared.storage, shared.at)
        except RefusedError as error:
            refusal = error
        except FileNotFoundError:
            pass
    return result, refusal, next(moments) > moment


@pytest.mark.parametrize(
    "what", ["", "delta_1_1", "base_1", ".staging", ".staging/out", ".staging/out/base_2", ".staging/tasks/1"]
)
@pytest.mark.parametrize("call", CALLS)
def test_nothing_outside_is_touched_whenever_a_directory_is_exchanged(call, what, tmp_path):
    """
    The call is refused with the link's name, or was made to the directory that had been there, or found nothing; it
    never reads, writes or removes outside.
    """
    refusals = []
    for moment in itertools.count():
        shared = Shared(tmp_path / str(moment))
        before = shared.snapshot()
        result, refusal, there_was = outcome(shared, call, what, moment)
        assert shared.snapshot() == before
        assert b"secret" not in (result if isinstance(result, bytes) else b"")
        if refusal is not None:
            refusals.append(refusal)
            assert refusal.reason in {Reason.UNSAFE_LOCATION, Reason.UNKNOWN_NAME}
            assert f"{shared.partition / what}".rstrip("/") in refusal.message
            assert "is a symbolic link" in refusal.message
            assert "\n" not in refusal.message
        if not there_was:
            break
    assert moment > 2
    assert refusals or what != ""


@pytest.mark.parametrize("call", CALLS)
def test_a_link_that_is_there_before_is_refused(call, tmp_path):
    """The partition's directory is a link already: one sentence names it and says what to do."""
    shared = Shared(tmp_path)
    shared.swap("")
    before = shared.snapshot()
    with pytest.raises(
        RefusedError, match="p=1 is a symbolic link, which isn't followed in a warehouse: give the location"
    ) as caught:
        CALLS[call](shared.storage, shared.at)
    assert caught.value.reason is Reason.UNSAFE_LOCATION
    assert shared.snapshot() == before


def test_a_directory_that_becomes_a_link_before_it_is_removed(tmp_path, monkeypatch):
    """Everything in it is gone; the link in its place is refused, and what it leads to stays."""
    shared = Shared(tmp_path)
    before, real = shared.snapshot(), os.rmdir

    def swapping(name, **named):
        if name == "out":
            shared.swap(".staging/out")
        real(name, **named)

    monkeypatch.setattr(beneath.os, "rmdir", swapping)
    with pytest.raises(RefusedError, match="out is a symbolic link"):
        shared.storage.delete_tree(shared.at(".staging"))
    assert shared.snapshot() == before
    assert list((tmp_path / "moved").iterdir()) == []


def test_links_at_and_above_the_root_are_followed(tmp_path):
    """They are of whoever named the root."""
    shared = Shared(tmp_path)
    (tmp_path / "link").symlink_to(shared.root)
    storage = LocalStorage(lambda _: str(tmp_path / "link"))
    assert listed(storage, f"{tmp_path}/link/t/p=1") == b"own"
    assert storage.stat(str(tmp_path / "link")).length == 0
    assert storage.directories(str(tmp_path / "link")) == ("t",)
    storage.delete_tree(f"{tmp_path}/link/t/p=1")
    assert list((shared.root / "t").iterdir()) == []


def test_directories_on_the_way_need_not_be_readable(tmp_path):
    """A daemon that may only pass through the directories above a table reaches it."""
    shared = Shared(tmp_path)
    (shared.root / "t").chmod(0o711)
    flags = []
    real = os.open
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            beneath.os,
            "open",
            lambda path, flag, *rest, **named: (flags.append(flag), real(path, flag, *rest, **named))[1],
        )
        shared.storage.mkdir(shared.at("new"))
    assert all(flag & os.O_PATH for flag in flags)


@pytest.mark.parametrize("stale", [1, 2])
def test_a_directory_that_nfs_still_knew_is_looked_for_once_more(tmp_path, monkeypatch, stale):
    """
    Another machine removed it: the first answer is a stale handle, the second tells what is there now. A second stale
    handle is unreachable.
    """
    shared = Shared(tmp_path)
    answers = [OSError(errno.ESTALE, os.strerror(errno.ESTALE))] * stale

    def mkdir(*arguments, **named):
        if answers:
            raise answers.pop()
        real(*arguments, **named)

    real = os.mkdir
    monkeypatch.setattr(beneath.os, "mkdir", mkdir)
    if stale == 1:
        shared.storage.mkdir(shared.at("new"))
        assert (shared.partition / "new").is_dir()
    else:
        with pytest.raises(UnreachableError, match="Stale file handle"):
            shared.storage.mkdir(shared.at("new"))


# ---- Tasks on executors


def test_a_task_walks_from_the_root_of_its_compaction(tmp_path):
    """
    What an executor is told of the stores names the root: a partition that became a link while its task was on the way
    is neither read nor written.
    """
    shared = Shared(tmp_path)
    shared.swap("")
    before, options = shared.snapshot(), configured()
    options_of_task = JoinOptions(64 << 20, verify_values=True)
    place, tasks = shared.at("")[:-1], shared.at(".staging/tasks")
    task = WholeTask(place, tasks, "base_2", DirKind.BASE, (), None, (), options_of_task)
    try:
        (answer,) = run_partition(run_whole, [task], options.beneath(str(shared.root)))
    finally:
        configure(options)
    assert isinstance(answer, RefusedError)
    assert answer.reason is Reason.UNSAFE_LOCATION
    assert shared.snapshot() == before
