"""
Worker, recovery and Cleaner over a table on an S3 server: what is published, what is taken back, what is removed, and
that nobody who was paused can do harm.
"""

import pytest

from compactor.acid.compaction import LayoutVersion
from compactor.acid.names import parse_dir
from compactor.engine.publish import uploads as publish_uploads
from compactor.errors import CompactorError, RefusedError
from compactor.metastore.compaction_queue.properties import encode_properties
from compactor.metastore.model import Entity
from compactor.metastore.txn.transactions import TxnState
from compactor.reasons import Reason
from compactor.roles import steps
from compactor.roles.cleaner import dropped
from compactor.roles.cleaner.quarantine.manifest import MANIFEST
from compactor.roles.cleaner.quarantine.restore import Restore
from compactor.roles.cleaner.trash_in_place import TrashInPlace
from compactor.roles.housekeeper.recovery import Recovery
from compactor.storage.location import join
from compactor.storage.s3_store import driver, records
from compactor.storage.s3_store.driver import S3Storage
from compactor.storage.s3_store.files import Upload
from tests.cluster.s3_tables import OnS3
from tests.demo.rows import CatalogRows

T = Entity("db", "t")
AFTER_STATE = steps.WORKER_STEPS[
    steps.WORKER_STEPS.index(steps.WORKER_STATE_STORED) : steps.WORKER_STEPS.index(steps.WORKER_COMMITTED)
]


@pytest.fixture
def table(world, s3, request):
    """
    Four inserts and a delete; the catalog says that they are on the server. Its bucket is the one that a test's
    parameter names.
    """
    s3_directory = request.getfixturevalue(getattr(request, "param", "s3_directory"))
    world.configure(s3=s3.settings)
    made = world.table(rows=4)
    world.delete(made, 2)
    sds = world.database.schema.sds
    world.hive.change(sds.update().where(sds.c.location.like(f"%{made.location}")).values(location=s3_directory))
    world.root("/".join(s3_directory.split("/")[:3]))
    return OnS3(s3, s3_directory, world.warehouse, made)


def clean_slate(table):
    """Nothing of ours is there: neither files nor anything on its way."""
    assert table.uploads() == []
    assert not [key for key in table.objects() if key.startswith(".") or "_v0" in key]


@pytest.mark.parametrize("kind", ["major", "minor"])
def test_a_compaction_and_its_cleaning(world, table, kind):
    """Readers see the same rows, only what was published is left, and nothing hidden."""
    assert ": published " in world.compact(table.table, kind)
    assert table.read() == table.rows
    assert "cleaned 1" in world.clean()
    assert table.read() == table.rows
    assert all("_v0" in name for name in table.names())
    assert world.states() == []


def test_quarantine_is_a_copy(world, table, s3):
    """What was replaced is kept aside with every byte."""
    world.configure(s3=s3.settings, cleaner={"quarantine_hours": 1})
    before = {key: table.storage.read_small(join(table.location, key)) for key in table.objects()}
    world.compact(table.table)
    world.clean()
    kept = {
        key.split("/", 1)[1]: table.storage.read_small(join(table.location, key))
        for key in table.objects()
        if key.startswith(".trash-compactor-")
    }
    assert kept.pop(MANIFEST)
    assert kept == before
    assert table.read() == table.rows


def test_nothing_is_restored_where_nothing_can_be_renamed(world, table, s3):
    """Refused with the reason; what is in quarantine is shown all the same."""
    world.configure(s3=s3.settings, cleaner={"quarantine_hours": 1})
    world.compact(table.table)
    world.clean()
    ((found, _),) = world.services.catalog.facts_for([Entity("db", "t")]).values()
    work = Restore(world.services, found, None, table.location)
    (kept,) = work.kept()
    assert kept.manifest.result
    for refused in (work.settle, lambda: work.plan(kept), lambda: work.run(kept)):
        with pytest.raises(RefusedError, match="can't rename directories"):
            refused()
    assert table.read() == table.rows


@pytest.mark.parametrize("step", AFTER_STATE)
def test_an_attempt_is_undone_from_every_step(world, table, step):
    """Whatever was prepared or completed by then goes; the next attempt finds its inputs untouched."""
    before = table.objects()

    def fails():
        raise CompactorError("it was cut off")

    world.at_step[step] = fails
    assert "cut off" in world.compact(table.table)
    assert table.objects() == before
    clean_slate(table)
    world.at_step.clear()
    assert ": published " in world.compact(table.table)
    assert table.read() == table.rows


