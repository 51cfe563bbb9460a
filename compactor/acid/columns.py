"""
Which column of an ORC file a reader takes for which column of the table.

Pure. Only the row's own columns may be found by their places; the fields of structs inside it are found by their names,
whatever the rule.
Source: ORC's SchemaEvolution (`positionalLevels`); Hive's HiveConf, `orc.force.positional.evolution`: true from 4.0 on,
unknown to 3.1, where ORC's own default counts, or the table's property.
"""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final

from compactor.acid.compaction import LayoutVersion
from compactor.acid.types import HiveType, Kind

_FORCED: Final = "orc.force.positional.evolution"
_NAMELESS: Final = re.compile(r"_col\d+")


class ColumnRule(StrEnum):
    """How a reader finds the table's columns in an ORC file."""

    POSITION = "position"
    NAME = "name"
    BOTH = "both"
    """Some of the site's readers by position, others by name: only files in which it doesn't matter are taken."""


def column_rule(setting: str, layout: LayoutVersion, parameters: Mapping[str, str]) -> ColumnRule:
    """
    The rule of a site's readers for a table.

    Hive hands the properties of a table and its SerDe to their readers where the readers' configuration has none of
    that name. HiveConf 4 has `orc.force.positional.evolution`, and 3.1 doesn't.

    Args:
        setting: `readers.orc_columns`; `auto` is what the release does as it is delivered.
        parameters: of the table and its SerDe.

    Source: Hive's Utilities.copyTableJobPropertiesToConf; Hadoop's Configuration.getBoolean.
    """
    if layout is LayoutVersion.HIVE_4:
        return ColumnRule.POSITION if setting == "auto" else ColumnRule(setting)
    asked = {"true": ColumnRule.POSITION, "false": ColumnRule.NAME}.get(parameters.get(_FORCED, "").strip().lower())
    if setting == "auto":
        return asked or ColumnRule.NAME
    rule = ColumnRule(setting)
    return rule if asked in {None, rule} else ColumnRule.BOTH


def nameless(row: HiveType) -> bool:
    """
    Whether a file's columns have no names of their own (`_col0`, `_col1` … of old CTAS files): Hive then matches them
    by position.
    """
    return bool(row.names) and all(_NAMELESS.fullmatch(name) for name in row.names)


def by_place(file: HiveType, rule: ColumnRule) -> bool:
    """Whether the columns of a file with these rows are found by their places."""
    return rule is ColumnRule.POSITION or nameless(file)


def disputed(file: HiveType, table: HiveType) -> tuple[str, ...]:
    """The table's columns that a reader by position takes from another column of the file than a reader by name."""
    if nameless(file):
        return ()
    found = (places(file, table, by_position=by_position) for by_position in (True, False))
    return tuple(name for name, one, other in zip(table.names, *found, strict=True) if one != other)


def places(file: HiveType, table: HiveType, *, by_position: bool) -> tuple[int | None, ...]:
    """
    For each field of the table's struct its place among the file's fields; None: the file has none, it is NULL.

    Of several fields of one name in a file, which no Hive writes, ORC takes the last.
    """
    if by_position:
        have = len(file.children)
        return tuple(place if place < have else None for place in range(len(table.children)))
    found = {name: place for place, name in enumerate(file.names)}
    return tuple(found.get(name) for name in table.names)


def unread(file: HiveType, table: HiveType, rule: ColumnRule) -> tuple[str, ...]:
    """
    Paths of the fields of a file that no field of the table is read from, also inside structs, lists, maps and unions:
    a compaction would drop them for good.
    """
    return tuple(_unread(file, table, "", by_position=by_place(file, rule)))


def converted(file: HiveType, table: HiveType, rule: ColumnRule, kind: Kind) -> tuple[str, ...]:
    """
    Paths of the table's fields that readers convert from a field of this kind in a file, because the types differ; also
    inside structs, lists, maps and unions.
    """
    ways = (True, False) if rule is ColumnRule.BOTH else (by_place(file, rule),)
    pairs = (found for by_position in ways for found in matched(file, table, by_position=by_position))
    changed = (
        path
        for path, one, other in pairs
        if one.kind is kind
        and (one.kind, one.precision, one.scale, one.length) != (other.kind, other.precision, other.scale, other.length)
    )
    return tuple(dict.fromkeys(changed))


def matched(
    file: HiveType, table: HiveType, path: str = "", *, by_position: bool
) -> Iterator[tuple[str, HiveType, HiveType]]:
    """
    The table's type, and those inside structs, lists, maps and unions, each with its path and the file's type that it
    is read from. Inside types of different kinds nothing is.
    """
    yield path, file, table
    if file.kind is not table.kind:
        return
    if file.kind is not Kind.STRUCT:
        for one, other in zip(file.children, table.children, strict=False):
            yield from matched(one, other, path, by_position=False)
        return
    taken = places(file, table, by_position=by_position)
    for name, child, place in zip(table.names, table.children, taken, strict=True):
        if place is not None:
            yield from matched(file.children[place], child, f"{path}.{name}".removeprefix("."), by_position=False)


def _unread(file: HiveType, table: HiveType, path: str, *, by_position: bool) -> list[str]:
    if file.kind is not table.kind:
        return []
    if file.kind is not Kind.STRUCT:
        pairs = zip(file.children, table.children, strict=False)
        return [name for one, other in pairs for name in _unread(one, other, path, by_position=False)]
    lost: list[str] = []
    taken = places(file, table, by_position=by_position)
    for place, (name, child) in enumerate(zip(file.names, file.children, strict=True)):
        readers = [target for target, source in zip(table.children, taken, strict=True) if source == place]
        if not readers:
            lost.append(f"{path}{name}")
        for target in readers:
            lost += _unread(child, target, f"{path}{name}.", by_position=False)
    return lost
