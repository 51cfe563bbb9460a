"""
Which compactions the Initiator asked for and got refused for what lies in the files: until something is written there, asking again gets the same answer.

Hive holds back what failed several times in a row, and forgets refusals: its Initiator asks again in every cycle. Ours remembers, for as long as it lives, what it asked for and
what was written by then; a day later it asks again, for files that somebody put right by hand. Who asks by hand is always heard.
Source: docs/operations.md.
"""

from dataclasses import dataclass
from typing import NamedTuple

from compactor.metastore.model import Candidate, Entity, QueueState, TableFacts
from compactor.metastore.queue import Queue
from compactor.planning.picker import Skip
from compactor.reasons import Reason

REPEAT_MS = 24 * 3_600_000
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
        Reason.LIMIT_EXCEEDED,
        Reason.UNSAFE_LOCATION,
        Reason.OUTSIDE_ROOTS,
        Reason.OVERLAPPING_LOCATION,
        Reason.REPLICATION_SOURCE,
    }
)
"""Reasons that stay while nothing is written and the table isn't altered. A lock, a full disk or too little to do passes by itself."""


class _Written(NamedTuple):
    """What a refusal goes by: the newest write, the aborted ones, and the table's columns."""

    write_id: int
    txn_id: int
    aborted: int
    tbl_id: int
    columns: int

    @classmethod
    def of(cls, candidate: Candidate, table: TableFacts) -> "_Written":
        return cls(candidate.newest_write_id, candidate.newest_txn_id, candidate.aborted_count, table.tbl_id, hash(table.columns))


@dataclass(slots=True)
class _Asked:
    entry_id: int
    written: _Written
    at_ms: int
    refusal: Skip | None = None


class Refusals:
    """The memory of one Initiator."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._asked: dict[Entity, _Asked] = {}
        self._now_ms = 0

    def begin(self, now_ms: int) -> None:
        """A cycle begins; what was asked for a day ago is forgotten."""
        self._now_ms = now_ms
        self._asked = {entity: asked for entity, asked in self._asked.items() if now_ms - asked.at_ms < REPEAT_MS}

    def asked(self, candidate: Candidate, table: TableFacts, entry_id: int) -> None:
        """This was queued now."""
        self._asked[candidate.entity] = _Asked(entry_id, _Written.of(candidate, table), self._now_ms)

    def skip(self, candidate: Candidate, table: TableFacts) -> Skip | None:
        """
        Why it isn't asked for again; None: it may be. Looks at the history only for what was asked for and has changed in nothing since.

        Raises:
            CompactorError: the metastore can't be asked.
        """
        asked = self._asked.get(candidate.entity)
        if asked is None or asked.written != _Written.of(candidate, table):
            return None
        if asked.refusal is None:
            asked.refusal = self._refusal(asked.entry_id)
            if asked.refusal is None:
                del self._asked[candidate.entity]  # it ended otherwise
        return asked.refusal

    def _refusal(self, entry_id: int) -> Skip | None:
        entry = self._queue.entry(entry_id)
        if entry is None or entry.state is not QueueState.REFUSED:
            return None
        message = entry.error_message or ""
        reason = next((reason for reason in LASTING if message.startswith(f"{reason.value}: ")), None)
        if reason is None:
            return None
        return Skip(reason, f"compaction {entry_id} was refused, and nothing was written since: {message}")
