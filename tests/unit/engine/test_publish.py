"""Publishing: last checks, refuse-if-exists, unknown outcomes; and undoing."""

import errno
import os
import resource
import shutil
import signal
import subprocess

import pytest

from compactor.acid.compaction import CompactionKind
from compactor.errors import OutcomeUnknownError, OwnershipLostError, RefusedError, RivalError, UnreachableError
from compactor.reasons import Reason
from compactor.storage.base import Room
from compactor.storage.local_fs.driver import LocalStorage
from compactor.storage.location import parent
from tests.compacting import Attempt, unchanged
from tests.needs import missing
from tests.reference.compare import read_table

COLUMNS = [("id", "int")]


class Shaky(LocalStorage):
    """A file system whose renames into the partition go wrong as told."""

    def __init__(self, before=None, after=None, *, blind=False):
        super().__init__()
        self.before, self.after, self.blind = before, after, blind
        self.broken = False

    def rename_noreplace(self, source, target):
        published = "/out/" in source and ".compactor-" not in target
        if published and self.before:
            self.broken = True
            raise self.before
        super().rename_noreplace(source, target)
        if published and self.after:
            self.broken = True
            raise self.after

    def exists(self, location):
        if self.broken and self.blind:
            raise UnreachableError("still no answer")
        return super().exists(location)


def two_inserts(warehouse):
    table = warehouse.create_table("db", "t", COLUMNS)
    for first in (0, 10):
        with warehouse.begin() as txn:
            txn.insert(table, [(first + i,) for i in range(5)])
    return table


@pytest.fixture
def table(warehouse):
    return two_inserts(warehouse)


def ready(warehouse, table, kind=CompactionKind.MAJOR, storage=None):
    """An attempt that has been run and verified."""
    attempt = Attempt(warehouse, table, kind, storage=storage)
    attempt.stage()
    attempt.verify()
    return attempt


def publish(attempt, guard=lambda: None):
    return attempt.publish(guard)


def test_the_steps_after_staging_may_be_repeated(warehouse, table):
    """A second call finds all done."""
    attempt = Attempt(warehouse, table)
    attempt.stage()
    attempt.verify()
    attempt.verify()
    assert publish(attempt) == publish(attempt)
    attempt.compaction.discard()
    attempt.compaction.discard()
    assert not [name for name in attempt.names() if name.startswith(".")]


class Recording(LocalStorage):
    """Notes which directories hold names that a power cut could take back."""

    def __init__(self):
        super().__init__()
        self.loose = set()

    def create(self, location):
        self.loose.add(parent(location))
        return super().create(location)

    def sync_directory(self, location):
        self.loose.discard(location)
        super().sync_directory(location)


def test_the_contents_are_durable_before_the_directory_is_published(warehouse, table):
    """
    After a power cut there is no base whose files or markers are missing: their names are synced before the rename.
    """
    storage = Recording()
    attempt = Attempt(warehouse, table, storage=storage)
    attempt.stage()
    assert not storage.loose


def test_the_manifest_tells_names_and_lengths(warehouse, table):
    """What was published can be compared later with what is found."""
    attempt = ready(warehouse, table)
    (manifest,) = publish(attempt).manifests
    found = {path.name: path.stat().st_size for path in (attempt.location / manifest.directory).iterdir()}
    assert {file.name: file.length for file in manifest.files} == found


def test_nothing_is_published_when_the_guard_says_no(warehouse, table):
    """The entry may have been taken away while we worked."""
    attempt = ready(warehouse, table)

    def guard():
        raise OwnershipLostError("entry 1 is no longer ours")

    with unchanged(attempt), pytest.raises(OwnershipLostError):
        publish(attempt, guard)


@pytest.mark.parametrize("change", ["gone", "grown", "rewritten"])
def test_nothing_is_published_over_changed_inputs(warehouse, table, change):
    """A partition that was rewritten meanwhile must not get its old rows back."""
    attempt = ready(warehouse, table)
    victim = next(attempt.location.glob("delta_0000001_*/bucket_00000_0"))
    data = victim.read_bytes()
    if change == "gone":
        victim.unlink()
    elif change == "grown":
        victim.write_bytes(data + b"x")
    else:
        victim.unlink()
        victim.write_bytes(data)
        os.utime(victim, (1, 1))
    with unchanged(attempt), pytest.raises(RefusedError) as caught:
        publish(attempt)
    assert caught.value.reason is Reason.INPUT_CHANGED


def test_a_second_directory_of_the_same_range_is_refused(warehouse, table):
    """Both would be read (HIVE-29210), whoever wrote the other."""
    attempt = ready(warehouse, table)
    (attempt.location / "base_0000002").mkdir()
    with unchanged(attempt), pytest.raises(RefusedError) as caught:
        publish(attempt)
    assert caught.value.reason is Reason.DUPLICATE_RANGE


