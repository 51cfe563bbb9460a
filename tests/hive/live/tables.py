"""
What the model of a live history knows of a table: its columns, its partitions, its rows, and as what its files have
each row. Pure; a statement's effect is a change of these.

A row is a tuple of texts as JDBC prints them, NULL as None: columns first, then partition values. Its first value, the
id, is unique in a history.
"""

import re
from dataclasses import dataclass, field

from tests.hive.live.kinds import AS_READ, DEFAULT_PARTITION, WIDER, literal, nested, normal, widened

COLUMNS = [("id", "int"), ("v", "string"), ("n", "decimal(12,3)"), ("t", "timestamp")]
Row = tuple[str | None, ...]
Key = tuple[str | None, ...]
Columns = list[tuple[str, str]]


@dataclass(frozen=True)
class Stored:
    """
    A row as its file has it: a rewrite of the file, which reads the same, changes nothing of what it means.

    Args:
        columns: the file's own, in its order.
    """

    columns: tuple[tuple[str, str], ...]
    values: Row

    def place(self, index: int, name: str, *, by_position: bool) -> int | None:
        """Where a reader finds the table's column of this index and name; None: nowhere, it is NULL."""
        if by_position or all(re.fullmatch(r"_col\d+", own) for own, _ in self.columns):
            return index if index < len(self.columns) else None
        return next((place for place, (own, _) in enumerate(self.columns) if own == name), None)


@dataclass
class Table:
    """
    One table.

    Args:
        root: the name it was made with, by which a step of a history finds it after RENAME.
        style: "full" (ACID), "insert-only", or "plain": not transactional yet.
        place: directory given by LOCATION; None: where the database puts it.
        migrated: it was plain once.
        by_position: readers of its release find the columns of a file by their places, not by their names.
        former: columns that it had under names that it has no more.
        view: it is a materialized view of the table with this root.
    """

    root: str
    database: str
    name: str
    style: str
    buckets: int = 0
    columns: list[tuple[str, str]] = field(default_factory=lambda: list(COLUMNS))
    keys: list[tuple[str, str]] = field(default_factory=list)
    place: str | None = None
    rows: dict[str, Row] = field(default_factory=dict)
    partitions: set[Key] = field(default_factory=set)
    migrated: bool = False
    by_position: bool = False
    former: Columns = field(default_factory=list)
    view: str = ""
    stored: dict[str, Stored] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        return f"{self.database}.{self.name}"

    def key(self, row: Row) -> Key:
        """Partition values of a row."""
        return row[len(self.columns) :]

    def put(self, rows: list[Row]) -> None:
        """Insert."""
        for row in rows:
            assert row[0] is not None
            self.rows[row[0]] = row
            self.stored[row[0]] = Stored(tuple(self.columns), row[: len(self.columns)])
            if self.keys:
                self.partitions.add(self.key(row))

    def put_file(self, columns: Columns, rows: list[Row], key: Key) -> None:
        """Rows of a file that has other columns than the table."""
        for row in rows:
            assert row[0] is not None
            self.stored[row[0]] = stored = Stored(tuple(columns), row)
            found = [
                stored.place(index, name, by_position=self.by_position) for index, (name, _) in enumerate(self.columns)
            ]
            values = [
                None if place is None or row[place] is None else _read_as(row[place], columns[place][1], kind)
                for place, (_, kind) in zip(found, self.columns, strict=True)
            ]
            self.rows[row[0]] = (*values, *key)
            if self.keys:
                self.partitions.add(key)

    def reshape(self, columns: Columns, version: str, *, lost: bool = False) -> None:
        """
        Give the table other columns: what each row reads as then, by the rule of its release's readers.

        Args:
            lost: what no column is read from may be gone, by a compaction of Hive's.
        """
        now, width = self.columns, len(self.columns)
        names = {name for name, _ in columns}
        self.former += [column for column in now if column[0] not in names]
        for number, row in self.rows.items():
            stored = self.stored[number]
            readers = {
                stored.place(index, name, by_position=self.by_position): index for index, (name, _) in enumerate(now)
            }
            values: list[str | None] = []
            for index, (name, kind) in enumerate(columns):
                place = stored.place(index, name, by_position=self.by_position)
                if place is None or stored.values[place] is None:
                    values.append(None)
                    continue
                own = stored.columns[place][1]
                if place not in readers:
                    values.append(stored.values[place] if kind == own and not lost else AS_READ)
                    continue
                read, value = now[readers[place]][1], row[readers[place]]
                sure = read == own or read in WIDER.get(own, ())
                if kind == read:
                    values.append(value)
                elif sure and kind in WIDER.get(read, ()):
                    values.append(widened(value, read, kind, version))
                else:
                    values.append(AS_READ)
            self.rows[number] = (*values, *row[width:])
        self.columns = list(columns)

    def readable(self, columns: Columns) -> bool:
        """
        Whether the release reads every value of the files in these columns: types that ORC converts, and no decimal
        beside NULLs as another type (docs/testing.md).
        """
        places: dict[tuple[str, str], list[str | None]] = {}
        for stored in self.stored.values():
            for index, (name, kind) in enumerate(columns):
                place = stored.place(index, name, by_position=self.by_position)
                if place is not None and stored.columns[place][1] != kind:
                    places.setdefault((stored.columns[place][1], kind), []).append(stored.values[place])
        return not any(
            nested(own) != nested(kind) or (own.startswith("decimal") and None in values)
            for (own, kind), values in places.items()
        )

    def fill(self, found: list[Row]) -> None:
        """Take from rows that Hive read what the model has no rule for."""
        read = {row[0]: row for row in found}
        for number, row in self.rows.items():
            if AS_READ in row and number in read and len(read[number]) == len(row):
                pairs = zip(row, read[number], strict=True)
                self.rows[number] = tuple(other if value == AS_READ else value for value, other in pairs)

    def take(self, gone: list[Row]) -> None:
        """Delete; partitions stay."""
        for row in gone:
            assert row[0] is not None
            del self.rows[row[0]], self.stored[row[0]]

    def clear(self, key: Key | None = None) -> None:
        """Delete all rows, or those of a partition."""
        self.take([row for row in self.rows.values() if key is None or self.key(row) == key])

    def query(self) -> str:
        """Every row, with its ROW__ID where it has one."""
        return f"select {'ROW__ID, ' if self.style == 'full' else ''}* from {self.full_name}"

    def read(self, found: list[Row]) -> list[tuple[str | None, Row]]:
        """What that query returned, as pairs of ROW__ID and row in the order of ids."""
        kinds = [kind for _, kind in (*self.columns, *self.keys)]
        pairs = [(row[0], row[1:]) if self.style == "full" else (None, row) for row in found]
        return sorted(
            ((row_id, tuple(map(normal, row, kinds))) for row_id, row in pairs),
            key=lambda pair: (int(pair[1][0] or -1), str(pair)),
        )

    def expected(self) -> list[Row]:
        """The rows in the order of ids."""
        return [self.rows[number] for number in sorted(self.rows, key=int)]


def partition(table: Table, key: Key) -> str:
    """`partition(p='x', q=1)`; NULL by the name that Hive gives it."""
    pairs = zip(table.keys, key, strict=True)
    return (
        "partition("
        + ", ".join(
            f"{name}={literal(DEFAULT_PARTITION if value is None else value, 'string')}" for (name, _), value in pairs
        )
        + ")"
    )


def _read_as(value: str | None, own: str, kind: str) -> str | None:
    """What a value of a file reads as in a column of the table."""
    return value if own == kind else AS_READ
