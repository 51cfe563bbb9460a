"""
Statements of a live history: a seeded step, together with the model, gives SQL and what it does to the model. Pure.

A step draws from random numbers of its own, so a history in which steps are missing is a history as well: that is how failing ones are shrunk.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.hive.live.tables import COLUMNS, Key, Row, Table, literal, partition

WORDS = ["x", "ü", "it's", "a\\b", "雪", "", "long " * 20]
ASCII_VALUES: list[str | None] = ["Abc", "abc", "a b", "c/d", "e=f%:#\"'", "10:00", "100%", "plain", None]
VALUES: list[str | None] = [*ASCII_VALUES, "ü雪"]
NUMBERS: list[str | None] = ["1", "2", None]
SHARED = {"insert", "dynamic", "select", "update", "delete", "merge", "load", "compact", "open", "stream"}
"""Kinds that don't wait for locks of others that write."""
WRITES = ("insert", "insert", "insert", "dynamic", "select", "update", "update", "delete", "merge", "overwrite")
KINDS = {
    **dict.fromkeys(WRITES, 6),
    "insert": 14,
    "update": 10,
    "create": 3,
    "truncate": 2,
    "load": 3,
    "ctas": 1,
    "add-column": 2,
    "widen-column": 2,
    "rename": 2,
    "drop": 1,
    "drop-partition": 2,
    "rename-partition": 2,
    "exchange": 1,
    "migrate": 3,
    "compact": 5,
    "open": 2,
    "stream": 3,
}
"""Kinds of steps and how often they come."""


@dataclass(frozen=True)
class Step:
    """
    One step.

    Args:
        kind: see `KINDS`.
        root: the table it is about.
        mode: "plain"; "rolled back" at its end; "fails" or "held" at a break point; "reader" (one is held while it runs).
    """

    number: int
    kind: str
    root: str
    mode: str = "plain"


@dataclass
class Action:
    """
    What a step does now.

    Args:
        sql: the statement.
        effect: changes the model when the statement succeeded.
        keeps: rows whose values stay keep their ROW__ID.
        refused: Hive may refuse it.
        file: rows that LOAD DATA finds in a file.
        stream: instead of a statement, lines for Hive's streaming API (Stream.java), into the partition `key`.
    """

    table: Table
    sql: str
    effect: Callable[[], None] = lambda: None
    keeps: bool = True
    refused: bool = False
    file: list[Row] = field(default_factory=list)
    stream: list[str] = field(default_factory=list)
    key: Key = ()


@dataclass
class World:
    """Every table, by root; ids handed out; what this history may use."""

    seed: int
    places: str
    databases: tuple[str, ...]
    values: list[str | None]
    tables: dict[str, Table] = field(default_factory=dict)
    last_id: int = 0
    streams: bool = False
    """Whether Hive's streaming API can be had: hive-streaming 4.x isn't on Maven Central."""
    forgets: bool = False
    """Whether a purge of Hive's may bring back the rows of a writer that it knows nothing of, before our Cleaner has noted it."""

    def draw(self, number: int) -> random.Random:
        """Random numbers of a step."""
        return random.Random(f"{self.seed}/{number}")

    def ids(self, count: int) -> list[int]:
        """New ones."""
        self.last_id += count
        return list(range(self.last_id - count + 1, self.last_id + 1))


def choose(world: World, number: int, most: int = 4) -> Step:
    """The next step of a history."""
    draw = random.Random(f"{world.seed}/{number}/kind")
    if len(world.tables) < 2:
        return Step(number, "create", f"t{number}")
    kind = draw.choices(list(KINDS), list(KINDS.values()))[0]
    if kind in {"create", "ctas"} and len(world.tables) >= most:
        kind = "insert"
    root = draw.choice(sorted(world.tables))
    if kind == "create":
        root = f"t{number}"
    plain = kind not in {*WRITES, "load"}
    mode = "plain" if plain else draw.choices(["plain", "rolled back", "fails", "held", "reader"], [55, 15, 10, 10, 10])[0]
    if world.forgets and _unnoted(kind, mode, world.tables.get(root)):
        mode = "plain"
    return Step(number, kind, root, mode)