@pytest.mark.parametrize("name", ["base_0000002_v0000077", "delta_0000001_0000009_v0000077"])
def test_another_compactions_result_comes_first(warehouse, table, name):
    """Its transaction isn't one that this compaction saw as committed, so its rows are in both."""
    attempt = ready(warehouse, table)
    (attempt.location / name).mkdir()
    with unchanged(attempt), pytest.raises(RivalError, match=f"{name} of another compaction came meanwhile"):
        publish(attempt)


@pytest.fixture
def table_3(warehouse_3):
    return two_inserts(warehouse_3)


class Between:
    """A guard for Hive 3.1: does something when it is asked for the second time, after the listing."""

    def __init__(self, storage, meanwhile=lambda: None):
        self._storage, self._meanwhile, self._asked = storage, meanwhile, 0

    def __call__(self):
        self._asked += 1
        if self._asked == 2:
            self._meanwhile()
        self._storage.calls.clear()


class Listing(LocalStorage):
    """Notes which calls come after the guard was last asked."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def list_tree(self, location):
        self.calls.append("list_tree")
        return super().list_tree(location)

    def directories(self, location):
        self.calls.append("directories")
        return super().directories(location)

    def rename_noreplace(self, source, target):
        self.calls.append("rename")
        super().rename_noreplace(source, target)


def test_only_names_are_looked_at_between_the_guard_and_the_rename(warehouse_3, table_3):
    """On Hive 3.1 the rename is the commit: the listing, which takes as long as there are files, comes before."""
    storage = Listing()
    attempt = ready(warehouse_3, table_3, storage=storage)
    publish(attempt, Between(storage))
    assert storage.calls == ["directories", "rename"]


@pytest.mark.parametrize("name", ["base_0000002", "delta_0000001_0000009"])
def test_what_another_compaction_published_since_the_listing_is_seen(warehouse_3, table_3, name):
    """Its worker may have stood still before its rename, and have ended since."""
    storage = Listing()
    attempt = ready(warehouse_3, table_3, storage=storage)
    came = (attempt.location / name).mkdir
    with pytest.raises(RivalError, match=f"{name} of another compaction came meanwhile"):
        publish(attempt, Between(storage, came))
    assert not list(attempt.location.glob("base_0000002/bucket*"))


def test_staging_directories_of_others_go_before_the_last_look(warehouse_3, table_3):
    """
    Also of one that came meanwhile: after its look no rename of another attempt can come, however long it stood still.
    """
    storage = Listing()
    attempt = ready(warehouse_3, table_3, storage=storage)
    others = [attempt.location / f".compactor-{number}-0123abcd" / "out" / "base_0000009" for number in (8, 9)]
    others[0].mkdir(parents=True)
    publish(attempt, Between(storage, lambda: others[1].mkdir(parents=True)))
    assert not any(other.parent.parent.exists() for other in others)
    assert attempt.plan().names[0] in attempt.names()


def test_one_that_ends_while_the_names_are_read_is_seen(warehouse_3, table_3):
    """
    Another compaction renames its result and removes its staging directory while this one reads the names: they may
    show neither. They are read once more.
    """

    class Passing(Listing):
        def directories(self, location):
            names = super().directories(location)
            if theirs.exists():
                (theirs / "out" / "delta_0000001_0000009").rename(attempt.location / "delta_0000001_0000009")
                shutil.rmtree(theirs)
                return [name for name in names if name != theirs.name]
            return names

    attempt = ready(warehouse_3, table_3, storage=Passing())
    theirs = attempt.location / ".compactor-8-0123abcd"
    (theirs / "out" / "delta_0000001_0000009").mkdir(parents=True)
    with pytest.raises(RivalError, match="delta_0000001_0000009 of another compaction came meanwhile"):
        publish(attempt)


def test_an_input_that_went_since_the_listing_is_missed(warehouse_3, table_3):
    """As before: what another compaction replaced may have been cleaned."""
    storage = Listing()
    attempt = ready(warehouse_3, table_3, storage=storage)
    (victim,) = attempt.location.glob("delta_0000001_*")
    with pytest.raises(RefusedError) as caught:
        publish(attempt, Between(storage, lambda: shutil.rmtree(victim)))
    assert caught.value.reason is Reason.INPUT_CHANGED
    assert attempt.plan().names[0] not in attempt.names()


def test_nothing_is_renamed_when_the_claim_was_lost_since_the_listing(warehouse_3, table_3):
    """Hive takes claims back by their age alone, while the store takes its time."""
    storage = Listing()
    attempt = ready(warehouse_3, table_3, storage=storage)

    def lost():
        raise OwnershipLostError("entry 1 is no longer ours")

    with unchanged(attempt), pytest.raises(OwnershipLostError):
        publish(attempt, Between(storage, lost))


@pytest.mark.parametrize("name", ["delta_0000002_0000009", "delta_0000001_0000001_v0000077", "base_0000009_v0000077"])
def test_what_is_not_read_beside_it_is_left_alone(warehouse, table, name):
    """A writer's batch, and results that lie inside this one, or around it."""
    attempt = ready(warehouse, table)
    (attempt.location / name).mkdir()
    publish(attempt)
    assert {name, attempt.plan().names[0]} <= set(attempt.names())


