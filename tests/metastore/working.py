"""The queue on a database of both TxnHandlers: entries, and the Workers, ours and Hive's, that take them."""

from compactor.acid.compaction import CompactionKind
from compactor.errors import RefusedError
from compactor.metastore.model import Entity, QueueState
from compactor.metastore.txn.transactions import TxnState
from tests.metastore.model import HIVES, OURS, Attempt
from tests.metastore.writing import Writing


class Working(Writing):
    """Entries that wait, are being compacted, or are ready for cleaning."""

    def asked(self):
        """An entry that waits for a worker, perhaps a new one; None: something is being done everywhere."""
        waiting = self.queue.entries(QueueState.INITIATED)
        if waiting:
            return self.choose(waiting)
        places = [(place, partition) for place in (self.t, self.u) for partition in place.partitions]
        busy = {one.number for one in self.attempts if not one.over}
        for entry in self.queue.working():
            if entry.id not in busy:  # as recovery does
                self.queue.give_back(entry)
                return self.queue.entry(entry.id)
        for place, partition in places[self.drawn % len(places) :] + places:
            answer = self.queue.enqueue(place.entity(partition), CompactionKind.MAJOR)
            if answer.accepted:
                self.known.add(answer.id)
                return self.queue.entry(answer.id)
        return None

    def claimed(self, *, by, fresh=False):
        """An entry with a worker that has stored nothing yet, perhaps a new one; None: there is no other."""
        found = (
            []
            if fresh
            else [one for one in self._at_work(by) if not one.stored and one.txn_id is None and one.lock_id is None]
        )
        if found:
            return self.choose(found)
        if self.asked() is None:
            return None
        return self.took(self.hive.claim(HIVES) if by == HIVES else self.queue.claim(OURS, "1"), by=by)

    def _at_work(self, by):
        return [one for one in self.attempts if (one.info is not None) == (by == HIVES) and not one.over]

    def took(self, answer, *, by):
        """A claim's answer."""
        if answer is None:
            return None
        if by == HIVES:
            place = self.place_of(Entity(answer["dbname"], answer["tableName"]))
            attempt = Attempt(None, place, answer["partName"], answer)
        else:
            attempt = Attempt(answer, self.place_of(answer.entity.whole_table()), answer.entity.partition)
        self.attempts.append(attempt)
        self.taken.append(attempt.number)
        return attempt

    def _give_work(self, place):
        """Something to compact: its writers come to their ends, or a new one does."""
        if self.transactions.compactor_write_ids(place.name, self.transactions.valid_txns()).high_watermark:
            return
        writers = [
            number for number in self.open(writing=True) if place in {write.place for write in self.txns[number].writes}
        ]
        for number in writers or [self.write(place, place.partitions[0], "static")]:
            if number is not None:
                self.commit(number)

    def prepared(self, *, by, fresh=False):
        """
        A claimed entry that has its transaction (4.x) and lock, and what it is going to cover; None: it can't be had.
        """
        attempt = self.claimed(by=by, fresh=fresh)
        if attempt is None or attempt.place not in (self.t, self.u):
            return None
        self._give_work(attempt.place)
        if by == HIVES:
            if self.hive_4:
                attempt.txn_id = self.begin(kind=3)
            txns = self.transactions.valid_txns(attempt.txn_id)
        else:
            if self.hive_4:
                attempt.txn_id = self.transactions.open_compaction("ann", "edge", agent=OURS)
                self.opened([attempt.txn_id], compaction=True)
            try:
                attempt.lock_id = self.locks.acquire_shared(
                    attempt.place.entity(attempt.partition), attempt.txn_id or 0, "ann", "edge"
                )
            except RefusedError:
                self.leave(attempt)
                return None
            txns = self.transactions.compaction_txns(attempt.txn_id) if self.hive_4 else self.transactions.valid_txns()
        highest = self.transactions.compactor_write_ids(attempt.place.name, txns).high_watermark
        if not highest:
            self.leave(attempt)
            return None
        return attempt, highest

    def holds(self, attempt):
        """Whether the entry is still our worker's."""
        now = self.queue.entry(attempt.number)
        return now is not None and (now.state, now.worker_id) == (QueueState.WORKING, OURS)

    def leave(self, attempt):
        """The worker ends it: there is nothing to do, or it is locked."""
        self.attempts.remove(attempt)
        if attempt.lock_id is not None:
            self.locks.release(attempt.lock_id)
        if attempt.txn_id is not None:
            self.transactions.end_empty(attempt.txn_id)
            self.txns[attempt.txn_id].state = self.transactions.state(attempt.txn_id)
        now = self.queue.entry(attempt.number)
        if now is not None and now.state is QueueState.WORKING:
            self.queue.give_back(now)

    def store(self, attempt, highest):
        """Its worker says what it covers, and writes."""
        if attempt.info is None:
            self.queue.set_compactor_state(attempt.entry, attempt.txn_id, highest, "ann")
        else:
            self.hive.party.call(*self.hives_state(attempt, highest))
        attempt.stored = attempt.files = True

    def hives_state(self, attempt, highest):
        """How Hive's worker says it."""
        attempt.info |= {"highestWriteId": highest}
        return (
            ("updateCompactorState", attempt.info, attempt.txn_id)
            if self.hive_4
            else ("setCompactionHighestWriteId", attempt.info, highest)
        )

    def working(self, *, by, fresh=False):
        """An attempt that has written, perhaps a new one."""
        found = [one for one in self._at_work(by) if one.stored and not fresh]
        if found:
            return self.choose(found)
        prepared = self.prepared(by=by, fresh=fresh)
        if prepared is None:
            return None
        try:
            self.store(*prepared)
        except Exception:
            self.attempts.remove(prepared[0])
            return None
        return prepared[0]

    def ready(self):
        """What may be cleaned now, or else what waits for it, perhaps a new one; judged by our Cleaner."""
        found = self._ended_well()
        if not found:
            attempt = self.working(by=OURS, fresh=True)
            if attempt is None:
                return None
            try:
                self.queue.mark_compacted_and_commit(attempt.entry, OURS, attempt.txn_id)
            except Exception:
                return None
            self.ended(attempt)
            self._see()
            found = self._ended_well()
        return self.choose([item for item in found if not item.blockers] or found) if found else None

    def _ended_well(self):
        """What is ready, but for what Hive's worker has marked and not committed yet: nobody cleans that."""
        opened = self.open_txns()
        return [
            item for item in self.cleaning.ready_for_cleaning() if not item.failed and item.entry.txn_id not in opened
        ]

    def ended(self, attempt):
        """It was committed."""
        self.attempts.remove(attempt)
        if attempt.lock_id is not None and attempt.txn_id is None:
            self.locks.release(attempt.lock_id)
        if attempt.txn_id is not None:
            self.txns[attempt.txn_id].state = TxnState.COMMITTED
            self.committed.add(attempt.txn_id)

    def _see(self):
        self.before: tuple[set[int], set[int]] = set(self.open_txns()), self.plain_locks()
        self._note_ready()

    def _note_ready(self):
        """Who was there when an entry became ready to be cleaned."""
        opened, locks = set(self.open_txns()) & self.before[0], self.plain_locks() & self.before[1]
        for entry in self.queue.entries(QueueState.READY_FOR_CLEANING):
            if entry.id not in self.readers and (not self.hive_4 or entry.next_txn_id is not None):
                self.readers[entry.id] = opened, locks
