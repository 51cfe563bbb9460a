"""
Where we may write and delete: nowhere that another table, partition or database has a share in, and nowhere outside the
warehouse's roots.
"""

import threading

import pytest
from sqlalchemy import event, select, update
from structlog.testing import capture_logs

from compactor.errors import RefusedError, UnreachableError
from compactor.metastore.locations.places import Places
from compactor.metastore.model import CatalogPlace, Entity
from compactor.roles import steps
from compactor.roles.eligibility import require_eligible
from tests.demo.rows import CatalogRows
from tests.unit.roles.tables import visible
from tests.unit.roles.world import Clock


def move(world, name, location):
    """ALTER TABLE … SET LOCATION, or what CREATE TABLE … LOCATION would have left; some time ago."""
    move_just_now(world, name, location)
    world.services.places.forget()


def move_just_now(world, name, location):
    """The same, after the catalog was read."""
    schema = world.database.schema
    table = select(schema.tbls.c.sd_id).where(schema.tbls.c.tbl_name == name)
    world.hive.change(update(schema.sds).where(schema.sds.c.sd_id.in_(table)).values(location=str(location)))


def move_partition(world, name, location):
    schema = world.database.schema
    partition = select(schema.partitions.c.sd_id).where(schema.partitions.c.part_name == name)
    world.hive.change(update(schema.sds).where(schema.sds.c.sd_id.in_(partition)).values(location=str(location)))
    world.services.places.forget()


def refused(world):
    return world.services.metrics.registry.get_sample_value("compactor_places_refused_total")


# ---- Overlapping


def test_aborted_writes_of_a_table_around_another_take_nothing_of_it(world):
    """
    A partitioned table whose location is the database's directory: the deltas of the table inside have the same write
    ids, and are committed.
    """
    victim = world.table("victim", rows=5, database="sales")
    world.table("evil", rows=0, database="sales", partition_keys=[("p", "int")])
    move(world, "evil", f"file:{victim.location.parent}")
    for _ in range(3):
        txn = world.hive.begin()
        world.hive.touch(txn, "sales.evil")
        world.hive.abort(txn)
    before = visible(victim)
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    world.clean()
    ((why,),) = world.hive.rows(world.database.schema.compaction_queue, "cq_error_message")
    assert "which table sales.victim (" in why
    assert visible(victim) == before
    world.assert_rows(victim)
    assert len(world.hive.rows(world.database.schema.txn_components, "tc_table")) == 3


@pytest.mark.parametrize("spelled", ["{}", "{}/", "{}/.", "{}/../victim", "{}//"])
def test_aborted_writes_of_a_second_table_at_one_place_take_nothing(world, spelled):
    """However the second table spells the place of the first."""
    victim, evil = world.table("victim", rows=5), world.table("evil", rows=0)
    for number in range(3):
        world.aborted_insert(evil, [(number, "x")])
    move(world, "evil", "file:" + spelled.format(victim.location))
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    world.clean()
    world.assert_rows(victim)
    assert len(visible(victim)) == 5


def test_two_tables_at_one_place_are_neither_compacted_nor_cleaned(any_world):
    """The second one is refused, and names the first; so is the first."""
    world = any_world
    victim, evil = world.table("victim", rows=6), world.table("evil", rows=4)
    move(world, "evil", f"file:{victim.location}")
    for table, other in ((evil, victim), (victim, evil)):
        said = world.compact(table)
        assert "overlapping-location" in said
        assert f"table db.{other.name} (" in said
    assert len(visible(victim)) == 6
    world.assert_rows(victim)


@pytest.mark.parametrize("left_alone", [True, False])
def test_who_does_not_want_to_be_compacted_is_not_told_what_would_keep_it(world, left_alone):
    """A table that lies wrong and has `no_auto_compaction`: nothing for the history."""
    victim = world.table("victim", rows=1)
    world.table("evil", rows=12, parameters={"no_auto_compaction": "true"} if left_alone else {})
    move(world, "evil", f"file:{victim.location}")
    world.settle_time()
    world.initiator().run_once()
    assert len([state for state, _ in world.ended() if state == "did not initiate"]) == (1 if left_alone else 2)


