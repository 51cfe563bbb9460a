"""
Statements of a live history that make, change and drop tables and partitions, or ask for a compaction: each with what
it does to the model. Pure.
"""

import copy
import random

from tests.hive.live.kinds import ADDED, NESTED, WIDER, nested
from tests.hive.live.tables import COLUMNS, Columns, Table, partition
from tests.hive.live.world import Action, Step, World, draw_key

_PROPERTIES = {
    "full": "'transactional'='true'",
    "insert-only": "'transactional'='true', 'transactional_properties'='insert_only'",
    "plain": "'transactional'='false'",
}


def create(world: World, step: Step, draw: random.Random) -> Action:
    style = draw.choices(["full", "insert-only", "plain"], [70, 15, 15])[0]
    buckets = draw.choices([0, 1, 2, 5, 16, 256], [42, 12, 22, 16, 7, 1])[0] if style == "full" else 0
    keys = draw.choice([[], [], [("p", "string")], [("p", "string"), ("q", "int")]])
    place = f"{world.places}/{step.root}" if draw.random() < 0.15 else None
    more = [(f"x{number}", draw.choice(ADDED)) for number in range(draw.choice([0, 1, 2, 2]))]
    if draw.random() < 0.25:
        more.insert(draw.randrange(len(more) + 1), ("s", draw.choice(list(NESTED))))
    table = Table(
        step.root,
        draw.choice(world.databases),
        step.root,
        style,
        buckets,
        columns=[*COLUMNS, *more],
        keys=keys,
        place=place,
        by_position=world.by_position,
    )
    columns = ", ".join(f"{name} {kind}" for name, kind in table.columns)
    parts = f" partitioned by ({', '.join(f'{name} {kind}' for name, kind in keys)})" if keys else ""
    clustered = f" clustered by (id) into {buckets} buckets" if buckets else ""
    location = f" location 'file://{place}'" if place else ""
    sql = f"create table {table.full_name} ({columns}){parts}{clustered} stored as orc{location} tblproperties ({_PROPERTIES[style]})"
    return Action(table, sql, lambda: world.tables.__setitem__(table.root, table))


