"""
The reference: which rows, with which ROW__IDs, a Hive reader sees in a directory under a snapshot. Row by row, slow,
and sharing no code with the package.

Its own reading of names, of valid lists, of the choice of directories and of delete events; pyorc opens the files.
Source: Hive's AcidUtils.getAcidState, OrcRawRecordMerger, ValidReaderWriteIdList, ValidReadTxnList.
"""

import io
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyorc

from tests.reference.values import Type, canonical, parse_columns, parse_type

ACID_COLUMNS = ["operation", "originalTransaction", "bucket", "rowId", "currentTransaction", "row"]
NEVER = 9223372036854775807


class NotEnoughHistoryError(Exception):
    """The snapshot is older than the oldest base."""


RowId = tuple[int, int, int]
"""ROW__ID as Hive shows it: writeid, bucketid, rowid."""


@dataclass(frozen=True)
class WriteIds:
    """A reader's valid write ids."""

    high: int
    lowest_open: int
    opened: frozenset[int]
    aborted: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> "WriteIds":
        _, high, lowest, opened, aborted = text.rsplit(":", 4)
        return cls(int(high), int(lowest), _ids(opened), _ids(aborted))

    def valid(self, write_id: int) -> bool:
        return write_id <= self.high and write_id not in self.opened and write_id not in self.aborted

    def any_valid(self, low: int, high: int) -> bool:
        return (
            any(self.valid(one) for one in range(low, min(high, self.high) + 1))
            if high - low < 100_000
            else self._wide(low, high)
        )

    def all_aborted(self, low: int, high: int) -> bool:
        return high - low < len(self.aborted) and all(one in self.aborted for one in range(low, high + 1))

    def _wide(self, low: int, high: int) -> bool:
        top = min(high, self.high)
        return top - low + 1 > sum(low <= one <= top for one in self.opened | self.aborted)


@dataclass(frozen=True)
class Txns:
    """A reader's valid transactions."""

    high: int
    opened: frozenset[int]
    aborted: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> "Txns":
        high, _, opened, aborted = text.split(":")
        return cls(int(high), _ids(opened), _ids(aborted))

    def valid(self, txn: int) -> bool:
        return txn <= self.high and txn not in self.opened and txn not in self.aborted


@dataclass(frozen=True)
class Directory:
    """A base, delta or delete delta of the listing."""

    path: Path
    kind: str
    low: int
    high: int
    statement: int  # -1 when the name has none
    visibility: int


@dataclass
class Selection:
    """What the snapshot reads."""

    base: Directory | None = None
    deltas: list[Directory] = field(default_factory=list)
    originals: list[Path] = field(default_factory=list)


def read(directory: Path, schema: str, write_ids: str, txns: str | None = None) -> list[tuple[RowId, tuple[Any, ...]]]:
    """
    Rows of a full-ACID directory, sorted by ROW__ID.

    Args:
        directory: of the table or partition.
        schema: the table's data columns now, as `struct<...>`; values come as `values.canonical` makes them.
        write_ids: `db.table:high:lowest open:open,...:aborted,...`.
        txns: `high:lowest open:open,...:aborted,...`; None for Hive 3.1, whose readers don't look at transactions.
    """
    valid = WriteIds.parse(write_ids)
    columns = parse_columns(schema)
    selection = select(directory, valid, Txns.parse(txns) if txns is not None else None)
    deletes = [(delta, _delete_events(delta, valid)) for delta in selection.deltas if delta.kind == "delete_delta"]
    found: list[tuple[RowId, tuple[Any, ...]]] = []
    for low, statement, rows in _row_sources(directory, selection, columns, valid):
        hit: set[RowId] = set()
        for delta, keys in deletes:
            if low < delta.high or (low == delta.high and max(statement, 0) < max(delta.statement, 0)):
                hit |= keys
        found.extend((key, row) for key, row in rows if key not in hit)
    twice = [key for key, count in Counter(key for key, _ in found).items() if count > 1]
    if twice:
        raise AssertionError(f"ROW__ID more than once in {directory}: {twice[:3]}")
    return sorted(found, key=lambda one: one[0])