def test_neither_of_two_tables_at_one_place_is_queued_and_one_that_is_left_alone_is(any_world):
    """
    However often the Initiator looks: the history tells once of each why, and nothing counts as a failure, on Hive 3.1
    either. When the other one has gone elsewhere, the next cycle queues it, not only the next full scan.
    """
    world = any_world
    victim = world.table("victim", rows=12)
    world.table("evil", rows=12)
    move(world, "evil", f"file:{victim.location}")
    world.settle_time()
    initiator = world.initiator()
    assert initiator.run_once().sentence.startswith("full scan: queued 0 of 2 candidates, 0 listed")
    for _ in range(3):
        assert initiator.run_once().sentence.startswith("queued 0 of 2 candidates, 0 listed")
    assert [(state, message.partition(": ")[0]) for state, message in world.ended()] == [
        ("did not initiate", "overlapping-location")
    ] * 2
    assert (
        world.services.metrics.registry.get_sample_value("compactor_skips_total", {"reason": "overlapping-location"})
        == 8
    )
    move(world, "evil", f"file:{victim.location.parent}/evil")
    assert initiator.run_once().sentence.startswith("queued 2 of 2")


@pytest.mark.parametrize("lie", ["where their names say", "elsewhere in the table", "at another table"])
def test_hundreds_of_partitions_are_judged_in_a_few_statements(world, lie):
    """However they lie, and whoever is in the way."""
    table, other = world.table("t", rows=0, partition_keys=[("p", "int")]), world.table("other", rows=0)
    if lie == "at another table":
        move(world, "other", f"file:{table.location}")
    named = [f"p={number}" for number in range(300)]
    (tbl_id,) = (
        number for number, name in world.hive.rows(world.database.schema.tbls, "tbl_id", "tbl_name") if name == "t"
    )
    world.hive.add_partitions(tbl_id, named)
    if lie == "elsewhere in the table":
        for name in named:
            move_partition(world, name, f"file:{table.location}/{name.replace('p', 'P')}")
        move_partition(world, "p=7", f"file:{table.location}/p=8")
        move_partition(world, "p=8", f"file:{table.location}/p=8")
        move_partition(world, "p=9", f"file:{other.location}/P=9")
    places, statements = world.services.places, []
    wanted = list(world.services.catalog.places_for(Entity("db", "t", name) for name in named).values())
    event.listen(world.database.engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))
    refused = [
        one.location.rpartition("/")[2]
        for one, why in zip(wanted, places.refusals(wanted), strict=True)
        if why is not None
    ]
    assert (
        refused
        == {"where their names say": [], "elsewhere in the table": ["p=8", "p=8", "P=9"], "at another table": named}[
            lie
        ]
    )
    assert len([one for one in statements if one.startswith("SELECT")]) <= 15


def test_cleaning_waits_where_another_table_came_to_lie_after_the_compaction(world):
    """What was compacted while it lay alone isn't cleaned any more once something else has a share in the place."""
    table = world.table("t", rows=4)
    world.table("other", rows=1)
    world.compact(table)
    move(world, "other", f"file:{table.location}/inside")
    assert "the catalog has table db.other (" in world.clean()
    assert len(visible(table)) == 5
    assert world.states() == ["ready for cleaning"]


@pytest.mark.parametrize("step", [steps.CLEANER_LISTED, steps.CLEANER_TRASHED])
def test_nothing_is_deleted_where_another_table_came_to_lie_a_moment_ago(world, step):
    """
    The half minute isn't waited for: the catalog is read again before the deletion, and what was moved is put back.
    """
    world.services.places = Places(world.database, list, world.clock)
    table = world.table("t", rows=4)
    world.table("other", rows=1)
    world.compact(table)
    before = visible(table)
    world.at_step[step] = lambda: move_just_now(world, "other", f"file:{table.location}/inside")
    assert "the catalog has table db.other (" in world.clean()
    assert visible(table) == before
    assert world.states() == ["ready for cleaning"]


@pytest.mark.parametrize("step", [steps.CLEANER_LISTED, steps.CLEANER_TRASHED])
def test_aborted_writes_are_left_where_another_table_came_to_lie_a_moment_ago(world, step):
    """The same of what was aborted."""
    world.services.places = Places(world.database, list, world.clock)
    table, _ = world.table("t", rows=1), world.table("other", rows=1)
    world.aborted_insert(table, [(7, "x")])
    before = visible(table)
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    world.at_step[step] = lambda: move_just_now(world, "other", f"file:{table.location}/inside")
    world.clean()
    assert visible(table) == before
    assert len(world.hive.rows(world.database.schema.txn_components, "tc_table")) == 1


