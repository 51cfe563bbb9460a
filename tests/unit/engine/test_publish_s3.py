"""
Compactions on an S3 server: what readers see, what is left when they are cut off, and that whoever was paused can't
publish any more.
"""

import threading
from dataclasses import replace

import pytest

from compactor.acid.compaction import CompactionKind
from compactor.errors import (
    CancelledError,
    OutcomeUnknownError,
    OwnershipLostError,
    RefusedError,
    RivalError,
    VerificationError,
)
from compactor.reasons import Reason
from compactor.storage.location import join
from compactor.storage.s3_store.driver import S3Storage
from compactor.storage.s3_store.files import Upload
from tests.cluster.s3_tables import OnS3

COLUMNS = [("id", "int"), ("v", "string")]


@pytest.fixture
def table(warehouse, s3, s3_directory):
    """Two inserts and a delete on the server."""
    made = warehouse.create_table("db", "t", COLUMNS)
    for first in (0, 10):
        with warehouse.begin() as txn:
            txn.insert(made, [(first + number, f"v{number}") for number in range(5)])
    with warehouse.begin() as txn:
        txn.delete(made, lambda row: row[0] == 3)
    return OnS3(s3, s3_directory, warehouse, made)


def ready(table, kind=CompactionKind.MAJOR, **how):
    """An attempt that has been run and verified."""
    attempt = table.attempt(kind, **how)
    attempt.stage()
    attempt.verify()
    return attempt


def remove_published(table, attempt):
    """What the recovery does once the metastore says that the transaction was aborted."""
    for name in table.storage.directories(table.location):
        if name.endswith(f"_v{attempt.txn:07d}"):
            table.storage.delete_tree(join(table.location, name))


def publish(attempt, guard=lambda: None):
    return attempt.publish(guard)


@pytest.mark.parametrize("kind", list(CompactionKind)[:2])
def test_no_row_changes(table, kind):
    """
    Major and minor, for readers that start after the commit and for those that began before; nothing hidden is left.
    """
    old = table.warehouse.snapshot(table.table)
    attempt = ready(table, kind)
    published = publish(attempt)
    attempt.commit()
    assert set(published.directories) <= set(table.names())
    assert not [name for name in table.names() if name.startswith(".")]
    assert table.uploads() == []
    assert table.read() == table.rows
    assert table.read(old) == table.rows


def test_whole_files_of_insert_only_tables(warehouse, s3, s3_directory):
    """In any format; an empty file too; in a partition with a name that wants quoting."""
    made = warehouse.create_table("db", "io", COLUMNS, partition_keys=[("k", "string")], insert_only=True)
    for number in range(3):
        with warehouse.begin() as txn:
            txn.insert(made, [(number, "x")], ("a b",))
    (name,) = made.directories
    (made.directories[name].location / "delta_0000003_0000003_0000" / "000001_0").touch()
    table = OnS3(s3, s3_directory, warehouse, made)
    attempt = ready(table, partition=name)
    (directory,) = publish(attempt).directories
    attempt.commit()
    assert table.read() == table.rows
    assert (
        f"{name}/{directory}/000001_0" in table.objects()
        or len([key for key in table.objects() if f"/{directory}/" in key]) >= 4
    )


def test_hive_3_is_refused(warehouse_3, s3, s3_directory):
    """Its readers look at no transaction: they would see a base while it comes into being."""
    made = warehouse_3.create_table("db", "t", COLUMNS)
    with warehouse_3.begin() as txn:
        txn.insert(made, [(1, "x")])
    table = OnS3(s3, s3_directory, warehouse_3, made)
    with pytest.raises(RefusedError, match="only Hive 4") as caught:
        table.attempt()
    assert caught.value.reason is Reason.UNSUPPORTED_STORE


def test_nothing_appears_before_the_guard_was_asked_for_the_last_time(table):
    """All is prepared and noted by then; when the guard says no, nothing of it is left but the staging directory."""
    attempt = ready(table, CompactionKind.MINOR)
    before = table.objects()
    seen = []

    def guard():
        seen.append((len(table.uploads()), all("/." in f"/{name}" for name in set(table.objects()) - set(before))))
        if len(seen) == 2:
            raise OwnershipLostError("entry 1 is no longer ours")

    with pytest.raises(OwnershipLostError):
        publish(attempt, guard)
    assert seen == [(0, True), (4, True)]
    assert table.objects() == before
    assert table.uploads() == []


