"""
The cleaning of aborted writes of a table with many partitions: one listing tells where something is to be done, and
only there anything is asked of the store.

What a listing clears is what a sweep of that partition by itself would have cleared; whatever else there is, is swept.
"""

import shutil
from collections import Counter
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import event, insert, select, update

from compactor.acid.names import METADATA_FILE_CONTENT, parse_dir
from compactor.acid.write_ids import CleanerWriteIdList, ValidTxnList, ValidWriteIdList
from compactor.errors import RefusedError
from compactor.roles import steps
from compactor.roles.cleaner.cleaner import Cleaner
from compactor.roles.cleaner.cleared import Judged, clear_listed
from compactor.roles.cleaner.partition import Sweep
from compactor.roles.cleaner.schedule import CYCLE_SECONDS
from compactor.roles.cleaner.table_listing import TableListing
from compactor.roles.services import Services
from compactor.storage.location import join
from tests.strategies import judged_lists, table_trees


class Asked:
    """
    What was asked of the store: calls by name, and locations that were listed; `after_listing` is called when the
    table's directory was listed.
    """

    def __init__(self, monkeypatch, table):
        self.calls: Counter[str] = Counter()
        self.listed: list[str] = []
        self.after_listing = lambda _: None
        self._root = f"file:{table.location}"
        storage = Services.storage
        monkeypatch.setattr(Services, "storage", lambda services, location: _Driver(self, storage(services, location)))

    def answered(self, name, location, answer):
        self.calls[name] += 1
        if name == "list_tree":
            self.listed.append(location.removeprefix(f"{self._root}/"))
            if location == self._root:
                self.after_listing(self.listed.count(location))
        return answer

    @property
    def partitions(self):
        """Partitions that were listed by themselves."""
        return {location for location in self.listed if location != self._root}


class _Driver:
    def __init__(self, asked, driver):
        self._asked, self._driver = asked, driver

    def __getattr__(self, name):
        found = getattr(self._driver, name)
        if not callable(found):
            return found
        return lambda *arguments: self._asked.answered(name, str(arguments[0]), found(*arguments))


@pytest.fixture
def table(world):
    """Two partitions with committed writes, 1 to 3 and 5, and a third with one, 4, and an aborted one, 6."""
    world.configure(cleaner={"threads": 1, "listing_wait_seconds": 0}, initiator={"thresholds": {"aborted_count": 0}})
    made = world.table(rows=0, partition_keys=[("p", "int")], insert_only=True)
    for partition in ("0", "1", "0", "2", "1"):
        world.insert(made, [(1, "x")], (partition,))
    world.aborted_insert(made, [(9, "never")], ("2",))
    world.settle_time()
    return made


@pytest.fixture
def asked(monkeypatch, table):
    return Asked(monkeypatch, table)


def known(world):
    return len(world.hive.rows(world.database.schema.txn_components, "tc_writeid"))


def many(world, table, names):
    """More partitions, like p=0."""
    schema = world.database.schema

    def clone(connection):
        (like,) = connection.execute(select(schema.partitions).where(schema.partitions.c.part_name == "p=0")).mappings()
        (where,) = connection.execute(select(schema.sds).where(schema.sds.c.sd_id == like["sd_id"])).mappings()
        numbered = list(enumerate(names, 100_000))
        connection.execute(
            insert(schema.sds),
            [{**where, "sd_id": n, "location": f"file:{table.location}/{name}"} for n, name in numbered],
        )
        connection.execute(
            insert(schema.partitions), [{**like, "part_id": n, "sd_id": n, "part_name": name} for n, name in numbered]
        )

    world.database.write(clone)
    for name in names:
        shutil.copytree(table.location / "p=0", table.location / name)


def relocate(world, name, location):
    schema = world.database.schema
    (row,) = world.hive.rows(schema.partitions, "sd_id", where=schema.partitions.c.part_name == name)
    world.hive.change(update(schema.sds).where(schema.sds.c.sd_id == row[0]).values(location=f"file:{location}"))