@pytest.mark.parametrize("table", ["s3_directory", "s3_whole_keys"], indirect=True)
@pytest.mark.parametrize("step", [steps.WORKER_STAGED, steps.WORKER_VERIFIED, steps.WORKER_PUBLISHED])
def test_recovery_from_every_side(world, table, step):
    """
    The worker is taken for dead between two steps, cleared up after and its entry given back; then it goes on, and
    publishes nothing.
    """

    def given_away():
        world.at_step.clear()
        (entry,) = world.services.queue.entries()
        assert Recovery(world.services).clear(entry)
        world.services.queue.give_back(entry)

    world.at_step[step] = given_away
    world.compact(table.table)
    clean_slate(table)
    assert world.states() == ["initiated"]
    world.settle_time()
    assert ": published " in world.worker(2).run_once().sentence
    assert table.read() == table.rows


@pytest.mark.parametrize("table", ["s3_directory", "s3_whole_keys"], indirect=True)
@pytest.mark.parametrize("completed", [0, 1])
@pytest.mark.parametrize("by", ["recovery", "cleaner"])
def test_a_publisher_that_slept_completes_nothing(world, table, monkeypatch, by, completed):
    """
    All is prepared, the last question whether the entry is ours was answered with yes, then it sleeps for an hour,
    before the first file is completed or after it: its transaction times out. What was prepared is found although the
    store lists no uploads by a directory's name.
    """
    complete = Upload.complete
    slept, given_up = [], []

    def late(self):
        slept.append(1)
        if len(slept) == 1 + completed:
            (entry,) = world.services.queue.entries()
            if by == "recovery":
                assert Recovery(world.services).clear(entry)
                world.services.queue.give_back(entry)
            else:
                world.services.transactions.abort(entry.txn_id, "no heartbeat")
                world.configure(
                    s3=world.services.settings.s3.model_dump(), initiator={"thresholds": {"aborted_count": 0}}
                )
                world.clean()
                clean_slate(table)
        try:
            complete(self)
        except FileNotFoundError:
            given_up.append(self)
            raise

    monkeypatch.setattr(publish_uploads, "at_once", lambda _, actions: [action() for action in actions])
    monkeypatch.setattr(Upload, "complete", late)
    world.compact(table.table)
    assert (len(slept), len(given_up)) == (1 + completed, 1)
    clean_slate(table)
    assert table.read() == table.rows


@pytest.mark.parametrize("table", ["s3_directory", "s3_whole_keys"], indirect=True)
def test_an_upload_that_was_not_noted_yet_copies_nothing(world, table, monkeypatch):
    """
    The store has given the upload its id, then the worker sleeps: the fence knows nothing of it. When the worker notes
    it, what it would copy is gone.
    """
    note, slept = records.note, []

    def late(*upload):
        if not slept:
            slept.append(1)
            (entry,) = world.services.queue.entries()
            assert Recovery(world.services).clear(entry)
            world.services.queue.give_back(entry)
        return note(*upload)

    monkeypatch.setattr(records, "note", late)
    world.compact(table.table)
    assert slept
    clean_slate(table)
    assert table.read() == table.rows


class DiedError(BaseException):
    """The process is gone: nothing of it runs afterwards."""


@pytest.mark.parametrize("first", ["the next attempt", "the Cleaner"])
def test_an_upload_that_is_being_completed_appears_after_the_fence(world, table, monkeypatch, first):
    """
    A worker dies while the store completes its upload, and the object appears only after the recovery has listed the
    place and given the entry back. It lies in what would be the best base. Its transaction was aborted, and stays known
    as such while an upload may still appear: no reader reads the object, whoever looks next removes it, and only a look
    after that time forgets the transaction.
    """
    world.late_writers = True
    complete, client = Upload.complete, table.server.client

    def in_flight(self):
        complete(self)
        where = {"Bucket": self.bucket, "Key": self.key}
        arrived = client.get_object(**where)
        what = {"Body": arrived["Body"].read(), "Metadata": arrived["Metadata"]}
        client.delete_object(**where)
        (entry,) = world.services.queue.entries()
        assert Recovery(world.services).clear(entry)
        world.services.queue.give_back(entry)
        clean_slate(table)
        client.put_object(**where, **what)
        raise DiedError

    monkeypatch.setattr(publish_uploads, "at_once", lambda _, actions: [action() for action in actions])
    monkeypatch.setattr(Upload, "complete", in_flight)
    with pytest.raises(DiedError):
        world.compact(table.table)
    monkeypatch.setattr(Upload, "complete", complete)
    (late,) = [name for name in table.names() if "_v" in name]
    txn = parse_dir(late, LayoutVersion.HIVE_4).visibility_txn
    assert late.startswith("base_")
    settings = {"s3": table.server.settings, "initiator": {"thresholds": {"aborted_count": 0}}}
    world.configure(**settings)

    def look():
        if first == "the Cleaner":
            world.clean()
        else:
            world.settle_time()
            assert ": published " in world.worker(2).run_once().sentence

    for action in (lambda: None, lambda: world.housekeeper().run_once(), look, world.clean):
        action()
        assert table.read() == table.rows
        assert world.services.transactions.state(txn) is TxnState.ABORTED
    assert late not in table.names()
    world.outlive()
    world.services = world.new_services(**settings)  # a daemon that remembers no time until which it needn't look
    world.clean()
    assert "c" not in world.components()
    assert table.read() == table.rows


