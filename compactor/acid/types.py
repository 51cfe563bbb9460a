"""
Hive's column types as trees, and their spelling.

Pure. The same tree describes a table's columns (from the metastore's strings) and an ORC file's types
(`compactor.orc.format.schema`).
Source: Hive's TypeInfoUtils.TypeInfoParser; the type kinds of the ORC specification.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import accumulate
from typing import Final

from compactor.errors import RefusedError
from compactor.reasons import Reason


class Kind(IntEnum):
    """Type kinds with the numbers that ORC gives them."""

    BOOLEAN = 0
    BYTE = 1
    SHORT = 2
    INT = 3
    LONG = 4
    FLOAT = 5
    DOUBLE = 6
    STRING = 7
    BINARY = 8
    TIMESTAMP = 9
    LIST = 10
    MAP = 11
    STRUCT = 12
    UNION = 13
    DECIMAL = 14
    DATE = 15
    VARCHAR = 16
    CHAR = 17
    TIMESTAMP_INSTANT = 18


@dataclass(frozen=True)
class HiveType:
    """
    One type and the types inside it.

    Args:
        children: the element of a list; key and value of a map; fields of a struct; alternatives of a union.
        names: a struct's field names, as many as children.
        length: characters of a char or varchar.
        precision, scale: of a decimal.
    """

    kind: Kind
    children: tuple["HiveType", ...] = ()
    names: tuple[str, ...] = ()
    length: int | None = None
    precision: int | None = None
    scale: int | None = None

    def __str__(self) -> str:
        return to_hive_string(self)

    def __getstate__(self) -> dict[str, object]:
        """Without what can be found out again."""
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

    def walk(self) -> Iterator["HiveType"]:
        """This type and all below it, in ORC's column id order (parents first)."""
        return iter(self._nodes)

    def holds(self, kinds: Iterable[Kind]) -> bool:
        """Whether this type or any below it is one of `kinds`."""
        return not self._kinds.isdisjoint(kinds)

    @property
    def columns(self) -> int:
        """How many column ids the type takes: its own, and those of all types below it."""
        return len(self._nodes)

    def inside(self, column: int) -> list[tuple[int, "HiveType"]]:
        """The types directly inside this one, each with its column id, where this one's is `column`."""
        ids = accumulate((child.columns for child in self.children), initial=column + 1)
        return list(zip(ids, self.children, strict=False))

    @cached_property
    def _nodes(self) -> tuple["HiveType", ...]:
        found, waiting = list[HiveType](), [self]
        while waiting:
            found.append(waiting.pop())
            waiting += reversed(found[-1].children)
        return tuple(found)

    @cached_property
    def _kinds(self) -> frozenset[Kind]:
        return frozenset(node.kind for node in self._nodes)


ACID_NAMES: Final = ("operation", "originalTransaction", "bucket", "rowId", "currentTransaction", "row")
"""Root fields of every full-ACID file, in the spelling that Hive compares; ORC column ids 1 to 6."""

_PRIMITIVES: Final = {
    "boolean": Kind.BOOLEAN,
    "tinyint": Kind.BYTE,
    "smallint": Kind.SHORT,
    "int": Kind.INT,
    "integer": Kind.INT,
    "bigint": Kind.LONG,
    "float": Kind.FLOAT,
    "double": Kind.DOUBLE,
    "double precision": Kind.DOUBLE,
    "string": Kind.STRING,
    "binary": Kind.BINARY,
    "timestamp": Kind.TIMESTAMP,
    "timestamp with local time zone": Kind.TIMESTAMP_INSTANT,
    "timestamplocaltz": Kind.TIMESTAMP_INSTANT,
    "date": Kind.DATE,
    "varchar": Kind.VARCHAR,
    "char": Kind.CHAR,
    "decimal": Kind.DECIMAL,
    "dec": Kind.DECIMAL,
    "numeric": Kind.DECIMAL,
}
_COMPLEX: Final = {"array": Kind.LIST, "map": Kind.MAP, "struct": Kind.STRUCT, "uniontype": Kind.UNION}
_SPELLING: Final = {
    Kind.BOOLEAN: "boolean",
    Kind.BYTE: "tinyint",
    Kind.SHORT: "smallint",
    Kind.INT: "int",
    Kind.LONG: "bigint",
    Kind.FLOAT: "float",
    Kind.DOUBLE: "double",
    Kind.STRING: "string",
    Kind.BINARY: "binary",
    Kind.TIMESTAMP: "timestamp",
    Kind.TIMESTAMP_INSTANT: "timestamp with local time zone",
    Kind.DATE: "date",
    Kind.VARCHAR: "varchar",
    Kind.CHAR: "char",
    Kind.DECIMAL: "decimal",
    Kind.LIST: "array",
    Kind.MAP: "map",
    Kind.STRUCT: "struct",
    Kind.UNION: "uniontype",
}
_WORD: Final = re.compile(r"\s*([a-z]+(?:\s+[a-z]+)*)\s*", re.IGNORECASE)
_PLAIN_NAME: Final = re.compile(r"\w+")
_MAX_DECIMAL_PRECISION: Final = 38