def _unnoted(kind: str, mode: str, table: Table | None) -> bool:
    """Whether Hive 3.1 has no component of such a writer when it is undone: it reads its own table, or fails before its partitions are made known."""
    by_itself = kind == "select" and mode in {"rolled back", "fails"}
    return by_itself or (mode == "fails" and table is not None and bool(table.keys))


def build(world: World, step: Step) -> Action | None:
    """SQL and effect of a step; None: with the tables as they are it makes no sense."""
    draw = world.draw(step.number)
    if step.kind == "create":
        return _create(world, step, draw)
    table = world.tables.get(step.root)
    return None if table is None else _BUILDERS[step.kind](world, step, table, draw)


def _create(world: World, step: Step, draw: random.Random) -> Action:
    style = draw.choices(["full", "insert-only", "plain"], [70, 15, 15])[0]
    buckets = draw.choices([0, 1, 2, 5, 16, 256], [42, 12, 22, 16, 7, 1])[0] if style == "full" else 0
    keys = draw.choice([[], [], [("p", "string")], [("p", "string"), ("q", "int")]])
    place = f"{world.places}/{step.root}" if draw.random() < 0.15 else None
    table = Table(step.root, draw.choice(world.databases), step.root, style, buckets, keys=keys, place=place)
    columns = ", ".join(f"{name} {kind}" for name, kind in table.columns)
    parts = f" partitioned by ({', '.join(f'{name} {kind}' for name, kind in keys)})" if keys else ""
    clustered = f" clustered by (id) into {buckets} buckets" if buckets else ""
    location = f" location 'file://{place}'" if place else ""
    properties = {
        "full": "'transactional'='true'",
        "insert-only": "'transactional'='true', 'transactional_properties'='insert_only'",
        "plain": "'transactional'='false'",
    }
    sql = f"create table {table.full_name} ({columns}){parts}{clustered} stored as orc{location} tblproperties ({properties[style]})"
    return Action(table, sql, lambda: world.tables.__setitem__(table.root, table))


def _key(world: World, table: Table, draw: random.Random, *, known: bool = False) -> Key:
    """Partition values, often those of a partition that is there."""
    if not table.keys:
        return ()
    if table.partitions and (known or draw.random() < 0.7):
        return draw.choice(sorted(table.partitions, key=repr))
    return tuple(draw.choice(world.values if kind == "string" else NUMBERS) for _, kind in table.keys)


def _row(table: Table, number: int, key: Key, draw: random.Random, step: Step) -> Row:
    values: list[str | None] = []
    for name, kind in table.columns:
        value = None
        if name == "id":
            value = str(number)
        elif name == "v":
            value = f"{draw.choice(WORDS)}{number}.{step.number}"
        elif draw.random() < 0.8:
            if kind.startswith("decimal"):
                value = f"{draw.randrange(-99999, 99999)}.{draw.choice(['5', '25', '125'])}"
            elif kind == "timestamp":
                value = f"{draw.randrange(1800, 2200)}-{draw.randrange(1, 13):02}-{draw.randrange(1, 29):02} {draw.randrange(24):02}:00:{draw.randrange(60):02}.{draw.choice(['5', '000001', '123'])}"
            else:
                value = str(draw.randrange(-1000, 1000))
        values.append(value)
    return (*values, *key)


def _rows(world: World, table: Table, draw: random.Random, step: Step, keys: list[Key]) -> list[Row]:
    return [_row(table, number, draw.choice(keys), draw, step) for number in world.ids(draw.randrange(1, 6))]


