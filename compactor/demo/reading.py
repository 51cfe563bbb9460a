"""
Reads a table the way a query does, to count and hash its rows: the demo's witness that nothing changed.

Rows are decoded by pyorc (text files line by line), deletes are applied by ROW__ID. It takes the directories to read from `acid.snapshot`, and nothing from the
code that compacts. Everything is held in memory but the rows: meant for a demo's tables.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
    """How many rows, and a hash over each row with its ROW__ID that doesn't depend on their order."""

    rows: int = 0
    digest: int = 0

    def __add__(self, other: "Fingerprint") -> "Fingerprint":
        return Fingerprint(self.rows + other.rows, (self.digest + other.digest) % _MODULUS)

    def __str__(self) -> str:
        return f"{self.digest:032x}"


def fingerprint(location: Path, state: AcidState, write_ids: ValidWriteIdList, *, insert_only: bool) -> Fingerprint:
    """
    Count and hash what a query sees of one table or partition.

    Args:
        state: the directory as resolved for `write_ids`.
        insert_only: rows have no ids of their own; they are hashed by value alone.
    """
    rows = _plain_rows(location, state) if insert_only else _acid_rows(location, state, write_ids)
    count = digest = 0
    for row in rows:
        count += 1
        digest += int.from_bytes(hashlib.blake2b(repr(row).encode(), digest_size=16).digest(), "big")
    return Fingerprint(count, digest % _MODULUS)


def _plain_rows(location: Path, state: AcidState) -> Iterator[object]:
    paths = [file.path for file in state.originals]
    for listed in (state.base, *state.insert_deltas):
        if listed is not None:
            paths += [file.path for file in data_files(listed, insert_only=True)]
    for path in paths:
        with (location / path).open("rb") as handle:
            is_orc = handle.read(3) == b"ORC"
            handle.seek(0)
            yield from (pyorc.Reader(handle) if is_orc else handle)


def _acid_rows(location: Path, state: AcidState, write_ids: ValidWriteIdList) -> Iterator[object]:
    deleted = {
        key for listed in state.delete_deltas for operation, key, current, _ in _events(location, listed) if _seen(write_ids, current) and operation == _DELETE
    }
    for key, row in _originals(location, state):
        if key not in deleted:
            yield key, row
    for listed in (state.base, *state.insert_deltas):
        if listed is not None:
            for _, key, current, row in _events(location, listed):
                if key not in deleted and _seen(write_ids, current):
                    yield key, row


def _seen(write_ids: ValidWriteIdList, write_id: int) -> bool:
    return write_id == 0 or write_ids.is_valid(write_id)


def _events(location: Path, listed: ListedDir) -> Iterator[tuple[int, tuple[int, int, int], int, object]]:
    for file in data_files(listed, insert_only=False):
        with (location / file.path).open("rb") as handle:
            reader = pyorc.Reader(handle)
            if len(reader.schema.fields) != _EVENT_FIELDS or parse_bucket_file(file.name) is None:
                raise ValueError(f"{file.path} holds no ACID rows; the demo writes none such")
            for operation, write_id, bucket, row_id, current, row in reader:
                yield operation, (write_id, bucket, row_id), current, row


def _originals(location: Path, state: AcidState) -> Iterator[tuple[tuple[int, int, int], object]]:
    following: dict[int, int] = {}
    for file in state.originals:
        name = parse_original_file(file.name)
        assert name is not None
        with (location / file.path).open("rb") as handle:
            for row in pyorc.Reader(handle):
                row_id = following.get(name.bucket, 0)
                following[name.bucket] = row_id + 1
                yield (0, encode(name.bucket, 0), row_id), row
