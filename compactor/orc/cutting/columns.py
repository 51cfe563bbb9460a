"""
Removes values from the streams of one column.

What no removed value is in stays as it is. What is written anew is decoded by Arrow's reader, as is what it replaces.
Source: the ORC specification, "Column Encodings" and "Row Index"; Java's TreeWriter classes for the order of positions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from compactor.acid.types import Kind
from compactor.orc.cutting.proof import decoded, require_same
from compactor.orc.cutting.runs import (
    MOST_VALUES,
    Integers,
    Runs,
    UncutError,
    all_integers,
    decoded_bytes,
    decoded_integers,
    encoded_bytes,
    encoded_integers,
    integer_runs,
    runs_of,
)
from compactor.orc.cutting.streams import Edit, Stream
from compactor.orc.format.proto import orc_pb2 as pb

PRESENT, DATA, LENGTH, DICTIONARY, SECONDARY = 0, 1, 2, 3, 5
_DIRECT, _DIRECT_2, _DICTIONARY_2 = 0, 2, 3
_SECOND: Final = 1_000_000_000
"""2015-01-01 in nanoseconds from 1970, from which timestamps are counted."""
_LONG: Final = pb.Type(kind=Kind.LONG)
Mask = npt.NDArray[np.bool_]
Positions = list[tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class ValueCut:
    """
    Which values of a column stay.

    Args:
        kept: for each value.
        bounds: numbers, among the values that stay, of those at which the row groups begin.
        wanted: numbers of the values that are asked for, ascending; all that go are among them.
    """

    kept: Mask
    bounds: Integers
    wanted: Integers

    @property
    def gone(self) -> Integers:
        """Numbers of the values that go."""
        return np.flatnonzero(~self.kept)

    def among(self, present: Mask) -> "ValueCut":
        """The same of the values that aren't NULL."""
        left = np.concatenate(([0], np.cumsum(present[self.kept])))
        number = np.cumsum(present) - 1
        return ValueCut(self.kept[present], left[self.bounds], number[self.wanted[present[self.wanted]]])


@dataclass(slots=True)
class Column:
    """
    A column on its way.

    Args:
        kind: as the file's footer says it.
        encoding: as the stripe's footer says it.
        streams: by their kinds; those without the removed values replace them.
        present: which of the column's rows aren't NULL; None: all.
        values: those that were asked for and aren't NULL, as an Arrow array; timestamps as nanoseconds from 1970.
        places: for each indexed stream, by its kind, where the row groups begin in it.
    """

    kind: pb.Type
    encoding: pb.ColumnEncoding
    streams: dict[int, Stream]
    present: Mask | None = None
    values: Any = None
    places: dict[int, Positions] = field(default_factory=dict)

    @property
    def positions(self) -> list[tuple[int, ...]]:
        """For each row group, the numbers that a row index says of where it begins; empty without streams."""
        ordered = [self.places[kind] for kind in sorted(self.places)]
        return [tuple(number for place in group for number in place) for group in zip(*ordered, strict=True)]

    def stream(self, kind: int, values: int) -> Stream:
        """A stream; one without values may be missing."""
        found = self.streams.get(kind)
        if found is None:
            if values:
                raise UncutError
            one = next(iter(self.streams.values()))
            return Stream((), one.kind, one.block_size)
        return found

    def put(self, kind: int, stream: Stream, places: Positions) -> None:
        if kind in self.streams:
            self.streams[kind] = stream
        self.places[kind] = places


def cut_column(column: Column, cut: ValueCut) -> None:
    """
    Remove values of a column without columns inside.

    Raises:
        UncutError: it isn't encoded as ORC's writers have done since Hive 0.12, or the values that stay aren't those that
            were there.
    """
    kind = Kind(column.kind.kind)
    if PRESENT in column.streams:
        column.present = _bits(column.streams[PRESENT], len(cut.kept))
        _cut_bits(column, PRESENT, column.present, cut)
        cut = cut.among(column.present)
    if kind is Kind.STRUCT:
        if set(column.streams) - {PRESENT} or (column.present is not None and not column.present.all()):
            raise UncutError  # of a row that is NULL, its columns hold nothing
        return
    found = _STEPS.get((kind, column.encoding.kind))
    if found is None or not column.streams:
        raise UncutError
    step, known = found
    if set(column.streams) - {PRESENT, *known}:
        raise UncutError
    step(column, cut)


