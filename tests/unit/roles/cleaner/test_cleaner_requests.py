"""
Requests to remove a directory (`location` in the properties): Hive's own are carried out, whatever became of their
transaction; anybody else's words move nothing.
"""

import pytest

from compactor.metastore.compaction_queue.properties import decode_properties, encode_properties
from compactor.metastore.model import Entity
from tests.demo.rows import CatalogRows
from tests.unit.roles.tables import visible


def request(world, name, location, *, ended, highest=9):
    """
    What Hive's submitForCleanup puts into the queue: ready for cleaning, never claimed, with the transaction of the
    statement, which then ended so.
    """
    txn = world.hive.begin()
    properties = encode_properties({"location": str(location), "ifPurge": "true"})
    number = world.hive.queued(name, state="r", highest_write_id=highest, txn_id=txn, tblproperties=properties)
    queue = world.database.schema.compaction_queue
    if ended == "committed":
        world.hive.commit(txn)
        world.hive.change(
            queue.update()
            .where(queue.c.cq_id == number)
            .values(cq_next_txn_id=txn, cq_commit_time=world.services.now_ms())
        )
    elif ended == "aborted":
        world.hive.abort(txn)
    return number


def properties_of(world, number):
    queue = world.database.schema.compaction_queue.c
    with world.database.transaction() as connection:
        return decode_properties(
            connection.scalar(
                queue.cq_tblproperties.table.select()
                .where(queue.cq_id == number)
                .with_only_columns(queue.cq_tblproperties)
            )
        )


def test_a_ctas_that_failed_leaves_nothing(world):
    """
    Its transaction was rolled back, the table never came into the catalog: the directory with its rows goes, and the
    entry succeeds.
    """
    world.table("other", rows=1)
    left = world.folder / "warehouse" / "db.db" / "ctas"
    (left / "delta_0000001_0000001_0000").mkdir(parents=True)
    (left / "delta_0000001_0000001_0000" / "bucket_00000").write_bytes(b"rows that were rolled back")
    request(world, "db.ctas", f"file:{left}", ended="aborted", highest=1)
    assert world.clean().startswith("cleaned 1 entry, 1 directory")
    assert not left.exists()
    assert world.ended() == [("succeeded", None)]


def test_a_ctas_that_is_still_running_is_left(world):
    """Hive asks for the removal before it rolls back: until then the writers may be at work."""
    world.table("other", rows=1)
    left = world.folder / "warehouse" / "db.db" / "ctas"
    left.mkdir()
    request(world, "db.ctas", f"file:{left}", ended=None)
    assert "isn't committed yet" in world.clean()
    assert left.exists()


def test_a_drop_whose_client_died_is_removed_at_last(world):
    """The catalog was changed before the transaction was rolled back: nothing but this entry knows of the directory."""
    world.table("other", rows=1)
    dropped = world.table("t", rows=2)
    CatalogRows(world.database).drop_table(dropped)
    request(world, "db.t", f"file:{dropped.location}", ended="aborted")
    assert world.clean().startswith("cleaned 1 entry, 1 directory")
    assert not dropped.location.exists()


def test_a_name_that_is_used_again_elsewhere_keeps_its_own_directory(world):
    """
    DROP and CREATE of one name, each with a directory of its own: the old one goes, and one that can't go holds up
    nothing of the new table.
    """
    table = world.table("t", rows=3)
    old = table.location.parent / "t.v3"
    (old / "base_0000003").mkdir(parents=True)
    (old / "base_0000003" / "link").symlink_to("/etc/hostname")
    request(world, "db.t", f"file:{old}", ended="aborted", highest=1)
    world.compact(table)
    assert "cleaned 1 entry, 3 directories" in world.clean()
    assert old.exists()
    (old / "base_0000003" / "link").unlink()
    world.hive.change(world.database.schema.compaction_queue.update().values(cq_retry_retention=0))
    world.clean()
    assert not old.exists()
    world.assert_rows(table)


def test_a_table_that_lies_there_again_is_not_touched(world):
    """The name and the place are in the catalog: nothing is removed, and nothing of the new table is forgotten."""
    table = world.table("t", rows=0)
    world.aborted_insert(table, [(1, "x")])
    before = visible(table)
    request(world, "db.t", f"file:{table.location}", ended="aborted")
    world.clean()
    assert visible(table) == before
    assert world.hive.rows(world.database.schema.txn_components, "tc_table") == [("t",)]
    assert world.ended() == [("succeeded", None)]


