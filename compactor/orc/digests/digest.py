"""
Content of rows as one 64-bit sum per column: equal for equal rows in any order and in any batches, different when a
value changes or moves to another row.

A value's hash is mixed with the ROW__ID of its row (and, inside lists and maps, with its place) before it is added, so
that values which were swapped between rows, columns or places don't cancel out. The hashes are of what the file stores:
integers, bits of floats, bytes of texts, unscaled decimals, days, nanoseconds since 1970, lengths of lists and maps,
tags of unions, and NULL as a value of its own. 64 bits detect accidents; they are no protection against forgery.
Source: docs/orc.md, "Digests".
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.acid.types import HiveType, Kind
from compactor.orc.digests.lanes import Bools, Lanes, folded, hash_bytes, hash_wide, mixed
from compactor.orc.format.key_columns import KeyColumns
from compactor.orc.format.zones import TIMESTAMPS

_WRAP: Final = 1 << 64
_NULL: Final = np.uint64(0xB492B66FBE98F273)
_PLACE: Final = np.uint64(0xC949D7C7509E6557)
_KEY_PARTS: Final = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))
_FIXED: Final[dict[Kind, Any]] = {
    Kind.BYTE: np.int8,
    Kind.SHORT: np.int16,
    Kind.INT: np.int32,
    Kind.LONG: np.int64,
    Kind.FLOAT: np.uint32,
    Kind.DOUBLE: np.uint64,
    Kind.DATE: np.int32,
    Kind.TIMESTAMP: np.int64,
    Kind.TIMESTAMP_INSTANT: np.int64,
}


Owners = npt.NDArray[np.int64]
"""For each value of a batch, the position of the row it belongs to."""


@dataclass(frozen=True, slots=True)
class Digest:
    """
    The sums of a set of rows; without columns: of no rows.

    Args:
        rows: number of rows.
        keys: sum over the rows' ROW__IDs and the write ids of the events (`currentTransaction`).
        columns: sums by column id inside the row, parents first; the row struct itself is 0.
    """

    rows: int = 0
    keys: int = 0
    columns: tuple[int, ...] = ()

    def __add__(self, other: "Digest") -> "Digest":
        """The digest of both sets of rows together."""
        if not self.columns or not other.columns:
            return self if self.columns else other
        sums = tuple((one + two) % _WRAP for one, two in zip(self.columns, other.columns, strict=True))
        return Digest(self.rows + other.rows, (self.keys + other.keys) % _WRAP, sums)


NO_DIGEST: Final = Digest()


def differences(row: HiveType, expected: Digest, found: Digest) -> list[str]:
    """Where the digests of two sets of rows of one type differ: `rows`, `keys`, paths of columns."""
    different = [name for name in ("rows", "keys") if getattr(expected, name) != getattr(found, name)]
    nothing = (0,) * row.columns
    pairs = zip(column_paths(row), expected.columns or nothing, found.columns or nothing, strict=True)
    return different + [path for path, one, two in pairs if path and one != two]


def column_paths(node: HiveType, path: str = "") -> Iterator[str]:
    """
    The names of a row's columns in messages: `a`, `s.x`, `list[]`, `map.key`, `union.0`; in column id order, an empty
    name for the row itself.
    """
    yield path
    for number, child in enumerate(node.children):
        name = {Kind.LIST: "[]", Kind.MAP: (".key", ".value")[number % 2], Kind.UNION: f".{number}"}.get(
            node.kind
        ) or f".{node.names[number]}"
        yield from column_paths(child, f"{path}{name}".removeprefix("."))


def key_hashes(keys: KeyColumns) -> Lanes:
    """A hash of each ROW__ID, which binds values to their rows."""
    place = folded(keys.write_id.view(np.uint64), _KEY_PARTS[0])
    place ^= keys.bucket.astype(np.int64).view(np.uint64)
    row = folded(place, _KEY_PARTS[1])
    row ^= keys.row_id.view(np.uint64)
    return mixed(row)


class Digester:
    """
    Adds up rows of one type, a batch at a time.

    Args:
        row: the struct of the table's columns.
    """

    def __init__(self, row: HiveType) -> None:
        self._row = row
        self._sums = [0] * row.columns
        self._zone = np.uint64(0)
        self._rows = self._keys = 0

    @property
    def digest(self) -> Digest:
        """The digest of all rows added so far."""
        return Digest(self._rows, self._keys, tuple(self._sums))

    def add(self, keys: KeyColumns, values: Any, kept: Bools | None = None, zone: str = "") -> None:
        """
        Add rows.

        Args:
            values: the rows, a pyarrow.StructArray; timestamps may also be 64-bit integers.
            kept: which of the rows count; None: all.
            zone: the time zone that the timestamps are stored in; it is part of their value.
        """
        self._zone = np.uint64(zlib.crc32(zone.encode()))
        bound = key_hashes(keys)
        self._rows += len(keys) if kept is None else int(kept.sum())
        self._keys = (self._keys + _sum(mixed(bound ^ keys.current.view(np.uint64)), kept)) % _WRAP
        self._add(self._row, 0, values, bound, kept, None)

    def _collect(self, column: int, hashes: Lanes, alive: Bools | None, owners: Owners | None) -> None:  # noqa: ARG002 - sums ask for no rows
        self._sums[column] = (self._sums[column] + _sum(hashes, alive)) % _WRAP

    def _add(  # noqa: PLR0917 - a column, its values, and what they belong to
        self, node: HiveType, column: int, values: Any, bound: Lanes, alive: Bools | None, owners: Owners | None
    ) -> None:
        """
        Add the live values of one column, which are neither dropped with their row nor inside a NULL; then those of the
        columns inside.
        """
        valid = None if not values.null_count else values.is_valid().to_numpy(zero_copy_only=False)
        hashed = _hashed(node.kind, values)
        if node.kind in TIMESTAMPS:
            hashed = hashed + (self._zone << np.uint64(32))
        if valid is not None:
            hashed = np.where(valid, hashed, _NULL)
            alive_inside = valid if alive is None else valid & alive
        else:
            alive_inside = alive
        self._collect(column, mixed(hashed ^ bound), alive, owners)
        match node.kind:
            case Kind.STRUCT:
                for number, (below, child) in enumerate(node.inside(column)):
                    self._add(child, below, values.field(number), bound, alive_inside, owners)
            case Kind.LIST | Kind.MAP:
                self._add_items(node, column, values, bound, alive_inside, owners)
            case Kind.UNION:
                tags = _tags(values)
                for number, (below, child) in enumerate(node.inside(column)):
                    chosen = tags == number if alive_inside is None else (tags == number) & alive_inside
                    self._add(child, below, values.field(number), bound, chosen, owners)
            case _:
                pass

    def _add_items(  # noqa: PLR0917 - as `_add`
        self, node: HiveType, column: int, values: Any, bound: Lanes, alive: Bools | None, owners: Owners | None
    ) -> None:
        """Add items of lists or entries of maps, bound to their row and to their place."""
        offsets = values.offsets.to_numpy()
        start, lengths = int(offsets[0]), np.diff(offsets)
        count = int(offsets[-1]) - start
        places = np.arange(start, start + count, dtype=np.int64) - np.repeat(offsets[:-1], lengths)
        inner = mixed(np.repeat(bound, lengths) ^ ((places.view(np.uint64) + np.uint64(1)) * _PLACE))
        inside = None if alive is None else np.repeat(alive, lengths)
        children = (values.values,) if node.kind is Kind.LIST else (values.keys, values.items)
        owners = None if owners is None else np.repeat(owners, lengths)
        for (below, child), items in zip(node.inside(column), children, strict=True):
            self._add(child, below, items.slice(start, count), inner, inside, owners)


class RowHashes(Digester):
    """The same hashes, summed for each row: shows which rows differ, and in which columns."""

    def of(self, keys: KeyColumns, values: Any, zone: str = "") -> Lanes:
        """
        A table of sums: one line for each column of the type, one field for each row of `values`. Arguments as in
        `add`.
        """
        self._zone = np.uint64(zlib.crc32(zone.encode()))
        self._table = np.zeros((len(self._sums), len(keys)), np.uint64)
        self._add(self._row, 0, values, key_hashes(keys), None, np.arange(len(keys)))
        return self._table

    def _collect(self, column: int, hashes: Lanes, alive: Bools | None, owners: Owners | None) -> None:
        assert owners is not None
        np.add.at(
            self._table[column], owners if alive is None else owners[alive], hashes if alive is None else hashes[alive]
        )


def _hashed(kind: Kind, values: Any) -> Lanes:
    """A hash of each value, without the values inside it; arbitrary where the value is NULL."""
    count = len(values)
    if kind in _FIXED:
        return _fixed(values, _FIXED[kind])
    match kind:
        case Kind.STRING | Kind.VARCHAR | Kind.CHAR | Kind.BINARY:
            _, offsets, data = values.buffers()
            ends = (
                np.frombuffer(offsets, np.int32, count + 1, values.offset * 4).astype(np.int64)
                if offsets
                else np.zeros(count + 1, np.int64)
            )
            return hash_bytes(ends, np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8))
        case Kind.DECIMAL:
            words = np.frombuffer(values.buffers()[1], np.uint64, 2 * count, values.offset * 16).reshape(count, 2)
            return hash_wide(words[:, 0], words[:, 1])
        case Kind.BOOLEAN:
            found: Lanes = values.cast(pa.uint8()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64)
            return found
        case Kind.LIST | Kind.MAP:
            lengths: Lanes = np.diff(values.offsets.to_numpy()).astype(np.uint64)
            return lengths
        case Kind.UNION:
            return _tags(values).astype(np.uint64)
        case _:
            return np.zeros(count, np.uint64)


def _tags(values: Any) -> npt.NDArray[np.int8]:
    """Which alternative each value of a union has; pyarrow's `type_codes` ignores the offset of a slice."""
    return np.frombuffer(values.buffers()[1], np.int8, len(values), values.offset)


def _fixed(values: Any, kind: Any) -> Lanes:
    data = values.buffers()[1]
    if data is None:
        return np.zeros(len(values), np.uint64)
    found: npt.NDArray[Any] = np.frombuffer(data, kind, len(values), values.offset * np.dtype(kind).itemsize)
    return found.astype(np.uint64 if found.dtype.kind == "u" else np.int64).view(np.uint64)


def _sum(values: Lanes, kept: Bools | None) -> int:
    return int((values if kept is None else values[kept]).sum(dtype=np.uint64))
