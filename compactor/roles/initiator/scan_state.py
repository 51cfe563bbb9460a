"""
What one Initiator remembers between its cycles: how far it has scanned, what was refused, and what is unchanged.

`ScanState`: how far the metastore was read. A cycle asks the metastore for candidates and may end before all of them
are judged. The rest is `left`: the next cycle asks for these candidates again and judges them first. The start of the
next look (`first`) moves on only together with that record, so no candidate is lost. A cycle that fails changes nothing
here. Each daemon has a scan state of its own: it begins with everything and knows of its own looks alone, however long
other daemons led in between.

`Refusals`: compactions that this Initiator requested and that were refused because of the files. Until the next write
there, another request gets the same answer. Hive's Initiator pauses candidates that failed several times in a row, but
forgets refusals and requests them again in every cycle. This Initiator remembers its requests for as long as its
process lives, each with the newest write at that time. A day later it requests again, since an operator may have
repaired files by hand. A request by hand (`compactor enqueue`) is always accepted.

`Unchanged`: partitions that were listed and left alone. Until a partition changes, another listing would tell nothing
new. It keeps one number (a fingerprint) of each partition, so that a hundred thousand take some ten megabytes.

Pure, except that `Refusals` reads the queue. Source: docs/operations.md, Initiator.
"""

from collections.abc import Hashable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from compactor.durations import DAY_MS
from compactor.metastore.candidates import HandedOut, Left, Look
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.model import Candidate, Entity, QueueState, TableFacts
from compactor.planning.picker import Skip
from compactor.reasons import Reason

REPEAT_MS = DAY_MS
LASTING = frozenset(
    {
        Reason.UNSUPPORTED_FORMAT,
        Reason.UNSUPPORTED_COMPRESSION,
        Reason.SEVERAL_FILES_PER_BUCKET,
        Reason.WRONG_BUCKET,
        Reason.CORRUPT_FILE,
        Reason.ENCRYPTED_FILE,
        Reason.SCHEMA_MISMATCH,
        Reason.DUPLICATE_RANGE,
        Reason.STRANDED_STREAM,
        Reason.LIST_BUCKETING,
        Reason.UNKNOWN_NAME,
        Reason.NESTED_DIRECTORY,
        Reason.READERS_DISAGREE,
        Reason.LIMIT_EXCEEDED,
        Reason.UNSAFE_LOCATION,
        Reason.OUTSIDE_ROOTS,
        Reason.OVERLAPPING_LOCATION,
        Reason.REPLICATION_SOURCE,
        Reason.BAD_PROPERTY,
        Reason.OPEN_SIDE_FILE,
    }
)
"""
Reasons that stay until the next write or alteration of the table. A lock, a full disk or too little to compact passes
by itself.
"""


def _written(candidate: Candidate, table: TableFacts) -> Hashable:
    """
    A table's or partition's newest write, its aborted writes, its columns and the properties of it and its database
    that a compaction goes by. A refusal holds while these are unchanged.
    """
    return (
        candidate.newest_write_id,
        candidate.newest_txn_id,
        candidate.aborted_count,
        table.tbl_id,
        hash(table.columns),
        hash(frozenset((*_own(table.parameters), *_own(table.database_parameters)))),
    )