@dataclass(frozen=True, slots=True)
class _Looked:
    """
    Values that are looked at: all of the runs that hold those which are asked for, and of the runs in their places.

    Args:
        cut: of all values.
        numbers: of the values before.
        runs: the runs that hold these, then the runs in their places.
    """

    cut: ValueCut
    numbers: Integers
    runs: bytes = b""

    def __len__(self) -> int:
        return len(self.numbers) + int(np.count_nonzero(self.kept))

    @property
    def kept(self) -> Mask:
        """For each of `numbers`, whether it stays."""
        return self.cut.kept[self.numbers]

    @property
    def left(self) -> Integers:
        """The numbers, after the cut, of those that stay."""
        stay = self.numbers[self.kept]
        return stay - np.searchsorted(self.cut.gone, stay)

    def same(self, decoded: Any) -> Any:
        """
        Compare what was before with what took its place.

        Args:
            decoded: an Arrow array of both, one after the other.

        Returns:
            The values that are asked for.
        """
        before, after = decoded[: len(self.numbers)], decoded[len(self.numbers) :]
        require_same(before.filter(pa.array(self.kept)), after)
        return before.take(pa.array(np.searchsorted(self.numbers, self.cut.wanted)))


def _cut_runs(column: Column, kind: int, cut: ValueCut, *, signed: bool) -> _Looked:
    """Remove values of a stream of integers."""
    stream = column.stream(kind, len(cut.kept))
    data = stream.data
    runs = integer_runs(data, len(cut.kept))
    looked = np.unique(runs.holding(cut.wanted))
    changed = np.unique(runs.holding(cut.gone))
    touched = set(changed.tolist())
    values = decoded_integers(data, runs, changed, signed=signed)
    sizes, counts = np.diff(runs.starts), np.diff(runs.firsts)
    new_sizes: list[Any] = []
    new_counts: list[Any] = []
    edits: list[Edit] = []
    before: list[bytes] = []
    after: list[bytes] = []
    done = at = 0
    spans = zip(looked.tolist(), runs.firsts[looked].tolist(), runs.firsts[looked + 1].tolist(), strict=True)
    for run, first, end in spans:
        start, stop = int(runs.starts[run]), int(runs.starts[run + 1])
        before.append(data[start:stop])
        if run not in touched:
            after.append(before[-1])
            continue
        kept = cut.kept[first:end]
        found, at = values[at : at + end - first], at + end - first
        made = encoded_integers(found[kept], data[start], signed=signed)
        after += [part for part, _ in made]
        edits.append(Edit(start, stop, b"".join(part for part, _ in made)))
        new_sizes += (sizes[done:run], [len(part) for part, _ in made])
        new_counts += (counts[done:run], [count for _, count in made])
        done = run + 1
    edited = stream.edited(edits)
    left = runs_of(np.concatenate([*new_sizes, sizes[done:]]), np.concatenate([*new_counts, counts[done:]]))
    column.put(kind, edited, _inside(edited, left, cut.bounds))
    return _Looked(cut, _ranges(runs.firsts[looked], runs.firsts[looked + 1]), b"".join([*before, *after]))


def _integers(column: Column, cut: ValueCut) -> None:
    looked = _cut_runs(column, DATA, cut, signed=True)
    column.values = looked.same(_longs(looked))


def _longs(looked: _Looked) -> Any:
    return decoded(_LONG, pb.ColumnEncoding(kind=_DIRECT_2), {DATA: [looked.runs]}, len(looked))


def _dictionary(column: Column, cut: ValueCut) -> None:
    looked = _cut_runs(column, DATA, cut, signed=False)
    words = {kind: column.streams[kind].contents for kind in (LENGTH, DICTIONARY) if kind in column.streams}
    found = decoded(_text_of(column), column.encoding, {DATA: [looked.runs], **words}, len(looked))
    column.values = looked.same(found)


