"""
The fast lane: random histories of one table that Hive's own classes write, read and account for, while our roles work
on it; no servers.

Hive's part is in one JVM (`tests.hive.party`): TxnHandler on the metastore's database, OrcRecordUpdater and
OrcInputFormat on the files. A model keeps the rows of each transaction with their ROW__IDs; what a snapshot shows is
what it says of those committed then.
"""

from compactor.acid.compaction import CompactionKind
from compactor.metastore.model import QueueState
from compactor.metastore.partition_names import spellings
from tests.hive.lane.model import Statement
from tests.hive.lane.readers import Readers
from tests.hive.lane.roles import Roles
from tests.hive.lane.table import PARTITIONS
from tests.hive.lane.writers import Writers

_ROUNDS = 12

_PAUSE_SECONDS = 3600
"""Longer than a role leaves alone what it couldn't do."""


class Lane(Writers, Readers, Roles):
    """One history. Each step is a method; a step for which there is nothing to do does nothing."""

    def check(self):
        """Every reader sees its rows; so does one that begins now. No compaction ended badly."""
        self.check_readers()
        history = self.world.services.queue.history()
        for entry in history:
            said = " ".join(sentence for sentence in self.told if f"compaction {entry.id} of " in sentence)
            # Hive 3.1 itself can't list such a directory; a file that a client closes meanwhile isn't what was planned
            excused = (
                entry.id in self.overtaken
                or "refused: not-enough-to-compact" in said
                or (self.closed and "failed: input-changed" in said)
                or (entry.entity.partition in self.unlistable and (not said or "not-enough-history" in said))
                or (entry.state is QueueState.DID_NOT_INITIATE and self._given_up(entry, history))
            )
            assert entry.state.value not in {"failed", "did not initiate", "refused"} or excused, (entry, self.told)

    def _given_up(self, entry, history):
        """Hive's Initiator asks for nothing where the latest two failed, here by Hive's Cleaner."""
        return sum(other.id in self.overtaken and other.entity == entry.entity for other in history) >= 2

    def rest(self):
        """
        There are two more inserts and a reader, in two of three histories after the open writers, below whom Hive 3.1
        compacts nothing, have gone; all is compacted beside those who are there; then writers and readers go home, and
        the roles run until they have nothing more to do. Before that, what was rolled back earlier writes late.
        """
        if self.steps % 3:
            self._go_home([one.txn for one in self.open])
        for _ in range(2):
            self.write(Statement("insert"))
        self.read(self.steps % 2 == 0)
        for place in range(len(PARTITIONS) if self.partitioned else 1):
            self.ask(place, self.steps % 2 == 0)
        for _ in self.world.states():
            self.work()
            if self.turns.waits:
                self.check()
                self.read()
                if self.steps % 3:
                    self._go_home(self.before)
                    self.work()
                else:
                    self.lose_patience()
        self.check()
        if self.hives_threads:
            self.hive_cleans()
            self.check()
        self.clean()
        self.check()
        self.keep_house()
        self.hive_keeps_house()
        while self.late:
            self.write_late(self.steps)
        self.check()
        for number in range(len(self.readers)):
            self.list(number)
        self.check()
        self._go_home([one.txn for one in (*self.open, *self.readers)])
        before, now = None, self._all()
        for _ in range(_ROUNDS):
            self.world.clock.forward(_PAUSE_SECONDS)
            self._let_a_day_go_by()
            if self.hives_threads:
                self.hive_initiates()
                self.hive_cleans()
            self.initiate()
            for _ in self.world.states():
                self.work()
            self.clean()
            self.keep_house()
            self.hive_keeps_house()
            self.check()
            before, now = now, self._all()
            if before == now:
                break
        assert before == now, f"no rest: {self.told}"
        left = [entry for entry in self.world.services.queue.entries() if not self._waits_rightly(entry)]
        assert not left, (left, self.told)

    def _let_a_day_go_by(self):
        """
        A day goes by, by the database's clock, for what a Cleaner, ours or Hive's, wanted to try again later, and since
        the last heartbeat of what was rolled back; our daemon starts anew in it.
        """
        self.world.outlive()
        self.restart()
        queued = self.hive.schema.compaction_queue
        if self.party.hive_4:  # 3.1 has no rows for it
            self.hive.change(queued.update().values(cq_commit_time=queued.c.cq_commit_time - 86_400_000))

    def _waits_rightly(self, entry):
        """
        An aborted write waits on: for a major compaction, while a stream or the result of a minor may hold its rows
        among others; for good, where it never had a directory: Hive may have moved one that is missing, so nothing says
        that it holds no file.
        """
        if entry.kind is not CompactionKind.ABORT_CLEANUP:
            return False
        committed = {one.write_id for one in self.done}
        names = [
            path.name.removeprefix("delete_").split("_") for path in self.location.rglob("*delta_*") if path.is_dir()
        ]
        mixed = any(
            low != high and not committed.issuperset(range(int(low), int(high) + 1)) for _, low, high, *_ in names
        )
        named = entry.entity.partition
        places = (
            [place for place in PARTITIONS if named is None or named in spellings(place)]
            if self.partitioned
            else [None]
        )
        return mixed or (places and not any(self.directory(place).exists() for place in places))

    def _go_home(self, txns):
        for one in [one for one in self.open if one.txn in txns]:
            self.end(one, commit=False)
        for reader in [reader for reader in self.readers if reader.txn in txns]:
            self.read_no_more(self.readers.index(reader))

    def _all(self):
        return self._there(None), self.world.states(), self.world.ended()
