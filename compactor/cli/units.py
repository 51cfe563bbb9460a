"""Formats times and counts for people; programs get the plain number in the unit that the key names."""

from collections.abc import Callable
from datetime import datetime


def number(count: object) -> str:
    """A count with thousands separated: 1,234,567."""
    return f"{int(str(count)):,}"


def seconds(value: float) -> str:
    """A duration: 0.4 s, 12 s, 3 min 5 s, 2 h 10 min, 3 d 4 h."""
    if value < 0:
        return "0 s"
    if value < 10:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    for large, small, large_name, small_name in ((60, 1, "min", "s"), (3600, 60, "h", "min"), (86_400, 3600, "d", "h")):
        if whole < large * (60 if large < 3600 else 24) or large == 86_400:
            rest = whole % large // small
            return f"{whole // large} {large_name}" + (f" {rest} {small_name}" if rest else "")
    raise AssertionError


def about(value: float) -> str:
    """A rough duration: about 3 min, less than 0.1 s."""
    return "less than 0.1 s" if value < 0.1 else f"about {seconds(value)}"


def milliseconds(value: object) -> str:
    """`seconds` for a number of milliseconds."""
    return seconds(float(str(value)) / 1000)


def clock(text: object) -> str:
    """An `instant` (`compactor.words`) for people, in their own zone: 2024-05-01 10:30:00 CEST."""
    try:
        moment = datetime.fromisoformat(str(text)).astimezone()
    except (ValueError, OverflowError):  # a row that another wrote
        return str(text)
    return f"{moment:%Y-%m-%d %H:%M:%S %Z}"


def joined(between: str) -> Callable[[object], str]:
    """Makes a function that shows the items of a list with this between them."""
    return lambda value: between.join(map(str, value)) if isinstance(value, list) else str(value)


def yes_or_no(value: object) -> str:
    """A truth value."""
    return "yes" if value else "no"