def _values(table: Table, rows: list[Row], *, keys: bool) -> str:
    kinds = [kind for _, kind in (table.columns + (table.keys if keys else []))]
    return ", ".join("(" + ", ".join(literal(value, kind) for value, kind in zip(row[: len(kinds)], kinds, strict=True)) + ")" for row in rows)


def _selects(table: Table, rows: list[Row]) -> str:
    kinds = [kind for _, kind in table.columns]
    return " union all ".join(
        "select " + ", ".join(f"cast({literal(value, kind)} as {kind})" for value, kind in zip(row[: len(kinds)], kinds, strict=True)) for row in rows
    )


def _insert(world: World, step: Step, table: Table, draw: random.Random) -> Action:
    key = _key(world, table, draw)
    if None in key:
        return _dynamic(world, step, table, draw)
    rows = _rows(world, table, draw, step, [key])
    into = f" {partition(table, key)}" if table.keys else ""
    return Action(table, f"insert into {table.full_name}{into} values {_values(table, rows, keys=False)}", lambda: table.put(rows))


def _dynamic(world: World, step: Step, table: Table, draw: random.Random) -> Action:
    keys = [_key(world, table, draw) for _ in range(2)]
    rows = _rows(world, table, draw, step, keys)
    into = f" partition({', '.join(name for name, _ in table.keys)})" if table.keys else ""
    return Action(table, f"insert into {table.full_name}{into} values {_values(table, rows, keys=True)}", lambda: table.put(rows))


def _some(table: Table, draw: random.Random) -> tuple[str, list[Row]]:
    """A condition and the rows that meet it. None asks for NULL among partition values: Hive finds no row of such a partition by IS NULL."""
    divisor = draw.choice([1, 2, 3, 5])
    rest = draw.randrange(divisor)
    condition, rows = f"id % {divisor} = {rest}", [row for row in table.rows.values() if int(row[0] or 0) % divisor == rest]
    known = sorted(key for key in table.partitions if None not in key)
    if known and draw.random() < 0.4:
        key = draw.choice(known)
        condition += "".join(f" and {name} = {literal(value, kind)}" for (name, kind), value in zip(table.keys, key, strict=True))
        rows = [row for row in rows if table.key(row) == key]
    return condition, rows