def test_nothing_is_published_where_another_table_came_to_lie_a_moment_ago(world):
    """The Worker's last look."""
    world.services.places = Places(world.database, list, world.clock)
    table, _ = world.table("t", rows=4), world.table("other", rows=1)
    before = visible(table)
    world.at_step[steps.WORKER_VERIFIED] = lambda: move_just_now(world, "other", f"file:{table.location}/inside")
    assert "input-changed: while it was compacted: " in (said := world.compact(table))
    assert "the catalog has table db.other (" in said
    assert visible(table) == before


def slow_catalog(world):
    """A table, the places of a catalog that takes two seconds to read, their clock, and a list of the readings."""
    world.table("t", rows=0)
    facts = world.services.catalog.find_table("db", "t")
    clock, reads = Clock(), []
    glance = world.database.glance

    def slowly(work, *arguments):
        reads.append(work)
        clock.forward(2.0)
        return glance(work, *arguments)

    world.database.glance = slowly
    return facts, Places(world.database, lambda: [str(world.folder)], clock), clock, reads


def test_a_last_look_reads_a_catalog_again_that_is_older_than_ten_times_the_read(world):
    """A catalog that takes two seconds to read is read every twenty, not for each of a thousand removals."""
    facts, places, clock, reads = slow_catalog(world)
    for age, wanted in ((0, 1), (19, 1), (2, 2), (19, 2), (1, 3)):
        clock.forward(age)
        places.require_alone(facts.location, facts, last_look=True)
        assert len(reads) == wanted


def test_where_many_are_judged_a_slow_catalog_is_read_seldom(world):
    """
    In a hundred times the two seconds that reading takes it is read once by the Initiator; whoever compacts what was
    queued reads it again after half a minute.
    """
    facts, places, clock, reads = slow_catalog(world)
    for age, wanted in ((0, 1), (199, 1), (2, 2), (199, 2)):
        clock.forward(age)
        assert places.refusals([CatalogPlace.of(facts, None)]) == [None]
        assert len(reads) == wanted
    require_eligible(places, CatalogPlace.of(facts, None), world.services.layout)
    assert len(reads) == 3


def test_what_came_to_overlap_since_the_scan_is_refused_before_the_work(world):
    """As what it is, for the Worker looks anew; not as a fault of the compaction, after it."""
    world.services.places = Places(world.database, list, world.clock)
    table, _ = world.table("t", rows=4), world.table("other", rows=1)
    world.services.places.refusals([CatalogPlace.of(world.services.catalog.find_table("db", "t"), None)])
    move_just_now(world, "other", f"file:{table.location}/inside")
    assert "refused: overlapping-location: " in world.compact(table)


@pytest.mark.parametrize(
    "where", ["at another partition", "inside another partition", "at its own table", "in another table"]
)
def test_a_partition_that_lies_where_another_does_is_refused(world, where):
    """Partitions put elsewhere by ALTER … SET LOCATION; those that lie where their names say need no second look."""
    table = world.table("t", rows=0, partition_keys=[("p", "int")])
    other = world.table("other", rows=1)
    for value in ("1", "2"):
        for number in range(2):
            world.insert(table, [(number, "x")], (value,))
    assert "published base_" in world.compact(table, partition="p=1")
    there = {
        "at another partition": f"{table.location}/p=1",
        "inside another partition": f"{table.location}/p=1/q",
        "at its own table": table.location,
        "in another table": f"{other.location}/x",
    }[where]
    move_partition(world, "p=2", f"file:{there}")
    assert "overlapping-location" in world.compact(table, partition="p=2")


def test_a_partition_elsewhere_and_alone_is_compacted(world):
    """LOCATION of a partition outside its table, inside the warehouse."""
    table = world.table("t", rows=0, partition_keys=[("p", "int")])
    for number in range(2):
        world.insert(table, [(number, "x")], ("1",))
    there = table.location.parent / "elsewhere"
    (table.location / "p=1").rename(there)
    move_partition(world, "p=1", f"file:{there}")
    assert "published base_" in world.compact(table, partition="p=1")
    assert world.clean().startswith("cleaned 1 entry")
    assert len(visible(table)) == 0