def test_the_cleaner_removes_nothing_that_changed(world, table):
    """What isn't what was decided on stays, all of it."""
    world.compact(table.table)
    before = table.objects()
    victim = next(key for key in before if key.startswith("delta_0000001_") and "bucket" in key)

    def change():
        table.storage.delete_file(join(table.location, victim))
        table.storage.write_small(join(table.location, victim), b"somebody else's")

    world.at_step[steps.CLEANER_TRASHED] = change
    assert "changed while it was being removed" in world.clean()
    assert table.objects() == before


def test_a_cleaner_that_was_succeeded_removes_nothing(world, table):
    """Whoever cleans next takes its sign away."""
    world.compact(table.table)
    before = table.objects()

    def succeeded():
        for name in table.names():
            if name.startswith(".trash-compactor-"):
                table.storage.delete_tree(join(table.location, name))

    world.at_step[steps.CLEANER_COMPARED] = succeeded
    world.clean()
    assert table.objects() == before
    world.at_step.clear()


def test_a_sign_that_was_left_is_taken_away(world, table):
    """A Cleaner died before it removed anything; one that holds files is left for somebody to look at."""
    table.storage.mkdir(join(table.location, ".trash-compactor-1-0000dead"))
    table.storage.mkdir(join(table.location, ".trash-compactor-1-0dd00dd0"))
    table.storage.write_small(join(table.location, ".trash-compactor-1-0dd00dd0", "file"), b"x")
    world.compact(table.table)
    world.clean()
    assert [name for name in table.names() if name.startswith(".")] == [".trash-compactor-1-0dd00dd0"]


def test_the_directory_of_a_dropped_table_is_removed(world, table, s3, s3_directory):
    """With all that is in it; its neighbours stay."""
    above = f"{s3_directory.removeprefix('s3a://warehouse/')}-dropped.db"
    for key in ("", "t2/", "t2/delta_1_1/bucket_00000", "t2/.hidden/x", "t20/f"):
        s3.client.put_object(Bucket="warehouse", Key=f"{above}/{key}", Body=b"")
    txn = world.hive.begin()
    properties = encode_properties({"location": f"{s3_directory}-dropped.db/t2"})
    world.hive.queued("dropped.t2", state="r", highest_write_id=1, txn_id=txn, tblproperties=properties)
    world.hive.abort(txn)
    world.clean()
    left = [
        found["Key"].removeprefix(f"{above}/")
        for found in s3.client.list_objects_v2(Bucket="warehouse", Prefix=f"{above}/")["Contents"]
    ]
    assert [key for key in left if key] == ["t20/f"]


def on_the_way(monkeypatch, when, happens):
    """Lets something happen once: after the last comparison, between two batches, or with the deletion on its way."""
    done = []

    def once():
        if not done:
            done.append(1)
            happens()

    monkeypatch.setattr(driver, "_DELETED_AT_ONCE", 2)
    if when == "decided":
        delete = TrashInPlace.delete
        monkeypatch.setattr(TrashInPlace, "delete", lambda its: (once(), delete(its)))
        return
    deletes = S3Storage._delete_exactly

    def deleting(its, location, entries):
        if when == "on its way":
            once()
        deletes(its, location, entries)
        once()

    monkeypatch.setattr(S3Storage, "_delete_exactly", deleting)


