"""
Converts between local times of a zone and moments.

Pure. A moment is a number of milliseconds since 1970. In zones that change their clocks, twice a year a local time
stands for no moment (a gap: clocks jump from 02:00 to 03:00) or for two (an overlap: from 03:00 back to 02:00). In a
gap, `first` and `last` both give the moment of the jump.
"""

from datetime import UTC, datetime, timedelta, tzinfo

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_YEAR, LAST_YEAR = 1970, 9000
"""Of times that are taken from people: far enough from where Python's calendar ends for every zone."""
_MS = timedelta(milliseconds=1)
_END_MS = (datetime(LAST_YEAR + 1, 1, 1, tzinfo=UTC) - EPOCH) // _MS


def first(local: datetime, zone: tzinfo) -> int:
    """The first moment at which clocks of the zone show this time, or the moment at which they jump over it."""
    return _moment(local, zone, fold=0)


def last(local: datetime, zone: tzinfo) -> int:
    """The last moment at which clocks of the zone show this time, or the moment at which they jump over it."""
    return _moment(local, zone, fold=1)


def local_at(moment_ms: int, zone: tzinfo) -> datetime:
    """The time that clocks of the zone show at a moment, as a naive datetime."""
    return _at(moment_ms).astimezone(zone).replace(tzinfo=None, fold=0)


def shown(moment_ms: int, zone: tzinfo) -> str:
    """A moment for people: 2026-01-15 14:00 CET."""
    return f"{_at(moment_ms).astimezone(zone):%Y-%m-%d %H:%M %Z}"


def in_ms(moment: datetime) -> int:
    """An aware time as a moment."""
    return (moment - EPOCH) // _MS


def _moment(local: datetime, zone: tzinfo, fold: int) -> int:
    """
    The moment of a local time, by the offset before a change of clocks (fold 0) or after it (fold 1).

    For a time in a gap, the offset before the jump gives a moment after the jump, and the offset after it gives one
    before it: a binary search finds the jump between the two.
    """
    found = in_ms(local.replace(tzinfo=zone, fold=fold).astimezone(UTC))
    if local_at(found, zone) == local:
        return found
    late, early = (in_ms(local.replace(tzinfo=zone, fold=one).astimezone(UTC)) for one in (0, 1))
    after = _offset(late, zone)
    while late - early > 1:
        middle = (early + late) // 2
        if _offset(middle, zone) == after:
            late = middle
        else:
            early = middle
    return late


def _offset(moment_ms: int, zone: tzinfo) -> timedelta | None:
    return _at(moment_ms).astimezone(zone).utcoffset()


def _at(moment_ms: int) -> datetime:
    """A moment beyond all that can be meant, which others may have stored, is the last or the first one."""
    return EPOCH + min(max(moment_ms, 0), _END_MS) * _MS
