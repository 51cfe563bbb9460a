"""
Random histories in which roles are interrupted: before any of their statements to the metastore and calls to the store,
writers, readers, another worker, the Cleaner, another daemon's recovery and Hive's purges may come in between, and a
worker may be killed. After each of these every reader sees its rows.
"""

import contextlib
import random
import threading

from compactor.metastore.db.database import Database
from compactor.metastore.model import Entity
from compactor.roles import steps
from compactor.roles.cleaner.cleaner import Cleaner
from compactor.roles.housekeeper.housekeeper import Housekeeper
from compactor.roles.housekeeper.recovery import Recovery
from compactor.roles.worker.worker import Worker
from compactor.storage.guarded import Guarded
from tests.hive.lane.lane import Lane
from tests.hive.lane.model import KilledError, Statement
from tests.hive.lane.table import PARTITIONS
from tests.hive.party import HiveError

_STATEMENTS = ("read", "glance", "write", "repeatable")
_CALLS = ("list_tree", "rename_noreplace", "directories", "delete_tree", "exists")
_OF_THEMSELVES = ("heartbeat", "monitor", "keeper")
"""Threads that come when they want: what they interrupt nobody can tell."""
_MOST_DEEP = 2
_ACTS = ["inserts"] * 3 + ["write"] * 3 + ["read"] * 2 + ["end"] + ["beneath"] * 3 + ["compact"] * 5 + ["work"]
_ACTS += ["die", "die"] + ["clean"] * 4 + ["recover", "purge", "house", "restart"]
_BENEATH = ("nothing", "over", "clean", "recover", "first", "clean")
_AT_ONCE_BY_TWO = 0.1
_MOST_WAITING = 3
_LIKELY = 0.8
"""Of each of these."""
_DEATHS = (*steps.WORKER_STEPS, *[steps.WORKER_PUBLISHED] * 10)
"""Where a worker dies; as often between its rename and its mark as at all other steps together."""


