"""
Watches the daemon at work: reads its log, the states of entries in the queue, and the contents of the directories.

Changes nothing. Decides when all work is done, and when a compaction or the daemon has failed.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from compactor.errors import CompactorError
from compactor.metastore.clean.ready import Cleaning
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.db.database import Database
from compactor.metastore.model import Entity, QueueState
from compactor.roles import steps
from compactor.status.items import Totals, read_totals
from tests.demo.measure import MeasuredPlace, contents

BAD = (QueueState.FAILED, QueueState.REFUSED, QueueState.DID_NOT_INITIATE, QueueState.ABORTED)
WAITING = "—"
QUEUED = "queued"
LINE = 240
AGE = re.compile(r"open for [0-9]+ \w+")
DONE = "cleaned"
STAGES: Mapping[str, str] = {
    steps.WORKER_CLAIMED: "Worker: claimed",
    steps.WORKER_TXN_OPENED: "Worker: transaction",
    steps.WORKER_LOCKED: "Worker: lock",
    steps.WORKER_LISTED: "Worker: listed",
    steps.WORKER_PLANNED: "Worker: planned",
    steps.WORKER_STATE_STORED: "Spark: running",
    steps.WORKER_STAGED: "Spark: running",
    steps.WORKER_RAN: "verifying",
    steps.WORKER_VERIFIED: "publishing",
    steps.WORKER_PUBLISHED: "committing",
    steps.WORKER_COMMITTED: "Cleaner: waiting",
    steps.CLEANER_SELECTED: "Cleaner: selected",
    steps.CLEANER_LISTED: "Cleaner: listed",
    steps.CLEANER_TRASHED: "Cleaner: moved to trash",
    steps.CLEANER_COMPARED: "Cleaner: compared",
    steps.CLEANER_DELETED: "Cleaner: deleted",
    steps.CLEANER_MARKED: DONE,
}


@dataclass(slots=True)
class Track:
    """
    The progress of one table or partition.

    Args:
        before: totals of its directory at the start.
        now: totals of its directory at the latest look.
        read: totals of the items that a query opens, at the latest look.
        leftovers: directories that no query reads, at the latest look.
        passed: the stages reached, each with the second when it was reached.
    """

    place: MeasuredPlace
    before: Totals
    now: Totals
    read: Totals
    leftovers: int
    stage: str = WAITING
    passed: list[tuple[str, float]] = field(default_factory=list)
    succeeded: bool = False


@dataclass(slots=True)
class Watch:
    """
    All that the demo has observed so far.

    Args:
        due: the tables and partitions that the daemon is expected to compact.
    """

    database: Database
    places: Sequence[MeasuredPlace]
    due: frozenset[Entity]
    began: float = field(default_factory=time.monotonic)
    tracks: dict[Entity, Track] = field(default_factory=dict)
    said: list[tuple[float, str, str]] = field(default_factory=list)
    blockers: list[str] = field(default_factory=list)
    trouble: str | None = None
    queued: int = 0

    def __post_init__(self) -> None:
        for place in self.places:
            items = contents(self.database, place)
            totals = Totals.of(items)
            self.tracks[place.entity] = Track(place, totals, totals, read_totals(items), 0)
        self._cleaning = Cleaning(self.database)

    _cleaning: Cleaning = field(init=False, repr=False)
    _began_at: float = field(default_factory=time.time, repr=False)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    @property
    def done(self) -> bool:
        """Whether the queue is empty, all that was due is compacted, and no directory is left that no query reads."""
        return (
            not self.queued
            and all(self.tracks[entity].succeeded for entity in self.due)
            and not any(track.leftovers for track in self.tracks.values())
        )

    def take(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Update stages and trouble from log lines, and keep the lines for people: second, speaker, text."""
        for line in lines:
            event, level, at = str(line.get("event", "")), line.get("level"), self._second(line)
            if event == "step.entered":
                self._step(line, at)
            elif "role" in line and level != "debug" and line["role"] != "watch":
                self._say(at, str(line["role"]), str(line.get("sentence", event)))
            elif event == "attempt.ended" and line.get("error_type") == "UnreachableError":
                self.trouble = str(line.get("why"))  # the daemon itself would wait and retry
            elif level in ("warning", "error", "critical") and str(line.get("logger", "")).startswith("compactor"):
                self._say(
                    at,
                    str(level),
                    " ".join(
                        [event, *(str(line[key]) for key in ("why", "error", "detail", "remedy") if line.get(key))]
                    ),
                )

    def _say(self, at: float, who: str, what: str) -> None:
        """Keep a text, shortened to a line, unless it differs from the speaker's last one in an age alone."""
        what = what if len(what) <= LINE else what[:LINE] + " …"
        last = next((said for _, speaker, said in reversed(self.said) if speaker == who), "")
        if AGE.sub("", what) != AGE.sub("", last):
            self.said.append((at, who, what))

    def _second(self, line: Mapping[str, Any]) -> float:
        try:
            return max(0.0, datetime.fromisoformat(str(line.get("timestamp"))).timestamp() - self._began_at)
        except ValueError:
            return self.elapsed

    def look(self) -> None:
        """Update the tracks from the metastore and the directories."""
        queue = Queue(self.database)
        entries, history = queue.entries(), queue.history()
        self.queued = len(entries)
        for entry in entries:
            track = self.tracks.get(entry.entity)
            if track is not None and entry.state is QueueState.INITIATED and track.stage != QUEUED:
                self._reach(track, QUEUED, self.elapsed)
        for ended in history:
            track = self.tracks.get(ended.entity)
            if track is not None and ended.state is QueueState.SUCCEEDED:
                track.succeeded = True
            if ended.state in BAD:
                self.trouble = f"compaction {ended.id} of {ended.entity} {ended.state.value}: {(ended.error_message or 'no reason given')[:LINE]}"
        self.blockers = sorted(
            {blocker.sentence for ready in self._cleaning.ready_for_cleaning() for blocker in ready.blockers}
        )
        for track in self.tracks.values():
            self._look_at(track)

    def _look_at(self, track: Track) -> None:
        try:
            items = contents(self.database, track.place)
        except (CompactorError, OSError):
            return  # the daemon is changing the directory; the next look will succeed
        track.now, track.read = Totals.of(items), read_totals(items)
        track.leftovers = track.now.directories - track.read.directories

    def _step(self, line: Mapping[str, Any], at: float) -> None:
        stage = STAGES.get(str(line.get("step")))
        track = (
            self.tracks.get(Entity(str(line.get("db")), str(line.get("table")), line.get("partition")))
            if line.get("db")
            else None
        )
        if stage is None or track is None or track.stage == stage:
            return
        self._reach(track, stage, at)
        self._say(at, str(track.place.entity), stage)

    @staticmethod
    def _reach(track: Track, stage: str, at: float) -> None:
        track.stage = stage
        track.passed.append((stage, at))


