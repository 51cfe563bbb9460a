"""Worlds whose workers run on a real Spark session, and what must hold after something bad."""

import re
from dataclasses import dataclass, field

import pytest

from compactor.metastore.db.database import Database
from compactor.metastore.model import Entity
from compactor.roles.worker.worker import STARTING
from tests.spark.conftest import submitter  # noqa: F401 - a fixture
from tests.unit.roles.world import World

GOOD = "good"


@dataclass
class Scene:
    """A table `db.t` that something is wrong with, a second one that is fine, and the roles over both."""

    world: World
    before: dict = field(default_factory=dict)

    @property
    def table(self):
        return self.world.warehouse.tables["db.t"]

    def file(self, directory="delta_0000001_0000001_0000", name="bucket_00000"):
        """A bucket file of the bad table; found with its attempt number, if it has one."""
        found = sorted((self.table.location / directory).glob(f"{name}*"))
        assert found, f"{directory} holds no {name}"
        return found[0]

    def remember(self):
        """What is in the bad table's directory now, and what a reader that doesn't know our code sees of it."""
        self.before = {"files": self.files(), "rows": self.rows()}

    def files(self):
        location = self.table.location
        return (
            {str(path.relative_to(location)): path.read_bytes() for path in location.rglob("*") if path.is_file()}
            if location.exists()
            else {}
        )

    def rows(self):
        """The rows, or that the reference reader can't read them either."""
        try:
            return self.world.rows(self.table)
        except Exception as error:
            return f"unreadable: {type(error).__name__}"

    def compact(self, *, kind="major", entity=None):
        """Ask for a compaction of the bad table, and have the worker try; returns its sentence."""
        self.world.settle_time()
        accepted = self.world.enqueue(entity or Entity("db", "t"), kind)
        assert accepted.accepted
        worker = self.world.worker()
        while (cycle := worker.run_once()) == STARTING:
            pass
        return cycle.sentence

    def assert_ended(self, state, reason, *words):
        """
        Exactly one entry of the history, in that state, its message one line that starts with the reason and says the
        words.
        """
        ((found, message),) = self.world.ended()
        assert found == state, message
        assert message.startswith(f"{reason}: "), message
        assert "\n" not in message
        assert "Traceback" not in message
        assert not re.search(r"\b(Error|Exception)\b:", message), message
        for word in words:
            assert word in message, message

    def assert_untouched(self):
        """
        Files and rows are what they were; nothing hidden lies there; no transaction, lock or component is left, but the
        mark of an attempt that was rolled back.
        """
        assert self.files() == self.before["files"]
        assert self.rows() == self.before["rows"]
        self.assert_nothing_left()

    def assert_nothing_left(self):
        """
        No staging, evidence, lock or transaction of an attempt; its own component, if any, stays until no store can
        complete what it uploaded.
        """
        world = self.world
        assert list(world.folder.rglob(".compactor-*")) == []
        assert list(world.folder.rglob(".evidence-*")) == []
        assert world.states() == []
        assert world.services.locks.all() == []
        assert world.services.transactions.open_transactions() == []
        left = world.hive.rows(world.database.schema.txn_components, "tc_operation_type")
        assert {operation for (operation,) in left} <= {"c"}

    def assert_others_go_on(self):
        """The same worker compacts another table, and the Cleaner finishes it."""
        world = self.world
        other = world.warehouse.tables.get(f"db.{GOOD}") or world.table(GOOD, rows=3)
        sentence = world.compact(other)
        assert "published base_" in sentence, sentence
        world.clean()
        world.assert_rows(other)

    def assert_refused(self, reason, *words):
        """What most bad files end with."""
        self.assert_ended("refused", reason, *words)
        self.assert_untouched()
        self.assert_others_go_on()


@pytest.fixture
def scene(tmp_path, submitter):  # noqa: F811 - the fixture
    """Three deltas of single rows, and a delete delta."""
    with Database(f"sqlite:///{tmp_path}/metastore.db", create=True) as database:
        world = World(database, tmp_path)
        world.submitter = submitter
        world.services = world.new_services()
        table = world.table(rows=3)
        world.delete(table, 1)
        found = Scene(world)
        found.remember()
        yield found
