"""
The table of a history in the fast lane: its place and its catalog, the rows that the model keeps, and our roles on
it.
"""

import itertools
import os
from pathlib import Path

from compactor.acid.row_id import encode
from tests.hive.lane.model import Reader, Write
from tests.metastore.real import RealHive
from tests.unit.roles.world import World

NAME = "db.t"

PARTITIONS = ("p=1", "p=AbC", "p=10%3A00")
"""As the catalog has them: one that is always itself, one with capitals, one that is escaped."""


class LaneTable:
    """
    The table, and what is known of it.

    Args:
        turns: of the worker.
        partitioned: whether the table has partitions; the first `PARTITIONS` are made by the writes themselves.
        insert_only: it is no full-ACID table: its rows have no ROW__ID, and no statement changes them.
        originals: how many rows it had before it was transactional.
    """

    def __init__(
        self, database, party, turns, folder: Path, *, partitioned: bool, insert_only: bool = False, originals: int = 0
    ) -> None:
        self.world, self.hive = World(database, folder), RealHive(database, party)
        self.party, self.turns = party, turns
        self.world.root(folder / "tables")
        self.world.late_writers = True
        self.location = folder / "tables" / "t"
        self.location.mkdir(parents=True)
        self.partitioned, self.insert_only = partitioned, insert_only
        keys = (("p", "string"),) if partitioned else ()
        parameters = {"transactional_properties": "insert_only" if insert_only else "default", "bucketing_version": "2"}
        columns = (("id", "int"), ("v", "string"))
        self.tbl_id = self.hive.create_table(
            NAME, columns=columns, keys=keys, parameters=parameters, location=f"file:{self.location}"
        )
        self.catalogued: list[str | None] = [] if partitioned else [None]
        self.numbers, self.names = itertools.count(1), itertools.count(1)
        self.open: list[Write] = []
        self.done: list[Write] = []
        self.late: list[Write] = []
        self.lately: list[Write] = []
        """What was rolled back and has files that Hive may forget: written late, or never named."""
        self.batches: list[tuple[str, list[Write]]] = []
        self.closed = False
        self.readers: list[Reader] = []
        self.overwritten: set[tuple[str | None, int]] = set()
        self.originals = [
            ((0, encode(0, 0), number), (next(self.numbers), "old"))
            for number in range(0 if partitioned else originals)
        ]
        if self.originals:
            rows = [list(value) for _, value in self.originals]
            self.party.call("Lane.plain", {"path": str(self.location / "000000_0"), "rows": rows})
        self.told: list[str] = []
        self.steps = 0
        self.found: dict[tuple, list | None] = {}
        self.unlistable: set[str | None] = set()
        self.overtaken: set[int] = set()
        self.before: list[int] = []
        self.bases: set[str | None] = set()
        self.unnoted = False
        self.hives_threads = False
        party.call("Threads.restart")
        self.beside = False
        self._take_over()

    def _take_over(self):
        self.world.configure(
            initiator={"thresholds": {"delta_count": 3, "aborted_count": 0}}, cleaner={"listing_wait_seconds": 0}
        )
        self.initiator, self.worker = self.world.initiator(), self.world.worker()
        self.cleaner, self.housekeeper = self.world.cleaner(), self.world.housekeeper()

    def _say(self, sentence):
        self.told.append(sentence)

    def directory(self, partition) -> Path:
        return self.location / partition if partition else self.location

    def visible(self, partition):
        """The rows that are committed: [(ROW__ID, (id, v))], sorted."""
        floor = max((one.write_id for one in self.done if one.overwrites and partition in one.partitions), default=0)
        rows = {} if floor or partition else dict(self.originals)
        for one in self.done:
            rows |= {key: value for place, key, value in one.inserts if place == partition and key[0] >= floor}
        for one in self.done:
            for place, key, _ in one.deletes:
                if place == partition:
                    rows.pop(key, None)
        return sorted((self._key(*key), value) for key, value in rows.items())

    def _key(self, *key):
        """The ROW__ID of a row, if it has one."""
        return () if self.insert_only else key

    def _there(self, place):
        return tuple(sorted(_entries(self.directory(place))))

    def _rolled_back_bases(self):
        """The bases of INSERT OVERWRITE that didn't commit, or not yet: partition and write id."""
        return self.overwritten - {(place, one.write_id) for one in self.done for place in one.partitions}


def _entries(directory):
    """Path and size of each thing below a directory."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                yield entry.path, entry.stat().st_size
                if entry.is_dir():
                    yield from _entries(entry.path)
    except FileNotFoundError:
        return