def test_the_cost_is_that_of_what_changed(world, table, monkeypatch):
    """Of 300 partitions two hold aborted files: as many calls to the store and the database as for three partitions."""
    world.aborted_insert(table, [(9, "never")], ("1",))
    world.settle_time()

    def cleaned():
        asked, statements = Asked(monkeypatch, table), []
        listen = (world.database.engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))
        event.listen(*listen)
        said = world.cleaner().run_once().sentence
        event.remove(*listen)
        monkeypatch.undo()
        assert "2 directories" in said
        assert said.endswith("forgot 2 aborted writes")
        assert asked.partitions >= {"p=1", "p=2"}
        assert "p=0" not in asked.partitions
        return asked.calls, len(statements)

    few, statements = cleaned()
    many(world, table, [f"p={number}" for number in range(3, 300)])
    for partition in ("1", "2"):
        world.aborted_insert(table, [(9, "never")], (partition,))
    world.settle_time()
    calls, more = cleaned()
    assert calls == few
    assert calls["list_tree"] <= 2 + 2 * 5
    assert calls["exists"] <= 2
    assert calls["open_read"] + calls["read_small"] == 0
    assert more <= statements + 8  # names are asked for in batches, and where tables lie again after some seconds


def test_a_failure_puts_all_groups_of_the_table_off_at_once(world, table):
    """
    Whatever is aborted in a hundred partitions of a table that can't be cleaned: a few statements, and one line in the
    log.
    """
    many(world, table, [f"p={number}" for number in range(3, 103)])
    for number in range(100):
        world.hive.fail_write("db.t", f"p={number}")
    (table.location / "p=1" / "delta_what").mkdir()
    statements = []
    listen = (world.database.engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))
    event.listen(*listen)
    assert "1 failed: db.t" in world.clean()
    event.remove(*listen)
    assert (
        len(
            [
                statement
                for statement in statements
                if "COMPACTION_QUEUE" in statement.upper() and not statement.upper().startswith("SELECT")
            ]
        )
        <= 3
    )
    assert len(world.hive.rows(world.database.schema.compaction_queue, "cq_id")) == 100
    assert world.clean() == "nothing to clean"


KINDS = {
    "aborted write": ("delta_0000006_0000006_0000",),
    "aborted write among others": ("delta_0000005_0000007",),
    "aborted write among others that are compacted": ("delta_0000001_0000006_v0000001",),
    "aborted overwrite": ("base_0000006",),
    "aborted compaction": ("base_0000001_v{aborted}",),
    "staging": (".compactor-99-1",),
    "trash": (".trash-compactor-aborted-12345678",),
    "decided trash": (".trash-compactor-aborted-12345678-delete",),
    "quarantine": (".trash-compactor-7-12345678-kept",),
    "evidence": (".evidence-compactor-7-1",),
    "malformed name": ("delta_what",),
    "nested": ("delta_0000001_0000001/delta_0000002_0000002",),
}


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_needs_a_sweep_is_swept(world, table, asked, kind):
    """And no other partition is."""
    (aborted,) = world.hive.rows(world.database.schema.txn_components, "tc_txnid")[0]
    for name in KINDS[kind]:
        (table.location / "p=0" / name.format(aborted=f"{aborted:07d}")).mkdir(parents=True)
    world.clean()
    assert asked.partitions >= {"p=0", "p=2"}
    assert "p=1" not in asked.partitions


@pytest.mark.parametrize(
    "name",
    [
        ".hive-staging_hive_2026/-ext-10000/delta_0000006_0000006_0000",
        "_tmp/delta_what",
        "-tmp.delta_0000006_0000006_0000",
        "sub",
    ],
)
def test_what_is_not_the_tables_needs_no_sweep(world, table, asked, name):
    """Statements stage what they write below hidden names, as a sweep would pass over them."""
    (table.location / "p=0" / name).mkdir(parents=True)
    assert world.clean().endswith("forgot 1 aborted write")
    assert "p=0" not in asked.partitions
    assert (table.location / "p=0" / name).exists()