def test_a_database_inside_a_table_is_in_the_way(world):
    """CREATE DATABASE … LOCATION below a table's directory."""
    table = world.table("t", rows=3)
    dbs = world.database.schema.dbs
    world.table("u", rows=1, database="inner")
    world.hive.change(
        update(dbs).where(dbs.c.name == "inner").values(db_location_uri=f"file:{table.location}/inner.db")
    )
    world.services.places.forget()
    assert "database inner (" in world.compact(table)


# ---- Roots


def test_a_table_outside_all_databases_is_refused_and_says_what_to_set(world):
    """
    LOCATION somewhere else on the file system: no byte is written, no directory made; the message names the setting.
    """
    table = world.table("t", rows=3)
    outside = world.folder / "outside"
    table.location.rename(outside)
    move(world, "t", f"file:{outside}")
    before = sorted(path.name for path in outside.iterdir())
    said = world.compact(table)
    assert "outside-roots" in said
    assert "warehouse.roots" in said
    assert sorted(path.name for path in outside.iterdir()) == before
    world.configure(warehouse={"roots": [f"file:{world.folder}"]})
    assert "published base_" in world.compact(table)


def test_the_warehouse_of_managed_tables_is_a_root_though_the_catalog_does_not_name_it(world):
    """Hive 4 stores where external tables go; where managed ones go is in its configuration."""
    table = world.table("t", rows=3)
    dbs = world.database.schema.dbs
    world.hive.change(
        update(dbs).values(db_location_uri="file:/elsewhere/external/db.db", db_managed_location_uri=None)
    )
    world.services.places.forget()
    with capture_logs() as lines:
        assert "published base_" in world.compact(table)
        world.services.places.forget()
        assert world.clean().startswith("cleaned 1 entry")
    derived = [line for line in lines if "root" in line]
    warehouse = f"file:///{str(world.folder)[1:]}/warehouse"
    assert [(line["root"], line["databases"], line["tables"], line["log_level"]) for line in derived] == [
        (warehouse, 1, 1, "info")
    ]


def no_managed_locations(world):
    """As Hive 4 leaves the catalog: where managed tables go is in its configuration alone."""
    dbs = world.database.schema.dbs
    world.hive.change(update(dbs).values(db_location_uri="file:/elsewhere", db_managed_location_uri=None))
    world.services.places.forget()


@pytest.mark.parametrize(("database", "place"), [("default", "secret/x"), ("sales", "secret/sales.db/x")])
def test_the_location_of_one_table_makes_no_root(world, database, place):
    """
    CREATE TABLE … LOCATION that looks like a warehouse's: the warehouse is where most databases have their tables, and
    there is one.
    """
    ordinary = [world.table(f"t{number}", rows=2, database=f"db{number}") for number in range(2)]
    table = world.table("x", rows=3, database=database)
    no_managed_locations(world)
    outside = world.folder / place
    outside.parent.mkdir(parents=True)
    table.location.rename(outside)
    move(world, "x", f"file:{outside}")
    assert "outside-roots" in world.compact(table)
    assert "published base_" in world.compact(ordinary[0])


def test_where_two_places_may_be_the_warehouse_neither_is(world):
    """As many databases and tables in both: nothing tells which is meant, so `warehouse.roots` must."""
    tables = [world.table(f"t{number}", rows=2, database=f"db{number}") for number in range(2)]
    no_managed_locations(world)
    other = world.folder / "other" / "db1.db" / "t1"
    other.parent.mkdir(parents=True)
    tables[1].location.rename(other)
    move(world, "t1", f"file:{other}")
    for table in tables:
        assert "unless warehouse.roots names a directory around it" in world.compact(table)
    world.configure(warehouse={"roots": [f"file:{world.folder}/warehouse"]})
    assert "published base_" in world.compact(tables[0])


def test_roots_may_be_narrower_than_the_databases(world):
    """Only what is named counts, beside the catalog's own."""
    inside, outside = world.table("a", rows=2), world.table("b", rows=2, database="other")
    world.configure(warehouse={"roots": [f"{world.folder}/warehouse/db.db"]})
    assert "published base_" in world.compact(inside)
    assert "outside-roots" in world.compact(outside)


