"""
Shows what compactions predicted and achieved, and how far those are that run; see `metastore.compaction_queue.work`.

Pure. Entries without a row there (Hive's own compactions, those of earlier releases) have nothing to show.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Final

from compactor.cli import units
from compactor.cli.output import OutputColumn, Record
from compactor.metastore.compaction_queue.work import StoredWork, Work
from compactor.metastore.model import QueueEntry, QueueState

_FIELDS: Final = tuple(field.name for field in fields(Work) if field.name not in {"worker", "share"})


def _percent(share: object) -> str:
    return f"{float(str(share)):.0%}".replace("%", " %")


def _seconds(value: object) -> str:
    return units.seconds(float(str(value)))


def _change(before: str, after: str, show: Callable[[object], str]) -> Callable[[Record], str]:
    """Makes `24 → 1` of two values of a record; empty where one is missing."""

    def text(record: Record) -> str:
        values = record.get(before), record.get(after)
        return "" if None in values else " → ".join(show(value) for value in values)

    return text


def _of_predicted(record: Record) -> str:
    written, predicted = record.get("bytes_after"), record.get("predicted_written")
    return (
        _percent(written / predicted) if isinstance(written, int) and isinstance(predicted, int) and predicted else ""
    )


def _people(key: str, title: str, text: Callable[[Record], str], less: int) -> OutputColumn:
    return OutputColumn(key, title, right=True, programs=False, less=less, whole=text)


ACHIEVED_COLUMNS: Final = (
    _people("files", "FILES", _change("files_before", "files_after", units.number), less=3),
    _people("bytes", "SIZE", _change("bytes_before", "bytes_after", units.size), less=3),
    _people("rows", "ROWS", _change("rows_before", "rows_after", units.number), less=8),
    OutputColumn("copied_bytes", "COPIED", right=True, show=units.size, less=4),
    OutputColumn("recoded_bytes", "RECODED", right=True, show=units.size, less=4),
    _people("of_predicted", "OF PREDICTED", _of_predicted, less=5),
    *(OutputColumn(f"{step}_seconds", title, right=True, show=_seconds, less=8) for step, title in (
        ("waiting", "WAITED"),
        ("planning", "PLANNED"),
        ("writing", "WROTE"),
        ("checking", "CHECKED"),
        ("publishing", "PUBLISHED"),
    )),
    *(OutputColumn(key, key, people=False) for key in (
        "compacted_as",
        "files_before",
        "files_after",
        "bytes_before",
        "bytes_after",
        "rows_before",
        "rows_after",
        "predicted_read",
        "predicted_written",
        "predicted_files",
    )),
    OutputColumn("worker", "WORKER", less=8),
)  # fmt: skip
"""What an entry of the history achieved, for people and for programs."""

PROGRESS_COLUMNS: Final = (
    OutputColumn("done", "DONE", right=True, show=_percent),
    OutputColumn("left_ms", "LEFT", right=True, show=lambda value: f"about {units.milliseconds(value)}", less=1),
    OutputColumn("expected_end", "EXPECTED END", people=False),
)
"""How far an entry is that is being worked on."""


def achieved(entry: QueueEntry, stored: StoredWork | None) -> Record:
    """
    What the work on an entry of the history predicted and achieved; all keys are there, those not known as None.

    The row of an earlier attempt than the entry's last tells nothing.
    """
    known = None if stored is None or not _is_of(entry, stored) else stored.work
    return {name: None if known is None else getattr(known, name) for name in _FIELDS} | {
        "worker": entry.worker_id or (None if known is None else known.worker)
    }


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
        "expected_end": units.instant(end),
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
