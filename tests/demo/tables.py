"""
Records the tables of a built warehouse and the rows that each of their directories holds.

Pure bookkeeping beside the files: updates and deletes need the rows that they hit, and tests need the rows that a
reader should see.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from compactor.acid.row_id import RowKey
from tests.demo.files import FileOptions, Row

Columns = tuple[tuple[str, str], ...]
"""(name, Hive type) pairs in order."""

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | frozenset(map(chr, range(1, 32)))


def escape_path(value: str | None) -> str:
    """
    Escape a partition value as Hive does in directory names and partition names.

    Source: Hive's FileUtils.escapePathName.
    """
    if not value:
        return DEFAULT_PARTITION
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in value)


def java_bucket(value: int | str | None, buckets: int) -> int:
    """
    The bucket into which Hive puts a value of the clustering column, under `bucketing_version` 1.

    Source: Hive's ObjectInspectorUtils.getBucketNumberOld: an int hashes to itself, a string as java.lang.String over
    its UTF-8 bytes.
    """
    if value is None:
        code = 0
    elif isinstance(value, int):
        code = value ^ (value >> 32) if not -(1 << 31) <= value < 1 << 31 else value
    else:
        code = 0
        for byte in value.encode():
            code = (31 * code + (byte - 256 if byte > 127 else byte)) & 0xFFFFFFFF
    return (code & 0x7FFFFFFF) % buckets


@dataclass(slots=True)
class DirectoryRows:
    """
    All rows that were ever written into the directory of one table or partition.

    `name` is the partition's name; None for an unpartitioned table.
    """

    name: str | None
    values: tuple[str | None, ...]
    location: Path
    inserted: dict[RowKey, Row] = field(default_factory=dict)
    deleted: dict[RowKey, list[int]] = field(default_factory=dict)  # write ids of the deletes
    emptied: list[int] = field(default_factory=list)  # write ids of overwrites and truncates
    originals: dict[int, dict[str, list[Row]]] = field(default_factory=dict)  # by bucket and file name

    def visible(self, valid: Callable[[int], bool]) -> dict[RowKey, Row]:
        """
        The rows that a reader sees when exactly the write ids with `valid(id)` are committed.

        Write id 0, of the rows from before the conversion, is always committed.
        """
        floor = max((write_id for write_id in self.emptied if valid(write_id)), default=-1)
        return {
            key: row
            for key, row in self.inserted.items()
            if key.write_id >= floor
            and (key.write_id == 0 or valid(key.write_id))
            and not any(map(valid, self.deleted.get(key, ())))
        }


@dataclass(slots=True)
class DemoTable:
    """
    One table: its catalog facts, and its directories by partition name (None for an unpartitioned table).

    Args:
        buckets: number of buckets of CLUSTERED BY over the first of `bucket_columns`; 0 for an unbucketed table.
        file_format: `orc` or, for insert-only tables, `text`.
    """

    database: str
    name: str
    columns: Columns
    partition_keys: Columns
    buckets: int
    bucket_columns: tuple[str, ...]
    insert_only: bool
    transactional: bool
    file_format: str
    parameters: dict[str, str]
    location: Path
    directories: dict[str | None, DirectoryRows] = field(default_factory=dict)
    writers: dict[int, int] = field(default_factory=dict)  # write id -> transaction

    @property
    def full_name(self) -> str:
        return f"{self.database}.{self.name}"

    @property
    def options(self) -> FileOptions:
        return FileOptions.from_parameters(self.parameters)

    def partition_name(self, values: Sequence[str | None]) -> str | None:
        if not self.partition_keys:
            return None
        return "/".join(
            f"{key}={escape_path(value)}" for (key, _), value in zip(self.partition_keys, values, strict=True)
        )

    def bucket_of(self, row: Row) -> int:
        """The bucket into which CLUSTERED BY puts a row; 0 for an unbucketed table."""
        if not self.buckets:
            return 0
        names = [name for name, _ in self.columns]
        return java_bucket(row[names.index(self.bucket_columns[0])], self.buckets)

    def by_directory(
        self, rows: Iterable[Row], values: Sequence[str | None] | None
    ) -> Iterator[tuple[tuple[str | None, ...], list[Row]]]:
        """
        Group rows by partition: all go into the partition given, else each goes by its last values, as in a
        dynamic-partition insert.
        """
        keys = len(self.partition_keys)
        if values is not None or not keys:
            yield tuple(values or ()), list(rows)
            return
        found: dict[tuple[str | None, ...], list[Row]] = {}
        for row in rows:
            found.setdefault(tuple(None if value is None else str(value) for value in row[-keys:]), []).append(
                row[:-keys]
            )
        yield from found.items()

    def rows(self, valid: Callable[[int], bool]) -> Mapping[str | None, dict[RowKey, Row]]:
        """The rows that a reader sees, by partition name."""
        return {name: directory.visible(valid) for name, directory in self.directories.items()}