def _texts(column: Column, cut: ValueCut) -> None:
    sizes = all_integers(column.stream(LENGTH, len(cut.kept)).data, len(cut.kept), signed=False)
    _with_offsets(column, cut, np.concatenate(([0], np.cumsum(sizes))), LENGTH, signed=False)


def _decimals(column: Column, cut: ValueCut) -> None:
    data = np.frombuffer(column.stream(DATA, len(cut.kept)).data, np.uint8)
    ends = np.flatnonzero(data < 128) + 1
    _with_offsets(column, cut, np.concatenate(([0], ends)), SECONDARY, signed=True)


def _with_offsets(column: Column, cut: ValueCut, offsets: Integers, beside: int, *, signed: bool) -> None:
    """
    Remove values that are bytes, beside a stream of integers.

    Args:
        offsets: value i is the bytes [offsets[i], offsets[i + 1]).
        beside: the kind of that stream.
    """
    looked = _cut_runs(column, beside, cut, signed=signed)
    pieces = _cut_spans(column, looked, offsets)
    kind = column.kind if column.kind.kind == Kind.DECIMAL else _text_of(column)
    found = decoded(kind, column.encoding, {DATA: pieces, beside: [looked.runs]}, len(looked))
    column.values = looked.same(found)


def _timestamps(column: Column, cut: ValueCut) -> None:
    looked = _cut_runs(column, DATA, cut, signed=True)
    seconds = looked.same(_longs(looked))
    looked = _cut_runs(column, SECONDARY, cut, signed=False)
    streams = {DATA: [run for run, _ in _zeros(len(looked))], SECONDARY: [looked.runs]}
    nanos = looked.same(decoded(pb.Type(kind=Kind.TIMESTAMP), column.encoding, streams, len(looked)))
    with np.errstate(over="ignore"):
        column.values = pa.array(seconds.to_numpy() * _SECOND + nanos.cast(pa.int64()).to_numpy())


def _zeros(count: int) -> list[tuple[bytes, int]]:
    return [
        run
        for at in range(0, count, MOST_VALUES)
        for run in encoded_integers(np.zeros(min(MOST_VALUES, count - at), np.int64), signed=True)
    ]


