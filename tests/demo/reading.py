"""
Reads a table as a query does, and counts and hashes its rows: the demo's evidence that no row changed.

pyorc decodes the rows (text files are read line by line), and deletes are applied by ROW__ID. The directories to read
come from `acid.snapshot`; no code that compacts is used. The keys of all deletes are held in memory, the rows are not:
the module is meant for a demo's tables.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyorc

from compactor.acid.names import parse_bucket_file, parse_original_file
from compactor.acid.row_id import encode
from compactor.acid.snapshot import AcidState, ListedDir, data_files
from compactor.acid.write_ids import ValidWriteIdList

_MODULUS = 1 << 128
_DELETE = 2
_EVENT_FIELDS = 6


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The number of rows, and a hash over the rows and their ROW__IDs that doesn't depend on the order of rows."""

    rows: int = 0
    digest: int = 0

    def __add__(self, other: "Fingerprint") -> "Fingerprint":
        return Fingerprint(self.rows + other.rows, (self.digest + other.digest) % _MODULUS)

    def __str__(self) -> str:
        return f"{self.digest:032x}"


def fingerprint(
    location: Path, state: AcidState, write_ids: ValidWriteIdList, columns: Sequence[str], *, insert_only: bool
) -> Fingerprint:
    """
    Count and hash the rows that a query sees of one table or partition.

    Args:
        state: the directory as resolved for `write_ids`.
        columns: the table's columns; a column that a file doesn't have, since it was added later, is NULL in its rows.
        insert_only: whether the table is insert-only: its rows have no ROW__IDs and are hashed by value alone.
    """
    rows = _plain_rows(location, state, columns) if insert_only else _acid_rows(location, state, write_ids, columns)
    count = digest = 0
    for row in rows:
        count += 1
        digest += int.from_bytes(hashlib.blake2b(repr(row).encode(), digest_size=16).digest(), "big")
    return Fingerprint(count, digest % _MODULUS)


def _plain_rows(location: Path, state: AcidState, columns: Sequence[str]) -> Iterator[object]:
    paths = [file.path for file in state.originals]
    for listed in (state.base, *state.insert_deltas):
        if listed is not None:
            paths += [file.path for file in data_files(listed, insert_only=True)]
    for path in paths:
        with (location / path).open("rb") as handle:
            is_orc = handle.read(3) == b"ORC"
            handle.seek(0)
            yield from (_in_order(reader := pyorc.Reader(handle), reader.schema, columns) if is_orc else handle)


def _acid_rows(
    location: Path, state: AcidState, write_ids: ValidWriteIdList, columns: Sequence[str]
) -> Iterator[object]:
    deletes = (event for listed in state.delete_deltas for event in _events(location, listed, columns))
    deleted = {key for operation, key, current, _ in deletes if _seen(write_ids, current) and operation == _DELETE}
    for key, row in _originals(location, state, columns):
        if key not in deleted:
            yield key, row
    for listed in (state.base, *state.insert_deltas):
        if listed is not None:
            for _, key, current, row in _events(location, listed, columns):
                if key not in deleted and _seen(write_ids, current):
                    yield key, row


def _seen(write_ids: ValidWriteIdList, write_id: int) -> bool:
    return write_id == 0 or write_ids.is_valid(write_id)


def _events(
    location: Path, listed: ListedDir, columns: Sequence[str]
) -> Iterator[tuple[int, tuple[int, int, int], int, object]]:
    for file in data_files(listed, insert_only=False):
        if not file.length:
            continue
        with (location / file.path).open("rb") as handle:
            reader = pyorc.Reader(handle)
            if len(reader.schema.fields) != _EVENT_FIELDS or parse_bucket_file(file.name) is None:
                raise ValueError(f"{file.path} holds no ACID rows; the demo writes none such")
            places = _places(reader.schema.fields["row"], columns)
            for operation, write_id, bucket, row_id, current, row in reader:
                yield operation, (write_id, bucket, row_id), current, None if row is None else _arranged(row, places)


def _originals(
    location: Path, state: AcidState, columns: Sequence[str]
) -> Iterator[tuple[tuple[int, int, int], object]]:
    following: dict[int, int] = {}
    for file in state.originals:
        name = parse_original_file(file.name)
        assert name is not None
        if not file.length:
            continue
        with (location / file.path).open("rb") as handle:
            reader = pyorc.Reader(handle)
            for row in _in_order(reader, reader.schema, columns):
                row_id = following.get(name.bucket, 0)
                following[name.bucket] = row_id + 1
                yield (0, encode(name.bucket, 0), row_id), row


def _in_order(rows: Iterable[Sequence[object]], schema: Any, columns: Sequence[str]) -> Iterator[tuple[object, ...]]:
    places = _places(schema, columns)
    return (_arranged(row, places) for row in rows)


def _places(struct: Any, columns: Sequence[str]) -> list[int | None]:
    """The position in a file of each of the table's columns, found by name; None for a column that was added later."""
    there = {name.lower(): position for position, name in enumerate(struct.fields)}
    return [there.get(name) for name in columns]


def _arranged(row: Sequence[object], places: Sequence[int | None]) -> tuple[object, ...]:
    return tuple(None if place is None else row[place] for place in places)
