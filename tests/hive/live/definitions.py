"""
Statements of a live history that make, change and drop tables and partitions, or ask for a compaction: each with what
it does to the model. Pure.
"""

import random

from tests.hive.live.kinds import ADDED, WIDER, widened
from tests.hive.live.tables import COLUMNS, Table, partition
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
    more = [(f"x{number}", draw.choice(ADDED)) for number in range(draw.choice([0, 0, 1, 2]))]
    table = Table(
        step.root,
        draw.choice(world.databases),
        step.root,
        style,
        buckets,
        columns=[*COLUMNS, *more],
        keys=keys,
        place=place,
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
    made = Table(name, draw.choice(world.databases), name, style, columns=columns, keys=keys)
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
    name, kind = f"c{step.number}", draw.choice(ADDED)

    def effect() -> None:
        width = len(table.columns)
        table.columns.append((name, kind))
        for number, row in table.rows.items():
            table.rows[number] = (*row[:width], None, *row[width:])

    return Action(
        table,
        f"alter table {table.full_name} add columns ({name} {kind}){' cascade' if table.keys else ''}",
        effect,
        effect,
        keeps=False,
    )


def widen_column(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    narrow = [index for index, (name, kind) in enumerate(table.columns) if kind in WIDER and name != "id"]
    if not narrow:
        return None
    index = draw.choice(narrow)
    name, old = table.columns[index]
    new = draw.choice(WIDER[old])
    if old.startswith("decimal") and any(row[index] is None for row in table.rows.values()):
        return None  # a stripe of NULLs alone before one without: ORC reads the first value of each batch for all (docs/testing.md)

    def effect() -> None:
        table.columns[index] = name, new
        for number, row in table.rows.items():
            table.rows[number] = (*row[:index], widened(row[index], old, new, world.version), *row[index + 1 :])

    sql = f"alter table {table.full_name} change column {name} {name} {new}{' cascade' if table.keys else ''}"
    return Action(table, sql, effect, effect, keeps=False)


def rename(world: World, step: Step, table: Table, draw: random.Random) -> Action:
    name = f"{table.root}_r{step.number}"

    def effect() -> None:
        table.name = name

    return Action(table, f"alter table {table.full_name} rename to {table.database}.{name}", effect, effect)


def drop(world: World, step: Step, table: Table, draw: random.Random) -> Action:
    def effect() -> None:
        del world.tables[table.root]

    return Action(table, f"drop table {table.full_name}", effect, effect)


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
    if table.style != "plain":
        return None

    def effect() -> None:
        table.style, table.migrated = "full", True

    return Action(
        table, f"alter table {table.full_name} set tblproperties ('transactional'='true')", effect, effect, keeps=False
    )


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