def test_delete_events_appear_before_rows(table, monkeypatch):
    """A reader that ignores transactions and looks in between misses rows rather than seeing deleted ones again."""
    attempt = ready(table, CompactionKind.MINOR)
    order = []
    complete = Upload.complete
    monkeypatch.setattr(Upload, "complete", lambda self: (complete(self), order.append(self.key.split("/")[1]))[0])
    publish(attempt)
    assert [name.startswith("delete_delta_") for name in order] == [True, True, False, False]


def test_publishing_may_be_repeated(table, monkeypatch):
    """What is there already, and is ours, counts as done: nothing is prepared for it."""
    attempt = ready(table)
    first = publish(attempt)
    with monkeypatch.context() as patch:
        patch.setattr(S3Storage, "prepare", None)
        assert publish(attempt) == first
    attempt.commit()
    assert table.read() == table.rows


@pytest.mark.parametrize("paused", [0, 1, 2])
def test_a_paused_publisher_completes_nothing_after_it_was_discarded(table, paused, monkeypatch):
    """
    Between preparing and completing, after the last guard, and with a part of the files completed: somebody else has
    aborted the transaction and cleared up.
    """
    attempt = ready(table, CompactionKind.MINOR)
    complete, done, other = Upload.complete, [], table.attempt()
    lock = threading.Lock()

    def late(self):
        with lock:
            if len(done) == paused:
                attempt.abort()
                other.compaction._staging.root = attempt.compaction._staging.root
                other.compaction.request = attempt.request
                other.compaction.discard()
                remove_published(table, attempt)
            done.append(self.key)
        complete(self)

    monkeypatch.setattr(Upload, "complete", late)
    with pytest.raises((CancelledError, OutcomeUnknownError)):
        publish(attempt)
    assert [name for name in table.names() if "_v" in name] == []
    assert not [key for key in table.objects() if "_v0" in key or key.startswith(".")]
    assert table.uploads() == []
    assert table.read() == table.rows


def test_a_publisher_that_was_discarded_can_prepare_nothing(table):
    """Its source is gone."""
    attempt = ready(table)
    attempt.compaction._staging.discard()
    before = table.objects()
    with pytest.raises(CancelledError):
        publish(attempt)
    assert table.objects() == before
    assert table.uploads() == []


def test_a_late_task_finds_no_place(table):
    """The staging directory is gone: a task that Spark repeats after all was given up writes nothing."""
    attempt = table.attempt()
    attempt.stage()
    tasks = attempt.compaction._staging.tasks
    attempt.compaction.discard()
    with pytest.raises(FileNotFoundError):
        table.storage.mkdir(join(tasks, "late"))


@pytest.mark.parametrize(
    ("file", "as_long"), [("bucket_00000", False), ("bucket_00000", True), ("bucket_00009", False)]
)
def test_two_publishers_of_one_name(table, file, as_long):
    """
    Something is in the final directory already that isn't ours: it is refused, and stays. Neither its name nor its length
    makes it ours.
    """
    attempt = ready(table)
    (manifest,) = attempt.verified.manifests
    content = bytes({file.name: file.length for file in manifest.files}[file]) if as_long else b"not ours"
    there = join(table.location, manifest.directory, file)
    table.storage.mkdir(join(table.location, manifest.directory))
    table.storage.write_small(there, content)
    with pytest.raises(RefusedError, match="isn't ours") as caught:
        publish(attempt)
    assert caught.value.reason is Reason.DUPLICATE_RANGE
    assert table.storage.read_small(there) == content
    assert table.uploads() == []


def test_a_committed_result_of_the_same_range_is_refused(table):
    """Readers would read both; it came after the plan was made."""
    attempt = ready(table)
    (name,) = attempt.plan().names
    other = name.partition("_v")[0]
    table.storage.mkdir(join(table.location, other))
    table.storage.write_small(join(table.location, other, "bucket_00000"), b"not ours")
    with pytest.raises((RefusedError, RivalError)):
        publish(attempt)
    assert table.storage.read_small(join(table.location, other, "bucket_00000")) == b"not ours"
    assert table.uploads() == []


def test_one_that_comes_in_between_is_refused(table):
    """After everything was prepared: the completion itself refuses."""
    attempt = ready(table)
    (name,) = attempt.plan().names
    calls = []

    def guard():
        calls.append(1)
        if len(calls) == 2:
            table.storage.mkdir(join(table.location, name))
            table.storage.write_small(join(table.location, name, "bucket_00000"), b"not ours")

    with pytest.raises(RefusedError) as caught:
        publish(attempt, guard)
    assert caught.value.reason is Reason.DUPLICATE_RANGE
    assert table.storage.read_small(join(table.location, name, "bucket_00000")) == b"not ours"


