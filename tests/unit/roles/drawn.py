"""
The life of a table `db.t`, drawn in the text of a case book and led on a `World`; questions in it are answered in turn.

    insert [<n>] [p=<value>]           so many INSERTs of one row, a transaction each
    overwrite [p=<value>]              an INSERT OVERWRITE of one row
    delete [p=<value>]                 a DELETE of the first row
    aborted [p=<value>] [silent=<age>] an INSERT that is rolled back; its last heartbeat was so long ago, or two days
    writer <name> <user@host> <age>    an INSERT that stays open
    reader <name> <user@host> <age> [lock] [of=<table>]
                                       a query: its transaction stays open; `lock` gives it a shared read on db.t or on
                                       one partition (`lock=p=<value>`), `of` registers it as a reader of that table
    lock <name> [p=<value>] [kind=r|w|x|e] [waiting]
                                       a lock without a transaction
    end <name> | roll-back <name>      the transaction commits or is rolled back; the lock goes
    compact major|minor [p=<value>]    the Worker does one compaction
    work                               the Worker takes one entry
    queue [p=<value>] <column>=<value> …
                                       an entry as Hive's own daemon leaves it, with columns of COMPACTION_QUEUE
    history failed|refused …           an entry of the history
    directory <name>                   an empty directory that no writer of Hive makes
    gone                               the table's directory vanishes
    clean                              a cycle of the Cleaner, where the book doesn't ask about it
    later <age>                        the database's clock goes forward
    restart                            another daemon takes over the roles
"""

import shlex
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

from sqlalchemy import update

from compactor.metastore.db.database import Database
from compactor.metastore.model import QueueState
from compactor.metastore.txn.snapshots import READ_ONLY
from tests.casebook import Case
from tests.unit.roles.world import World

_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}

Answer = Callable[["Drawn", list[str]], list[str]]


def milliseconds(age: str) -> int:
    """`90min` in milliseconds."""
    number = age.rstrip("smindh")
    return int(number) * _SECONDS[age.removeprefix(number)] * 1000


