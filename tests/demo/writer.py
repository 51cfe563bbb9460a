"""
Writes directories as Hive's writers do: INSERT, UPDATE, DELETE, MERGE, INSERT OVERWRITE, TRUNCATE, LOAD DATA and
streaming.

Knows the names and bucket ids of the files of each write. `tables` keeps the rows, `files` writes the files, and a
`Ledger` gives the ids.
Source: docs/layout.md; Hive's AcidUtils, OrcRecordUpdater, HiveStreamingConnection; names as Hive 4.0.1 and 3.1 were
seen to write them.
"""

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, Self

from compactor.acid.compaction import LayoutVersion
from compactor.acid.names import base_name, bucket_name, delete_delta_name, delta_name
from compactor.acid.row_id import RowKey, decode_bucket, encode
from tests.demo import files
from tests.demo.files import DELETE, INSERT, Event, Row
from tests.demo.ledger import COMMITTED, OPEN, Ledger
from tests.demo.tables import DemoTable, DirectoryRows

Partition = Sequence[str | None] | None


class Directories(Protocol):
    """Gives a writer the directory of a partition, which is made when missing."""

    ledger: Ledger
    states: dict[int, str]

    def directory(self, table: DemoTable, values: Sequence[str | None]) -> DirectoryRows:
        """The directory of a partition, or of an unpartitioned table. The catalog may not have it yet."""

    def register(self, table: DemoTable, directory: DirectoryRows) -> None:
        """Put a partition into the catalog, as a commit does."""