def read_insert_only(directory: Path, schema: str, write_ids: str, txns: str | None = None) -> list[tuple[Any, ...]]:
    """Rows of an insert-only directory, ORC or text, sorted by their text."""
    columns = parse_columns(schema)
    selection = select(directory, WriteIds.parse(write_ids), Txns.parse(txns) if txns is not None else None)
    found: list[tuple[Any, ...]] = []
    chosen = [selection.base, *selection.deltas]
    files = [file for one in chosen if one for file in _visible_files(one.path)] + selection.originals
    for file in files:
        if file.read_bytes()[:3] == b"ORC":
            content = _open(file)
            found.extend(_project(content.columns, content.rows, columns))
        else:
            found.extend(
                tuple(_from_text(kind, cell) for (_, kind), cell in zip(columns, line.split("\x01"), strict=True))
                for line in _lines(file)
            )
    return sorted(found, key=repr)


def select(directory: Path, write_ids: WriteIds, txns: Txns | None) -> Selection:
    """
    Choose base, deltas and originals as Hive's getAcidState does (INSERT OVERWRITE bases count only when their own
    write id is committed).
    """
    chosen = Selection()
    candidates: list[Directory] = []
    originals: list[Path] = []
    oldest: Directory | None = None
    for child in sorted(directory.iterdir()):
        if child.name.startswith(("_", ".")):
            continue
        parsed = _parse(child) if child.is_dir() else None
        if parsed is None:
            originals.append(child)
            continue
        if parsed.visibility and (txns is None or not txns.valid(parsed.visibility)):
            if txns is None:
                raise ValueError(f"Hive 3.1 can't read {child}")
            continue
        if parsed.kind != "base":
            if write_ids.any_valid(parsed.low, parsed.high) and not write_ids.all_aborted(parsed.low, parsed.high):
                candidates.append(parsed)
            continue
        if oldest is None or parsed.high < oldest.high:
            oldest = parsed
        if _base_counts(parsed, write_ids) and (
            chosen.base is None or (parsed.high, _compacted(parsed)) >= (chosen.base.high, _compacted(chosen.base))
        ):
            chosen.base = parsed
    if chosen.base is None and oldest is not None and (_compacted(oldest) or txns is None):
        raise NotEnoughHistoryError(f"the oldest base is {oldest.path}")
    if chosen.base is None:
        chosen.originals = sorted(
            (file for one in originals for file in ([one] if one.is_file() else _visible_files(one))), key=str
        )
    _walk(chosen, candidates, write_ids)
    return chosen


def _walk(chosen: Selection, candidates: list[Directory], write_ids: WriteIds) -> None:
    current = chosen.base.high if chosen.base else 0
    statement = -1
    previous: Directory | None = None
    for one in sorted(candidates, key=lambda one: (one.low, -one.high, one.statement, str(one.path))):
        same = previous is not None and (one.low, one.high, one.statement) == (
            previous.low,
            previous.high,
            previous.statement,
        )
        if one.high > current:
            if write_ids.any_valid(current + 1, one.high):
                chosen.deltas.append(one)
                current, statement, previous = one.high, one.statement, one
        elif (one.high == current and statement >= 0) or same:
            chosen.deltas.append(one)
            previous = one


def _row_sources(
    directory: Path, selection: Selection, columns: list[tuple[str, Type]], valid: WriteIds
) -> list[tuple[int, int, list[tuple[RowId, tuple[Any, ...]]]]]:
    """(lowest write id, statement, rows) of each base, delta, or the originals together."""
    sources = []
    if selection.originals:
        sources.append((0, -1, _raw_rows(selection.originals, 0, 0, columns)))
    if selection.base:
        sources.append((0, -1, _directory_rows(selection.base, columns, None)))
    sources.extend(
        (one.low, one.statement, _directory_rows(one, columns, valid))
        for one in selection.deltas
        if one.kind == "delta"
    )
    assert directory.is_dir()
    return sources


def _directory_rows(
    one: Directory, columns: list[tuple[str, Type]], valid: WriteIds | None
) -> list[tuple[RowId, tuple[Any, ...]]]:
    files = _visible_files(one.path)
    raw = [file for file in files if re.fullmatch(r"\d+_\d+(_copy_\d+)?", file.name) and not _is_acid(file)]
    if raw:
        if one.low != one.high and one.kind == "delta":
            raise ValueError(f"plain files in {one.path}")
        return _raw_rows(raw, one.high, max(one.statement, 0), columns)
    found = []
    for file in files:
        if one.kind == "delta" and not file.name.startswith("bucket_"):
            continue
        if file.name.endswith("_flush_length"):
            continue
        found.extend(
            _acid_rows(
                file, columns, valid, streaming=one.kind == "delta" and one.low != one.high and not one.visibility
            )
        )
    return found


