"""
Random lives of tables under all roles at once: writers, aborts, readers that stay, compactions of both kinds, cleaning,
housekeeping. Each life is played on every kind of metastore and of table.

After every step each reader still reads what it read when it began, and a new one reads what was committed; at the end
everything is compacted and cleaned, and the Initiator has nothing more to do.
"""

import itertools
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from compactor.acid.snapshot import data_files, resolve
from compactor.acid.write_ids import ValidWriteIdList
from compactor.metastore.model import Entity
from tests import strategies
from tests.metastore.databases import LIVED_ON, mariadb, metastore, postgres  # noqa: F401 - fixtures among them
from tests.model.option_sets import play_lives
from tests.reference.compare import read_table
from tests.unit.roles.world import World

LIVES, LONG_LIVES = 1, 3


@dataclass(frozen=True)
class Options:
    """What a life doesn't say."""

    metastore: str
    insert_only: bool
    partitioned: bool


ALL = [Options(*one) for one in itertools.product(LIVED_ON, (False, True), (False, True))]
EVERYTHING = [
    ("insert", (4, 2), 1),
    ("insert", (3,), 1),
    ("begin_reading",),
    ("change", 1, False, 1),
    ("insert", (2,), 2),
    ("initiate",),
    ("work",),
    ("clean",),
    ("abort", 2, 1),
    ("begin_writing", 3, 1),
    ("change", 2, True, 1),
    ("begin_reading",),
    ("end_reading", 0),
    ("clean",),
    ("ask", 0, True),
    ("work",),
    ("restart",),
    ("end_writing", 0, True),
    ("end_reading", 0),
    ("overwrite", 3, 1),
    ("keep_house",),
    ("insert", (1, 1), 2),
    ("ask", 0, False),
    ("work",),
    ("clean",),
]
"""A life in which all happens that can; it is always played, after those that are drawn."""


