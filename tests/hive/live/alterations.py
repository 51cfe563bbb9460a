"""
Statements of a live history about what the catalog says of a table or partition, and what is made beside a table: its
materialized view, a table like it, one whose kind changes. Each with what it does to the model. Pure.
"""

import copy
import random

from tests.hive.live.kinds import typed
from tests.hive.live.tables import Table, partition
from tests.hive.live.world import Action, Step, World, draw_key, draw_rows

OF_PARTITIONS = (
    "touch {part}",
    "archive {part}",
    "unarchive {part}",
    "{part} set fileformat orc",
    "{part} set fileformat textfile",
    "{part} set serdeproperties ('serialization.format'='1')",
    "{part} set serde 'org.apache.hadoop.hive.ql.io.orc.OrcSerde'",
    "{part} update columns",
    "{part} add columns (own{number} int)",
)
"""Forms of ALTER TABLE … PARTITION that move no row; some are refused."""
OF_TABLES = (
    "touch",
    "set fileformat textfile",
    "set serde 'org.apache.hadoop.hive.ql.io.orc.OrcSerde'",
    "skewed by (id) on (1)",
    "not skewed",
    "set owner user other",
    "add constraint k{number} primary key (id) disable novalidate",
    "set tblproperties ('comment'='{number}')",
    "set tblproperties ('transactional_properties'='insert_only')",
    "set tblproperties ('transactional'='false')",
    "update columns",
)
"""The same of tables."""


