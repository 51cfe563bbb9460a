"""
Plays a history of the protocol's model (`tests.model.protocol`) on the real code: Hive's TxnHandler, writers and reader
in the fast lane, and our roles, a step at a time.

Each action of the model has a method here. Write ids are the model's; transactions and entries have other numbers,
which the player remembers. After each action every open reader, and one that begins now, must see the rows that are
due, and the rows that are committed must be those of the model.
"""

import contextlib
import re

from sqlalchemy import func, select, update

from compactor.acid.row_id import encode
from compactor.metastore.txn.locks import AGENT
from compactor.roles import steps
from compactor.roles.cycle import Progress
from compactor.roles.housekeeper.recovery import Recovery
from tests.hive.lane.lane import Lane
from tests.hive.lane.model import Statement, Write
from tests.hive.lane.table import NAME, PARTITIONS
from tests.hive.party import HiveError
from tests.hive.played.hives_worker import HivesWorker
from tests.hive.played.worker import RENAME, CannotPlayError, SteppedWorker
from tests.model.protocol.reading import lists_now, resolve
from tests.model.protocol.values import numbers

_STOPS = (steps.WORKER_VERIFIED, steps.WORKER_PUBLISHED)
_NAME = re.compile(r"(?:base_(\d+)|(delete_)?delta_(\d+)_(\d+))")
_KINDS = {"major": "a", "minor": "i"}
_DAY_MS = 86_400_000
_NEVER = 1_000_000
"""A threshold that no history reaches."""