def test_one_of_an_aborted_compaction_is_removed_first(warehouse, table):
    """It can never become visible, but readers that ignore visibility would take it."""
    first = ready(warehouse, table)
    (left,) = publish(first).directories
    warehouse.ledger.abort(first.txn)
    first.compaction.discard()
    second = ready(warehouse, table)
    (made,) = publish(second).directories
    warehouse.ledger.commit(second.txn)
    second.compaction.discard()
    assert left not in second.names()
    assert made in second.names()


def test_a_foreign_directory_of_our_own_name_is_never_touched(warehouse, table):
    """Not even an empty one: a plain rename would replace it silently."""
    attempt = ready(warehouse, table)
    name = attempt.plan().names[0]
    (attempt.location / name).mkdir()
    with unchanged(attempt), pytest.raises(RefusedError) as caught:
        publish(attempt)
    assert caught.value.reason is Reason.DUPLICATE_RANGE
    assert not list((attempt.location / name).iterdir())


def test_an_error_after_the_rename_is_looked_at(warehouse, table):
    """The answer was lost, the rename was not: what is there is what was staged."""
    attempt = ready(warehouse, table, storage=Shaky(after=OutcomeUnknownError("no answer")))
    before = read_table(warehouse, table)
    assert publish(attempt).directories == attempt.plan().names
    attempt.commit()
    assert read_table(warehouse, table) == before


def test_a_name_that_cannot_be_made_durable_is_not_published(warehouse, table, monkeypatch):
    """
    The rename happened, and the directory that holds the name can't be synced: not published, at the second look
    neither; then both succeed.
    """
    attempt, sync = ready(warehouse, table), os.fsync
    before = read_table(warehouse, table)

    def fail(_descriptor):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    for _ in range(2):
        with pytest.raises(OutcomeUnknownError, match="is there, but can't be made durable"):
            publish(attempt)
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: (synced.append(os.fstat(descriptor).st_ino), sync(descriptor)))
    assert publish(attempt).directories == attempt.plan().names
    assert attempt.location.stat().st_ino in synced
    attempt.commit()
    assert read_table(warehouse, table) == before


def test_a_file_system_that_never_syncs_directories_is_refused_before_anything_is_made(warehouse, table, monkeypatch):
    """As FUSE and network file systems may: no rename there would be known to last."""

    def fail(_descriptor):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    attempt = Attempt(warehouse, table)
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(RefusedError, match="can't make the names in a directory durable") as caught:
        attempt.stage()
    assert caught.value.reason is Reason.UNSUPPORTED_STORE


