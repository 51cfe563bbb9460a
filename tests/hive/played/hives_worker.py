"""
Hive's own worker, a step at a time: its claim, its notes and its commit are made by Hive's TxnHandler, its results by
Hive's record writer (what writes them in a real one is a job of Hive's, which has no place in the lane).
"""

import shutil

from compactor.metastore.txn.snapshots import COMPACTION
from tests.hive.lane.lane import Lane
from tests.model.protocol.values import Directory, bit

_WORKER = "hs2-33"
_LONG_AGO_MS = 1_000
_SILENT_MS = 600_000


class HivesWorker:
    """
    One attempt at the only entry that waits: Hive's worker claims it, opens its transaction and notes what it covers.

    Args:
        covered: its highest write id.
        partition: as the catalog has it; None: the table has none.
    """

    def __init__(self, lane: Lane, covered: int, partition: str | None) -> None:
        self._lane, self._partition = lane, partition
        self._info = lane.hive.claim(_WORKER)
        self.claimed = self._info is not None
        if not self.claimed:
            return
        self.txn = lane.hive.begin(age=0, kind=COMPACTION)
        self._info["highestWriteId"] = covered
        lane.party.call("updateCompactorState", self._info, self.txn)

    def publish(self, results: tuple[Directory, ...]) -> None:
        """Its job moves the results, which have the rows and events that the model's have, to their place."""
        for result in results:
            self._write(result)

    def commit(self) -> None:
        """
        It marks the entry, whoever has the claim by now, and commits.

        Raises:
            HiveError: its transaction was aborted.
        """
        self._lane.party.call("markCompacted", self._info)
        self._lane.hive.commit(self.txn)

    def lose_claim(self) -> None:
        """Its claim is older than any time-out."""
        queued = self._lane.hive.schema.compaction_queue
        own = queued.update().where(queued.c.cq_id == self._info["id"])
        self._lane.hive.change(own.values(cq_start=_LONG_AGO_MS))

    def time_out(self) -> None:
        """Hive's reaper ends its transaction."""
        self._fall_silent()
        self._lane.party.call("performTimeOuts")
        self._lane.hive.fall_silent(self.txn, _SILENT_MS)

    def end(self) -> None:
        """No task of it lives any more, however long they may."""
        self._fall_silent()

    def _fall_silent(self):
        txns = self._lane.hive.schema.txns
        own = txns.update().where(txns.c.txn_id == self.txn)
        self._lane.hive.change(own.values(txn_last_heartbeat=_LONG_AGO_MS))

    def _write(self, result):
        lane, place = self._lane, self._partition
        written = [one for one in lane.done if result.rows & bit(one.write_id)]
        inserts = sorted((key, value) for one in written for where, key, value in one.inserts if where == place)
        events = [
            [one.write_id, [*value, *key]]
            for one in lane.done
            if any(write_id == one.write_id for write_id, _ in result.events)
            for where, key, value in sorted(one.deletes)
            if where == place
        ]
        scratch = lane.world.folder / f"job-{self.txn}"
        about = {"directory": str(scratch), "base": result.kind == "base", "statement": -1, "bucket": 0}
        about |= {"min": result.low, "max": result.high, "deletes": events}
        about["inserts"] = [[key[0], list(value)] for key, value in inserts]
        lane.party.call("Lane.write", about)
        for made in scratch.glob("*delta_*" if result.kind != "base" else "base_*"):
            shutil.move(made, lane.directory(place) / f"{made.name}_v{self.txn:07d}")
        shutil.rmtree(scratch)