def _wide(kind: Any) -> Callable[[Column, ValueCut], None]:
    """Remove floating point numbers, which are compared bit by bit."""
    bits = np.dtype(f"<u{np.dtype(kind).itemsize}")

    def step(column: Column, cut: ValueCut) -> None:
        blocks = np.unique(cut.wanted // MOST_VALUES) * MOST_VALUES
        looked = _Looked(cut, _ranges(blocks, np.minimum(blocks + MOST_VALUES, len(cut.kept))))
        pieces = _cut_spans(column, looked, np.arange(len(cut.kept) + 1, dtype=np.int64) * bits.itemsize)
        found = pa.array(np.frombuffer(b"".join(pieces), bits))
        column.values = looked.same(found).view(pa.from_numpy_dtype(kind))

    return step


def _cut_spans(column: Column, looked: _Looked, offsets: Integers) -> list[bytes]:
    """Remove bytes of the values' stream; returns those that are looked at, before and after."""
    stream, kept = column.stream(DATA, len(looked.cut.kept)), looked.cut.kept
    if len(offsets) != len(kept) + 1 or not stream.has(int(offsets[-1])):
        raise UncutError
    edits = [
        Edit(int(offsets[first]), int(offsets[end]))
        for first, end in _spans_of(looked.cut.gone)
        if offsets[first] < offsets[end]
    ]
    edited = stream.edited(edits)
    left = np.concatenate(([0], np.cumsum(np.diff(offsets)[kept])))
    column.put(DATA, edited, edited.positions(left[looked.cut.bounds].tolist()))
    return [
        source.span(int(places[first]), int(places[end]))
        for source, places, numbers in ((stream, offsets, looked.numbers), (edited, left, looked.left))
        for first, end in _spans_of(numbers)
    ]


def _bytes(column: Column, cut: ValueCut) -> None:
    before = column.stream(DATA, len(cut.kept))
    data, runs = encoded_bytes(decoded_bytes(before.data, len(cut.kept))[cut.kept])
    made = Stream.of(data, before.kind, before.block_size)
    column.put(DATA, made, _inside(made, runs, cut.bounds))
    column.values = _compared(pb.Type(kind=Kind.BYTE), before, made, cut)


def _booleans(column: Column, cut: ValueCut) -> None:
    bits = _bits(column.stream(DATA, len(cut.kept)), len(cut.kept))
    column.values = _cut_bits(column, DATA, bits, cut)


def _bits(stream: Stream, count: int) -> Mask:
    return np.unpackbits(decoded_bytes(stream.data, count + 7 >> 3), count=count).astype(np.bool_)


def _cut_bits(column: Column, kind: int, bits: Mask, cut: ValueCut) -> Any:
    before = column.stream(kind, len(bits))
    data, runs = encoded_bytes(np.packbits(bits[cut.kept]))
    made = Stream.of(data, before.kind, before.block_size)
    inside = _inside(made, runs, cut.bounds >> 3)
    column.put(kind, made, [(*place, bit) for place, bit in zip(inside, (cut.bounds & 7).tolist(), strict=True)])
    return _compared(pb.Type(kind=Kind.BOOLEAN), before, made, cut)


def _compared(kind: pb.Type, before: Stream, after: Stream, cut: ValueCut) -> Any:
    """Decode two whole streams of bytes or bits, and compare; returns the values that are asked for."""
    encoding = pb.ColumnEncoding(kind=_DIRECT)
    first = decoded(kind, encoding, {DATA: before.contents}, len(cut.kept))
    require_same(first.filter(pa.array(cut.kept)), decoded(kind, encoding, {DATA: after.contents}, int(cut.kept.sum())))
    return first.take(pa.array(cut.wanted))


def _text_of(column: Column) -> pb.Type:
    """The type by which the bytes of a text aren't padded or cut."""
    return pb.Type(kind=Kind.BINARY if column.kind.kind == Kind.BINARY else Kind.STRING)


def _inside(stream: Stream, runs: Runs, values: Integers) -> Positions:
    """Where values are: the byte of their run, and how many values of the run come before them."""
    found = runs.holding(values)
    before = (values - runs.firsts[found]).tolist()
    return [(*place, skip) for place, skip in zip(stream.positions(runs.starts[found].tolist()), before, strict=True)]


def _ranges(starts: Integers, ends: Integers) -> Integers:
    """The numbers of some ranges, one after the other."""
    return np.concatenate(
        [np.arange(start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        or [np.empty(0, np.int64)]
    )


def _spans_of(numbers: Integers) -> list[tuple[int, int]]:
    """Ascending numbers as ranges."""
    if not len(numbers):
        return []
    breaks = np.flatnonzero(np.diff(numbers) != 1)
    starts, ends = numbers[np.concatenate(([0], breaks + 1))], numbers[np.concatenate((breaks, [len(numbers) - 1]))] + 1
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


_Step = Callable[[Column, ValueCut], None]
_STEPS: Final[Mapping[tuple[Kind, int], tuple[_Step, tuple[int, ...]]]] = {
    (Kind.BOOLEAN, _DIRECT): (_booleans, (DATA,)),
    (Kind.BYTE, _DIRECT): (_bytes, (DATA,)),
    **{(kind, _DIRECT_2): (_integers, (DATA,)) for kind in (Kind.SHORT, Kind.INT, Kind.LONG, Kind.DATE)},
    (Kind.FLOAT, _DIRECT): (_wide("<f4"), (DATA,)),
    (Kind.DOUBLE, _DIRECT): (_wide("<f8"), (DATA,)),
    **{(kind, _DIRECT_2): (_texts, (DATA, LENGTH)) for kind in (Kind.STRING, Kind.VARCHAR, Kind.CHAR, Kind.BINARY)},
    **{
        (kind, _DICTIONARY_2): (_dictionary, (DATA, LENGTH, DICTIONARY))
        for kind in (Kind.STRING, Kind.VARCHAR, Kind.CHAR)
    },
    **{(kind, _DIRECT_2): (_timestamps, (DATA, SECONDARY)) for kind in (Kind.TIMESTAMP, Kind.TIMESTAMP_INSTANT)},
    (Kind.DECIMAL, _DIRECT_2): (_decimals, (DATA, SECONDARY)),
}
"""How a column is cut by its kind and encoding, and the streams that it may have."""