def test_the_result_gives_the_same_people_the_same_rights(warehouse, table):
    """By getfacl: lists for the directory and for what is made in it; a file has the directory's without execute."""
    if shutil.which("setfacl") is None:
        missing("setfacl isn't installed")
    rights = "u::rwx,u:65534:rwx,g::---,g:65533:r-x,m::rwx,o::---"
    defaults = ",".join(f"d:{right}" for right in rights.split(","))
    subprocess.run(["setfacl", "-m", f"{rights},{defaults}", str(table.location)], check=True)
    attempt = ready(warehouse, table)
    (name,) = publish(attempt).directories

    def shown(path, *options):
        command = ["getfacl", "--omit-header", "--absolute-names", "--numeric", *options, str(path)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    made = attempt.location / name
    assert shown(made) == shown(attempt.location)
    assert "user:65534:rwx" in shown(made)
    for file in made.iterdir():
        entries = [line.split("\t")[0] for line in shown(file, "--access").splitlines()]
        of_directory = shown(made, "--access").splitlines()
        assert entries == [f"{line[:-1]}-" if line else line for line in of_directory]


def test_an_error_before_the_rename_may_be_retried(warehouse, table):
    """Nothing happened: the source is there, the target isn't."""
    attempt = ready(warehouse, table, storage=Shaky(before=UnreachableError("gone for a moment")))
    with unchanged(attempt), pytest.raises(UnreachableError):
        publish(attempt)
    attempt.storage.before = None
    assert publish(attempt).directories


def test_a_rename_that_the_store_refuses_is_told_with_its_reason(warehouse, table):
    """Not taken for published, and not for an error after which another attempt might help."""
    attempt = ready(warehouse, table, storage=Shaky(before=RefusedError(Reason.UNSUPPORTED_STORE, "it can't")))
    with unchanged(attempt), pytest.raises(RefusedError, match="it can't"):
        publish(attempt)


def test_a_directory_that_appears_just_before_the_rename_is_refused(warehouse, table):
    """After the listing: the rename itself fails, and what is there isn't what was staged."""

    class Beaten(LocalStorage):
        def rename_noreplace(self, source, target):
            if "/out/" in source and ".compactor-" not in target:
                self.mkdir(target)
            super().rename_noreplace(source, target)

    attempt = ready(warehouse, table, storage=Beaten())
    with pytest.raises(RefusedError, match="appeared while it was published") as caught:
        publish(attempt)
    assert caught.value.reason is Reason.DUPLICATE_RANGE
    assert not list((attempt.location / attempt.plan().names[0]).iterdir())


def test_no_answer_twice_is_unknown(warehouse, table):
    """When it can't be looked up either, nobody may guess."""
    attempt = ready(warehouse, table, storage=Shaky(after=OutcomeUnknownError("no answer"), blind=True))
    with pytest.raises(OutcomeUnknownError):
        publish(attempt)


def test_discarding_leaves_what_was_published(warehouse, table):
    """Whether that goes the metastore decides, and only the roles ask it."""
    attempt = ready(warehouse, table)
    (name,) = publish(attempt).directories
    attempt.compaction.discard()
    assert name in attempt.names()


def test_a_late_rename_finds_no_source(warehouse, table):
    """A process that was paused for an hour after its claim was given away can't publish any more."""
    attempt = ready(warehouse, table)
    attempt.compaction.discard()
    before = attempt.names()
    with pytest.raises(RefusedError) as caught:
        publish(attempt)
    assert caught.value.reason is Reason.LOCATION_MISSING
    assert attempt.names() == before


def test_a_rename_that_is_too_late_finds_no_source(warehouse, table):
    """The staging directory goes after the last look at it: the rename takes nothing along."""

    class Late(LocalStorage):
        def rename_noreplace(self, source, target):
            if "/out/" in source and ".compactor-" not in target:
                attempt.compaction.discard()
            super().rename_noreplace(source, target)

    attempt = ready(warehouse, table, storage=Late())
    with pytest.raises(OutcomeUnknownError):
        publish(attempt)
    assert attempt.names() == ["delta_0000001_0000001_0000", "delta_0000002_0000002_0000"]


def test_delete_events_become_visible_before_rows(warehouse, table):
    """
    Two renames: a reader that ignores visibility and looks in between misses rows rather than seeing deleted ones
    again.
    """
    with warehouse.begin() as txn:
        txn.delete(table, lambda row: row[0] == 3)
    attempt = ready(warehouse, table, CompactionKind.MINOR)
    seen = []
    publish(attempt, lambda: seen.append([name for name in attempt.names() if "_v" in name]))
    assert [len(names) for names in seen] == [0, 1]
    assert seen[1][0].startswith("delete_delta_")


def test_a_full_disk_is_told_before_anything_is_written(warehouse, table, monkeypatch):
    """The result can't fit: one line, no staging directory."""
    attempt = Attempt(warehouse, table)
    monkeypatch.setattr(LocalStorage, "room", lambda self, location: Room(10, None, "the file system"))
    before = attempt.names()
    with pytest.raises(RefusedError) as caught:
        attempt.stage()
    assert caught.value.reason is Reason.DISK_FULL
    assert attempt.names() == before


def test_a_name_quota_is_told_before_anything_is_written(warehouse, table, monkeypatch):
    """Files and directories may be limited too: one line that says by what."""
    attempt = Attempt(warehouse, table)
    monkeypatch.setattr(LocalStorage, "room", lambda self, location: Room(None, 3, "the name quota of /warehouse"))
    before = attempt.names()
    with pytest.raises(RefusedError, match=r"files and directories, 3 are left.*name quota of /warehouse") as caught:
        attempt.stage()
    assert caught.value.reason is Reason.DISK_FULL
    assert attempt.names() == before


def test_a_disk_that_fills_up_while_writing(warehouse, table):
    """A limit on file size stands in for a full disk: a refusal with its reason, and discarding leaves nothing."""
    attempt = Attempt(warehouse, table)
    before = attempt.names()
    old, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, old[1]))
    try:
        with pytest.raises(RefusedError) as caught:
            attempt.stage()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.reason is Reason.DISK_FULL
    attempt.compaction.discard()
    assert attempt.names() == before


def test_a_partition_that_vanished(warehouse, table):
    """Dropped between plan and run."""
    attempt = Attempt(warehouse, table)
    attempt.plan()
    shutil.rmtree(attempt.location)
    with pytest.raises(RefusedError):
        attempt.stage()
