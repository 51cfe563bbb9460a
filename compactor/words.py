"""Small pieces of the sentences in messages, reasons and answers."""

from datetime import UTC, datetime

_BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def one_line(text: object) -> str:
    """A text on one line: every run of white space becomes one blank, and none begins or ends it."""
    return " ".join(str(text).split())


def plural(count: int, noun: str, nouns: str = "") -> str:
    """A count with its noun: 1 delta, 2 deltas; `nouns` is the plural where an s isn't enough."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def binary_units(count: object) -> str:
    """A number of bytes for people: 512 B, 1.5 MiB."""
    value = float(str(count))
    for unit in _BINARY_UNITS:
        if abs(value) < 1024 or unit == _BINARY_UNITS[-1]:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError


def instant(epoch_ms: int | None) -> str | None:
    """Milliseconds since 1970 as ISO 8601 in UTC, with milliseconds: 2024-05-01T08:30:00.000Z. A number that is no time stays one."""
    if epoch_ms is None:
        return None
    try:
        return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):  # a row that another wrote
        return str(epoch_ms)