@pytest.mark.parametrize(
    "kind", ["delta of another's table", "a directory in no catalog", "beside, with dots", "relative"]
)
def test_a_location_that_was_asked_for_removes_nothing(any_world, kind):
    """
    ALTER TABLE … COMPACT … WITH OVERWRITE TBLPROPERTIES ('location'=…): the compaction is done and cleaned as any
    other, and the property is gone.
    """
    world = any_world
    victim, mine = world.table("victim", rows=3, database="sales"), world.table("mine", rows=3, database="own")
    raw = world.folder / "warehouse" / "raw"
    raw.mkdir()
    (raw / "important").write_text("x")
    location = {
        "delta of another's table": f"file:{victim.location}/delta_0000002_0000002_0000",
        "a directory in no catalog": f"file:{raw}",
        "beside, with dots": f"file:{mine.location}/../../sales.db/victim",
        "relative": "etc",
    }[kind]
    number = world.hive.queued(
        "own.mine",
        tblproperties=encode_properties(
            {"location": location, "ifPurge": "true", "compactor.mapreduce.map.memory.mb": "7"}
        ),
    )
    world.settle_time()
    assert "published base_" in world.worker().run_once().sentence
    assert properties_of(world, number) == {"compactor.mapreduce.map.memory.mb": "7"}
    assert world.clean().startswith("cleaned 1 entry, 3 directories")
    assert len(visible(victim)) == 3
    assert (raw / "important").exists()
    assert world.ended()[0] == ("succeeded", None)


def test_a_location_on_a_request_that_a_worker_of_hives_claimed_removes_nothing(world):
    """Hive's worker leaves the property where it is; that it was claimed tells that it came with a request."""
    victim, mine = world.table("victim", rows=3, database="sales"), world.table("mine", rows=1)
    txn = world.hive.begin()
    world.hive.commit(txn)
    properties = encode_properties({"location": f"file:{victim.location}/delta_0000002_0000002_0000"})
    world.hive.queued(
        "db.mine",
        state="r",
        highest_write_id=1,
        txn_id=txn,
        next_txn_id=txn,
        start=5,
        commit_time=6,
        tblproperties=properties,
    )
    world.clean()
    assert len(visible(victim)) == 3
    assert len(visible(mine)) == 1


def test_enqueue_drops_what_only_hive_may_say(world):
    """`location` and `ifPurge` never come into the queue by us; other properties do."""
    table = world.table(rows=1)
    asked = world.enqueue(
        Entity("db", "t"), "major", properties={"location": f"file:{table.location}", "ifPurge": "true", "a": "b"}
    )
    assert properties_of(world, asked.id) == {"a": "b"}


PLACES = {
    "the table's own directory": "{0}",
    "a dot": "{1}/./t",
    "two slashes": "{1}//t",
    "dots": "{1}/t/../t",
    "a link beside it": "{1}/link",
    "one delta of a live table": "{0}/delta_0000001_0000001_0000",
    "the database's directory": "{1}",
    "a control character": "{1}/\x07t",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("scheme", ["file:", "FILE:", ""])
def test_what_lives_is_not_removed_by_any_spelling(world, place, scheme):
    """However a request spells the place of a live table, its files stay."""
    table = world.table("t", rows=3)
    (table.location.parent / "link").symlink_to(table.location)
    before = visible(table)
    request(world, "db.gone", scheme + PLACES[place].format(table.location, table.location.parent), ended="committed")
    world.clean()
    assert visible(table) == before


def test_a_stranger_beside_what_was_dropped_does_not_stop_its_removal(world):
    """A link in a neighbour's table is the neighbour's trouble: what was dropped is removed without a look into it."""
    dropped, other = world.table("gone", rows=2), world.table("other", rows=2)
    (other.location / "link").symlink_to("/etc/hostname")
    (other.location / "base_0000009").mkdir()
    (other.location / "base_0000009" / "_metadata_acid").write_text("rubbish")
    CatalogRows(world.database).drop_table(dropped)
    request(world, "db.gone", f"file:{dropped.location}", ended="committed")
    assert world.clean().startswith("cleaned 1 entry, 1 directory")
    assert not dropped.location.exists()
