"""
Types of columns in a live history: values of them, their texts as JDBC and SQL have them, and what Hive makes of a
value when a column's type is changed. Pure.

What a type holds all values of another is known here; for what Hive makes of others, and for fields of structs that
come, go and change their names, the histories take what Hive reads before our daemon compacts.
"""

import json
import random
import re
from decimal import Decimal

import numpy as np

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
AS_READ = "\0as Hive reads it"
"""Stands for a value that the model has no rule for."""
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
NESTED = {
    "struct<f:int,g:string>": (
        "struct<f:int,g:string,h:int>",
        "struct<f:int,k:string>",
        "struct<g:string,f:int>",
        "struct<f:bigint,g:string>",
        "struct<g:string>",
    ),
    "array<struct<f:int,g:string>>": ("array<struct<f:int,g:string,h:int>>", "array<struct<g:string,f:int>>"),
    "map<string,struct<f:int,g:string>>": ("map<string,struct<f:int,g:string,h:int>>",),
}
"""Types with fields inside, and what they may become: a field more, one less, other names, another order."""
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
    if nested(kind):
        return normal(json.dumps(_drawn_inside(parsed(kind), draw)), kind)
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
    if nested(kind):
        return json.dumps(json.loads(value), separators=(",", ":"), sort_keys=True, ensure_ascii=False)
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
    if nested(kind):
        return _expression(None if value is None else json.loads(value), parsed(kind))
    if value is None:
        return "null"
    if kind.startswith(_NUMBERS):
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def typed(value: str | None, kind: str) -> str:
    """In SQL, as a value of exactly that type."""
    return literal(value, kind) if nested(kind) else f"cast({literal(value, kind)} as {kind})"


def nested(kind: str) -> str:
    """The outermost word of a type with others inside, else nothing."""
    return kind.partition("<")[0] if "<" in kind else ""


Parsed = str | tuple[str, list[tuple[str, "Parsed"]]]
"""A simple type, or a word with its parts and their names."""


def parsed(kind: str) -> Parsed:
    """A type's parts."""
    if not nested(kind):
        return kind
    word, inside = kind[:-1].split("<", 1)
    parts, depth, begin = [], 0, 0
    for index, letter in enumerate(inside + ","):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            parts.append(inside[begin:index])
            begin = index + 1
    if word == "struct":
        return word, [(name, parsed(part)) for name, part in (part.split(":", 1) for part in parts)]
    return word, [("", parsed(part)) for part in parts]


def _drawn_inside(kind: Parsed, draw: random.Random) -> object:
    if isinstance(kind, str):
        if draw.random() < 0.2:
            return None
        return draw.choice(["x", "ab", "it is", ""]) if kind == "string" else draw.randrange(-99, 100)
    word, parts = kind
    if word == "struct":
        return {name: _drawn_inside(part, draw) for name, part in parts}
    if word == "array":
        return [_drawn_inside(parts[0][1], draw) for _ in range(draw.randrange(1, 3))]
    return {key: _drawn_inside(parts[1][1], draw) for key in draw.sample(["a", "b", "c"], draw.randrange(1, 3))}


def _expression(value: object, kind: Parsed) -> str:
    if isinstance(kind, str):
        return f"cast({'null' if value is None else repr(value)} as {kind})"
    word, parts = kind
    if value is None:
        return f"if(rand() > 2, {_expression(_some(kind), kind)}, null)"
    if isinstance(value, dict) and word == "struct":
        return f"named_struct({', '.join(f'{name!r}, {_expression(value.get(name), part)}' for name, part in parts)})"
    if isinstance(value, dict):
        inside = [f"{key!r}, {_expression(one, parts[1][1])}" for key, one in value.items()]
        return f"map({', '.join(inside)})"
    assert isinstance(value, list)
    return f"array({', '.join(_expression(one, parts[0][1]) for one in value)})"


def _some(kind: Parsed) -> object:
    """Any value of a type with parts, without NULLs at its own level."""
    word, parts = kind if not isinstance(kind, str) else ("", [])
    if word == "struct":
        return dict.fromkeys(name for name, _ in parts)
    inside = _some(parts[-1][1]) if not isinstance(parts[-1][1], str) else None
    return [inside] if word == "array" else {"a": inside}
