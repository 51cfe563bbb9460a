"""Our roles and Hive's threads in the fast lane, a cycle at a time, and the known failures of Hive's."""

import re

from sqlalchemy import select, text

from compactor.metastore.txn.locks import AGENT
from compactor.metastore.txn.snapshots import COMPACTION
from compactor.roles import steps
from compactor.roles.housekeeper.recovery import Recovery
from compactor.roles.worker.cancellation import DrainedError
from compactor.roles.worker.older_snapshots import WAIT_SECONDS
from compactor.roles.worker.worker import Worker
from tests.counts import count
from tests.hive.lane.model import KilledError, Statement
from tests.hive.lane.table import PARTITIONS, LaneTable

_OVERTAKEN = re.compile(
    r"unable to complete cleaning of [^\n]*?\bid[:=](\d+),[^\n]*?highestWriteId[:=](\d+)[^\n]*? Not enough history available[^\n]*/base_(\d+)[_;\s]"
)
"""
Hive's Cleaner fails a compaction whose range lies below the base of a later one (AcidUtils.getAcidState), if the
earlier base has gone: which, up to where, that base.

Of Hive 3.1 the Cleaner itself has removed it; of Hive 4 its cleanup after aborts, which also removes what was replaced.
"""

_UNLISTED = re.compile(
    r"partName:([^,]*),[^\n]*Marking failed to avoid repeated failures[^\n]*Not enough history available[^\n]*/base_(\d+)[_;\s]"
)
"""
Hive 3.1's Initiator can't list where the only base is that of an INSERT OVERWRITE that didn't commit: which partition,
that base.
"""

_HELD_UP = text(
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    " AND application_name = 'PostgreSQL JDBC Driver'"
)
"""How many statements of Hive's wait for a lock."""
_LOOK_SECONDS = 0.005