@pytest.mark.parametrize(
    ("table", "when"),
    [
        ("s3_directory", "decided"),
        ("s3_directory", "between batches"),
        ("s3_directory", "on its way"),
        ("s3_unconditional", "decided"),
        ("s3_unconditional", "between batches"),
    ],
    indirect=["table"],
)
def test_a_dropped_place_that_is_used_again_keeps_what_is_new(world, table, s3, monkeypatch, when):
    """
    A failed CTAS runs again while the Cleaner removes what the first run left: new files stay, among them one under the
    name of an old one.
    """
    bucket, name = table.location.removeprefix("s3a://").split("/", 1)
    above = f"{name}-dropped.db"
    new = ("t2/delta_0000001_0000001_0000/bucket_00001", "t2/delta_0000002_0000002_0000/bucket_00000")
    for key in ("", "t2/", "t2/.hive-staging/f", *(f"t2/delta_0000001_0000001_0000/bucket_0000{n}" for n in range(5))):
        s3.client.put_object(Bucket=bucket, Key=f"{above}/{key}", Body=b"")
    txn = world.hive.begin()
    properties = encode_properties({"location": f"{table.location}-dropped.db/t2"})
    world.hive.queued("dropped.t2", state="r", highest_write_id=1, txn_id=txn, tblproperties=properties)
    world.hive.abort(txn)

    def again():
        second = world.hive.begin(age=0)
        world.hive.touch(second, "dropped.t2")
        for key in new:
            s3.client.put_object(Bucket=bucket, Key=f"{above}/{key}", Body=b"rows")
        world.hive.create_table("dropped.t2", location=f"{table.location}-dropped.db/t2")
        world.hive.commit(second)

    on_the_way(monkeypatch, when, again)
    world.clean()
    kept = {key.removeprefix(f"{above}/"): size for key, size in s3.objects(bucket) if key.startswith(above)}
    assert {key: kept.get(key) for key in new} == dict.fromkeys(new, 4)


@pytest.mark.parametrize("table", ["s3_directory", "s3_unconditional"], indirect=True)
@pytest.mark.parametrize("when", ["decided", "between batches"])
def test_a_table_that_is_re_created_keeps_its_deltas(world, table, s3, monkeypatch, when):
    """The new table counts its write ids from 1 again: its delta has the name of one that the Cleaner removes."""
    world.compact(table.table)
    bucket, name = table.location.removeprefix("s3a://").split("/", 1)
    delta = f"{name}/delta_0000001_0000001_0000"
    new = {f"{delta}/bucket_00000": 4, f"{delta}/bucket_00009": 4}

    def again():
        CatalogRows(world.database).drop_table(table.table)
        world.hive.create_table("db.t", location=table.location)
        for key in new:
            s3.client.put_object(Bucket=bucket, Key=key, Body=b"rows")

    on_the_way(monkeypatch, when, again)
    world.clean()
    kept = dict(s3.objects(bucket))
    assert {key: kept.get(key) for key in new} == new


def test_many_files_of_a_dropped_table_are_removed_in_batches(world, table, s3, s3_directory, monkeypatch):
    """The metastore is asked before each; neighbours between the names stay."""
    above = f"{s3_directory.removeprefix('s3a://warehouse/')}-dropped.db"
    for key in ("", "t2/", "t2/delta_1_1/", *(f"t2/delta_1_1/{n}" for n in range(7)), "t2_$folder$", "t2-x/f", "t20/f"):
        s3.client.put_object(Bucket="warehouse", Key=f"{above}/{key}", Body=b"")
    txn = world.hive.begin()
    properties = encode_properties({"location": f"{s3_directory}-dropped.db/t2"})
    world.hive.queued("dropped.t2", state="r", highest_write_id=1, txn_id=txn, tblproperties=properties)
    world.hive.abort(txn)
    monkeypatch.setattr(driver, "_DELETED_AT_ONCE", 2)
    asked, right = [], dropped._still_right
    monkeypatch.setattr(dropped, "_still_right", lambda *those: (asked.append(1), right(*those)))
    assert "cleaned 1" in world.clean()
    left = [key.removeprefix(f"{above}/") for key in s3.keys("warehouse") if key.startswith(above)]
    assert [key for key in left if key] == ["t2-x/f", "t20/f"]
    assert len(asked) == 2 + 4 + 1 + 1  # with the trash in place, before each batch of files, of markers, of s3n's


def test_hive_3_tables_are_refused_with_the_reason(world_3, s3, s3_directory):
    """Once, and nothing is left there."""
    world_3.configure(s3=s3.settings)
    made = world_3.table(rows=3)
    sds = world_3.database.schema.sds
    world_3.hive.change(sds.update().where(sds.c.location.like(f"%{made.location}")).values(location=s3_directory))
    world_3.root("/".join(s3_directory.split("/")[:3]))
    table = OnS3(s3, s3_directory, world_3.warehouse, made)
    before = table.objects()
    assert f": refused: {Reason.UNSUPPORTED_STORE.value}: " in world_3.compact(made)
    assert table.objects() == before
    assert table.uploads() == []