def truncate(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    key = draw_key(world, table, draw, known=True) if table.partitions and draw.random() < 0.7 else None
    if key is not None and None in key:
        return None

    def effect() -> None:
        table.clear(key)

    undone = (
        (lambda: None) if world.soft("truncate") else effect
    )  # removed are the files, or an empty base has an id that is aborted
    return Action(
        table, f"truncate table {table.full_name}{f' {partition(table, key)}' if key else ''}", effect, undone
    )


def ctas(world: World, step: Step, table: Table, draw: random.Random) -> Action:
    """
    Of Hive 3.1 no table with partitions, of no release one with buckets. When it is rolled back at its end the table is
    there, without rows.
    """
    style = draw.choices(["full", "insert-only"], [65, 35])[0]
    keys = table.keys[-1:] if world.version == "4" and draw.random() < 0.6 else []
    name, columns = f"t{step.number}", [*table.columns, *table.keys][: len(table.columns) + len(table.keys) - len(keys)]
    made = Table(
        name, draw.choice(world.databases), name, style, columns=columns, keys=keys, by_position=world.by_position
    )
    rows = table.expected()

    def undone() -> None:
        world.tables[made.root] = made

    def effect() -> None:
        undone()
        made.put(rows)

    parts = f" partitioned by ({keys[0][0]})" if keys else ""
    sql = f"create table {made.full_name}{parts} stored as orc tblproperties ({_PROPERTIES[style]}) as select * from {table.full_name}"
    return Action(made, sql, effect, undone)


def add_column(world: World, step: Step, table: Table, draw: random.Random) -> Action:
    """A new column, or one with the name of a former one, of its type or another."""
    name, kind = f"c{step.number}", draw.choice([*ADDED, *NESTED])
    free = [column for column in table.former if column[0] not in dict(table.columns)]
    if free and draw.random() < 0.7:
        name, kind = draw.choice(free)
        if draw.random() < 0.3:
            kind = draw.choice(ADDED)
    columns = [*table.columns, (name, kind)]
    return _reshaped(world, table, columns, draw, f"add columns ({_letters(name, draw)} {kind})")


def widen_column(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    wider = WIDER | NESTED
    narrow = [index for index, (name, kind) in enumerate(table.columns) if kind in wider and name not in {"id", "v"}]
    if not narrow:
        return None
    index = draw.choice(narrow)
    name, old = table.columns[index]
    return _changed(world, table, index, (name, draw.choice(wider[old])), draw)


def rename_column(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    """Another name, one in other letters or a former one; its type may change, too."""
    index = draw.randrange(2, len(table.columns))
    name, kind = table.columns[index]
    names = dict(table.columns)
    free = [other for other, _ in table.former if other not in names]
    new = draw.choice([f"r{step.number}", f"r{step.number}", name, *free])
    if draw.random() < 0.2 and kind in WIDER | NESTED:
        kind = draw.choice((WIDER | NESTED)[kind])
    return _changed(world, table, index, (new, kind), draw)


def swap_columns(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    """Two columns change their names with each other, by way of a third."""
    if len(table.columns) < 4:
        return None
    one, other = sorted(draw.sample(range(2, len(table.columns)), 2))
    columns = list(table.columns)
    (first, kind), (second, other_kind) = columns[one], columns[other]
    columns[one], columns[other] = (second, kind), (first, other_kind)
    ends = _ends(world, table, draw)
    alter, third = f"alter table {table.full_name} change column", f"w{step.number}"
    action = _reshaped(world, table, columns, draw, "", ends=ends)
    if action is None:
        return None
    action.first = [f"{alter} {first} {third} {kind}{ends}", f"{alter} {second} {first} {other_kind}{ends}"]
    action.sql = f"{alter} {third} {second} {kind}{ends}"
    return action


def move_column(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    """Both releases refuse it of ORC."""
    columns = list(table.columns)
    if draw.random() < 0.3:
        name, kind = draw.choice(columns[1:])
        return Action(table, f"alter table {table.full_name} change column {name} {name} {kind} first", refused=True)
    name, kind = columns.pop(draw.randrange(2, len(columns)))
    place = draw.randrange(2, len(columns) + 1)
    columns.insert(place, (name, kind))
    return _reshaped(
        world, table, columns, draw, f"change column {name} {name} {kind} after {columns[place - 1][0]}", refused=True
    )


def replace_columns(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    """Other names, another order, the last one left out, one more: what of it a release doesn't take it refuses."""
    columns = list(table.columns)
    how = draw.choice(["names", "order", "fewer", "more"])
    rest = columns[2:]
    if how == "names":
        rest = [
            (f"p{step.number}_{index}" if draw.random() < 0.5 else name, kind)
            for index, (name, kind) in enumerate(rest)
        ]
    elif how == "order":
        same = [index for index, (_, kind) in enumerate(rest) if kind == draw.choice(rest)[1]]
        for one, other in zip(same, draw.sample(same, len(same)), strict=True):
            rest[one] = columns[2 + other]
        if len(dict(rest)) != len(columns) - 2 or draw.random() < 0.3:
            rest = draw.sample(columns[2:], len(columns) - 2)
    elif how == "fewer":
        rest = rest[:-1] or rest
    else:
        rest = [*rest, (f"c{step.number}", draw.choice(ADDED))]
    told = ", ".join(f"{_letters(name, draw)} {kind}" for name, kind in [*columns[:2], *rest])
    return _reshaped(world, table, [*columns[:2], *rest], draw, f"replace columns ({told})", refused=True)


def _changed(world: World, table: Table, index: int, column: tuple[str, str], draw: random.Random) -> Action | None:
    columns = list(table.columns)
    name, columns[index] = columns[index][0], column
    action = f"change column {_letters(name, draw)} {_letters(column[0], draw)} {column[1]}"
    return _reshaped(world, table, columns, draw, action, refused=bool(nested(column[1])))


def _letters(name: str, draw: random.Random) -> str:
    """A name as somebody may write it."""
    return name.upper() if draw.random() < 0.2 else name


def _ends(world: World, table: Table, draw: random.Random) -> str:
    """Whether partitions get the columns too."""
    return " cascade" if table.keys and draw.random() < (world.cascades(table) or 0.5) else ""


def _reshaped(
    world: World,
    table: Table,
    columns: Columns,
    draw: random.Random,
    action: str,
    *,
    ends: str | None = None,
    refused: bool = False,
) -> Action | None:
    if not table.readable(columns):
        return None

    def effect() -> None:
        table.reshape(columns, world.version, lost=world.both)

    ends = _ends(world, table, draw) if ends is None else ends
    return Action(table, f"alter table {table.full_name} {action}{ends}", effect, effect, keeps=False, refused=refused)


def rename(world: World, step: Step, table: Table, draw: random.Random) -> Action:
    name = f"{table.root}_r{step.number}"

    def effect() -> None:
        table.name = name

    return Action(table, f"alter table {table.full_name} rename to {table.database}.{name}", effect, effect)


def drop(world: World, step: Step, table: Table, draw: random.Random) -> Action:
    def effect() -> None:
        del world.tables[table.root]

    viewed = any(other.view == table.root for other in world.tables.values())  # Hive refuses it by the name then had
    return Action(table, f"drop table {table.full_name}", effect, effect, refused=viewed)


def drop_partition(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    key = draw_key(world, table, draw, known=True)
    if not table.partitions or None in key:
        return None

    def effect() -> None:
        table.clear(key)
        table.partitions.discard(key)

    return Action(table, f"alter table {table.full_name} drop {partition(table, key)}", effect, effect)


def rename_partition(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    key, new = (
        draw_key(world, table, draw, known=True),
        tuple(draw.choice(["Moved", "moved on", "m:v"]) if kind == "string" else "7" for _, kind in table.keys),
    )
    if not table.partitions or None in key or new in table.partitions:
        return None

    def effect() -> None:
        moved = [(*row[: len(table.columns)], *new) for row in table.rows.values() if table.key(row) == key]
        table.partitions.discard(key)
        table.partitions.add(new)
        table.put(moved)

    return Action(
        table,
        f"alter table {table.full_name} {partition(table, key)} rename to {partition(table, new)}",
        effect,
        effect,
        refused=True,
    )


def migrate(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    """Made full ACID or insert-only."""
    if table.style != "plain":
        return None
    style = draw.choices(["full", "insert-only"], [75, 25])[0]

    def effect() -> None:
        table.style, table.migrated = style, True

    sql = f"alter table {table.full_name} set tblproperties ({_PROPERTIES[style]})"
    return Action(table, sql, effect, effect, keeps=False)


def import_table(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    """
    EXPORT, and IMPORT as a new table: of a full ACID table a query's rows, else the files as they are. Those of
    an insert-only table with partitions lie one directory too deep then, where Hive reads none of them. Where a table's
    directory has a suffix (hive.acid.createtable.softdelete), Hive 4.0.1 imports nothing from a place with a blank. What
    isn't drawn stands in docs/testing.md.
    """
    if table.keys and (world.soft("drop") or any(None in key for key in table.partitions)):
        return None
    name, place = f"t{step.number}", f"{world.places}/export-{step.number}"
    made = copy.deepcopy(table)
    made.root, made.name, made.place, made.buckets = name, name, None, table.buckets
    made.database = draw.choice(world.databases)
    if table.style == "full":
        made.clear()
        made.put(table.expected())
    elif table.keys and table.style == "insert-only":
        made.clear()
    if world.soft("drop") and table.style != "plain":
        made.clear()
    sql = f"import table {made.full_name} from 'file://{place}'"
    first = [f"export table {table.full_name} to 'file://{place}'"]
    return Action(made, sql, lambda: world.tables.__setitem__(name, made), first=first, refused=True)


def repair(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    """MSCK: every partition is in the catalog already, unless Hive has left a dropped one's directory to the Cleaner."""
    if not table.keys or world.soft("drop-partition") or world.soft("rename-partition"):
        return None
    return Action(table, f"msck repair table {table.full_name}", refused=True)


def concatenate(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    """Of a full ACID table a request for a major compaction; an insert-only one isn't taken."""
    key = draw_key(world, table, draw, known=True)
    if None in key or (table.keys and not table.partitions):
        return None
    into = f" {partition(table, key)}" if table.keys else ""
    return Action(table, f"alter table {table.full_name}{into} concatenate", keeps=table.style == "full", refused=True)


def set_properties(world: World, step: Step, table: Table, draw: random.Random) -> Action:
    """What later writers make of it, compactions among them, reads the same."""
    told = draw.choice(
        [
            "set tblproperties ('orc.compress'='SNAPPY')",
            "set tblproperties ('orc.compress'='NONE', 'orc.create.index'='false')",
            "set tblproperties ('orc.bloom.filter.columns'='id,v')",
            "set tblproperties ('orc.stripe.size'='65536', 'orc.row.index.stride'='1000')",
            "set tblproperties ('compactorthreshold.hive.compactor.delta.num.threshold'='2')",
            "unset tblproperties if exists ('orc.compress', 'orc.create.index')",
            "set serdeproperties ('serialization.format'='1', 'orc.force.positional.evolution'='false')",
            "set tblproperties ('orc.force.positional.evolution'='false', 'skip.header.line.count'='0')",
        ]
    )
    return Action(table, f"alter table {table.full_name} {told}")


def leave_open(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    """A transaction with a write id and a lock on the table that writes nothing and stays open for some steps."""
    return None if table.style == "plain" else Action(table, "-- a transaction is left open")


def compact(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    if table.style == "plain" or (table.keys and not table.partitions):
        return None
    key = draw_key(world, table, draw, known=True)
    if None in key:
        return None
    into = f" {partition(table, key)}" if table.keys else ""
    return Action(
        table, f"alter table {table.full_name}{into} compact '{draw.choice(['major', 'minor'])}'", refused=True
    )
