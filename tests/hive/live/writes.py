"""Statements of a live history that write rows: each with what it does to the model. Pure."""

import copy
import random

from tests.hive.live.kinds import literal, nested, typed
from tests.hive.live.tables import Row, Table, partition
from tests.hive.live.world import Action, Step, World, draw_key, draw_rows


def _rows(table: Table, rows: list[Row], *, keys: bool = False) -> str:
    """VALUES; where they have others inside, the selects that VALUES can't say in every release."""
    if any(nested(kind) for _, kind in table.columns):
        return _selects(table, rows, keys=keys)
    kinds = [kind for _, kind in (table.columns + (table.keys if keys else []))]
    told = (", ".join(literal(value, kind) for value, kind in zip(row, kinds, strict=False)) for row in rows)
    return "values " + ", ".join(f"({values})" for values in told)


def _selects(table: Table, rows: list[Row], *, keys: bool = False) -> str:
    kinds = [kind for _, kind in (table.columns + (table.keys if keys else []))]
    told = (", ".join(typed(value, kind) for value, kind in zip(row, kinds, strict=False)) for row in rows)
    return " union all ".join(f"select {values}" for values in told)


def insert(world: World, step: Step, table: Table, draw: random.Random) -> Action:
    key = draw_key(world, table, draw)
    if None in key:
        return dynamic(world, step, table, draw)
    rows = draw_rows(world, table, draw, step, [key])
    into = f" {partition(table, key)}" if table.keys else ""
    return Action(table, f"insert into {table.full_name}{into} {_rows(table, rows)}", lambda: table.put(rows))


def dynamic(world: World, step: Step, table: Table, draw: random.Random) -> Action:
    keys = [draw_key(world, table, draw) for _ in range(2)]
    rows = draw_rows(world, table, draw, step, keys)
    into = f" partition({', '.join(name for name, _ in table.keys)})" if table.keys else ""
    return Action(
        table, f"insert into {table.full_name}{into} {_rows(table, rows, keys=True)}", lambda: table.put(rows)
    )


def _some(table: Table, draw: random.Random) -> tuple[str, list[Row]]:
    """
    A condition and the rows that meet it. None asks for NULL among partition values: Hive finds no row of such a
    partition by IS NULL.
    """
    divisor = draw.choice([1, 2, 3, 5])
    rest = draw.randrange(divisor)
    condition, rows = (
        f"id % {divisor} = {rest}",
        [row for row in table.rows.values() if int(row[0] or 0) % divisor == rest],
    )
    known = sorted(key for key in table.partitions if None not in key)
    if known and draw.random() < 0.4:
        key = draw.choice(known)
        condition += "".join(
            f" and {name} = {literal(value, kind)}" for (name, kind), value in zip(table.keys, key, strict=True)
        )
        rows = [row for row in rows if table.key(row) == key]
    return condition, rows


def _told(step: Step) -> str:
    """Column v with the step that wrote it, through a break point."""
    value = f"concat(v, '>{step.number}')"
    return f"hold('step {step.number}', {value})" if step.mode in {"held", "fails"} else value