def _select(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    condition, rows = _some(table, draw)
    if not rows or len(rows) > 200:
        return None
    offset = world.last_id
    world.last_id += max(int(row[0] or 0) for row in rows)
    made = [(str(int(row[0] or 0) + offset), f"{row[1]}>{step.number}", *row[2:]) for row in rows]
    held = f"hold('step {step.number}', concat(v, '>{step.number}'))" if step.mode in {"held", "fails"} else f"concat(v, '>{step.number}')"
    names = ", ".join([f"id + {offset}", held, *(name for name, _ in (*table.columns[2:], *table.keys))])
    into = f" partition({', '.join(name for name, _ in table.keys)})" if table.keys else ""
    return Action(table, f"insert into {table.full_name}{into} select {names} from {table.full_name} where {condition}", lambda: table.put(made))


def _update(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    if table.style != "full":
        return None
    condition, rows = _some(table, draw)
    made = [(row[0], f"{row[1]}+{step.number}", *row[2:]) for row in rows]
    return Action(table, f"update {table.full_name} set v = concat(v, '+{step.number}') where {condition}", lambda: table.put(made))


def _delete(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    if table.style != "full":
        return None
    condition, rows = _some(table, draw)
    return Action(table, f"delete from {table.full_name} where {condition}", lambda: table.take(rows))


def _merge(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    if table.style != "full" or not table.rows:
        return None
    met = draw.sample(table.expected(), min(len(table.rows), draw.randrange(1, 6)))
    key = _key(world, table, draw)
    fresh = [(str(number), f"m{step.number}", *([None] * (len(table.columns) - 2)), *key) for number in world.ids(draw.randrange(1, 4))]
    changed = [(row[0], f"m{step.number}", *row[2:]) for row in met if int(row[0] or 0) % 2 == 0]
    gone = [row for row in met if int(row[0] or 0) % 2]
    source = " union all ".join(f"select {row[0]} as mid, 'm{step.number}' as mv" for row in (*met, *fresh))
    nulls = "".join(f", cast(null as {kind})" for _, kind in table.columns[2:])
    keys = "".join(f", cast({literal(value, kind)} as {kind})" for (_, kind), value in zip(table.keys, key, strict=True))
    sql = (
        f"merge into {table.full_name} t using ({source}) s on t.id = s.mid when matched and s.mid % 2 = 0 then update set v = s.mv "
        f"when matched and s.mid % 2 = 1 then delete when not matched then insert values (s.mid, s.mv{nulls}{keys})"
    )

    def effect() -> None:
        table.put([*changed, *fresh])
        table.take(gone)

    return Action(table, sql, effect)


def _overwrite(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    key = _key(world, table, draw)
    if None in key:
        return None
    rows = _rows(world, table, draw, step, [key])
    into = f" {partition(table, key)}" if table.keys else ""

    def effect() -> None:
        table.clear(key if table.keys else None)
        table.put(rows)

    return Action(table, f"insert overwrite table {table.full_name}{into} {_selects(table, rows)}", effect)


def _truncate(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    key = _key(world, table, draw, known=True) if table.partitions and draw.random() < 0.7 else None
    if key is not None and None in key:
        return None
    return Action(table, f"truncate table {table.full_name}{f' {partition(table, key)}' if key else ''}", lambda: table.clear(key))


def _arrows(row: Row) -> Row:
    """As Arrow can write it for Hive: no timestamp before 1970, whose fraction would get negative nanoseconds (Hive fails over them)."""
    *others, time = row
    return row if time is None or time >= "1970" else (*others, None)


def _load(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    key = _key(world, table, draw)
    if table.buckets or None in key:
        return None
    rows = [(*_arrows(row[: len(COLUMNS)]), *([None] * (len(table.columns) - len(COLUMNS))), *key) for row in _rows(world, table, draw, step, [key])]
    into = f" {partition(table, key)}" if table.keys else ""
    return Action(
        table, f"load data local inpath '{world.places}/load-{step.number}.orc' into table {table.full_name}{into}", lambda: table.put(rows), file=rows
    )


def _ctas(world: World, step: Step, table: Table, draw: random.Random) -> Action:
    made = Table(f"t{step.number}", draw.choice(world.databases), f"t{step.number}", "full", columns=[*table.columns, *table.keys])
    rows = table.expected()

    def effect() -> None:
        world.tables[made.root] = made
        made.put(rows)

    sql = f"create table {made.full_name} stored as orc tblproperties ('transactional'='true') as select * from {table.full_name}"
    return Action(made, sql, effect)


def _add_column(world: World, step: Step, table: Table, draw: random.Random) -> Action:
    name = f"c{step.number}"

    def effect() -> None:
        width = len(table.columns)
        table.columns.append((name, "int"))
        for number, row in table.rows.items():
            table.rows[number] = (*row[:width], None, *row[width:])

    return Action(table, f"alter table {table.full_name} add columns ({name} int){' cascade' if table.keys else ''}", effect, keeps=False)


def _widen_column(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    narrow = [index for index, (name, kind) in enumerate(table.columns) if kind == "int" and name != "id"]
    if not narrow:
        return None
    index = draw.choice(narrow)
    name = table.columns[index][0]
    sql = f"alter table {table.full_name} change column {name} {name} bigint{' cascade' if table.keys else ''}"
    return Action(table, sql, lambda: table.columns.__setitem__(index, (name, "bigint")))


def _rename(world: World, step: Step, table: Table, draw: random.Random) -> Action:
    name = f"{table.root}_r{step.number}"
    return Action(table, f"alter table {table.full_name} rename to {table.database}.{name}", lambda: setattr(table, "name", name))


def _drop(world: World, step: Step, table: Table, draw: random.Random) -> Action:
    return Action(table, f"drop table {table.full_name}", lambda: world.tables.__delitem__(table.root))


def _drop_partition(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    key = _key(world, table, draw, known=True)
    if not table.partitions or None in key:
        return None

    def effect() -> None:
        table.clear(key)
        table.partitions.discard(key)

    return Action(table, f"alter table {table.full_name} drop {partition(table, key)}", effect)


def _rename_partition(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    key, new = _key(world, table, draw, known=True), tuple(draw.choice(["Moved", "moved on", "m:v"]) if kind == "string" else "7" for _, kind in table.keys)
    if not table.partitions or None in key or new in table.partitions:
        return None

    def effect() -> None:
        moved = [(*row[: len(table.columns)], *new) for row in table.rows.values() if table.key(row) == key]
        table.partitions.discard(key)
        table.partitions.add(new)
        table.put(moved)

    return Action(table, f"alter table {table.full_name} {partition(table, key)} rename to {partition(table, new)}", effect, refused=True)


def _exchange(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    others = [other for other in world.tables.values() if other is not table and other.keys == table.keys]
    key = _key(world, table, draw, known=True)
    if not table.partitions or not others or None in key or "full" not in {table.style, others[0].style}:
        return None
    return Action(table, f"alter table {others[0].full_name} exchange {partition(table, key)} with table {table.full_name}", refused=True)


def _migrate(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    if table.style != "plain":
        return None
    sql = f"alter table {table.full_name} set tblproperties ('transactional'='true')"
    return Action(table, sql, lambda: vars(table).update(style="full", migrated=True), keeps=False)


def _stream(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    """
    A batch of three transactions: each is committed, aborted, or the last one dies with its process.

    Hive 3.1.3's API fails on a migrated table, and where the location has a blank.
    """
    key = _key(world, table, draw)
    blank = table.place is not None or table.database != world.databases[0]
    if table.style != "full" or table.migrated or blank or None in key or not world.streams:
        return None
    lines, kept = [], []
    for number in range(3):
        end = draw.choice(["commit", "commit", "abort", *(["die"] if number == 2 else [])])
        rows = _rows(world, table, draw, step, [key])
        rows = [(row[0], f"s{row[0]}.{step.number}", *row[2:]) for row in rows]
        lines += ["begin", *("row " + "|".join("\\N" if value is None else value for value in row[: len(table.columns)]) for row in rows), end]
        kept += rows if end == "commit" else []
    return Action(table, f"-- streamed: {lines} {key}", lambda: table.put(kept), stream=lines, key=key)


def _open(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    """A transaction with a write id and a lock on the table that writes nothing and stays open for some steps."""
    return None if table.style == "plain" else Action(table, "-- a transaction is left open")


def _compact(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    if table.style == "plain" or (table.keys and not table.partitions):
        return None
    key = _key(world, table, draw, known=True)
    if None in key:
        return None
    into = f" {partition(table, key)}" if table.keys else ""
    return Action(table, f"alter table {table.full_name}{into} compact '{draw.choice(['major', 'minor'])}'", refused=True)


_BUILDERS: dict[str, Callable[[World, Step, Table, random.Random], Action | None]] = {
    "insert": _insert,
    "dynamic": _dynamic,
    "select": _select,
    "update": _update,
    "delete": _delete,
    "merge": _merge,
    "overwrite": _overwrite,
    "truncate": _truncate,
    "load": _load,
    "ctas": _ctas,
    "add-column": _add_column,
    "widen-column": _widen_column,
    "rename": _rename,
    "drop": _drop,
    "drop-partition": _drop_partition,
    "rename-partition": _rename_partition,
    "exchange": _exchange,
    "migrate": _migrate,
    "compact": _compact,
    "open": _open,
    "stream": _stream,
}