def test_a_partition_outside_the_tables_directory_is_swept_by_itself(world, table, asked):
    """No listing of the table's tells what is in it."""
    elsewhere = table.location.parent / "zz"
    (table.location / "p=1").rename(elsewhere)
    relocate(world, "p=1", elsewhere)
    assert world.clean().endswith("forgot 1 aborted write")
    assert f"file:{elsewhere}" in asked.listed


@pytest.mark.parametrize("how", ["another table", "spelling"])
def test_a_clean_place_that_would_be_refused_is_refused(world, table, how):
    """
    Another table lies in the partition's directory, or its location may mean another place: nothing is forgotten, as
    when it was swept.
    """
    if how == "spelling":
        relocate(world, "p=0", table.location / "." / "p=0" / "..")
    else:
        world.table("u", rows=0)
        sds = world.database.schema.sds
        world.hive.change(update(sds).where(sds.c.location.like("%/u")).values(location=f"file:{table.location}/p=0/u"))
        world.services.places.forget()
    assert "1 failed: db.t" in world.clean()
    assert known(world) == 1


def test_a_partition_behind_a_hidden_link_is_not_taken_for_missing(world, table):
    """A listing passes over it: it is refused, as a sweep refuses it, and nothing is forgotten."""
    elsewhere = table.location.parent / "zz"
    (table.location / "p=2").rename(elsewhere)
    (table.location / "p=3").mkdir()
    (table.location / "p=3" / "_x").symlink_to(elsewhere)
    relocate(world, "p=2", table.location / "p=3" / "_x")
    assert "1 failed: db.t" in world.clean()
    assert known(world) == 1


@pytest.mark.parametrize("dirty", [False, True])
def test_a_slash_at_the_end_of_a_location_makes_no_other_place(world, table, asked, dirty):
    """The catalog may have one: the directory is looked at once."""
    name = "p=2" if dirty else "p=0"
    relocate(world, name, f"{table.location / name}/")
    assert world.clean().endswith("forgot 1 aborted write")
    assert world.passed.count(steps.CLEANER_LISTED) == 1


def test_partitions_with_a_slash_that_hold_nothing_are_there(world, table):
    """
    No listing names them but under the catalog's name, and that they were there is what proves that nothing is left.
    """
    for path in table.location.glob("p=*/*"):
        shutil.rmtree(path)
    for name in ("p=0", "p=1", "p=2"):
        relocate(world, name, f"{table.location / name}/")
    assert world.clean().endswith("forgot 1 aborted write")


def test_partitions_that_are_missing_cost_nothing(world, table, asked):
    """Dropped by hand, or never written to: the listing shows it."""
    shutil.rmtree(table.location / "p=0")
    assert world.clean().endswith("forgot 1 aborted write")
    assert asked.calls["exists"] == 0
    assert "p=0" not in asked.partitions


@pytest.mark.parametrize("keys", [1, 0])
def test_nothing_is_forgotten_of_an_empty_directory(world, table, keys):
    """As a mount point is that isn't mounted: no partition is taken for missing."""
    away = table.location.parent / "away"
    away.mkdir()
    for path in list(table.location.iterdir()):
        path.rename(away / path.name)
    if not keys:
        table.location.rmdir()
    assert "1 failed: db.t" in world.clean()
    assert known(world) == 1


# ---- What happens between the listing and the end


def once(number, what):
    """For `after_listing`: after the first listing."""
    return lambda times: what() if times == number else None