class Roles(LaneTable):
    """Runs cycles of our roles and of Hive's threads."""

    def initiate(self):
        self.world.settle_time()
        self._say(self.initiator.run_once().sentence)

    def work(self):
        """A cycle; of a worker that waits before a first base the next look."""
        self.world.settle_time()
        if self.turns.waits:
            self._heard(self.turns.look())
            return
        self._hear_out(self.worker)

    def _hear_out(self, worker):
        """Begin a cycle of that worker: who is there before it, and which directories have a base."""
        self.before = [one.txn for one in (*self.readers, *self.open)]
        self.bases = {place for place in self.catalogued if any(self.directory(place).glob("base_*"))}
        self._heard(self.turns.run(worker.run_once))

    def lose_patience(self):
        """A worker that waits does so no longer."""
        if self.turns.waits:
            self.turns.seconds += WAIT_SECONDS
            self._heard(self.turns.look(), outlived=True)

    def _heard(self, sentence, *, outlived=False):
        """What the worker said; where a first base appeared, every older reader has gone, or was waited for in vain."""
        here = [one for one in (*self.readers, *self.open) if one.txn in self.before]
        if sentence is None:
            assert here, f"{self.before} are gone, and yet a compaction waits for them; {self.told}"
            count(
                f"looks at older readers and writers of Hive {3 + self.party.hive_4} before a first base in the fast lane"
            )
            return
        self._say(sentence)
        if ": published " in sentence:
            self.beside |= bool(self.readers or self.open)
        if ": published base_" in sentence and not self.party.hive_4:
            fresh = {place for place in self.catalogued if any(self.directory(place).glob("base_*"))} - self.bases
            for reader in (one for one in here if fresh and self._may_list(one, fresh)):
                assert outlived, f"a first base of {fresh} appeared beside {reader}; {self.told}"
                if reader in self.readers:
                    reader.outlived |= fresh

    def _may_list(self, one, places):
        """Not a statement that has its one lock on another partition."""
        return one in self.readers or one.dynamic or not places.isdisjoint(one.partitions)

    def clean(self):
        self.world.settle_time()
        self._say(self.cleaner.run_once().sentence)
        self.unnoted = False

    def keep_house(self):
        self.world.settle_time()
        self._say(self.housekeeper.run_once().sentence)

    def hive_keeps_house(self):
        """Hive's purges; there was a statement elsewhere, for they leave the newest transaction alone."""
        self._come_before_hive()
        self.hive.commit(self.hive.begin())
        self.world.settle_time()
        self.hive.keep_house()
        self._lose_unnamed()

    def _lose_unnamed(self):
        """
        Hive forgets at once an INSERT that was rolled back before its partitions were noted (dynamic ones are at its
        end), while its tasks may still write: no compactor can help that.
        """
        known = {txn for (txn,) in self.hive.rows(self.hive.schema.txns, "txn_id")}
        self.late = [one for one in self.late if one.named or one.txn in known]
        self._take_back({one.txn for one in self.lately if not one.named and one.txn not in known})

    def _come_before_hive(self):
        """
        Hive forgets a copy that was undone, and its rows come to life (docs/operations.md): our Cleaner is there
        earlier.
        """
        if self.unnoted:
            self.clean()

    def hive_initiates(self):
        """Hive's Initiator; 3.1's forgets too."""
        self._come_before_hive()
        queued = self._cycle("Initiator")[1]
        count(f"compactions queued by the Initiator of Hive {3 + self.party.hive_4} in the fast lane", max(queued, 0))

    def hive_cleans(self):
        """
        Hive's Cleaner. Hive 4's takes the base of an INSERT OVERWRITE that is still open for valid, where other writes
        were rolled back, and removes what lies below: no compactor can help that.
        """
        if self.party.hive_4 and any(one.overwrites and one.phase for one in self.open):
            return
        # Hive 4's AbortedTxnCleaner also removes what was replaced, and looks at writers only, not at readers
        aborted = self._with_aborted_writes() if self.party.hive_4 else set()
        before = {place: self._there(place) for place in aborted.intersection(self.catalogued)}
        ended = -self._cycle("Cleaner")[1]
        count(f"compactions ended by the Cleaner of Hive {3 + self.party.hive_4} in the fast lane", max(ended, 0))
        for reader in self.readers:
            reader.robbed |= {place for place, there in before.items() if self._there(place) != there}

    def _with_aborted_writes(self):
        """
        Partitions as Hive noted them; also those that it left for later: a compaction that it cleans ends that
        (MarkCleanedFunction).
        """
        txns, components = self.hive.schema.txns, self.hive.schema.txn_components
        aborted = (
            select(components.c.tc_partition)
            .join(txns, txns.c.txn_id == components.c.tc_txnid)
            .where(txns.c.txn_state == "a")
        )
        return set(self.world.database.read(lambda connection: connection.scalars(aborted).all()))

    def _cycle(self, name):
        """How many directories and queued compactions there are more after a cycle."""
        self.hives_threads = True
        self.world.settle_time()
        before, noted = self._size(), self._noted()
        said = self.party.call("Threads.cycle", name)
        # Hive's threads forget what may still be written: no compactor can help that
        lost = noted - self._noted()
        forgotten = {number for number, _ in lost}
        self.late = [one for one in self.late if one.txn not in forgotten]
        self._take_back(forgotten)
        self._lose_unnamed()
        grown = [after - earlier for after, earlier in zip(self._size(), before, strict=True)]
        self._say(f"Hive's {name}: {grown[0]:+} directories, {grown[1]:+} queued{said and ', ' + said}")
        failed = {int(entry): int(base) - int(highest) for entry, highest, base in _OVERTAKEN.findall(said)}
        unlisted = [(None if place == "null" else place, int(base)) for place, base in _UNLISTED.findall(said)]
        assert said.count(" ERROR ") == len(failed) + len(unlisted), self.told
        assert self._rolled_back_bases().issuperset(unlisted), self.told
        self.unlistable |= {place for place, _ in unlisted}
        assert all(above > 0 for above in failed.values()), self.told
        self.overtaken |= failed.keys()
        count(
            f"compactions that the Cleaner of Hive {3 + self.party.hive_4} failed below a later base in the fast lane",
            len(failed),
        )
        return grown

    def _noted(self):
        """Which partitions Hive, or ours, has noted of which transactions."""
        components = self.hive.schema.txn_components.c
        noted = select(components.tc_txnid, components.tc_partition)
        return self.world.database.read(lambda connection: {tuple(row) for row in connection.execute(noted)})

    def _size(self):
        return sum(1 for path in self.location.rglob("*") if path.is_dir()), len(self.world.services.queue.entries())

    def observe_minor(self, place):
        """Two inserts and a minor whose cleaning waits for a first reader, and a second reader of its result."""
        for _ in range(2):
            self.write(Statement("insert", (place,)))
        self.read()
        self.ask(place, major=False)
        self.work()
        self.clean()
        self.read()

    def die(self):
        """
        A worker of another daemon dies between the rename and the commit; a third daemon clears up after it, and gives
        its claim back.
        """
        self.world.settle_time()
        if self.turns.waits:
            return
        other, third = self.world.new_services(), self.world.new_services()

        def killed():
            raise KilledError

        self.world.at_step[steps.WORKER_PUBLISHED] = killed
        worker = Worker(other, 9)
        try:
            self._hear_out(worker)
        except KilledError:
            (entry,) = [one for one in third.queue.working() if one.worker_id == worker.worker_id]
            self._say(f"{entry.id} died")
            self.lose_locks_of_the_dead()
            if Recovery(third).clear(entry):
                third.queue.give_back(entry)
        finally:
            self.world.at_step.clear()
            if self.turns.waits:
                worker.cancel(DrainedError("the daemon stops"))
                self._heard(self.turns.look())

    def lose_locks_of_the_dead(self):
        """The locks of workers time out, by which time those who live have asked for theirs anew (Hive 3.1)."""
        locks = self.hive.schema.hive_locks
        silent = locks.update().where(locks.c.hl_txnid == 0, locks.c.hl_agent_info == AGENT)
        self.hive.change(silent.values(hl_last_heartbeat=1_000))
        self.party.call("performTimeOuts")

    def hive_claims(self, hours):
        """Hive's Worker claimed the one entry so long ago, has opened its transaction, and works. Its transaction."""
        queued, components = self.hive.schema.compaction_queue, self.hive.schema.txn_components
        txn = self.hive.begin(age=0, kind=COMPACTION)
        start = self.world.services.now_ms() - hours * 3_600_000
        claim = {"cq_state": "w", "cq_worker_id": "hs2-33", "cq_start": start, "cq_txn_id": txn}
        self.hive.change(queued.update().values(**claim, cq_highest_write_id=3))
        row = {"tc_txnid": txn, "tc_database": "db", "tc_table": "t", "tc_operation_type": "c", "tc_writeid": 3}
        self.hive.change(components.insert().values(row))
        return txn

    def ask_in_capitals(self, place, major):
        """A client of the metastore's API names the database in other letters: for Hive that is another entry."""
        self.ask(place, major, database="DB")

    def ask_at_once(self, place, major):
        """
        Two clients ask for one place at once: Hive 4.0.1's compact() gives its mutex back before it commits, so the
        second call sees no entry yet, and makes another. Hive 3.1 commits before, and answers the second with the first.
        """
        partition = PARTITIONS[place] if self.partitioned else None
        if partition not in self.catalogued:
            return
        entries = len(self.world.services.queue.entries())
        wanted = {"dbname": "db", "tablename": "t"} | ({"partitionname": partition} if partition else {})
        kinds = [major or (self.insert_only and not self.party.hive_4), not major or self.insert_only]
        first, second = [wanted | {"type": "MAJOR" if kind else "MINOR"} for kind in kinds]
        one = self.party.begin("compact", first, session="a", gated=True)
        inserted = False
        while (at := one.at()) is not None and not (inserted and at == "COMMIT"):
            inserted |= "INSERT INTO" in at and "COMPACTION_QUEUE" in at
            one.go()
        two = self.party.begin("compact", second, session="b")
        while two.look(_LOOK_SECONDS) is None and not self.world.database.read(lambda found: found.scalar(_HELD_UP)):
            pass  # it has looked when it has ended, or waits for what the first one holds
        if not one.ended():
            one.finish()
        two.result()
        count(
            f"requests at once on Hive {3 + self.party.hive_4} in the fast lane that made two entries",
            len(self.world.services.queue.entries()) - entries == 2,
        )

    def ask(self, place, major, database="db"):
        """ALTER TABLE ... COMPACT."""
        partition = PARTITIONS[place] if self.partitioned else None
        if partition in self.catalogued:
            names = {"partitionname": partition} if partition else {}
            major |= self.insert_only and not self.party.hive_4  # which knows no minor one of such a table
            self.party.call(
                "compact", {"dbname": database, "tablename": "t", "type": "MAJOR" if major else "MINOR"} | names
            )

    def restart(self):
        """Our daemon starts anew."""
        self.stop()
        self.world.services = self.world.new_services()
        self._take_over()

    def stop(self):
        """Our daemon stops; a compaction that waits is given back."""
        if self.turns.waits:
            self.worker.cancel(DrainedError("the daemon stops"))
            self._heard(self.turns.look())
