"""What tests ask of a built warehouse: its rows by the reference reader, compared with the builder's books."""

from tests.reference.reader import read, read_insert_only
from tests.reference.values import canonical, parse_type


def schema_of(table):
    """The table's data columns as a schema string."""
    return "struct<" + ",".join(f"`{name}`:{kind}" for name, kind in table.columns) + ">"


def read_directory(location, schema, snapshot, *, insert_only=False):
    """Rows of one directory: (ROW__ID, row) pairs, or ((), row) for insert-only tables."""
    if insert_only:
        return [((), row) for row in read_insert_only(location, schema, snapshot.write_ids, snapshot.txns)]
    return [(tuple(key), row) for key, row in read(location, schema, snapshot.write_ids, snapshot.txns)]


def read_table(warehouse, table, snapshot=None):
    """Rows of every directory, by partition name, under a snapshot (now, unless given)."""
    chosen = snapshot or warehouse.snapshot(table)
    return {
        name: read_directory(directory.location, schema_of(table), chosen, insert_only=table.insert_only)
        for name, directory in table.directories.items()
    }


def expected_rows(warehouse, table):
    """What the builder's books say, in the same form."""
    kinds = [parse_type(kind) for _, kind in table.columns]
    found = {}
    for name, rows in warehouse.expected(table).items():
        pairs = [
            (() if table.insert_only else tuple(key), tuple(map(canonical, kinds, row))) for key, row in rows.items()
        ]
        found[name] = sorted(pairs, key=repr) if table.insert_only else sorted(pairs, key=lambda pair: pair[0])
    return found


def assert_as_expected(warehouse, table):
    """The files hold exactly what was asked for."""
    assert read_table(warehouse, table) == expected_rows(warehouse, table)