class Transaction:
    """
    One open transaction. Each call is a statement; several statements write what MERGE and multi-insert write.

    A transaction updates and deletes the rows that were visible when it began, and its own. As a context manager it
    commits at the end and aborts on an error.
    """

    def __init__(self, home: Directories) -> None:
        self._home = home
        self._ledger = home.ledger
        self.id = self._ledger.open()
        self._committed_before = frozenset(txn for txn, state in home.states.items() if state == COMMITTED)
        home.states[self.id] = OPEN
        self._statement = 0
        self._new: list[tuple[DemoTable, DirectoryRows]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.commit()
        else:
            self.abort()

    def write_id(self, table: DemoTable) -> int:
        """The transaction's write id of a table."""
        write_id = self._ledger.write_id(self.id, table.database, table.name)
        table.writers[write_id] = self.id
        return write_id

    def insert(self, table: DemoTable, rows: Iterable[Row], partition: Partition = None, *, writers: int = 1) -> None:
        """
        Write `delta_w_w_s`.

        Args:
            rows: for a partitioned table without `partition`, each row ends with its partition values; all rows belong
                to one statement.
            writers: how many tasks share the rows of an unbucketed table; each writes one bucket file.
        """
        for values, group in table.by_directory(rows, partition):
            directory = self._touch(table, values, "i")
            where = directory.location / delta_name(self.write_id(table), self.write_id(table), self._statement)
            self._write_rows(table, directory, where, group, writers=writers)
        self._statement += 1

    def delete(self, table: DemoTable, where: Callable[[Row], bool], partition: Partition = None) -> int:
        """
        Write `delete_delta_w_w_s` in every partition with matching rows, or in the one given; return how many rows are
        deleted.
        """
        count = 0
        for directory in self._directories(table, partition):
            keys = [key for key, row in self._targets(table, directory).items() if where(row)]
            self.delete_keys(table, directory, keys, statement=self._statement)
            count += len(keys)
        self._statement += 1
        return count

    def update(
        self,
        table: DemoTable,
        where: Callable[[Row], bool],
        change: Callable[[Row], Row],
        partition: Partition = None,
        *,
        bucket: int | None = None,
    ) -> int:
        """
        Write `delete_delta` and `delta`; return how many rows changed.

        Args:
            bucket: the bucket of the new rows of an unbucketed table; None: each row keeps its own.
        """
        insert_statement = self._statement + (1 if self._ledger.layout is LayoutVersion.HIVE_4 else 0)
        count = 0
        for directory in self._directories(table, partition):
            hit = {key: row for key, row in self._targets(table, directory).items() if where(row)}
            if not hit:
                continue
            self.delete_keys(table, directory, hit, statement=self._statement, operation="u")
            by_bucket: dict[int, list[Row]] = {}
            for key, row in hit.items():
                changed = change(row)
                target = (
                    table.bucket_of(changed)
                    if table.buckets
                    else decode_bucket(key.bucket)
                    if bucket is None
                    else bucket
                )
                by_bucket.setdefault(target, []).append(changed)
            where_to = directory.location / delta_name(self.write_id(table), self.write_id(table), insert_statement)
            self._write_buckets(table, directory, where_to, by_bucket, insert_statement)
            count += len(hit)
        self._statement = insert_statement + 1
        return count

    def delete_keys(
        self,
        table: DemoTable,
        directory: DirectoryRows,
        keys: Iterable[RowKey],
        *,
        statement: int | None = None,
        operation: str = "d",
    ) -> None:
        """Write delete events for the given keys, even of missing rows; `statement` None is the next statement."""
        if statement is None:
            statement, self._statement = self._statement, self._statement + 1
        write_id = self.write_id(table)
        by_bucket: dict[int, list[Event]] = {}
        for key in keys:
            by_bucket.setdefault(decode_bucket(key.bucket), []).append((DELETE, *key, write_id, None))
            directory.deleted.setdefault(key, []).append(write_id)
        if not by_bucket:
            return
        self._touch(table, directory.values, operation)
        where = directory.location / delete_delta_name(write_id, write_id, statement)
        for bucket, events in by_bucket.items():
            files.write_acid(where / self._bucket_file(bucket), table.columns, events, table.options)
        files.write_version_file(where)

    def overwrite(
        self, table: DemoTable, rows: Iterable[Row], partition: Partition = None, *, writers: int = 1
    ) -> None:
        """INSERT OVERWRITE: write `base_w`, which hides all earlier writes."""
        write_id = self.write_id(table)
        for values, group in table.by_directory(rows, partition):
            directory = self._touch(table, values, "o")
            directory.emptied.append(write_id)
            self._write_rows(
                table, directory, directory.location / base_name(write_id), group, writers=writers, statement=0
            )
        self._statement += 1

    def truncate(self, table: DemoTable, partition: Partition = None) -> None:
        """
        TRUNCATE TABLE: on Hive 4 write an empty `base_w` marked `truncated`. Hive 3.1 removes the directory's contents
        at once, even if the transaction aborts later.
        """
        write_id = self.write_id(table)
        for directory in self._directories(table, partition):
            self._touch(table, directory.values, "o")
            if self._ledger.layout is LayoutVersion.HIVE_4:
                directory.emptied.append(write_id)
                files.write_marker(directory.location / base_name(write_id), "truncated")
                continue
            for child in directory.location.iterdir():
                shutil.rmtree(child) if child.is_dir() else child.unlink()
            directory.inserted.clear()
            directory.originals.clear()
        self._statement += 1

    def load(
        self, table: DemoTable, rows: Sequence[Row], partition: Partition = None, *, overwrite: bool = False
    ) -> None:
        """
        LOAD DATA [OVERWRITE]: write a plain ORC file into `delta_w_w_s` or `base_w`. Its rows get their ids by
        position.
        """
        write_id = self.write_id(table)
        directory = self._touch(table, tuple(partition or ()), "o" if overwrite else "i")
        statement = 0 if overwrite else self._statement
        where = directory.location / (base_name(write_id) if overwrite else delta_name(write_id, write_id, statement))
        if overwrite:
            directory.emptied.append(write_id)
        files.write_plain(where / "000000_0", table.columns, rows, table.options)
        directory.inserted.update(
            (RowKey(write_id, encode(0, statement), position), row) for position, row in enumerate(rows)
        )
        self._statement += 1

    def commit(self) -> None:
        for table, directory in self._new:
            self._home.register(table, directory)
        self._ledger.commit(self.id)
        self._home.states[self.id] = COMMITTED

    def abort(self) -> None:
        """Abort the transaction. Its directories and its rows in the ledger stay, as they do in Hive."""
        self._ledger.abort(self.id)
        self._home.states[self.id] = "a"

    def _touch(self, table: DemoTable, values: Sequence[str | None], operation: str) -> DirectoryRows:
        self.write_id(table)
        directory = self._home.directory(table, values)
        self._new.append((table, directory))
        self._ledger.touch(self.id, table.database, table.name, directory.name, operation)
        return directory

    def _directories(self, table: DemoTable, partition: Partition) -> list[DirectoryRows]:
        if partition is None:
            return list(table.directories.values())
        return [self._home.directory(table, partition)]

    def _targets(self, table: DemoTable, directory: DirectoryRows) -> Mapping[RowKey, Row]:
        own = table.writers
        rows = directory.visible(lambda write_id: own[write_id] == self.id or own[write_id] in self._committed_before)
        # a row that another transaction deletes is locked, or a second delete of it would fail at commit
        return {
            key: row
            for key, row in rows.items()
            if not any(self._home.states[own[write_id]] != "a" for write_id in directory.deleted.get(key, ()))
        }

    def _write_rows(
        self,
        table: DemoTable,
        directory: DirectoryRows,
        where: Path,
        rows: list[Row],
        *,
        writers: int,
        statement: int | None = None,
    ) -> None:
        by_bucket: dict[int, list[Row]] = {}
        if table.buckets:
            for row in rows:
                by_bucket.setdefault(table.bucket_of(row), []).append(row)
        else:
            share = -(-len(rows) // writers) or 1
            by_bucket = {start // share: rows[start : start + share] for start in range(0, len(rows), share)}
        self._write_buckets(table, directory, where, by_bucket, self._statement if statement is None else statement)

    def _write_buckets(
        self,
        table: DemoTable,
        directory: DirectoryRows,
        where: Path,
        by_bucket: Mapping[int, Sequence[Row]],
        statement: int,
    ) -> None:
        write_id = self.write_id(table)
        for bucket, rows in by_bucket.items():
            keyed = [(RowKey(write_id, encode(bucket, statement), position), row) for position, row in enumerate(rows)]
            directory.inserted.update(keyed)
            if not table.insert_only:
                events: list[Event] = [(INSERT, *key, write_id, row) for key, row in keyed]
                files.write_acid(where / self._bucket_file(bucket), table.columns, events, table.options)
            elif table.file_format == "text":
                files.write_text(where / f"{bucket:06d}_0", rows)
            else:
                files.write_plain(where / f"{bucket:06d}_0", table.columns, rows, table.options)
        where.mkdir(parents=True, exist_ok=True)
        if not table.insert_only:
            files.write_version_file(where)

    def _bucket_file(self, bucket: int) -> str:
        return f"{bucket_name(bucket)}_0" if self._ledger.layout is LayoutVersion.HIVE_4 else bucket_name(bucket)


class StreamingBatch:
    """
    Several transactions opened at once that share one directory `delta_w_{w+n-1}`, as Hive streaming writes it.

    `finish` ends one of the transactions. With `side_file` each bucket file has a `_flush_length` side file until
    `close`.
    """

    def __init__(
        self,
        home: Directories,
        table: DemoTable,
        rows_by_transaction: Sequence[Sequence[Row]],
        partition: Partition = None,
        *,
        side_file: bool = False,
    ) -> None:
        self._home = home
        self._table = table
        self.transactions = [Transaction(home) for _ in rows_by_transaction]
        write_ids = [txn.write_id(table) for txn in self.transactions]
        directory = home.directory(table, tuple(partition or ()))
        self._directory = directory
        where = directory.location / delta_name(write_ids[0], write_ids[-1])
        by_bucket: dict[int, list[Event]] = {}
        for txn, write_id, rows in zip(self.transactions, write_ids, rows_by_transaction, strict=True):
            home.ledger.touch(txn.id, table.database, table.name, directory.name, "i")
            positions: dict[int, int] = {}
            for row in rows:
                bucket = table.bucket_of(row)
                key = RowKey(write_id, encode(bucket, 0), positions.setdefault(bucket, 0))
                positions[bucket] += 1
                by_bucket.setdefault(bucket, []).append((INSERT, *key, write_id, row))
                directory.inserted[key] = row
        self._files = [where / bucket_name(bucket) for bucket in by_bucket]
        for file, events in zip(self._files, by_bucket.values(), strict=True):
            files.write_acid(file, table.columns, events, table.options)
            if side_file:
                files.write_flush_length(file, [file.stat().st_size])
        where.mkdir(parents=True, exist_ok=True)
        files.write_version_file(where)

    def finish(self, index: int, *, commit: bool) -> None:
        """Commit or abort the transaction at this index."""
        if commit:
            self._home.register(self._table, self._directory)
            self.transactions[index].commit()
        else:
            self.transactions[index].abort()

    def close(self) -> None:
        """End the batch: abort the transactions that are still open, and remove the side files."""
        for txn in self.transactions:
            if self._home.states[txn.id] == OPEN:
                txn.abort()
        for file in self._files:
            file.with_name(f"{file.name}_flush_length").unlink(missing_ok=True)
