"""
What the model of a live history knows of a table: its columns, its partitions, its rows. Pure; a statement's effect is
a change of these.

A row is a tuple of texts as JDBC prints them, NULL as None: columns first, then partition values. Its first value, the
id, is unique in a history.
"""

from dataclasses import dataclass, field

from tests.hive.live.kinds import DEFAULT_PARTITION, literal, normal

COLUMNS = [("id", "int"), ("v", "string"), ("n", "decimal(12,3)"), ("t", "timestamp")]
Row = tuple[str | None, ...]
Key = tuple[str | None, ...]


@dataclass
class Table:
    """
    One table.

    Args:
        root: the name it was made with, by which a step of a history finds it after RENAME.
        style: "full" (ACID), "insert-only", or "plain": not transactional yet.
        place: directory given by LOCATION; None: where the database puts it.
        migrated: it was plain once.
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
            if self.keys:
                self.partitions.add(self.key(row))

    def take(self, gone: list[Row]) -> None:
        """Delete; partitions stay."""
        for row in gone:
            assert row[0] is not None
            del self.rows[row[0]]

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