class Life:
    """
    One play of a life.

    Args:
        steps: names of this class's methods, each with its arguments (`tests.strategies.lives_under_roles`).
    """

    def __init__(self, world: World, steps, *, insert_only: bool = False, partitioned: bool = False) -> None:
        self.world, self.steps = world, steps
        self.insert_only, self.partitioned = insert_only, partitioned
        options = {"partition_keys": [("p", "int")]} if self.partitioned else {}
        self.table = world.table("life", rows=0, insert_only=self.insert_only, **options)
        self.readers: list[tuple[int, object, object]] = []
        self.open: list[object] = []
        self.next_id = 0
        self.told: list[str] = []
        world.configure(initiator={"thresholds": {"delta_count": 3, "aborted_count": 1}})
        self.initiator, self.cleaner = world.initiator(), world.cleaner()

    def partition(self, place):
        return (str(place),) if self.partitioned else None

    def rows(self, count):
        self.next_id += count
        return [(number, ("a", "b", None)[number % 3]) for number in range(self.next_id - count + 1, self.next_id + 1)]

    # What can happen

    def insert(self, statements, place):
        with self.world.warehouse.begin() as txn:
            for count in statements:
                txn.insert(self.table, self.rows(count), self.partition(place))

    def change(self, rest, deletes, place):
        """Rows whose number is `rest` modulo 4; an insert-only table gets new ones instead."""
        if self.insert_only:
            self.insert((1,), place)
            return
        where = self.partition(place)
        with self.world.warehouse.begin() as txn:
            if deletes:
                txn.delete(self.table, lambda row: row[0] % 4 == rest, where)
            else:
                txn.update(self.table, lambda row: row[0] % 4 == rest, lambda row: (row[0], "changed"), where)

    def abort(self, count, place):
        self.world.aborted_insert(self.table, self.rows(count), self.partition(place))

    def overwrite(self, count, place):
        if self.readers or self.open:
            return  # Hive 3.1 and 4.x with default locks wait for them
        with self.world.warehouse.begin() as txn:
            txn.overwrite(self.table, self.rows(count), self.partition(place))

    def begin_writing(self, count, place):
        txn = self.world.warehouse.begin()
        txn.insert(self.table, self.rows(count), self.partition(place))
        self.open.append(txn)

    def end_writing(self, which, commits):
        if self.open:
            txn = self.open.pop(which % len(self.open))
            txn.commit() if commits else txn.abort()

    def begin_reading(self):
        txn = self.world.hive.begin(user="reader", age=0)
        self.world.hive.lock("db.life", txn_id=txn)
        snapshot = self.world.warehouse.snapshot(self.table)
        self.readers.append((txn, snapshot, self.sees(snapshot)))

    def sees(self, snapshot):
        """
        What a reader must go on seeing: on Hive 4 the rows, however often it looks; on 3.1 the files that it chose when
        it began.

        (A 3.1 reader that looks again may find that the only base is too new for its snapshot: it has no visibility
        suffix. So it looks once.)
        """
        if self.world.services.layout == "hive-4":
            return {name: rows for name, rows in read_table(self.world.warehouse, self.table, snapshot).items() if rows}
        return [
            (path, path.stat().st_size)
            for directory in self.table.directories.values()
            for path in self.chosen(directory.location, snapshot)
        ]

    def chosen(self, location, snapshot):
        listing = self.world.services.storage(str(location)).list_tree(str(location))
        state = resolve(listing, ValidWriteIdList.parse(snapshot.write_ids), None, self.world.services.layout)
        dirs = [*([state.base] if state.base else []), *state.deltas]
        return [location / file.path for listed in dirs for file in data_files(listed, self.insert_only)]

    def end_reading(self, which):
        if self.readers:
            txn, _, _ = self.readers.pop(which % len(self.readers))
            self.world.hive.commit(txn)

    def initiate(self):
        self.say(self.initiator.run_once().sentence)

    def ask(self, which, major):
        partition = None
        if self.partitioned:
            known = self.world.services.catalog.partition_names(self.world.services.catalog.find_table("db", "life"))
            if not known:
                return
            partition = known[which % len(known)]
        only_major = self.insert_only and self.world.services.layout != "hive-4"
        self.world.enqueue(Entity("db", "life", partition), "major" if major or only_major else "minor")

    def work(self):
        self.say(self.world.worker().run_once().sentence)

    def clean(self):
        self.world.settle_time()
        self.say(self.cleaner.run_once().sentence)

    def restart(self):
        self.world.services = self.world.new_services()
        self.world.configure(initiator={"thresholds": {"delta_count": 3, "aborted_count": 1}})
        self.initiator, self.cleaner = self.world.initiator(), self.world.cleaner()

    def keep_house(self):
        self.world.settle_time()
        self.say(self.world.housekeeper().run_once().sentence)

    def say(self, sentence):
        self.told.append(sentence)

    # What must hold

    def check(self, what):
        for txn, snapshot, rows in self.readers:
            if self.world.services.layout == "hive-4":
                assert self.sees(snapshot) == rows, (what, f"reader {txn}", self.told)
            else:
                assert [(path, path.stat().st_size) for path, _ in rows if path.exists()] == rows, (
                    what,
                    f"reader {txn}",
                    self.told,
                )
        self.world.settle_time()
        self.world.assert_rows(self.table)
        bad = [entry for entry in self.world.ended() if entry[0] in {"failed", "did not initiate"}]
        assert not bad, (what, bad, self.told)

    def live(self):
        for name, *about in self.steps:
            getattr(self, name)(*about)
            self.check(name)

    def end(self):
        """Everybody goes home; then the roles run until nothing changes any more, and that must be soon."""
        while self.open:
            self.end_writing(0, commits=True)
        while self.readers:
            self.end_reading(0)
        for _ in range(20):
            self.initiate()
            while self.world.states().count("initiated"):
                self.work()
            before = len(self.world.services.queue.entries())
            for _ in range(2):
                self.clean()
            self.keep_house()
            self.check("the end")
            if before == 0 and not self.world.services.queue.entries():
                self.compacted = [state for state, _ in self.world.ended()].count("succeeded")
                self.alike = (self.insert_only, self.partitioned)
                found = read_table(self.world.warehouse, self.table)
                self.rows_at_end = sorted((row for rows in found.values() for _, row in rows), key=repr)
                return
        pytest.fail(f"never comes to rest: {self.told[-12:]}")


def live(request, tmp_path, steps, number):
    """Play so many lives under all option sets; under each something was compacted."""

    def play(options, life):
        with (
            tempfile.TemporaryDirectory(dir=tmp_path) as folder,
            metastore(options.metastore, request, Path(folder)) as database,
        ):
            world = World(database, Path(folder))
            one = Life(world, life, insert_only=options.insert_only, partitioned=options.partitioned)
            one.live()
            one.end()
            return one

    play_lives(play, ALL, steps, request.config.getoption("--histories") or number, EVERYTHING).busy()


@pytest.mark.postgres
@pytest.mark.timeout(900)
def test_no_reader_loses_a_row_whatever_the_roles_do(request, tmp_path):
    """Every snapshot that is held reads the same after every step, and the roles come to rest."""
    live(request, tmp_path, strategies.lives_under_roles(), LIVES)


@pytest.mark.long
@pytest.mark.postgres
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("_", range(2))
def test_no_reader_loses_a_row_in_long_lives(request, tmp_path, _):
    """More and longer lives."""
    live(request, tmp_path, strategies.lives_under_roles(long=True), LONG_LIVES)