def _own(parameters: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The properties that a compaction goes by; Hive changes others, such as statistics, all the time."""
    return ((key, value) for key, value in parameters.items() if "compactor" in key.lower() or key.startswith("orc."))


@dataclass(slots=True)
class _Request:
    entry_id: int
    written: Hashable
    at_ms: int
    refusal: Skip | None = None


class Refusals:
    """Remembers what one Initiator requested, and which of these requests were refused."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._asked: dict[Entity, _Request] = {}
        self._now_ms = 0

    def begin(self, now_ms: int) -> None:
        """Begin a cycle: forget requests that are a day old."""
        self._now_ms = now_ms
        self._asked = {entity: asked for entity, asked in self._asked.items() if now_ms - asked.at_ms < REPEAT_MS}

    def asked(self, candidate: Candidate, table: TableFacts, entry_id: int) -> None:
        """Remember that a compaction of this candidate was queued now."""
        self._asked[candidate.entity] = _Request(entry_id, _written(candidate, table), self._now_ms)

    def skip(self, candidate: Candidate, table: TableFacts) -> Skip | None:
        """
        Why the candidate isn't requested again; None if it may be. Reads the history only for a candidate that was
        requested and is unchanged since.

        Raises:
            CompactorError: the metastore can't be asked.
        """
        asked = self._asked.get(candidate.entity)
        if asked is None or asked.written != _written(candidate, table):
            return None
        if asked.refusal is None:
            asked.refusal = self._refusal(asked.entry_id)
            if asked.refusal is None:
                del self._asked[candidate.entity]  # not refused, or for a passing reason
        return asked.refusal

    def _refusal(self, entry_id: int) -> Skip | None:
        entry = self._queue.entry(entry_id)
        if entry is None or entry.state is not QueueState.REFUSED:
            return None
        message = entry.error_message or ""
        code, _, _ = message.partition(": ")  # as `message_of` in `roles.worker.outcome` writes it
        if code not in LASTING:
            return None
        return Skip(Reason(code), f"compaction {entry_id} was refused, and nothing was written since: {message}")


RELIST_MS = DAY_MS
"""A partition is listed again after a day, so that changes which the metastore doesn't show are seen."""


class _Left(NamedTuple):
    listed_ms: int
    reason: Reason


@dataclass(slots=True)
class Unchanged:
    """
    Remembers what one Initiator listed and left alone.

    A fingerprint is Python's 64-bit hash of all that a judgement depends on besides the files themselves. The chance
    that two of a hundred thousand collide is one in billions, and the cost is a listing that comes a day late.
    """

    _left: dict[int, _Left] = field(default_factory=dict)
    _next: dict[int, _Left] = field(default_factory=dict)
    _same: dict[_Left, _Left] = field(default_factory=dict)
    _goes_on: bool = False

    def begin(self, now_ms: int, *, everything: bool) -> None:
        """
        Begin a cycle. Fingerprints that a full scan doesn't meet are forgotten when the scan ends, in this cycle or,
        after `go_on`, in a later one. Fingerprints that an earlier, unfinished scan has met are still known, for a day
        after their listing.

        Args:
            everything: whether a full scan begins.
        """
        if everything or not self._goes_on:
            known = self._left if self._next is self._left else self._left | self._next
            self._left = (
                {fingerprint: left for fingerprint, left in known.items() if now_ms - left.listed_ms <= RELIST_MS}
                if everything
                else known
            )
            self._next = {} if everything else self._left
        self._goes_on = False
        self._same = {}

    def go_on(self) -> None:
        """
        Note that the cycle ended before its scan did: the next cycle continues the scan, unless it begins a full one.
        """
        self._goes_on = True

    def end(self) -> None:
        """End the scan: every candidate was looked at."""
        self._left = self._next

    def reason(self, fingerprint: int, now_ms: int) -> Reason | None:
        """Why the partition was left alone; None if it must be listed."""
        left = self._next.get(fingerprint) or self._left.get(fingerprint)
        if left is None or now_ms - left.listed_ms > RELIST_MS:
            return None
        self._next[fingerprint] = left
        return left.reason

    def leave(self, fingerprint: int, now_ms: int, reason: Reason) -> None:
        """Remember that the partition was listed now and left alone."""
        left = _Left(now_ms, reason)
        self._next[fingerprint] = self._same.setdefault(left, left)


@dataclass(frozen=True, slots=True)
class Plan:
    """
    What one cycle asks for.

    Args:
        start_ms: start of the cycle, by the database clock.
        first: ask only for what was committed from this transaction on; None: everything.
        again: tables and partitions to look at besides.
        left: those that an earlier cycle didn't reach, in the order in which it left them.
        paused: scopes in which nothing is judged now.
        handed_out: allocated write ids as an earlier look found them; None in the first cycle.
        rules: the settings by which this cycle judges.
        anew: the last full scan judged by other settings, or there was none.
    """

    start_ms: int
    first: int | None
    again: AbstractSet[Entity]
    left: Left
    paused: frozenset[str]
    handed_out: HandedOut | None
    rules: object = None
    anew: bool = True

    @property
    def full(self) -> bool:
        return self.first is None

    @property
    def also(self) -> Iterator[Entity]:
        """What to look at besides what was committed: at first what was left."""
        return chain(self.left, self.again)


class ScanState:
    """Remembers how far one Initiator has read the metastore, and which candidates it still has to judge."""

    def __init__(self) -> None:
        self._reached: int | None = None
        self._last_full_ms: int | None = None
        self._again: AbstractSet[Entity] = frozenset()
        self._left = Left()
        self._waited_for: frozenset[str] = frozenset()
        self._handed_out: HandedOut | None = None
        self._rules: object = None

    def plan(self, start_ms: int, paused: frozenset[str], full_scan_seconds: float, rules: object = None) -> Plan:
        """
        Plan the next cycle. It is a full scan at first, when `full_scan_seconds` have passed since the last full scan
        began, when a pause is over for which a candidate was passed over, and when others than the settings `rules`
        judged in the last full scan.
        """
        resumed, last = bool(self._waited_for - paused), self._last_full_ms
        anew = last is None or self._rules != rules
        full = anew or resumed or last is None or start_ms - last >= full_scan_seconds * 1000
        return Plan(
            start_ms, None if full else self._reached, self._again, self._left, paused, self._handed_out, rules, anew
        )

    def came(
        self,
        plan: Plan,
        look: Look,
        *,
        again: AbstractSet[Entity],
        left: Left,
        unnamed: AbstractSet[Entity] = frozenset(),
        passed_over: bool,
    ) -> None:
        """
        Record the end of a cycle.

        Args:
            again: candidates that were judged, or skipped for a reason that passes by itself: look at them in the next
                cycle.
            left: candidates that the cycle didn't reach.
            unnamed: candidates of its look with a write that no commit names, and that no listing settled.
            passed_over: whether a candidate wasn't judged because of a pause.
        """
        self._reached, self._again, self._left = look.reached, again, left
        # Only the difference between two looks shows a write that no commit names, so an unsettled table keeps its old
        # ids.
        known = plan.handed_out or {}
        kept = {table: known[table] for table in unnamed if table in known}
        self._handed_out = (
            {table: ids for table, ids in look.handed_out.items() if table not in unnamed} | kept
            if unnamed
            else look.handed_out
        )
        missed = plan.paused if passed_over else frozenset[str]()
        if plan.full:
            self._last_full_ms, self._waited_for, self._rules = plan.start_ms, missed, plan.rules
        else:
            self._waited_for |= missed