def _acid_rows(
    file: Path, columns: list[tuple[str, Type]], valid: WriteIds | None, *, streaming: bool
) -> list[tuple[RowId, tuple[Any, ...]]]:
    content = _open(file, logical=streaming)
    if not content.acid:
        raise ValueError(f"{file} has no ACID columns")
    keys, rows = [], []
    for operation, write_id, bucket, row_id, current, row in content.rows:
        if operation != 0:
            raise ValueError(f"operation {operation} in {file}")
        _check_bucket(file, bucket)
        if valid is None or valid.valid(current):
            keys.append((write_id, bucket, row_id))
            rows.append(row)
    return list(zip(keys, _project(content.columns, rows, columns), strict=True))


def _delete_events(delta: Directory, valid: WriteIds) -> set[RowId]:
    found = set()
    for file in _visible_files(delta.path):
        if not file.name.startswith("bucket_") or file.name.endswith("_flush_length"):
            continue
        for operation, write_id, bucket, row_id, current, row in _open(file).rows:
            if operation != 2 or row is not None:
                raise ValueError(f"{file} holds what is no delete event")
            _check_bucket(file, bucket)
            if valid.valid(current):
                found.add((write_id, bucket, row_id))
    return found


def _raw_rows(
    files: list[Path], write_id: int, statement: int, columns: list[tuple[str, Type]]
) -> list[tuple[RowId, tuple[Any, ...]]]:
    found: list[tuple[RowId, tuple[Any, ...]]] = []
    count: Counter[int] = Counter()
    for file in sorted(files, key=str):
        if file.stat().st_size == 0:
            continue
        name = re.fullmatch(r"(\d+)_\d+(_copy_\d+)?", file.name)
        if not name:
            raise ValueError(f"no bucket in the name of {file}")
        bucket = int(name[1])
        content = _open(file)
        for row in _project(content.columns, content.rows, columns):
            found.append(((write_id, (1 << 29) | (bucket << 16) | statement, count[bucket]), row))
            count[bucket] += 1
    return found


def _check_bucket(file: Path, bucket: int) -> None:
    decoded = (bucket >> 16) & 0xFFF if bucket >> 29 == 1 else bucket
    named = int(file.name.split("_")[1])
    if decoded != named % 4096:
        raise ValueError(f"row of bucket {decoded} in {file}")


def _project(file_columns: dict[str, Type], rows: list[Any], columns: list[tuple[str, Type]]) -> list[tuple[Any, ...]]:
    """Columns by name, as Hive matches them; by position when the file knows only `_col0`, `_col1`, ..."""
    names = [name.lower() for name in file_columns]
    positional = bool(names) and all(re.fullmatch(r"_col\d+", name) for name in names)
    kinds = list(file_columns.values())
    places: list[tuple[int | None, Type]] = []
    for position, (name, kind) in enumerate(columns):
        place = (
            (position if position < len(names) else None)
            if positional
            else names.index(name.lower())
            if name.lower() in names
            else None
        )
        if place is not None:
            _check_convertible(kinds[place], kind)
        places.append((place, kind))
    return [
        tuple(None if place is None else _value(kinds[place], kind, row[place]) for place, kind in places)
        for row in rows
    ]


def _value(stored: Type, wanted: Type, value: Any) -> Any:
    if stored.kind == wanted.kind == "struct" and stored.names != wanted.names and value is not None:
        by_name = dict(
            zip((name.lower() for name in stored.names), zip(stored.children, value, strict=True), strict=True)
        )
        return tuple(
            _value(
                *(
                    (by_name[name.lower()][0], child, by_name[name.lower()][1])
                    if name.lower() in by_name
                    else (child, child, None)
                )
            )
            for name, child in zip(wanted.names, wanted.children, strict=True)
        )
    return canonical(wanted, value)