@pytest.mark.parametrize("happened", [True, False])
def test_a_completion_without_an_answer_is_looked_up(table, monkeypatch, happened):
    """
    It happened: the file says whose it is. It didn't: nobody can tell whether it still will, and undoing gives it up.
    """
    attempt = ready(table)
    complete = Upload.complete

    def unanswered(self):
        if happened:
            complete(self)
        raise OutcomeUnknownError("no answer")

    monkeypatch.setattr(Upload, "complete", unanswered)
    if happened:
        publish(attempt)
        attempt.commit()
    else:
        with pytest.raises(OutcomeUnknownError):
            publish(attempt)
        attempt.abort()
        attempt.compaction.discard()
        remove_published(table, attempt)
        assert table.uploads() == []
    assert table.read() == table.rows


def test_a_store_that_answers_neither_question(table, monkeypatch):
    """The completion had no answer, and nobody says whose the file is: it isn't taken for published."""
    attempt = ready(table)

    def silent(error):
        def fail(*_):
            raise error

        return fail

    monkeypatch.setattr(Upload, "complete", silent(OutcomeUnknownError("no answer")))
    monkeypatch.setattr(S3Storage, "owner_of", silent(OSError("none again")))
    with pytest.raises(OutcomeUnknownError, match=r"can't tell whether .* was published: no answer; then none again"):
        publish(attempt)
    assert table.uploads() == []


@pytest.mark.parametrize("failed", [0, 3])
@pytest.mark.parametrize("error", [PermissionError("not this one"), FileNotFoundError("its source is gone")], ids=repr)
def test_copies_that_were_prepared_go_with_one_that_fails(table, monkeypatch, failed, error):
    """What went wrong is told as it was, or that all was discarded, and nothing is left in the store."""
    attempt = ready(table, CompactionKind.MINOR)
    prepare, lock, done = S3Storage.prepare, threading.Lock(), []

    def one_fails(self, *where):
        with lock:
            done.append(where)
            fails = len(done) == failed + 1
        if fails:
            raise error
        return prepare(self, *where)

    monkeypatch.setattr(S3Storage, "prepare", one_fails)
    before = table.objects()
    with pytest.raises(CancelledError if isinstance(error, FileNotFoundError) else PermissionError):
        publish(attempt)
    assert table.objects() == before
    assert table.uploads() == []


@pytest.mark.parametrize("change", ["gone", "grown"])
def test_nothing_is_published_over_changed_inputs(table, change):
    """A partition that was rewritten meanwhile must not get its old rows back."""
    attempt = ready(table)
    key = next(key for key in table.objects() if key.startswith("delta_0000001_") and "bucket" in key)
    table.storage.delete_file(join(table.location, key))
    if change == "grown":
        table.storage.write_small(join(table.location, key), b"something else")
    with pytest.raises(RefusedError) as caught:
        publish(attempt)
    assert caught.value.reason is Reason.INPUT_CHANGED
    assert not [name for name in table.names() if "_v" in name]
    assert table.uploads() == []


def test_an_input_of_the_same_length_and_second_is_told_by_its_version(table):
    """Times of objects are seconds: what the store itself calls another version of the name isn't what was read."""
    attempt = ready(table)
    key = next(key for key in table.objects() if key.startswith("delta_0000001_") and "bucket" in key)
    place = join(table.location, key)
    length = table.storage.stat(place).length
    table.storage.delete_file(place)
    table.storage.write_small(place, bytes(length))
    now = table.storage.stat(place)
    staged = attempt.staged
    inputs = tuple(replace(file, mtime_ms=now.mtime_ms) if file.path == key else file for file in staged.plan.inputs)
    attempt.verified = replace(attempt.verified, staged=replace(staged, plan=replace(staged.plan, inputs=inputs)))
    with pytest.raises(RefusedError, match=f"{key} was replaced") as caught:
        publish(attempt)
    assert caught.value.reason is Reason.INPUT_CHANGED
    assert not [name for name in table.names() if "_v" in name]


def test_evidence_is_kept_by_copying(table, monkeypatch):
    """What differs is set aside, and can't be published any more."""
    attempt = table.attempt()
    attempt.stage()
    attempt.verify()

    def differs(*_, **__):
        raise VerificationError("it differs")

    monkeypatch.setattr("compactor.engine.verify.result.check_accounts", differs)
    with pytest.raises(VerificationError, match=r"kept aside: \.evidence-compactor-1-a"):
        attempt.verify()
    hidden = [key for key in table.objects() if key.startswith(".")]
    assert hidden
    assert all(key.startswith(".evidence-compactor-1-a/base_") for key in hidden)
    with pytest.raises(CancelledError):
        publish(attempt)