class Preempted:
    """
    One history.

    Args:
        lane: with roles whose cycles run in the caller's thread.
        seed: of what comes in between.

    `wrong`: what a reader saw; None while all see their rows. `log`: what happened, indented by what it interrupts.
    """

    def __init__(self, lane: Lane, seed: int) -> None:
        self.lane, self.draw = lane, random.Random(seed)
        self._between = random.Random(f"between {seed}")  # so that what is planned is the same however often roles ask
        self.wrong, self.log = None, []
        self._rate = self.draw.choice([0.01, 0.03, 0.08, 0.15])
        self._depth, self._inside = [], threading.local()
        self._dead, self._numbers = set(), 10
        self._doomed = None
        lane.world.observers = (*lane.world.observers, self._pass)
        self._cleaner = Cleaner(self._services())
        self._acts = {
            "write": self._write,
            "nothing": self._nothing,
            "inserts": self._inserts,
            "read": self._read,
            "end": self._end,
            "first": self._first_reader_ends,
            "purge": self._purge,
            "ask": self._ask,
            "beneath": self._beneath,
            "over": self._over,
            "compact": self._compact,
            "work": self._work,
            "die": self._ask_and_die,
            "clean": self._clean,
            "house": self._house,
            "restart": self._restart,
            "recover": self._recover,
        }

    def live(self, acts, among=_ACTS):
        """The history, of so many of these acts, as long as nothing is wrong."""
        self._act("inserts")
        for _ in range(acts):
            if self.wrong is not None:
                return
            act = self.draw.choice(among)
            self._say(act)
            self._act(act)

    def hooked(self, patch):
        """Put a point before each statement and call."""
        for owner, names in ((Database, _STATEMENTS), (Guarded, _CALLS)):
            for name in names:
                patch.setattr(owner, name, self._around(name, getattr(owner, name)))

    def _around(self, name, call):
        def around(instance, *args, **options):
            self._point(name)
            with self._undisturbed():
                return call(instance, *args, **options)

        return around

    @contextlib.contextmanager
    def _undisturbed(self):
        before, self._inside.on = getattr(self._inside, "on", False), True
        try:
            yield
        finally:
            self._inside.on = before

    def _point(self, where):
        name = threading.current_thread().name
        if not 0 < len(self._depth) <= _MOST_DEEP or self.wrong is not None or getattr(self._inside, "on", False):
            return
        if any(word in name for word in _OF_THEMSELVES) or self._between.random() >= self._rate:
            return
        acts = ["write"] * 3 + ["inserts", "read", "read", "end", "purge", "recover"]
        if "worker" not in self._depth:
            acts += ["work"] * 3
        if self._depth[-1] == "worker":
            acts += ["kill", "ask", *(["clean"] * 3 if "cleaner" not in self._depth else [])]
        act = self._between.choice(acts)
        self._say(f"[{self._depth[-1]} at {where}] {act}")
        planned, self.draw = self.draw, self._between
        try:
            self._act(act)
        finally:
            self.draw = planned

    def _say(self, what):
        self.log.append(f"{'  ' * len(self._depth)}{what}")

    def _act(self, act):
        if act == "kill":
            raise KilledError
        with contextlib.suppress(HiveError):  # of two writers of one row the second is refused
            self._acts[act]()
        self._check()

    def _check(self):
        if self.wrong is None:
            with self._undisturbed():
                try:
                    self.lane.check_readers()
                except (AssertionError, HiveError) as error:
                    if "Not enough history" not in str(error):
                        self.wrong = str(error)[:2000]
                        self._say(sorted(path.name for path in self.lane.location.rglob("*") if path.is_dir()))

    # acts

    def _write(self):
        kind = self.draw.choice(["insert"] * 3 + ["update", "delete", "overwrite", "nothing"])
        place = self.draw.randrange(len(PARTITIONS)) if self.draw.random() < 0.3 else 0
        commit = self.draw.random() < 0.8
        self._say(f"{kind} {place}{'' if commit else ', rolled back'}")
        with self._undisturbed():
            if kind == "nothing":
                self.lane.write_nothing(place)
            else:
                self.lane.write(Statement(kind, (place,), self.draw.randrange(1, 3), self.draw.randrange(2)), commit)
            self.lane.unnoted = False

    def _nothing(self):
        with self._undisturbed():
            self.lane.write_nothing(0)

    def _inserts(self):
        with self._undisturbed():
            for _ in range(self.draw.randrange(2, 5)):
                self.lane.write(Statement("insert"), self.draw.random() < 0.85)

    def _read(self):
        with self._undisturbed():
            if len(self.lane.readers) < 3:
                self.lane.read()

    def _end(self):
        with self._undisturbed():
            if self.lane.readers:
                self.lane.read_no_more(self.draw.randrange(len(self.lane.readers)))

    def _first_reader_ends(self):
        with self._undisturbed():
            self.lane.read_no_more(0)

    def _purge(self):
        with self._undisturbed():
            self.lane.hive.commit(self.lane.hive.begin())
            self.lane.world.settle_time()
            self.lane.hive.keep_house()

    def _ask(self, major=None, place=None):
        lane = self.lane
        if place is None:
            place = self.draw.choice(lane.catalogued[:1] * 4 + lane.catalogued) if lane.catalogued else None
        if place is None and lane.partitioned:
            return
        kind = self.draw.random() < 0.5 if major is None else major
        kind |= lane.insert_only and not lane.party.hive_4
        with self._undisturbed():
            if self.draw.random() < _AT_ONCE_BY_TWO:
                lane.ask_at_once(PARTITIONS.index(place) if place else 0, kind)
                return
            lane.world.enqueue(Entity("db", "t", place), "major" if kind else "minor")

    def _beneath(self):
        """
        A result that one reader keeps from being cleaned, and another one reads; beneath the two another compaction,
        which may die, the Cleaner, and the end of the first reader.
        """
        rate, self._rate = self._rate, self._rate / 10
        self._come_to_rest()
        self._inserts()
        first = self.lane.catalogued[0] if self.lane.catalogued else None
        if self.draw.random() < _LIKELY:
            self._ask(True, first)
            self._work()
            self._clean()
            self._inserts()
        self._ask(False, first)
        self._read()
        self._work()
        self._clean()
        self._read()
        for act in _BENEATH:
            if self.wrong is None and self.draw.random() < _LIKELY:
                self._say(f"beneath: {act}")
                self._act(act)
        self._rate = rate

    def _come_to_rest(self):
        """No reader is left, and no entry that a worker or the Cleaner could end."""
        while self.lane.readers:
            self._first_reader_ends()
        self._recover()
        with self._undisturbed():
            waiting = len(self.lane.world.services.queue.entries())
        for _ in range(min(waiting, _MOST_WAITING)):
            self._work()
            self._clean()

    def _over(self):
        """A major compaction of the same place, which may die."""
        self._ask(True, self.lane.catalogued[0] if self.lane.catalogued else None)
        if self.draw.random() < 0.5:
            self._work()
        else:
            self._die()

    def _compact(self):
        self._ask()
        self._work()

    def _work(self):
        self._numbers += 1
        self._role("worker", Worker(self._services(), self._numbers).run_once)

    def _ask_and_die(self):
        self._ask()
        self._die()

    def _die(self):
        """A worker is killed at one of its steps."""
        self._doomed = self.draw.choice(_DEATHS)
        self._work()
        self._doomed = None

    def _pass(self, step, _):
        if step == self._doomed and self._depth[-1:] == ["worker"]:
            self._doomed = None
            self._say(f"killed at {step}")
            raise KilledError

    def _clean(self):
        self._role("cleaner", self._cleaner.run_once)

    def _house(self):
        self._role("house", Housekeeper(self._services()).run_once)

    def _restart(self):
        self._cleaner = Cleaner(self._services())

    def _recover(self):
        """Another daemon gives back what killed workers had claimed."""
        with self._undisturbed():
            left = [entry for entry in self.lane.world.services.queue.working() if entry.id in self._dead]
            if left:
                self.lane.lose_locks_of_the_dead()
        for entry in left:
            services = self._services()
            self._depth.append("recovery")
            try:
                if Recovery(services).clear(entry):
                    services.queue.give_back(entry)
                    self._dead.discard(entry.id)
                    self._say(f"recovery gave {entry.id} back")
            finally:
                self._depth.pop()

    def _services(self):
        """Of another daemon."""
        with self._undisturbed():
            services = self.lane.world.new_services()
        services.settings = self.lane.world.services.settings
        return services

    def _role(self, name, run):
        with self._undisturbed():
            self.lane.world.settle_time()
            before = {entry.id for entry in self.lane.world.services.queue.working()}
        self._depth.append(name)
        try:
            self._say(f"{name}: {run().sentence}")
        except KilledError:
            with self._undisturbed():
                self._dead |= {entry.id for entry in self.lane.world.services.queue.working()} - before
            self._say(f"{name}: killed")
            if name != "worker":
                raise
        except Exception as error:
            self._say(f"{name}: {type(error).__name__}: {error}"[:300])
        finally:
            self._depth.pop()