def parse_hive_type(text: str) -> HiveType:
    """
    Read a type as the metastore spells it, such as `array<struct<a:int,b:decimal(10,2)>>`.

    Raises:
        RefusedError: SCHEMA_MISMATCH; the text is not a type, or a type that ORC tables can't hold (void, intervals).

    Source: Hive's TypeInfoUtils.TypeInfoParser; `decimal` alone is decimal(10,0).
    """
    parser = _Parser(text)
    found = parser.type()
    parser.end()
    return found


def to_hive_string(hive_type: HiveType) -> str:
    """Spell a type as the metastore does; field names that aren't plain words stand in backquotes."""
    word = _SPELLING[hive_type.kind]
    match hive_type.kind:
        case Kind.DECIMAL:
            return f"{word}({hive_type.precision},{hive_type.scale})"
        case Kind.CHAR | Kind.VARCHAR:
            return f"{word}({hive_type.length})"
        case Kind.STRUCT:
            fields = zip(hive_type.names, hive_type.children, strict=True)
            return f"{word}<{','.join(f'{_quoted(name)}:{to_hive_string(child)}' for name, child in fields)}>"
        case Kind.LIST | Kind.MAP | Kind.UNION:
            return f"{word}<{','.join(to_hive_string(child) for child in hive_type.children)}>"
        case _:
            return word


def row_type(columns: Iterable[tuple[str, str]]) -> HiveType:
    """The struct of a table's data columns, from (name, type string) pairs in table order without partition columns."""
    pairs = [(name, parse_hive_type(spelled)) for name, spelled in columns]
    return HiveType(Kind.STRUCT, tuple(child for _, child in pairs), tuple(name for name, _ in pairs))


def acid_type(row: HiveType) -> HiveType:
    """
    The root type of a full-ACID file that holds rows of type `row`.

    Source: Hive's OrcRecordUpdater.createEventObjectInspector.
    """
    integer, long = HiveType(Kind.INT), HiveType(Kind.LONG)
    return HiveType(Kind.STRUCT, (integer, long, integer, long, long, row), ACID_NAMES)


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def type(self) -> HiveType:
        matched = _WORD.match(self._text, self._at)
        if matched is None:
            raise self._wrong("a type name is missing")
        self._at = matched.end()
        word = " ".join(matched.group(1).lower().split())
        if word in _COMPLEX:
            return self._complex(_COMPLEX[word])
        if word not in _PRIMITIVES:
            raise self._wrong(f"unknown type {word!r}")
        kind = _PRIMITIVES[word]
        match kind:
            case Kind.DECIMAL:
                numbers = self._numbers() or (10, 0)
                precision, scale = numbers if len(numbers) == 2 else (numbers[0], 0)
                if len(numbers) > 2 or not 1 <= precision <= _MAX_DECIMAL_PRECISION or not 0 <= scale <= precision:
                    raise self._wrong("a decimal needs 1 to 38 digits and a scale not above them")
                return HiveType(kind, precision=precision, scale=scale)
            case Kind.CHAR | Kind.VARCHAR:
                numbers = self._numbers()
                if len(numbers) != 1:
                    raise self._wrong(f"{word} needs one length")
                return HiveType(kind, length=numbers[0])
            case _:
                return HiveType(kind)

    def end(self) -> None:
        if self._text[self._at :].strip():
            raise self._wrong("text is left over")

    def _complex(self, kind: Kind) -> HiveType:
        self._take("<")
        children: list[HiveType] = []
        names: list[str] = []
        if not self._found(">"):
            while True:
                if kind is Kind.STRUCT:
                    names.append(self._name())
                    self._take(":")
                children.append(self.type())
                if self._found(">"):
                    break
                self._take(",")
        wanted = {Kind.LIST: 1, Kind.MAP: 2}.get(kind)
        if (wanted is not None and len(children) != wanted) or (kind is Kind.UNION and not children):
            raise self._wrong(f"{_SPELLING[kind]} has {len(children)} types inside")
        return HiveType(kind, tuple(children), tuple(names))

    def _name(self) -> str:
        if not self._found("`"):
            end = self._text.find(":", self._at)
            if end < 0:
                raise self._wrong("a field name without type")
            name, self._at = self._text[self._at : end].strip(), end
            return name
        parts: list[str] = []
        while True:
            end = self._text.find("`", self._at)
            if end < 0:
                raise self._wrong("a backquote isn't closed")
            parts.append(self._text[self._at : end])
            self._at = end + 1
            if not self._text.startswith("`", self._at):
                return "`".join(parts)
            self._at += 1

    def _numbers(self) -> tuple[int, ...]:
        if not self._found("("):
            return ()
        end = self._text.find(")", self._at)
        inside = self._text[self._at : end].split(",") if end >= 0 else []
        if not inside or not all(part.strip().isdecimal() for part in inside):
            raise self._wrong("numbers in brackets expected")
        self._at = end + 1
        return tuple(int(part) for part in inside)

    def _found(self, sign: str) -> bool:
        start = self._at
        while self._text[start : start + 1].isspace():
            start += 1
        if self._text.startswith(sign, start):
            self._at = start + len(sign)
            return True
        return False

    def _take(self, sign: str) -> None:
        if not self._found(sign):
            raise self._wrong(f"{sign!r} expected")

    def _wrong(self, what: str) -> RefusedError:
        return RefusedError(
            Reason.SCHEMA_MISMATCH, f"can't read the type {self._text!r}: {what} at character {self._at + 1}"
        )