class Drawn:
    """
    One case on a world.

    Args:
        monkeypatch: moves the clock of every database.
    """

    def __init__(self, world: World, case: Case, monkeypatch) -> None:
        self.world, self.case = world, case
        options = case.options
        properties = {key.removeprefix("table."): value for key, value in options.items() if key.startswith("table.")}
        self.partitioned = "partitioned" in options
        self.table = world.table(
            rows=0,
            insert_only="insert_only" in options,
            parameters=properties,
            partition_keys=[("p", "string")] if self.partitioned else [],
        )
        self.sections: dict = {}
        for key, value in options.items():
            *path, name = key.split(".")
            if path and path[0] != "table":
                place = self.sections
                for part in path:
                    place = place.setdefault(part, {})
                place[name] = int(value) if value.isdigit() else value
        world.configure(**self.sections)
        self.cleaner = world.cleaner()
        self._ends: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {}
        self._rows = 0
        self._forward_ms = 0
        now_ms = Database.now_ms
        monkeypatch.setattr(Database, "now_ms", lambda its, connection: now_ms(its, connection) + self._forward_ms)

    def answers(self, **questions: Answer) -> list[str]:
        """Lead the life, and collect the answers to its questions."""
        said = []
        for line in self.case.entries:
            verb, *words = shlex.split(line)
            if verb in questions:
                said += questions[verb](self, words)
            else:
                getattr(self, verb.replace("-", "_"))(*words)
        return said

    @property
    def location(self) -> Path:
        """The table's directory."""
        return self.table.location

    def names(self) -> list[str]:
        """What lies in the table's directory, or in those of its partitions."""
        found = self.location.glob("p=*/*" if self.partitioned else "*")
        return sorted(str(path.relative_to(self.location)) for path in found)

    # What happens

    def insert(self, *words):
        count = int(words[0]) if words and words[0].isdigit() else 1
        for _ in range(count):
            self.world.insert(self.table, [self._row()], _partition(words))

    def overwrite(self, *words):
        with self.world.warehouse.begin() as txn:
            txn.overwrite(self.table, [self._row()], _partition(words))

    def delete(self, *words):
        with self.world.warehouse.begin() as txn:
            txn.delete(self.table, lambda row: row[0] == 1, _partition(words))

    def aborted(self, *words):
        txn = self.world.aborted_insert(self.table, [self._row()], _partition(words))
        for word in words:
            if word.startswith("silent="):
                self.world.late_writers = True
                self.world.hive.fall_silent(txn, milliseconds(word.removeprefix("silent=")))

    def writer(self, name, who, age, *words):
        txn = self.world.warehouse.begin()
        txn.insert(self.table, [self._row()], _partition(words))
        txns = self.world.database.schema.txns
        older = update(txns).where(txns.c.txn_id == txn.id)
        self.world.hive.change(older.values(txn_started=txns.c.txn_started - milliseconds(age)))
        self._belongs(txn.id, who)
        self._ends[name] = (txn.commit, txn.abort)

    def reader(self, name, who, age, *words):
        hive = self.world.hive
        txn = hive.begin(age=milliseconds(age), kind=READ_ONLY if any("of=" in word for word in words) else 0)
        for key, _, value in (word.partition("=") for word in words):
            if key == "lock":
                hive.lock("db.t", value or None, txn_id=txn)
            else:
                hive.register(txn, value, 1)
        self._belongs(txn, who)
        self._ends[name] = (lambda: hive.commit(txn), lambda: hive.abort(txn))

    def lock(self, name, *words):
        about = dict(word.split("=") for word in words if not word.startswith("p=") and word != "waiting")
        state = "w" if "waiting" in words else "a"
        number = self.world.hive.lock("db.t", _named(words), state=state, **about)
        self._ends[name] = (lambda: self.world.hive.unlock(number),) * 2

    def end(self, name):
        self._ends.pop(name)[0]()

    def roll_back(self, name):
        self._ends.pop(name)[1]()

    def compact(self, kind, *words):
        said = self.world.compact(self.table, kind, _named(words))
        assert ": published " in said, said

    def work(self):
        self.world.settle_time()
        self.world.worker().run_once()

    def queue(self, *words):
        values = dict(word.split("=") for word in words if not word.startswith("p="))
        entity = f"db.t/{_named(words)}" if _named(words) else "db.t"
        self.world.hive.queued(
            entity, **{key: int(value) if value.isdigit() else value for key, value in values.items()}
        )

    def history(self, state, *words):
        values = dict(word.split("=", 1) for word in words)
        start = self.world.services.now_ms()
        self.world.hive.finished("db.t", state=QueueState(state).code, start=start, **values)

    def directory(self, name):
        (self.location / name).mkdir()

    def gone(self):
        self.location.rename(self.world.folder / "gone")

    def clean(self):
        self.world.settle_time()
        self.cleaner.run_once()

    def later(self, age):
        self._forward_ms += milliseconds(age)

    def restart(self):
        self.world.services = self.world.new_services(**self.sections)
        self.cleaner = self.world.cleaner()

    def _belongs(self, txn, who):
        """The transaction and its locks are of that user on that host."""
        schema, (user, host) = self.world.database.schema, who.split("@")
        txns, locks = schema.txns, schema.hive_locks
        self.world.hive.change(update(txns).where(txns.c.txn_id == txn).values(txn_user=user, txn_host=host))
        self.world.hive.change(update(locks).where(locks.c.hl_txnid == txn).values(hl_user=user, hl_host=host))

    def _row(self):
        self._rows += 1
        return (self._rows, f"v{self._rows}")


def _named(words) -> str | None:
    return next((word for word in words if word.startswith("p=")), None)


def _partition(words) -> tuple[str] | None:
    name = _named(words)
    return None if name is None else (unquote(name.removeprefix("p=")),)