def follow(
    watch: Watch,
    news: Callable[[], Sequence[Mapping[str, Any]]],
    exit_code: Callable[[], int | None],
    seconds: float,
    show: Callable[[], None],
) -> None:
    """
    Watch until all work is done.

    Args:
        news: returns the new log lines.
        exit_code: returns the daemon's exit code, None while it runs.
        seconds: how long the work may take.
        show: called after each look.

    Raises:
        CompactorError: a compaction failed, the daemon ended, or the time is up; the message says which.
    """
    pause = 0.25
    while True:
        ended = exit_code()
        watch.take(news())
        if ended is not None:
            last = next(
                (what for _, who, what in reversed(watch.said) if who in ("error", "warning", "critical")),
                "see its log",
            )
            raise CompactorError(f"the daemon ended with exit code {ended}: {last}")
        watch.look()
        show()
        if watch.trouble is not None:
            raise CompactorError(watch.trouble)
        if watch.done:
            return
        if watch.elapsed > seconds:
            left = ", ".join(
                f"{entity} ({track.stage})"
                for entity, track in watch.tracks.items()
                if not track.succeeded or track.leftovers
            )
            held = f"; cleaning waits for {watch.blockers[0]}" if watch.blockers else ""
            raise CompactorError(f"not finished after {seconds:.0f} s: {left or 'the queue is not empty'}{held}")
        time.sleep(pause)
