"""
Converters that make pyorc hand out and take back values without loss: seconds and nanoseconds, days, unscaled decimals.
"""

from typing import Any, Final

import pyorc


class _Timestamp:
    """(seconds from 1970, nanoseconds 0..999999999)."""

    @staticmethod
    def from_orc(seconds: int, nanoseconds: int, _timezone: Any) -> tuple[int, int]:
        return seconds, nanoseconds

    @staticmethod
    def to_orc(value: tuple[int, int], _timezone: Any) -> tuple[int, int]:
        return value


class _Date:
    """Days from 1970, in the calendar that the file counts in."""

    @staticmethod
    def from_orc(days: int) -> int:
        return days

    @staticmethod
    def to_orc(value: int) -> int:
        return value


class _Decimal:
    """The decimal's digits as text, such as `-12.30`."""

    @staticmethod
    def from_orc(text: str) -> str:
        return text

    @staticmethod
    def to_orc(_precision: int, scale: int, value: str) -> int:
        whole, _, fraction = value.partition(".")
        if len(fraction.rstrip("0")) > scale:
            raise ValueError(f"{value} has more than {scale} digits after the point")
        return int(whole + fraction[:scale].ljust(scale, "0"))


CONVERTERS: Final[dict[pyorc.TypeKind, type[Any]]] = {
    pyorc.TypeKind.TIMESTAMP: _Timestamp,
    pyorc.TypeKind.TIMESTAMP_INSTANT: _Timestamp,
    pyorc.TypeKind.DATE: _Date,
    pyorc.TypeKind.DECIMAL: _Decimal,
}