class Player:
    """
    One history.

    Args:
        lane: of a table without history; with partitions if the scene has several places.
    """

    def __init__(self, scene, lane: Lane) -> None:
        self.scene, self.lane = scene, lane
        self.writes: dict[int, Write] = {}
        self.readers: dict[int, object] = {}
        self.entries: dict[int, int] = {}
        self.workers: dict[int, SteppedWorker] = {}
        self._every_worker: list[SteppedWorker] = []
        self.opened: dict[int, tuple[Statement, int, dict]] = {}
        self.hives: dict[int, HivesWorker] = {}
        self._of_entry: dict[int, HivesWorker] = {}
        self._after = None
        self._stops = (*_STOPS, RENAME) if scene.steps else _STOPS
        if scene.opens:
            self._stops = (*self._stops, steps.WORKER_LOCKED)
        self._numbers = iter(range(1, _NEVER))
        self._sweep(False)
        for _ in range(scene.base):
            lane.write(Statement("insert"))
        if scene.base:
            lane.ask(0, True)
            lane.work()
            lane.clean()

    def play(self, action, after):
        """
        One action; `after` is the model's state then.

        Raises:
            CannotPlayError: the history ends here.
        """
        self._after = after
        getattr(self, f"act_{action.name.replace('-', '_')}")(*action.about)
        self.lane.check_readers()
        lists = lists_now(after)
        for place, rows in enumerate(after.rows):
            committed = {write_id for (write_id, _, _), _ in self.lane.visible(self._partition(place))}
            assert committed == set(numbers(rows)), (action, committed, numbers(rows))
            there = self._directories(place)
            self._require_bases(place, there)
            if not self.scene.switches:
                read = {(one.kind, one.low, one.high) for one in resolve(after.directories, place, lists).read}
                assert read <= there, f"{action}: the model reads {sorted(read)}, and there are {sorted(there)}"

    def _require_bases(self, place, there):
        """
        What an INSERT OVERWRITE committed is in a base: Hive 3.1 can't list where only one is left that was rolled
        back, so no reader would miss the others.
        """
        partition = self._partition(place)
        undone = {write_id for where, write_id in self.lane.overwritten if where == partition}
        done = {one.write_id for one in self.lane.done if one.overwrites and partition in one.partitions}
        bases = {high for kind, _, high in there if kind == "base"} - (undone - done)
        assert not done or max(bases, default=0) >= max(done), f"of {sorted(done)} only {sorted(there)} is left"

    def _directories(self, place):
        """Kind and range of each, as the model has them."""
        names = [path.name for path in self.lane.directory(self._partition(place)).glob("*[0-9]*")]
        found = [parsed.groups() for name in names if (parsed := _NAME.match(name))]
        return {
            ("base", 0, int(base)) if base else ("delete" if delete else "delta", int(low), int(high))
            for base, delete, low, high in found
        }

    def close(self):
        """Workers that stand still are gone."""
        for worker in self._every_worker:
            worker.stop()
        for worker in self._every_worker:
            worker.await_end()

    def _partition(self, place):
        return PARTITIONS[place] if self.lane.partitioned else None

    # Writers

    def act_begin(self, kind, txn, places):
        if kind == "batch":
            self.act_batch(txn, places[0])
            return
        one = self.lane.begin(Statement(kind, places, 3 if kind == "delete" else 1, 0, len(places) > 1))
        if one is None:
            raise CannotPlayError(f"{kind} waits for a lock")
        self.writes[txn] = one

    def act_open(self, kind, txn, places):
        """It takes its write id later."""
        rows = {place: self.lane.visible(place) for place in self.lane.catalogued}
        statement = Statement(kind, places, 3 if kind == "delete" else 1, 0, len(places) > 1)
        self.opened[txn] = (statement, self.lane.hive.begin(age=0), rows)

    def act_allocate(self, txn):
        statement, number, rows = self.opened.pop(txn)
        one = self.lane.begin(statement, number, rows)
        if one is None:
            raise CannotPlayError(f"{statement.kind} waits for a lock")
        self.writes[txn] = one

    def act_batch(self, first, place):
        lane, partition = self.lane, self._partition(place)
        batch = []
        for number in (first, first + 1):
            txn = lane.hive.begin(age=0)
            one = Write(txn, lane.hive.allocate(txn, NAME), False, partitions=(partition,), phase=2)
            if not lane.hive.ask(txn, lane.hive.component(NAME, partition, "r", "i"))[1]:
                raise CannotPlayError("a batch waits for a lock")
            one.inserts.append((partition, (one.write_id, encode(0, 0), 0), (next(lane.numbers), f"stream-{txn}")))
            lane.open.append(one)
            batch.append(one)
            self.writes[number] = one
        lane.party.call(
            "Lane.write",
            {
                "directory": str(lane.directory(partition)),
                "base": False,
                "min": batch[0].write_id,
                "max": batch[-1].write_id,
                "statement": -1,
                "bucket": 0,
                "inserts": [[one.write_id, list(value)] for one in batch for _, _, value in one.inserts],
                "deletes": [],
            },
        )
        if lane.partitioned and partition not in lane.catalogued:
            lane.hive.add_partitions(lane.tbl_id, [partition])
            lane.catalogued.append(partition)

    def act_write(self, txn):
        self.lane.advance(self.writes[txn])
        self.lane.advance(self.writes[txn])

    def act_write_late(self, txn):
        self.lane.advance(self.writes[txn])

    def act_commit(self, txn):
        self.lane.end(self.writes[txn], commit=True)

    def act_commit_empty(self, txn):
        one = self.writes[txn]
        one.inserts.clear()
        one.deletes.clear()
        one.overwrites = False  # a statement without a file made no base
        self.lane.end(one, commit=True)

    def act_abort(self, txn):
        if txn in self.opened:
            self.lane.hive.abort(self.opened.pop(txn)[1], silent=0)
            return
        self.lane.end(self.writes[txn], commit=False)

    def act_tasks_end(self, txn):
        """No task outlives the last heartbeat for so long."""
        txns = self.lane.hive.schema.txns
        self.lane.hive.change(
            update(txns).where(txns.c.txn_id == self.writes[txn].txn).values(txn_last_heartbeat=1_000)
        )

    def act_purge(self, txn):
        self.lane.hive.commit(self.lane.hive.begin())
        self.lane.world.settle_time()
        self.lane.hive.keep_house()

    # Readers

    def act_read(self, txn):
        before = len(self.lane.readers)
        self.lane.read(late=self.scene.late_readers)
        if len(self.lane.readers) == before:
            raise CannotPlayError("a reader waits for a lock, or can't list")
        self.readers[txn] = self.lane.readers[-1]

    def act_list(self, txn):
        if (reader := self.readers[txn]) in self.lane.readers:
            self.lane.list(self.lane.readers.index(reader))

    def act_read_no_more(self, txn):
        if (reader := self.readers.pop(txn)) in self.lane.readers:
            self.lane.read_no_more(self.lane.readers.index(reader))

    # Compactions

    def act_ask(self, kind, entry, place):
        partition = self._partition(place)
        name = f"{NAME}/{partition}" if partition else NAME
        self.entries[entry] = self.lane.hive.queued(name, state="i", type=_KINDS[kind])

    def act_claim(self, entry):
        """It has its transaction and its lock, and takes its lists later."""
        worker = self._started(entry)
        if self._state(entry) != "w":
            raise CannotPlayError(f"not claimed: {worker.sentence}")
        self.workers[entry] = worker

    def act_plan(self, entry, results):
        worker = self._started(entry)
        if self._state(entry) != "w":
            raise CannotPlayError(f"not planned: {worker.sentence}")
        self.workers[entry] = worker

    def _started(self, entry):
        """A worker that has claimed this entry, and stands before its last look, or before it takes its lists."""
        if (worker := self.workers.pop(entry, None)) is not None:
            worker.go_on()
            return worker
        with self._waiting_alone(entry):
            worker = SteppedWorker(self.lane.world, next(self._numbers), self._stops)
            self._every_worker.append(worker)
            worker.start()
        return worker

    @contextlib.contextmanager
    def _waiting_alone(self, entry):
        """No other entry waits for a worker."""
        hive, queued = self.lane.hive, self.lane.hive.schema.compaction_queue
        others = [number for one, number in self.entries.items() if one != entry and self._state(one) == "i"]
        hive.change(update(queued).where(queued.c.cq_id.in_(others)).values(cq_state="x"))
        self.lane.world.settle_time()
        try:
            yield
        finally:
            hive.change(update(queued).where(queued.c.cq_id.in_(others)).values(cq_state="i"))

    def act_refuse(self, entry):
        worker = self._started(entry)
        if self._state(entry) is not None:
            raise CannotPlayError(f"the model has nothing to compact: {worker.sentence}")

    def act_leave_to_cleaner(self, entry):
        worker = self._started(entry)
        if self._state(entry) != "r":
            raise CannotPlayError(f"not left to the Cleaner: {worker.sentence}")

    def act_look(self, entry):
        worker = self.workers[entry]
        if RENAME in self._stops and worker.go_on() != RENAME:
            raise CannotPlayError(f"the last look refuses: {worker.sentence}")

    def act_publish(self, entry, results):
        self._outlive(results)
        if self.workers[entry].go_on() != steps.WORKER_PUBLISHED:
            worker = self.workers.pop(entry)
            raise CannotPlayError(f"not published: {worker.sentence}")

    def _outlive(self, results):
        """Late readers of Hive 3.1 can't read what a first base leaves; they were waited for."""
        for reader in self.lane.readers:
            if reader.late:
                reader.outlived |= set(reader.expected)

    def act_commit_compaction(self, entry):
        worker = self.workers.pop(entry)
        worker.go_on()
        if self._state(entry) not in {"r", None}:
            raise CannotPlayError(f"not committed: {worker.sentence}")

    def act_publish_first(self, entry, results):
        """Where a worker stands before its renames; on Hive 3.1 no compaction has two."""
        worker = self.workers[entry]
        if worker.go_on() != RENAME:
            raise CannotPlayError(f"not published: {worker.sentence}")

    def act_give_way(self, entry):
        worker = self.workers.pop(entry)
        worker.go_on()
        if self._state(entry) == "r":
            raise CannotPlayError(f"committed, where the model's gives way: {worker.sentence}")

    def act_refuse_last(self, entry):
        worker = self.workers.pop(entry)
        if worker.go_on() is not None:
            self.workers[entry] = worker
            raise CannotPlayError("published, where the model's last look refuses")

    def act_recover(self, entry):
        """The worker is gone, and another daemon clears up after it, and gives its claim back."""
        self.workers.pop(entry).kill()
        lane, number = self.lane, self.entries[entry]
        services = lane.world.new_services()
        found = next(one for one in services.queue.working() if one.id == number)
        assert Recovery(services, Progress()).clear(found)
        services.queue.give_back(found)
        locks = lane.hive.schema.hive_locks
        lane.hive.change(locks.delete().where(locks.c.hl_agent_info == AGENT, func.coalesce(locks.c.hl_txnid, 0) == 0))

    # Hive's worker

    def act_hive_plan(self, entry, results):
        covered = next(one.covered for one in self._after.entries if one.id == entry)
        with self._waiting_alone(entry):
            worker = HivesWorker(self.lane, covered, self._partition(results[0].place))
        if not worker.claimed:
            raise CannotPlayError("Hive's worker finds nothing to claim")
        self.hives[results[0].txn] = self._of_entry[entry] = worker

    def act_hive_publish(self, entry, results):
        self._of_entry[entry].publish(results)

    def act_hive_commit(self, entry):
        self._of_entry.pop(entry).commit()

    def act_hive_revoke(self, entry):
        """Hive takes its claim back, and ends no transaction."""
        self._of_entry.pop(entry).lose_claim()
        self.lane.party.call("revokeTimedoutWorkers", _DAY_MS)
        assert self._state(entry) == "i"

    def act_revoke(self, entry):
        """Our recovery takes its claim back, with its transaction."""
        self._of_entry.pop(entry).lose_claim()
        Recovery(self.lane.world.new_services(), Progress()).give_back_timed_out()
        assert self._state(entry) == "i"

    def act_publish_late(self, txn, results):
        self.hives[txn].publish(results)

    def act_commit_late(self, txn):
        """Where one of ours has the claim by now, it goes on until it sees that it is gone."""
        try:
            self.hives[txn].commit()
        except HiveError as error:
            if self.scene.switches and error.kind == "TxnAbortedException":
                raise CannotPlayError(f"Hive refuses the commit: {error}") from error
            raise
        for entry in [entry for entry in self.workers if all(entry != one.id for one in self._after.entries)]:
            self._go_to_the_end(entry)

    def _go_to_the_end(self, entry):
        worker = self.workers.pop(entry)
        while worker.go_on() is not None:
            pass

    def act_reap_compaction(self, txn):
        self.hives[txn].time_out()

    def act_tasks_end_compaction(self, txn):
        self.hives[txn].end()

    # The Cleaner

    def act_observe(self, entry):
        self.lane.world.settle_time()
        self.lane.world.services.cleaning.ready_for_cleaning()

    def act_clean(self, entry, gone):
        self.lane.clean()

    def act_hive_clean(self, entry, gone):
        for _ in range(2):  # it first notes which locks there are
            self.lane.hive_cleans()

    def act_sweep_aborted(self, gone):
        self._sweep(True)
        self.lane.clean()
        self._sweep(False)

    def _sweep(self, due):
        count, hours = (0, 0) if due else (_NEVER, 100_000)
        self.lane.world.configure(
            initiator={"thresholds": {"delta_count": 3, "aborted_count": count, "aborted_age_hours": hours}},
            cleaner={"listing_wait_seconds": 0},
        )

    def _state(self, entry):
        queued = self.lane.hive.schema.compaction_queue.c
        number = self.entries[entry]
        query = select(queued.cq_state).where(queued.cq_id == number)
        return self.lane.world.database.read(lambda connection: connection.scalar(query))