@pytest.mark.parametrize(
    "change", ["mkdir", "create", "delete_tree", "delete_file", "write_small", "rename", "link", "withdraw", "adopt"]
)
def test_no_change_of_the_store_gets_past_the_roots(world, change):
    """Every call of the driver that changes something is refused outside, and counted; nothing has happened."""
    table = world.table("t", rows=1)
    outside = world.folder / "outside"
    outside.mkdir()
    (outside / "f").write_text("x")
    storage = world.services.storage(str(table.location))
    before, mode = refused(world), outside.stat().st_mode
    calls = {
        "mkdir": lambda: storage.mkdir(f"{outside}/new"),
        "create": lambda: storage.create(f"{outside}/new"),
        "delete_tree": lambda: storage.delete_tree(str(outside)),
        "delete_file": lambda: storage.delete_file(f"{outside}/f"),
        "write_small": lambda: storage.write_small(f"{outside}/new", b"x"),
        "rename": lambda: storage.rename_noreplace(f"{outside}/f", f"{table.location}/f"),
        "link": lambda: storage.link_or_copy(
            f"{table.location}/delta_0000001_0000001_0000/bucket_00000_0", f"{outside}/new"
        ),
        "withdraw": lambda: storage.withdraw(str(outside), f"{table.location}/aside"),
        "adopt": lambda: storage.adopt(str(table.location), str(outside)),
    }
    with pytest.raises(RefusedError, match="outside"):
        calls[change]()
    assert [path.name for path in outside.iterdir()] == ["f"]
    assert outside.stat().st_mode == mode
    assert refused(world) == before + 1


def test_reading_is_free(world):
    """What may not be changed may be looked at: `explain` needs it."""
    world.table("t", rows=1)
    assert world.services.storage(str(world.folder)).exists(str(world.folder))


def test_the_catalog_is_read_once_for_many_questions(world):
    """A thousand places cost one look at the catalog, until it is half a minute old."""
    tables = [world.table(f"t{number}", rows=0) for number in range(3)]
    places, reads = world.services.places, []
    glance = world.database.glance
    world.database.glance = lambda work, *given: (reads.append(work), glance(work, *given))[1]
    facts = {table.name: world.services.catalog.find_table("db", table.name) for table in tables}
    reads.clear()
    for _ in range(100):
        for table in tables:
            places.require_alone(f"file:{table.location}", facts[table.name])
            places.require_inside(f"file:{table.location}")
    assert len(reads) == 2
    assert world.services.catalog.facts_for([Entity("db", "t0")])


def test_a_table_that_is_gone_is_in_no_place_any_more(any_world):
    """
    The catalog was read a moment ago: what was dropped, or created anew, since then is not taken for another one at the
    same place.
    """
    world = any_world
    table = world.table("again", rows=0)
    places = world.services.places
    old = world.services.catalog.find_table("db", "again")
    places.require_alone(old.location, old)
    catalog = CatalogRows(world.database)
    catalog.drop_table(table)
    places.require_alone(old.location, None)
    world.table("between", rows=0)
    catalog.add_table(table)
    new = world.services.catalog.find_table("db", "again")
    assert new.tbl_id != old.tbl_id
    places.require_alone(new.location, new)


@pytest.mark.parametrize("question", ["alone", "inside"])
def test_a_catalog_that_is_read_slowly_is_read_once_all_the_same(world, question):
    """
    A read that takes longer than its result is good for: what it found serves the questions of the half minute after
    it.
    """
    world.table("t", rows=0)
    facts = world.services.catalog.find_table("db", "t")
    clock, reads = Clock(), []
    glance = world.database.glance

    def slowly(work, *arguments):
        reads.append(work)
        clock.forward(40.0)
        return glance(work, *arguments)

    world.database.glance = slowly
    places = Places(world.database, tuple, clock)
    for _ in range(3):
        if question == "alone":
            places.require_alone(facts.location, facts)
        else:
            places.require_inside(facts.location)
    assert len(reads) == 1


def test_who_opens_a_file_does_not_wait_while_the_roots_are_read(world):
    """
    Another thread reads them anew, or the metastore is away: what was read before serves until then, and it isn't asked
    again for each file.
    """
    facts = world.services.catalog.find_table("db", world.table(rows=0).name)
    clock, reads, during = Clock(), [], []
    places, glance = Places(world.database, tuple, clock), world.database.glance
    root = places.root_of(facts.location)
    clock.forward(40.0)

    def fails(work, *arguments):
        reads.append(work)
        thread = threading.Thread(target=lambda: during.append(places.root_of(facts.location)))
        thread.start()
        thread.join(30)
        raise UnreachableError("away")

    world.database.glance = fails
    assert [places.root_of(facts.location) for _ in range(3)] == [root] * 3
    assert (during, len(reads)) == ([root], 1)
    world.database.glance = glance
