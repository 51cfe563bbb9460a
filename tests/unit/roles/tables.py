"""Tables that a Worker has compacted, and what stands in their directories."""


def hidden(table):
    return [path.name for path in table.location.iterdir() if path.name.startswith(".")]


def visible(table):
    return sorted(path.name for path in table.location.iterdir() if not path.name.startswith("."))


def bases(table):
    return [name for name in visible(table) if name.startswith("base_")]


def compacted(world, **options):
    """A table with four deltas and their base, ready for cleaning."""
    table = world.table(rows=4, insert_only=True, **options)
    world.compact(table)
    return table
