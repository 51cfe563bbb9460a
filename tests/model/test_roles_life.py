"""
Random lives of tables under all roles at once, on each kind of metastore: writers, aborts, readers that stay,
compactions of both kinds, cleaning, housekeeping.

After every step each reader still reads what it read when it began, and a new one reads what was committed; at the end
everything is compacted and cleaned, and the Initiator has nothing more to do.
"""

import os
import random

import pytest

from compactor.acid.snapshot import data_files, resolve
from compactor.acid.write_ids import ValidWriteIdList
from compactor.metastore.model import Entity
from tests.metastore.databases import EVERY, kinds, metastore, postgres  # noqa: F401 - a fixture
from tests.reference.compare import read_table
from tests.unit.roles.world import World

SEEDS = [int(seed) for seed in os.environ.get("COMPACTOR_TEST_SEEDS", "1 2").split()]
STEPS = 22


class Life:
    """One life, drawn from a seed."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.draw = world, random.Random(seed)
        self.insert_only = self.draw.random() < 0.25
        self.partitioned = self.draw.random() < 0.5
        options = {"partition_keys": [("p", "int")]} if self.partitioned else {}
        self.table = world.table("life", rows=0, insert_only=self.insert_only, **options)
        self.readers: list[tuple[int, object, object]] = []
        self.open: list[object] = []
        self.next_id = 0
        self.told: list[str] = []
        world.configure(initiator={"thresholds": {"delta_count": 3, "aborted_count": 1}})
        self.initiator, self.cleaner = world.initiator(), world.cleaner()

    def partition(self):
        return (self.draw.choice("12"),) if self.partitioned else None

    def rows(self):
        count = self.draw.randint(1, 4)
        self.next_id += count
        return [(self.next_id - number, self.draw.choice(["a", "b", None])) for number in range(count)]

    # What can happen

    def insert(self):
        with self.world.warehouse.begin() as txn:
            for _ in range(self.draw.randint(1, 2)):
                txn.insert(self.table, self.rows(), self.partition())

    def change(self):
        if self.insert_only:
            return self.insert()
        wanted = self.draw.randint(0, 3)
        with self.world.warehouse.begin() as txn:
            if self.draw.random() < 0.5:
                txn.delete(self.table, lambda row: row[0] % 4 == wanted, self.partition())
            else:
                txn.update(
                    self.table, lambda row: row[0] % 4 == wanted, lambda row: (row[0], "changed"), self.partition()
                )
        return None

    def abort(self):
        self.world.aborted_insert(self.table, self.rows(), self.partition())

    def overwrite(self):
        if self.readers or self.open:
            return  # Hive 3.1 and 4.x with default locks wait for them
        with self.world.warehouse.begin() as txn:
            txn.overwrite(self.table, self.rows(), self.partition())

    def begin_writing(self):
        txn = self.world.warehouse.begin()
        txn.insert(self.table, self.rows(), self.partition())
        self.open.append(txn)

    def end_writing(self):
        if self.open:
            txn = self.open.pop(self.draw.randrange(len(self.open)))
            txn.commit() if self.draw.random() < 0.6 else txn.abort()

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
        if self.world.services.hive_4:
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

    def end_reading(self):
        if self.readers:
            txn, _, _ = self.readers.pop(self.draw.randrange(len(self.readers)))
            self.world.hive.commit(txn)

    def initiate(self):
        self.say(self.initiator.run_once())

    def ask(self):
        partition = None
        if self.partitioned:
            known = self.world.services.catalog.partition_names(self.world.services.catalog.find_table("db", "life"))
            if not known:
                return
            partition = self.draw.choice(known)
        kinds = ["major"] if self.insert_only and not self.world.services.hive_4 else ["major", "minor"]
        self.world.enqueue(Entity("db", "life", partition), self.draw.choice(kinds))

    def work(self):
        self.say(self.world.worker().run_once())

    def clean(self):
        self.world.settle_time()
        self.say(self.cleaner.run_once())

    def restart_cleaner(self):
        self.world.services = self.world.new_services()
        self.world.configure(initiator={"thresholds": {"delta_count": 3, "aborted_count": 1}})
        self.initiator, self.cleaner = self.world.initiator(), self.world.cleaner()

    def keep_house(self):
        self.world.settle_time()
        self.say(self.world.housekeeper().run_once())

    def say(self, sentence):
        self.told.append(sentence)

    # What must hold

    def check(self, what):
        for txn, snapshot, rows in self.readers:
            if self.world.services.hive_4:
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
        weights = {
            self.insert: 6,
            self.change: 5,
            self.abort: 2,
            self.overwrite: 1,
            self.begin_writing: 2,
            self.end_writing: 2,
            self.begin_reading: 2,
            self.end_reading: 2,
            self.initiate: 3,
            self.ask: 2,
            self.work: 6,
            self.clean: 5,
            self.restart_cleaner: 1,
            self.keep_house: 2,
        }
        for _ in range(STEPS):
            action = self.draw.choices(list(weights), list(weights.values()))[0]
            action()
            self.check(action.__name__)

    def end(self):
        """Everybody goes home; then the roles run until nothing changes any more, and that must be soon."""
        while self.open:
            self.end_writing()
        while self.readers:
            self.end_reading()
        for _ in range(20):
            self.initiate()
            while self.world.states().count("initiated"):
                self.work()
            before = len(self.world.services.queue.entries())
            for _ in range(4):
                self.clean()
            self.keep_house()
            self.check("the end")
            if before == 0 and not self.world.services.queue.entries():
                return
        pytest.fail(f"never comes to rest: {self.told[-12:]}")


@pytest.mark.timeout(280)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", kinds(EVERY))
def test_no_reader_loses_a_row_whatever_the_roles_do(kind, seed, request, tmp_path):
    """Every snapshot that is held reads the same after every step, and the roles come to rest."""
    with metastore(kind, request, tmp_path) as database:
        life = Life(World(database, tmp_path), seed)
        life.live()
        life.end()
