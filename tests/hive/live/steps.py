"""
Which statement comes next in a live history, and how it is run: every step draws from random numbers of its own. Pure.

So a history in which steps are missing is a history as well: that is how failing ones are shrunk.
"""

import random
from collections.abc import Callable

from tests.hive.live import alterations, definitions, writes
from tests.hive.live.tables import Table
from tests.hive.live.world import Action, Step, World

SHARED = {"insert", "dynamic", "select", "update", "delete", "merge", "load", "compact", "open", "stream", "multi"}
"""Kinds that don't wait for locks of others that write."""
OVERWRITES = {"overwrite", "overwrite-select", "load-overwrite"}
WRITES = SHARED - {"compact", "open", "stream"} | OVERWRITES
DEFINITIONS = {
    "ctas",
    "truncate",
    "add-column",
    "widen-column",
    "rename-column",
    "swap-columns",
    "move-column",
    "replace-columns",
    "rename",
    "drop",
    "drop-partition",
    "rename-partition",
    "migrate",
}
COLUMN_KINDS = {"add-column", "widen-column", "rename-column", "swap-columns", "move-column", "replace-columns"}
"""Those that change the list of columns."""
KINDS = {
    "insert": 14,
    "dynamic": 6,
    "select": 6,
    "update": 10,
    "delete": 6,
    "merge": 6,
    "overwrite": 3,
    "overwrite-select": 5,
    "create": 3,
    "truncate": 2,
    "load": 2,
    "load-overwrite": 2,
    "ctas": 2,
    "add-column": 4,
    "widen-column": 4,
    "rename-column": 4,
    "swap-columns": 2,
    "move-column": 1,
    "replace-columns": 3,
    "multi": 3,
    "import": 1,
    "repair": 1,
    "concatenate": 1,
    "properties": 1,
    "rename": 2,
    "drop": 1,
    "drop-partition": 2,
    "rename-partition": 2,
    "migrate": 3,
    "alter": 4,
    "truncate-columns": 1,
    "add-partition": 3,
    "exchange": 1,
    "convert": 2,
    "view": 1,
    "compact": 5,
    "open": 2,
    "stream": 3,
}
"""Kinds of steps and how often they come."""
_MODES = {"plain": 55, "rolled back": 15, "fails": 10, "held": 10, "reader": 10}
_MODES_OF_DEFINITIONS = {"plain": 40, "rolled back": 20, "fails": 20, "held": 20}


def choose(world: World, number: int, most: int = 4) -> Step:
    """The next step of a history."""
    draw = random.Random(f"{world.seed}/{number}/kind")
    if len(world.tables) < 2:
        return Step(number, "create", f"t{number}")
    kind = draw.choices(list(KINDS), list(KINDS.values()))[0]
    if kind in {"create", "ctas", "import", "exchange", "convert", "view"} and len(world.tables) >= most:
        kind = "insert"
    root = draw.choice(sorted(world.tables))
    if kind != "create" and world.tables[root].view:
        kind = "of-view"
    viewed = any(table.view == root for table in world.tables.values())
    if viewed and kind in {"truncate", "drop-partition", "rename-partition"}:
        kind = "delete"  # docs/testing.md
    if kind == "create":
        root = f"t{number}"
    modes = _modes(world, kind)
    mode = draw.choices(list(modes), list(modes.values()))[0]
    if world.forgets and _unnoted(kind, mode, world.tables.get(root)):
        mode = "plain"
    return Step(number, kind, root, mode)


def _modes(world: World, kind: str) -> dict[str, int]:
    """
    How a statement may be run, and how often it is.

    What Hive itself leaves behind where it fails midway, or is rolled back after its catalog was changed, is left out:
    rows of a dropped or renamed partition that come back with the next one of that name, half a copy of a renamed one.
    """
    if kind in WRITES:
        return _MODES
    if kind not in DEFINITIONS:
        return {"plain": 1}
    left_out = set()
    if kind in COLUMN_KINDS:
        left_out = {"fails", "held"}
    if kind == "drop-partition" or (kind == "rename-partition" and world.soft(kind)):
        left_out = {"fails", *(["rolled back"] if world.soft(kind) else [])}
    reader = (
        {"reader": 20} if world.lockless and kind in {"truncate", "drop", "drop-partition", "rename-partition"} else {}
    )
    return {mode: weight for mode, weight in (_MODES_OF_DEFINITIONS | reader).items() if mode not in left_out}


def _unnoted(kind: str, mode: str, table: Table | None) -> bool:
    """
    Whether Hive 3.1 has no component of such a writer when it is undone: it reads its own table, makes it, or fails
    before its partitions are made known.
    """
    undone = kind in {"select", "overwrite-select", "ctas", "multi"} and mode in {"rolled back", "fails"}
    return undone or (mode == "fails" and table is not None and bool(table.keys))


def build(world: World, step: Step) -> Action | None:
    """SQL and effect of a step; None: with the tables as they are it makes no sense."""
    draw = world.draw(step.number)
    if step.kind == "create":
        return definitions.create(world, step, draw)
    table = world.tables.get(step.root)
    return None if table is None else _BUILDERS[step.kind](world, step, table, draw)


_BUILDERS: dict[str, Callable[[World, Step, Table, random.Random], Action | None]] = {
    "insert": writes.insert,
    "dynamic": writes.dynamic,
    "select": writes.select,
    "update": writes.update,
    "delete": writes.delete,
    "merge": writes.merge,
    "overwrite": writes.overwrite,
    "overwrite-select": writes.overwrite_select,
    "load": writes.load,
    "load-overwrite": writes.load,
    "stream": writes.stream,
    "ctas": definitions.ctas,
    "truncate": definitions.truncate,
    "add-column": definitions.add_column,
    "widen-column": definitions.widen_column,
    "rename-column": definitions.rename_column,
    "swap-columns": definitions.swap_columns,
    "move-column": definitions.move_column,
    "replace-columns": definitions.replace_columns,
    "multi": writes.multi,
    "import": definitions.import_table,
    "repair": definitions.repair,
    "concatenate": definitions.concatenate,
    "properties": definitions.set_properties,
    "rename": definitions.rename,
    "drop": definitions.drop,
    "drop-partition": definitions.drop_partition,
    "rename-partition": definitions.rename_partition,
    "migrate": definitions.migrate,
    "alter": alterations.alter,
    "truncate-columns": alterations.truncate_columns,
    "add-partition": alterations.add_partition,
    "exchange": alterations.exchange,
    "convert": alterations.convert,
    "view": alterations.view,
    "of-view": alterations.of_view,
    "compact": definitions.compact,
    "open": definitions.leave_open,
}
