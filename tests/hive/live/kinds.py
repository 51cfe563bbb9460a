"""
Types of columns in a live history: values of them, their texts as JDBC and SQL have them, and what Hive makes of a
value when a column's type is changed. Pure.

Every type is changed only to one that holds all its values: what else Hive allows our compactions refuse (docs/orc.md).
"""

import random
import re
from decimal import Decimal

import numpy as np

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
ADDED = ("int", "int", "tinyint", "smallint", "float", "decimal(7,2)", "varchar(9)", "char(5)")
WIDER = {
    "tinyint": ("smallint", "int", "float", "double", "decimal(5,1)", "string"),
    "smallint": ("int", "bigint", "float", "double", "decimal(5,0)", "string"),
    "int": ("bigint", "double", "decimal(14,2)", "string"),
    "bigint": ("decimal(22,3)", "string"),
    "float": ("double",),
    "decimal(7,2)": ("decimal(9,2)", "decimal(12,3)"),
    "decimal(12,3)": ("decimal(14,3)", "decimal(20,5)"),
    "varchar(9)": ("varchar(20)", "char(12)", "string"),
    "char(5)": ("char(8)", "varchar(9)", "string"),
    "string": ("varchar(2000)",),
    "varchar(2000)": ("string",),
}
"""What a column's type may become."""
_TEXTS = ["x", "ü", "雪 1", " a", "ab ", ""]
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")


def drawn(kind: str, draw: random.Random) -> str:
    """A value that isn't NULL."""
    if found := re.fullmatch(r"decimal\((\d+),(\d+)\)", kind):
        most, scale = 10 ** min(5, int(found[1]) - int(found[2])), int(found[2])
        return f"{draw.randrange(1 - most, most)}" + draw.choice([".5", ".25", ".125"][:scale] or [""])
    if kind == "timestamp":
        day = f"{draw.randrange(1800, 2200)}-{draw.randrange(1, 13):02}-{draw.randrange(1, 29):02}"
        return f"{day} {draw.randrange(24):02}:00:{draw.randrange(60):02}.{draw.choice(['5', '000001', '123'])}"
    if kind in {"float", "double"}:
        return normal(f"{draw.randrange(-999, 1000)}.{draw.choice(['1', '25', '3'])}", kind)
    if kind.startswith(_NUMBERS):
        most = 128 if kind == "tinyint" else 1000
        return str(draw.randrange(-most, most))
    texts = _TEXTS if not kind.startswith("char") else [text for text in _TEXTS if text]  # docs/testing.md
    return normal(draw.choice(texts), kind)


def normal(value: str | None, kind: str) -> str | None:
    """
    One text for each value, whatever it was written with. Hive reads NULL among a partition's values of type string as
    the name of its directory.
    """
    if value is None or value == DEFAULT_PARTITION:
        return None
    if kind.startswith("decimal"):
        return format(Decimal(value).normalize(), "f")
    if kind == "float":
        return repr(float(np.float32(value)))
    if kind == "double":
        return repr(float(value))
    return value.rstrip(" ") if kind.startswith("char") else value


def widened(value: str | None, old: str, new: str, version: str) -> str | None:
    """
    What a value of a column reads as when its type has changed: Hive 3.1 takes a float's decimal digits for those of
    the double (`DoubleFromFloatTreeReader`).
    """
    if value is not None and (old, new, version) == ("float", "double", "3"):
        value = str(np.float32(value))
    return normal(value, new)


def literal(value: str | None, kind: str) -> str:
    """In SQL."""
    if value is None:
        return "null"
    if kind.startswith(_NUMBERS):
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