def alter(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    """
    No row changes. A partition gets columns of its own, but not where Hive 3.1's own job goes by them.
    """
    key = draw_key(world, table, draw, known=True)
    if table.partitions and None not in key and draw.random() < 0.7:
        forms = [form for form in OF_PARTITIONS if world.cascades(table) is None or "add columns" not in form]
        told = draw.choice(forms).format(part=partition(table, key), number=step.number)
    else:
        forms = [form for form in OF_TABLES if table.style != "plain" or "transactional" not in form]
        told = draw.choice(forms).format(number=step.number)
    return Action(table, f"alter table {table.full_name} {told}", refused=True)


def truncate_columns(world: World, step: Step, table: Table, draw: random.Random) -> Action:
    """Both releases refuse it of ORC, and of insert-only tables in any format."""
    name, _ = draw.choice(table.columns[2:])
    return Action(table, f"truncate table {table.full_name} columns ({name})", refused=True)


def add_partition(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    """
    An empty one, or one in a place of its own: by ADD PARTITION … LOCATION, which Hive 3.1 takes for a LOAD DATA that
    finds nothing and fails, or by SET LOCATION.
    """
    key = draw_key(world, table, draw)
    if not table.keys or None in key or key in table.partitions:
        return None
    part, place = partition(table, key), f"location 'file://{world.places}/part-{step.number}'"
    alter, first = f"alter table {table.full_name}", []
    how = draw.choice(["plain", "location", "set location"])
    sql = f"{alter} add if not exists {part}"
    if how == "location" and world.version == "4":
        sql = f"{alter} add {part} {place}"
    elif how == "set location":
        first, sql = [f"{alter} add {part}"], f"{alter} {part} set {place}"
    # refused where a writer that was undone has made the partition known
    return Action(table, sql, lambda: table.partitions.add(key), first=first, refused=how != "plain")


def exchange(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    """
    EXCHANGE PARTITION with a new table that is LIKE this one: refused where this one is transactional. The twin loses
    the partition.
    """
    key = draw_key(world, table, draw, known=True)
    if not table.partitions or None in key:
        return None
    made = copy.deepcopy(table)
    made.root = made.name = f"t{step.number}"
    made.place = None
    for other in table.partitions - {key}:
        made.clear(other)
    made.partitions = {key}

    def effect() -> None:
        world.tables[made.root] = made
        table.clear(key)
        table.partitions.discard(key)

    return Action(
        made,
        f"alter table {made.full_name} exchange {partition(table, key)} with table {table.full_name}",
        effect,
        first=[f"create table {made.full_name} like {table.full_name}"],
        also=table,
        alone={table.root: f"alter table {table.full_name} drop {partition(table, key)}"},
        refused=table.style != "plain",
    )


def convert(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    """
    An insert-only table made full ACID: Hive 3.1 refuses it. Hive 4 reads its files where they lie in directories that
    their writers made, not those that a compaction made (docs/compaction.md): so a new one, that nothing compacts
    before.
    """
    change = "'transactional_properties'='default', 'no_auto_compaction'='false'"
    if world.version == "3":
        if table.style != "insert-only":
            return None
        return Action(table, f"alter table {table.full_name} set tblproperties ({change})", refused=True)
    made = Table(f"t{step.number}", table.database, f"t{step.number}", "full", by_position=world.by_position)
    made.columns, made.keys = list(table.columns), list(table.keys[:1])
    key = draw_key(world, made, draw)
    if None in key:
        return None
    name, into = made.full_name, f" {partition(made, key)}" if made.keys else ""
    parts = f" partitioned by ({', '.join(' '.join(one) for one in made.keys)})" if made.keys else ""
    columns = ", ".join(" ".join(one) for one in made.columns)
    kept = "'transactional'='true', 'transactional_properties'='insert_only', 'no_auto_compaction'='true'"
    first = [f"create table {name} ({columns}){parts} stored as orc tblproperties ({kept})"]
    rows = []
    for verb in draw.choice([["into", "into"], ["into", "overwrite", "into"]]):
        new = draw_rows(world, made, draw, step, [key])
        rows = [*(rows if verb == "into" else []), *new]
        selects = (
            "select " + ", ".join(typed(value, kind) for value, (_, kind) in zip(row, made.columns, strict=False))
            for row in new
        )
        first.append(f"insert {verb} table {name}{into} {' union all '.join(selects)}")

    def effect() -> None:
        world.tables[made.root] = made
        made.put(rows)

    return Action(made, f"alter table {name} set tblproperties ({change})", effect, first=first)


def view(world: World, step: Step, table: Table, draw: random.Random) -> Action | None:
    """A materialized view of a table's first two columns."""
    if table.style == "plain" or table.view:
        return None
    made = Table(f"t{step.number}", table.database, f"t{step.number}", "full", by_position=world.by_position)
    made.columns, made.view = table.columns[:2], table.root
    rows = _viewed(table)

    def effect() -> None:
        world.tables[made.root] = made
        made.put(rows)

    sql = (
        f"create materialized view {made.full_name} stored as orc tblproperties ('transactional'='true') "
        f"as select id, v from {table.full_name}"
    )
    return Action(made, sql, effect)


def of_view(world: World, step: Step, table: Table, draw: random.Random) -> Action:
    """
    It is built anew, as a whole: unless its table is gone, or has another name. It may be asked for a compaction or
    dropped; what else changes rows is refused. It is built by an INSERT OVERWRITE: one that finds no rows leaves it as
    it was in Hive 3.1.
    """
    source = world.tables.get(table.view)
    how = draw.random()

    def drop() -> None:
        del world.tables[table.root]

    def rebuilt() -> None:
        if source is not None and (source.rows or world.version == "4"):
            table.clear()
            table.put(_viewed(source))

    if how < 0.1:
        return Action(table, f"drop materialized view {table.full_name}", drop)
    if how < 0.3:
        return Action(table, f"alter table {table.full_name} compact 'major'", refused=True)
    if how < 0.45:
        wrong = draw.choice(["insert into {} values (0, 'no')", "delete from {}", "truncate table {}", "drop table {}"])
        return Action(table, wrong.format(table.full_name), refused=True)
    return Action(
        table,
        f"alter materialized view {table.full_name} rebuild",
        rebuilt,
        keeps=False,
        first=["set hive.materializedview.rebuild.incremental=false"],
        refused=True,
    )


def _viewed(table: Table) -> list[tuple[str | None, ...]]:
    return [row[:2] for row in table.expected()]