def test_a_cycle_ends_though_each_listing_shows_another_place(world, table, asked):
    """Partitions come faster than they are listed: the next cycle goes on, and what was judged stays so."""
    numbers = count(10)

    def another(_):
        world.clock.forward(CYCLE_SECONDS)
        shutil.copytree(table.location / "p=0", table.location / f"p={next(numbers)}")

    asked.after_listing = another
    cleaner = Cleaner(world.services, clock=world.clock)
    for _ in range(2):
        assert cleaner.run_once().sentence.endswith("1 left for the next cycle")
    asked.after_listing = lambda _: None
    assert cleaner.run_once().sentence.endswith("forgot 1 aborted write")


def test_a_writer_that_ends_after_the_listing_stays_known(world, table, asked):
    """
    Its id wasn't aborted when the visit began, and isn't forgotten with the others, whatever it left in a partition
    that was listed as clean.
    """
    writer = world.warehouse.begin()
    writer.insert(table, [(7, "never")], ("0",))
    (delta,) = (table.location / "p=0").glob("delta_0000007_0000007*")
    hidden = delta.rename(delta.with_name("_not_yet"))

    def ends():
        hidden.rename(delta)
        writer.abort()

    asked.after_listing = once(1, ends)
    world.settle_time()
    assert world.cleaner().run_once().sentence.endswith("forgot 1 aborted write")
    assert delta.exists()
    assert set(world.hive.rows(world.database.schema.txn_components, "tc_writeid")) == {(7,)}


def test_a_partition_that_is_renamed_before_its_sweep(world, table, asked):
    """
    Listed with aborted files, and missing when it is looked at, for Hive moves it before the catalog says so: nothing
    is forgotten.
    """
    asked.after_listing = once(1, lambda: (table.location / "p=2").rename(table.location / "p=9"))
    assert "1 failed: db.t" in world.clean()
    assert known(world) == 1


def test_a_partition_that_the_listing_missed_on_its_way(world, table, asked):
    """
    It moved while the directory was walked, from what was not yet walked to what was: the next look names it, and it is
    swept before anything is forgotten.
    """
    moving = (table.location / "p=2").rename(table.location.parent / "moving")
    asked.after_listing = once(1, lambda: moving.rename(table.location / "p=9"))
    assert world.clean().endswith("forgot 1 aborted write")
    assert len(asked.listed) > 3
    assert len(list((table.location / "p=9").iterdir())) == 1


def test_a_missing_partition_that_is_there_at_the_next_look(world, table, asked):
    """Missing in the first listing, it is looked at when the second one has it."""
    moving = (table.location / "p=2").rename(table.location.parent / "moving")
    asked.after_listing = once(1, lambda: moving.rename(table.location / "p=2"))
    assert world.clean().endswith("forgot 1 aborted write")
    assert len(list((table.location / "p=2").iterdir())) == 1


@pytest.mark.parametrize("told", [True, False])
def test_a_partition_that_moves_to_where_the_listing_cleared_another_one(world, table, asked, told):
    """
    The place was cleared as that of the other one, which is elsewhere by now, whether the catalog says so already or
    not.
    """
    names = world.database.schema.partitions.c.part_name

    def move():
        (table.location / "p=0").rename(table.location / "p=9")
        (table.location / "p=2").rename(table.location / "p=0")
        world.hive.change(update(world.database.schema.partitions).where(names == "p=0").values(part_name="p=9"))
        relocate(world, "p=9", table.location / "p=9")
        if told:
            world.hive.change(update(world.database.schema.partitions).where(names == "p=2").values(part_name="p=0"))
            relocate(world, "p=0", table.location / "p=0")

    asked.after_listing = once(1, move)
    assert "1 failed: db.t" in world.clean()
    assert known(world) == 1


def test_a_partition_that_is_moved_into_a_place_that_is_taken_later(world, table, asked):
    """
    Missed by the first listing on its way to the place of another one, which moved on: as the place of this one it was
    never looked at.
    """
    names = world.database.schema.partitions.c.part_name
    moving = (table.location / "p=2").rename(table.location.parent / "moving")

    def move():
        (table.location / "p=0").rename(table.location / "p=9")
        world.hive.change(update(world.database.schema.partitions).where(names == "p=0").values(part_name="p=9"))
        relocate(world, "p=9", table.location / "p=9")
        moving.rename(table.location / "p=0")

    asked.after_listing = once(1, move)
    assert world.clean().endswith("forgot 1 aborted write")
    assert len(list((table.location / "p=0").iterdir())) == 1
    assert len(list((table.location / "p=9").iterdir())) == 2


