"""
Entries of queue and history, what they achieved, members and pauses, as records for programs.

The keys are documented (docs/cli.md), and stable. Times are ISO 8601 in UTC. Entries without a row of the work on them
(Hive's own compactions, those of earlier releases) achieved nothing that is known; see
`metastore.compaction_queue.work`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Final

from compactor.control.records import Drain, Pause
from compactor.coordination import Role, SeenMember
from compactor.metastore.compaction_queue.urgency import urgency_of
from compactor.metastore.compaction_queue.work import StoredWork, Work
from compactor.metastore.model import KINDS, ForeignEntry, HistoryEntry, QueueEntry, QueueState
from compactor.reasons import Reason
from compactor.settings import Settings
from compactor.spark.application.tracking import is_application, tracking_url
from compactor.status.daemons import Daemons
from compactor.words import instant

Record = Mapping[str, object]
_FIELDS: Final = tuple(
    field.name for field in fields(Work) if field.name not in {"worker", "share", "undone_by", "undone_ms"}
)


def entered_ms(entry: QueueEntry | ForeignEntry) -> int | None:
    """When an entry entered its state; None where Hive doesn't note it."""
    match entry:
        case ForeignEntry():
            return entry.enqueue_ms
        case HistoryEntry():
            return entry.end_ms
        case QueueEntry(state=QueueState.INITIATED):
            return entry.enqueue_ms
        case QueueEntry(state=QueueState.WORKING):
            return entry.start_ms
        case _:
            return entry.commit_ms or entry.start_ms


def _since_ms(entry: QueueEntry | ForeignEntry, now_ms: int) -> int | None:
    return None if (entered := entered_ms(entry)) is None else max(0, now_ms - entered)


def queue_record(entry: QueueEntry, now_ms: int, daemons: Daemons) -> Record:
    """
    An entry of the queue.

    `since_ms` is for how long the entry has been in its state. `waits` is the code of the reason that keeps workers
    from claiming the entry, or from compacting after a claim. `failures` is how many claims of the entry ended in a
    failure. `urgency` is 0 to 4 (`compaction_queue.urgency`).
    """
    wait, failure = daemons.wait(entry), daemons.failure(entry)
    return {
        **_common(entry),
        "since_ms": _since_ms(entry, now_ms),
        "urgency": urgency_of(entry),
        "waits": None if wait is None else wait.reason,
        "waits_because": None if wait is None else wait.sentence,
        "broke_down": failure.sentence or None,
        "failures": failure.times,
        "last_failure": failure.latest or None,
        "worker": entry.worker_id,
        "cleaning_started": instant(entry.cleaner_start_ms),
    }


def foreign_record(entry: ForeignEntry, now_ms: int) -> Record:
    """A row that a later Hive wrote, as far as it is known; an unknown `kind` or `state` shows the row's own letter."""
    kind, state = KINDS.get(entry.type), QueueState.from_code(entry.state)
    return {
        **_place(entry),
        "kind": kind.value if kind else f"unknown ({entry.type})",
        "state": state.value if state else f"unknown ({entry.state})",
        "since_ms": _since_ms(entry, now_ms),
        "waits": Reason.UNSUPPORTED_KIND.value,
        "waits_because": "left to Hive: that type or state isn't known here",
        "worker": entry.worker_id,
    }


def history_record(entry: QueueEntry) -> Record:
    """
    An entry that has ended, or waits for cleaning.

    `duration_ms` is the time from the claim to the end, or to the commit while the entry isn't cleaned.
    """
    ended = entry.end_ms if isinstance(entry, HistoryEntry) else None
    end = ended if isinstance(entry, HistoryEntry) else entry.commit_ms
    duration = None if entry.start_ms is None or end is None else max(0, end - entry.start_ms)
    return {**_common(entry), "ended": instant(ended), "duration_ms": duration, "worker": entry.worker_id}


def tracked(entry: QueueEntry, settings: Settings) -> Record:
    """The URL of the entry's Spark application; for people the application's id when no URL is known."""
    url = tracking_url(settings, entry.job_id)
    return {"tracking_url": url, "application": url or (entry.job_id if is_application(entry.job_id) else None)}


def _place(entry: QueueEntry | ForeignEntry) -> dict[str, object]:
    return {
        "id": entry.id,
        "entity": str(entry.entity),
        "database": entry.entity.database,
        "table": entry.entity.table,
        "partition": entry.entity.partition,
    }


def _common(entry: QueueEntry) -> dict[str, object]:
    return {
        **_place(entry),
        "kind": entry.kind.value,
        "state": entry.state.value,
        "pool": entry.pool,
        "enqueued": instant(entry.enqueue_ms),
        "started": instant(entry.start_ms),
        "committed": instant(entry.commit_ms),
        "run_as": entry.run_as,
        "initiator": entry.initiator_id,
        "highest_write_id": entry.highest_write_id,
        "txn_id": entry.txn_id,
        "next_txn_id": entry.next_txn_id,
        "job": entry.job_id,
        "properties": dict(entry.properties),
        "message": entry.error_message,
    }