def select(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    condition, rows = _some(table, draw)
    if not rows or len(rows) > 200:
        return None
    offset = world.last_id
    world.last_id += max(int(row[0] or 0) for row in rows)
    made = [(str(int(row[0] or 0) + offset), f"{row[1]}>{step.number}", *row[2:]) for row in rows]
    names = ", ".join([f"id + {offset}", _told(step), *(name for name, _ in (*table.columns[2:], *table.keys))])
    into = f" partition({', '.join(name for name, _ in table.keys)})" if table.keys else ""
    return Action(
        table,
        f"insert into {table.full_name}{into} select {names} from {table.full_name} where {condition}",
        lambda: table.put(made),
    )


def update(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    if table.style != "full":
        return None
    condition, rows = _some(table, draw)
    made = [(row[0], f"{row[1]}+{step.number}", *row[2:]) for row in rows]
    return Action(
        table,
        f"update {table.full_name} set v = concat(v, '+{step.number}') where {condition}",
        lambda: table.put(made),
    )


def delete(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    if table.style != "full":
        return None
    condition, rows = _some(table, draw)
    return Action(table, f"delete from {table.full_name} where {condition}", lambda: table.take(rows))


def merge(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    if table.style != "full" or not table.rows:
        return None
    met = draw.sample(table.expected(), min(len(table.rows), draw.randrange(1, 6)))
    key = draw_key(world, table, draw)
    fresh = [
        (str(number), f"m{step.number}", *([None] * (len(table.columns) - 2)), *key)
        for number in world.ids(draw.randrange(1, 4))
    ]
    changed = [(row[0], f"m{step.number}", *row[2:]) for row in met if int(row[0] or 0) % 2 == 0]
    gone = [row for row in met if int(row[0] or 0) % 2]
    source = " union all ".join(f"select {row[0]} as mid, 'm{step.number}' as mv" for row in (*met, *fresh))
    nulls = "".join(f", {typed(None, kind)}" for _, kind in table.columns[2:])
    keys = "".join(
        f", cast({literal(value, kind)} as {kind})" for (_, kind), value in zip(table.keys, key, strict=True)
    )
    sql = (
        f"merge into {table.full_name} t using ({source}) s on t.id = s.mid when matched and s.mid % 2 = 0 then update set v = s.mv "
        f"when matched and s.mid % 2 = 1 then delete when not matched then insert values (s.mid, s.mv{nulls}{keys})"
    )

    def effect() -> None:
        table.put([*changed, *fresh])
        table.take(gone)

    return Action(table, sql, effect)


def multi(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    """FROM a table INSERT INTO this one and another: one transaction, one job."""
    others = [
        other
        for root, other in sorted(world.tables.items())
        if root != table.root and other.style != "plain" and not other.view
    ]
    if table.style == "plain" or not others:
        return None
    other, source = draw.choice(others), world.tables[draw.choice(sorted(world.tables))]
    parts, puts = [], []
    for target in (table, other):
        condition, rows = _some(source, draw)
        key = draw_key(world, target, draw)
        if len(rows) > 200 or not rows:
            return None
        offset = world.last_id
        world.last_id += max(int(row[0] or 0) for row in rows)
        same = {column: number for number, column in enumerate(source.columns)}
        there = [(same.get(column), *column) for column in target.columns[2:]]
        made = [
            (
                str(int(row[0] or 0) + offset),
                f"{row[1]}>{step.number}",
                *(None if index is None else row[index] for index, _, _ in there),
                *key,
            )
            for row in rows
        ]
        names = [f"id + {offset}", f"concat(v, '>{step.number}')"]
        names += [typed(None, kind) if index is None else name for index, name, kind in there]
        names += [typed(value, kind) for (_, kind), value in zip(target.keys, key, strict=True)]
        into = f" partition({', '.join(name for name, _ in target.keys)})" if target.keys else ""
        parts.append(f"insert into table {target.full_name}{into} select {', '.join(names)} where {condition}")
        puts.append((target, made))

    def effect() -> None:
        for target, made in puts:
            target.put(made)

    begin = f"from {source.full_name}"
    alone = {target.root: f"{begin} {part}" for target, part in zip((table, other), parts, strict=True)}
    return Action(table, f"{begin} {' '.join(parts)}", effect, also=other, alone=alone)


def overwrite(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    key = draw_key(world, table, draw)
    if None in key:
        return None
    rows = draw_rows(world, table, draw, step, [key])
    into = f" {partition(table, key)}" if table.keys else ""

    def effect() -> None:
        table.clear(key if table.keys else None)
        table.put(rows)

    return Action(table, f"insert overwrite table {table.full_name}{into} {_selects(table, rows)}", effect)


def overwrite_select(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    """
    INSERT OVERWRITE from any table, itself too: of the whole table, of a partition, or of those partitions for which
    rows are found.

    Where no rows are found Hive 3.1 leaves a full ACID table as it was, an insert-only one where the other table has no
    partitions, and fails over a partition of an insert-only one that isn't there yet.
    """
    source = world.tables[draw.choice(sorted(world.tables))]
    condition, rows = _some(source, draw)
    if len(rows) > 200:
        return None
    offset = world.last_id
    world.last_id += max((int(row[0] or 0) for row in rows), default=0)
    places = [draw_key(world, table, draw) for _ in range(2)]
    static = not table.keys or (None not in places[0] and draw.random() < 0.4)
    same = {column: number for number, column in enumerate(source.columns)}
    there = [same.get(column) for column in table.columns[2:]]

    def made(row: Row) -> Row:
        number = int(row[0] or 0)
        values = [None if index is None else row[index] for index in there]
        return (str(number + offset), f"{row[1]}>{step.number}", *values, *places[0 if static else number % 2])

    new = [made(row) for row in rows]
    nothing = static and not new and world.version == "3"
    if nothing and table.style == "plain":
        return None
    new_partition = places[0] not in {(), *table.partitions}
    if nothing and table.style == "insert-only" and (new_partition or (source.keys and not source.partitions)):
        return None
    names = [
        name if index is not None else typed(None, kind)
        for index, (name, kind) in zip(there, table.columns[2:], strict=True)
    ]
    if not static:
        both = [
            [f"cast({literal(value, kind)} as {kind})" for (_, kind), value in zip(table.keys, place, strict=True)]
            for place in places
        ]
        names += [f"if(id % 2 = 0, {even}, {odd})" for even, odd in zip(*both, strict=True)]
    into = (
        ""
        if not table.keys
        else f" {partition(table, places[0])}"
        if static
        else f" partition({', '.join(name for name, _ in table.keys)})"
    )
    query = f"select {', '.join([f'id + {offset}', _told(step), *names])} from {source.full_name} where {condition}"

    def effect() -> None:
        if static and (new or table.style != "full" or world.version == "4"):
            table.clear(places[0] if table.keys else None)
        for key in set() if static else {table.key(row) for row in new}:
            table.clear(key)
        table.put(new)

    return Action(table, f"insert overwrite table {table.full_name}{into} {query}", effect)


def _arrows(value: str | None, kind: str) -> str | None:
    """
    As Arrow can write it for Hive: no timestamp before 1970, whose fraction would get negative nanoseconds (Hive fails
    over them).
    """
    return None if kind == "timestamp" and (value or "") < "1970" else value


def _columns_of_file(table: Table, draw: random.Random) -> list[int]:
    """Which of the table's columns a file of LOAD DATA has, in its order: the id and v come first."""
    others = list(range(2, len(table.columns)))
    how = draw.random()
    if how < 0.3:
        draw.shuffle(others)
    elif how < 0.5:
        del others[draw.randrange(len(others) + 1) :]
    return [0, 1, *others]


def load(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    """
    An ORC file by another writer: columns in the table's order or another, some left out, under the table's names,
    under those that Hive gave unnamed ones, or under others.
    """
    key = draw_key(world, table, draw)
    if table.buckets or None in key:
        return None
    drawn = draw_rows(world, table, draw, step, [key])
    places, names = _columns_of_file(table, draw), draw.choices(["own", "unnamed", "other"], [60, 25, 15])[0]
    columns = []
    for number, place in enumerate(places):
        name, kind = table.columns[place]
        if names == "unnamed":
            name = f"_col{number}"
        elif names == "other" and number >= 2 and draw.random() < 0.5:
            name = f"foreign{number}"
        columns.append((name, "string" if kind.startswith(("char", "varchar")) else kind))
    rows = [tuple(_arrows(row[place], table.columns[place][1]) for place in places) for row in drawn]
    loaded = copy.deepcopy(table)
    loaded.put_file(columns, rows, key)
    if not loaded.readable(table.columns):
        return None
    overwrites = step.kind == "load-overwrite"

    def effect() -> None:
        if overwrites:
            table.clear(key if table.keys else None)
        table.put_file(columns, rows, key)

    into = f"{'overwrite ' if overwrites else ''}into table {table.full_name}{f' {partition(table, key)}' if table.keys else ''}"
    sql = f"load data local inpath '{world.places}/load-{step.number}.orc' {into}"
    return Action(table, sql, effect, file=rows, columns=columns)


def stream(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    """
    A batch of three transactions: each is committed, aborted, or the last one dies with its process.

    Hive 3.1.3's API fails on a migrated table, and where the location has a blank; of Hive 4 hive-streaming isn't on
    Maven Central.
    """
    key = draw_key(world, table, draw)
    blank = table.place is not None or table.database != world.databases[0]
    if any(nested(kind) for _, kind in table.columns):
        return None
    if table.style != "full" or table.migrated or blank or None in key or world.version == "4":
        return None
    lines, kept = [], []
    for number in range(3):
        end = draw.choice(["commit", "commit", "abort", *(["die"] if number == 2 else [])])
        rows = draw_rows(world, table, draw, step, [key])
        rows = [(row[0], f"s{row[0]}.{step.number}", *row[2:]) for row in rows]
        lines += [
            "begin",
            *(
                "row " + "|".join("\\N" if value is None else value for value in row[: len(table.columns)])
                for row in rows
            ),
            end,
        ]
        kept += rows if end == "commit" else []
    return Action(table, f"-- streamed: {lines} {key}", lambda: table.put(kept), stream=lines, key=key)