# ---- Agreement


@pytest.fixture
def folders(world):
    """A partitioned table of each kind, and where directories of more such may lie."""
    facts = {}
    for name, insert_only in (("t", True), ("u", False)):
        world.table(name, rows=0, partition_keys=[("p", "int")], insert_only=insert_only)
        facts[insert_only] = world.services.catalog.find_table("db", name)
    return facts, (world.folder / "warehouse" / "db.db" / f"x{number}" for number in count())


def names_in(location):
    return sorted(path.relative_to(location).as_posix() for path in Path(location).rglob("*"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table_trees(), judged_lists(), st.tuples(st.booleans(), st.booleans()))
@example(
    {"p=1": [], "p=1/q=2": ["-tmp.delta_0000001_0000001_0000", "delete_delta_0000003_0000003_v0000007"]},
    (ValidTxnList(9, (), (7,)), CleanerWriteIdList.from_reader(ValidWriteIdList("db.t", 1), 1)),
    (False, False),
)
def test_a_listing_clears_what_a_sweep_would(world, folders, tree, lists, kind):
    """
    Nothing is removed there, nothing held, nothing refused; and of what it doesn't clear a sweep has something to do,
    to look into, or to leave alone by name.
    """
    facts, fresh = folders
    folder, judged, services, (insert_only, marked) = next(fresh), Judged(*lists), world.services, kind
    folder.mkdir()
    for partition, names in tree.items():
        (folder / partition).mkdir(parents=True, exist_ok=True)
        for name in names:
            (folder / partition / name).mkdir(parents=True, exist_ok=True)
            (folder / partition / name / "bucket_00000").touch()
            if name.startswith("base_") and marked:
                (folder / partition / name / "_metadata_acid").write_bytes(METADATA_FILE_CONTENT)
    table = replace(facts[insert_only], location=f"file:{folder}")
    locations = {join(table.location, partition): names for partition, names in tree.items()}
    listing = TableListing(table.location, services.storage(table.location).list_tree(table.location).directories, 7)
    told = {location for location in locations if listing.tells_of(location)}
    assert listing.there(told) == told
    assert locations.keys() - told == {location for location in locations if "/_p" in location}
    cleared = {location: clear_listed(services, location, part, judged, 7) for location, part in listing.parts(told)}

    # a directory before those inside it: what is removed there may be why it couldn't be told what it holds
    for location in sorted(told, key=lambda location: (cleared[location] is None, location)):
        path = location.removeprefix("file:")
        before = names_in(path)
        sweep = Sweep(services, table, location, judged, tag="aborted", about=None, still_right=lambda: None)
        try:
            swept = sweep.run(lambda state: state.aborted, originals=False)
        except RefusedError:
            assert cleared[location] is None
            continue
        if (mine := cleared[location]) is not None:
            assert swept.cleared == replace(mine, listed_ms=swept.cleared.listed_ms)
            assert (swept.removed, swept.left, swept.evidence) == ((), (), ())
            assert names_in(path) == before
        elif names_in(path) == before and not swept.cleared.held:
            assert any(needs_a_look(name, judged) for name in locations[location])


def needs_a_look(name, judged):
    """
    Ours, or the result of a compaction that covers an aborted id: opened, or judged by what its base's marker says.
    """
    if name.startswith((".compactor-", ".trash-compactor-", ".evidence-compactor-")):
        return True
    parsed = parse_dir(name.split("/")[0])
    return parsed is not None and bool(
        judged.write_ids.aborted_within(
            parsed.max_write_id if parsed.is_base else parsed.min_write_id, parsed.max_write_id
        )
    )