_RANKS = {name: rank for rank, name in enumerate(("tinyint", "smallint", "int", "bigint"))}
_STRINGS = {"string", "varchar", "char"}


def _check_convertible(stored: Type, wanted: Type) -> None:
    widened = stored.kind in _RANKS and _RANKS.get(wanted.kind, -1) >= _RANKS[stored.kind]
    texts = stored.kind in _STRINGS and wanted.kind in _STRINGS
    floats = (stored.kind, wanted.kind) == ("float", "double")
    if not (stored.kind == wanted.kind or widened or texts or floats):
        raise ValueError(f"the reference doesn't convert {stored.kind} to {wanted.kind}")


class _AsStored(pyorc.converters.ORCConverter):
    """Dates as days, timestamps as seconds and nanoseconds, decimals exact."""

    @staticmethod
    def from_orc(*values: Any) -> Any:
        if len(values) == 3:
            return int(values[0]), int(values[1])
        return values[0]

    @staticmethod
    def to_orc(*values: Any) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class Content:
    """A decoded file: is it of the ACID schema, the columns of the table's row, the rows."""

    acid: bool
    columns: dict[str, Type]
    rows: list[Any]


def _open(file: Path, *, logical: bool = False) -> Content:
    data = file.read_bytes()
    side = file.with_name(f"{file.name}_flush_length")
    if logical and side.exists():
        lengths = side.read_bytes()
        if len(lengths) < 8:
            raise ValueError(f"{side} isn't readable")
        whole = len(lengths) // 8 * 8
        data = data[: int.from_bytes(lengths[whole - 8 : whole], "big")]
    return _decoded(data) if file.stat().st_size else Content("bucket_" in file.name, {}, [])  # no bytes are no rows


@lru_cache(maxsize=500)  # a history asks for the same files under dozens of snapshots
def _decoded(data: bytes) -> Content:
    kinds = (pyorc.TypeKind.DATE, pyorc.TypeKind.TIMESTAMP, pyorc.TypeKind.TIMESTAMP_INSTANT, pyorc.TypeKind.DECIMAL)
    reader = pyorc.Reader(io.BytesIO(data), converters=dict.fromkeys(kinds, _AsStored))
    acid = list(reader.schema.fields) == ACID_COLUMNS
    row = reader.schema.fields["row"] if acid else reader.schema
    return Content(acid, {name: parse_type(str(child)) for name, child in row.fields.items()}, list(reader))


def _is_acid(file: Path) -> bool:
    return _open(file).acid


def _visible_files(directory: Path) -> list[Path]:
    files = []
    for child in sorted(directory.iterdir()):
        if child.name.startswith(("_", ".")):
            continue
        files.extend(_visible_files(child) if child.is_dir() else [child])
    return files


def _parse(path: Path) -> Directory | None:
    base = re.fullmatch(r"base_(-?\d+)(?:_v(\d+))?", path.name)
    if base:
        return Directory(path, "base", 0, int(base[1]), -1, int(base[2] or 0))
    delta = re.fullmatch(r"(delta|delete_delta)_(\d+)_(\d+)(?:_(\d+))?(?:_v(\d+))?", path.name)
    if delta:
        return Directory(path, delta[1], int(delta[2]), int(delta[3]), int(delta[4] or -1), int(delta[5] or 0))
    if path.name.startswith(("base_", "delta_", "delete_delta_")):
        raise ValueError(f"no reader of Hive's accepts {path}")
    return None


def _base_counts(base: Directory, write_ids: WriteIds) -> bool:
    if base.high == -(1 << 63):
        return True
    if _compacted(base):
        return base.high < write_ids.lowest_open and base.high <= write_ids.high
    return write_ids.valid(base.high)


def _compacted(base: Directory) -> bool:
    marker = base.path / "_metadata_acid"
    return base.visibility > 0 or (marker.exists() and json.loads(marker.read_bytes())["dataFormat"] == "compacted")


def _ids(text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        if part:
            low, _, high = part.partition("-")
            found.update(range(int(low), int(high or low) + 1))
    return frozenset(found)


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").split("\n")[:-1]


def _from_text(kind: Type, cell: str) -> Any:
    if cell == r"\N":
        return None
    return canonical(kind, int(cell) if kind.kind in _RANKS else cell)
