"""The columns of what compactions predicted and achieved, and of how far those are that run (`status.records`)."""

from collections.abc import Callable
from typing import Final

from compactor.cli import units
from compactor.cli.output import OutputColumn, Record
from compactor.words import binary_units


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


def told_undone(record: Record) -> str:
    """When and by whom a compaction was undone; empty: it wasn't."""
    return f"{units.clock(record['undone'])} by {record['undone_by']}" if record.get("undone") else ""


def _people(key: str, title: str, text: Callable[[Record], str], less: int) -> OutputColumn:
    return OutputColumn(key, title, right=True, programs=False, less=less, whole=text)


ACHIEVED_COLUMNS: Final = (
    _people("files", "FILES", _change("files_before", "files_after", units.number), less=3),
    _people("bytes", "SIZE", _change("bytes_before", "bytes_after", binary_units), less=3),
    _people("rows", "ROWS", _change("rows_before", "rows_after", units.number), less=8),
    OutputColumn("copied_bytes", "COPIED", right=True, show=binary_units, less=4),
    OutputColumn("recoded_bytes", "RECODED", right=True, show=binary_units, less=4),
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
    OutputColumn("undone_when", "UNDONE", programs=False, less=1, whole=told_undone),
    OutputColumn("undone", "undone", people=False),
    OutputColumn("undone_by", "undone_by", people=False),
)  # fmt: skip
"""What an entry of the history achieved, for people and for programs."""

PROGRESS_COLUMNS: Final = (
    OutputColumn("done", "DONE", right=True, show=_percent),
    OutputColumn("left_ms", "LEFT", right=True, show=lambda value: f"about {units.milliseconds(value)}", less=1),
    OutputColumn("expected_end", "EXPECTED END", people=False),
)
"""How far an entry is that is being worked on."""
