"""
Worker, recovery and Cleaner over a table on an S3 server: what is published, what is taken back, what is removed, and
that nobody who was paused can do harm.
"""

import pytest

from compactor.errors import CompactorError, RefusedError
from compactor.metastore.compaction_queue.properties import encode_properties
from compactor.metastore.model import Entity
from compactor.reasons import Reason
from compactor.roles import steps
from compactor.roles.cleaner.quarantine.manifest import MANIFEST
from compactor.roles.cleaner.quarantine.restore import Restore
from compactor.roles.housekeeper.recovery import Recovery
from compactor.storage.location import join
from compactor.storage.s3_store.files import Upload
from tests.cluster.s3_tables import OnS3

T = Entity("db", "t")
AFTER_STATE = steps.WORKER_STEPS[
    steps.WORKER_STEPS.index(steps.WORKER_STATE_STORED) : steps.WORKER_STEPS.index(steps.WORKER_COMMITTED)
]


@pytest.fixture
def table(world, s3, s3_directory):
    """Four inserts and a delete; the catalog says that they are on the server."""
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
    assert ": published " in world.worker(2).run_once()
    assert table.read() == table.rows


@pytest.mark.parametrize("by", ["recovery", "cleaner"])
def test_a_publisher_that_slept_completes_nothing(world, table, monkeypatch, by):
    """
    All is prepared, the last question whether the entry is ours was answered with yes, then it sleeps for an hour: its
    transaction times out.
    """
    complete = Upload.complete
    slept = []

    def late(self):
        if not slept:
            slept.append(1)
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
        complete(self)

    monkeypatch.setattr(Upload, "complete", late)
    world.compact(table.table)
    clean_slate(table)
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