# The work on entries


def achieved(entry: QueueEntry, stored: StoredWork | None) -> Record:
    """
    What the work on an entry of the history predicted and achieved; all keys are there, those not known as None.

    The row of an earlier attempt than the entry's last tells nothing.
    """
    known = None if stored is None or not _is_of(entry, stored) else stored.work
    return {
        **{name: None if known is None else getattr(known, name) for name in _FIELDS},
        "worker": entry.worker_id or (None if known is None else known.worker),
        **undone(entry, stored),
    }


def undone(entry: QueueEntry, stored: StoredWork | None) -> Record:
    """When and by whom the result of an entry was taken away again (`compactor restore`); None: it wasn't."""
    known = Work() if stored is None or not _is_of(entry, stored) else stored.work
    return {"undone": instant(known.undone_ms), "undone_by": known.undone_by}


def progress(entry: QueueEntry, stored: StoredWork | None, now_ms: int) -> Record:
    """
    The share (0..1) of the writing that is done, and when it will end; None for entries that no worker writes.

    Args:
        now_ms: by the database clock.
    """
    if stored is None or entry.state is not QueueState.WORKING or not _is_of(entry, stored):
        return {"done": None, "left_ms": None, "expected_end": None}
    end = stored.expected_end_ms(now_ms)
    return {
        "done": stored.work.share,
        "left_ms": None if end is None else max(0, end - now_ms),
        "expected_end": instant(end),
    }


@dataclass(frozen=True, slots=True)
class Pace:
    """
    How long a worker takes for a compaction.

    Args:
        each: seconds that every one takes: planning and publishing.
        byte: seconds for each byte of the inputs: writing and checking.
    """

    each: float
    byte: float

    def seconds(self, size: int) -> float:
        """Of a compaction with so many bytes of inputs."""
        return self.each + size * self.byte


def paces(found: Iterable[tuple[QueueEntry, StoredWork | None]]) -> dict[str, Pace]:
    """By the kind that was done, from those whose steps are all known; a kind without any is missing."""
    done: dict[str, list[tuple[float, float, int]]] = {}
    for entry, stored in found:
        if stored is None or not _is_of(entry, stored):
            continue
        work = stored.work
        steps = (work.planning_seconds, work.publishing_seconds, work.writing_seconds, work.checking_seconds)
        known = [step for step in steps if step is not None]
        if len(known) == len(steps) and work.compacted_as and work.bytes_before:
            done.setdefault(work.compacted_as, []).append((sum(known[:2]), sum(known[2:]), work.bytes_before))
    return {
        kind: Pace(
            sum(each for each, _, _ in some) / len(some),
            sum(byte for _, byte, _ in some) / sum(size for _, _, size in some),
        )
        for kind, some in done.items()
    }


def _is_of(entry: QueueEntry, stored: StoredWork) -> bool:
    """Whether the row is of the claim that the entry has, or had last."""
    return entry.start_ms == stored.start_ms


# Daemons, pauses


def member_record(seen: SeenMember) -> Record:
    """
    A member.

    `doing` has an item for each thread, `busy` a sentence for each thread that is in a cycle. Fields that a daemon of a
    newer version wrote are passed through.
    """
    member = seen.member
    leads = [role.value for role in seen.leads]
    led = {role.value for role in Role}
    return {
        **member.extra,
        "host": member.host,
        "pid": member.pid,
        "version": member.version,
        "state": "alive" if seen.alive else "gone",
        "roles": list(member.roles),
        "leads": leads,
        "stands_by": [role for role in member.roles if seen.alive and role in led and role not in leads],
        "heartbeat_age_ms": seen.heartbeat_age_ms,
        "busy": [
            f"{activity.name}: {activity.what or activity.step or 'at work'}"
            for activity in member.doing
            if activity.busy
        ],
        "doing": [activity.record() for activity in member.doing],
        "instance": member.instance,
    }


def pause_record(pause: Pause) -> Record:
    """A pause."""
    return {
        "what": "pause",
        "scope": str(pause.scope),
        "reason": pause.reason,
        "by": pause.by,
        "since": instant(pause.since_ms),
        "until": instant(pause.until_ms),
        "cancel": pause.cancel,
        "cleaner": pause.cleaner,
    }


def drain_record(drain: Drain) -> Record:
    """A drained host; `scope` is `host:…`."""
    return {
        "what": "drain",
        "scope": f"host:{drain.host}",
        "reason": drain.reason or None,
        "by": drain.by,
        "since": instant(drain.since_ms),
        "until": None,
        "cancel": None,
        "cleaner": None,
    }
