"""
Runs of ORC's run length encodings: where they lie in a stream, and how the values that are left of one are written.

Source: the ORC specification, "Integer Run Length Encoding, version 2" and "Byte Run Length Encoding".
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_WIDTHS: Final = (*range(1, 25), 26, 28, 30, 32, 40, 48, 56, 64)
"""Bits of a value by the five bits of a header that say it."""
_ROUNDED: Final[tuple[int, ...]] = tuple(
    next((known for known in _WIDTHS if known >= width), 64) for width in range(8 + 64 + 1)
)
"""The next width that a header can say."""
_HEAD_WIDTHS: Final = tuple(_WIDTHS[head >> 1 & 31] for head in range(256))
MOST_VALUES: Final = 512
"""Most values of a run of integers."""
_SHORT_REPEAT, _DIRECT, _PATCHED, _DELTA = range(4)
_FEWEST_EQUAL: Final = 3
_MOST_SHORT: Final = 10
_SHORT: Final = 32
"""Values that are packed whole rather than as several progressions."""
_SAFE: Final = 1 << 62
"""Differences of smaller numbers can't overflow."""
_APART: Final = 64
"""Values in a piece where a few need more bits than the others."""
_MOST_LITERALS: Final = 128
_MOST_REPEATED: Final = 130


def _by_header() -> tuple[list[int], Integers]:
    """By the first two bytes of a run: its size in bytes, where they tell it, else 0; and its number of values."""
    head, second = np.divmod(np.arange(1 << 16), 256)
    length = ((head & 1) << 8 | second) + 1
    direct = 2 + (length * np.array(_HEAD_WIDTHS)[head] + 7 >> 3)
    short = head < _DIRECT << 6
    sizes: list[int] = np.where(short, 2 + (head >> 3), np.where(head < _PATCHED << 6, direct, 0)).tolist()
    return sizes, np.where(short, _FEWEST_EQUAL + (head & 7), length)


_RUN_SIZES, _RUN_COUNTS = _by_header()


class UncutError(Exception):
    """
    The stripe isn't cut, but encoded anew: its streams aren't in a form that is cut here, have more bytes than may be in
    memory, or what was cut doesn't hold the values that should stay.
    """


@dataclass(frozen=True, slots=True)
class Runs:
    """
    The runs of a stream; both arrays end with what would be the next run's.

    Args:
        starts: byte at which each run begins.
        firsts: number of each run's first value.
    """

    starts: Integers
    firsts: Integers

    def __len__(self) -> int:
        return len(self.starts) - 1

    def holding(self, values: Integers) -> Integers:
        """The run of each value; the last value's end counts as behind the last run."""
        return np.searchsorted(self.firsts, values, "right") - 1


def integer_runs(data: bytes, count: int) -> Runs:
    """
    The runs of a stream in version 2.

    Args:
        count: values in the stream.

    Raises:
        UncutError: the stream isn't made of runs of just so many values.
    """
    starts = array("q")
    at, end, sizes, begins = 0, len(data), _RUN_SIZES, starts.append
    try:
        while at < end:
            begins(at)
            at += sizes[data[at] << 8 | data[at + 1]] or _long_run(data, at)
    except IndexError as error:
        raise UncutError from error
    heads = np.frombuffer(starts, np.int64)
    found = np.frombuffer(data, np.uint8)
    counts = _RUN_COUNTS[found[heads].astype(np.intp) << 8 | found[heads + 1]]
    if at != end or counts.sum() != count:
        raise UncutError
    return Runs(np.append(heads, end), np.concatenate(([0], np.cumsum(counts))))


def _long_run(data: bytes, at: int) -> int:
    """Bytes of the run at a byte, which is a progression or has patches."""
    head, length = data[at], ((data[at] & 1) << 8 | data[at + 1]) + 1
    if head < _DELTA << 6:
        third, fourth = data[at + 2], data[at + 3]
        patch = _ROUNDED[(fourth >> 5) + 1 + _WIDTHS[third & 31]]
        packed: int = (length * _HEAD_WIDTHS[head] + 7 >> 3) + ((fourth & 31) * patch + 7 >> 3)
        return 4 + (third >> 5) + 1 + packed
    end = at + 2
    for _ in range(2):
        while data[end] & 128:
            end += 1
        end += 1
    if head & 62 and length > 1:
        end += (length - 2) * _HEAD_WIDTHS[head] + 7 >> 3
    return end - at


def decoded_integers(data: bytes, runs: Runs, wanted: Integers, *, signed: bool) -> Integers:
    """The values of some runs, one run after the other."""
    counts = np.diff(runs.firsts)[wanted]
    ends = np.cumsum(counts)
    values = np.empty(int(counts.sum()), np.int64)
    alike: dict[int, list[tuple[int, int]]] = {}
    for at, begin, end in zip(runs.starts[wanted].tolist(), (ends - counts).tolist(), ends.tolist(), strict=True):
        head = data[at]
        if head >> 6 == _DIRECT and end - begin == MOST_VALUES:
            alike.setdefault(_WIDTHS[head >> 1 & 31], []).append((at + 2, begin))
        else:
            values[begin:end] = _decoded(data, at, end - begin, signed=signed)
    for width, places in alike.items():
        size = width * MOST_VALUES >> 3
        packed = b"".join([data[at : at + size] for at, _ in places])
        numbers = _unpacked(packed, width, len(places) * MOST_VALUES, signed=signed).reshape(-1, MOST_VALUES)
        for (_, begin), found in zip(places, numbers, strict=True):
            values[begin : begin + MOST_VALUES] = found
    return values


def all_integers(data: bytes, count: int, *, signed: bool) -> Integers:
    """All values of a stream. Raises as `integer_runs`."""
    runs = integer_runs(data, count)
    return decoded_integers(data, runs, np.arange(len(runs)), signed=signed)


def _decoded(data: bytes, at: int, count: int, *, signed: bool) -> Integers:
    """The values of the run at a byte."""
    head = data[at]
    kind, width = head >> 6, _WIDTHS[head >> 1 & 31]
    if kind == _SHORT_REPEAT:
        number = int.from_bytes(data[at + 1 : at + 2 + (head >> 3 & 7)], "big")
        return np.full(count, _unzigzag(number) if signed else number, np.int64)
    if kind == _DIRECT:
        return _unpacked(data[at + 2 : at + 2 + (count * width + 7 >> 3)], width, count, signed=signed)
    if kind == _DELTA:
        base, at = _read_varint(data, at + 2)
        step, at = _read_varint(data, at)
        base, step = _unzigzag(base) if signed else base, _unzigzag(step)
        if not head & 62 or count < _FEWEST_EQUAL:
            return base + step * np.arange(count, dtype=np.int64)
        others = _unpacked(data[at : at + ((count - 2) * width + 7 >> 3)], width, count - 2, signed=False)
        return np.cumsum(np.concatenate(([base, step], others if step >= 0 else -others)))
    return _patched(data, at, count)


def _patched(data: bytes, at: int, count: int) -> Integers:
    width, third, fourth = _WIDTHS[data[at] >> 1 & 31], data[at + 2], data[at + 3]
    whole, patch, gap, patches = (third >> 5) + 1, _WIDTHS[third & 31], (fourth >> 5) + 1, fourth & 31
    base = int.from_bytes(data[at + 4 : at + 4 + whole], "big")
    sign = 1 << 8 * whole - 1
    base = -(base & ~sign) if base & sign else base
    at += 4 + whole
    end = at + (count * width + 7 >> 3)
    values = _unpacked(data[at:end], width, count, signed=False)
    entry = _ROUNDED[gap + patch]
    place = 0
    for number in _unpacked(data[end : end + (patches * entry + 7 >> 3)], entry, patches, signed=False).tolist():
        place += number >> patch & (1 << gap) - 1
        if number & (1 << patch) - 1:
            values[place] |= (number & (1 << patch) - 1) << width
    return base + values


def encoded_integers(values: Integers, head: int | None = None, *, signed: bool) -> list[tuple[bytes, int]]:
    """
    Encode the values that are left of a run.

    Args:
        values: at most 512.
        head: the run's first byte; None: there was no run before.

    Returns:
        Runs, each with its number of values.
    """
    if not len(values):
        return []
    if head is not None and head >> 6 == _DIRECT:
        return [(_direct(values, signed=signed), len(values))]
    if len(values) >= _FEWEST_EQUAL and bool((values == values[0]).all()):
        return [(_steps(int(values[0]), 0, len(values), signed=signed), len(values))]
    pieces = [(_progression(part, signed=signed), len(part)) for part in _progressions(values)]
    if all(run is not None for run, _ in pieces):
        return [(run, count) for run, count in pieces if run is not None]
    if (delta := _delta(values, signed=signed)) is not None:
        return [(delta, len(values))]
    whole = _direct(values, signed=signed)
    if len(values) > _APART:
        parts = [values[start : start + _APART] for start in range(0, len(values), _APART)]
        apart = [(_direct(part, signed=signed), len(part)) for part in parts]
        if sum(len(run) for run, _ in apart) < len(whole):
            return apart
    return [(whole, len(values))]


def decoded_bytes(data: bytes, count: int) -> Bytes:
    """
    Decode a stream of the byte run length encoding.

    Raises:
        UncutError: it hasn't just so many bytes.
    """
    parts, at, found = [], 0, 0
    while at < len(data) and found <= count:
        head = data[at]
        if head < _MOST_LITERALS:
            if at + 1 >= len(data):
                raise UncutError
            parts.append(data[at + 1 : at + 2] * (head + _FEWEST_EQUAL))
            at += 2
        else:
            length = 256 - head
            if at + 1 + length > len(data):
                raise UncutError
            parts.append(data[at + 1 : at + 1 + length])
            at += 1 + length
        found += len(parts[-1])
    if found != count:
        raise UncutError
    return np.frombuffer(b"".join(parts), np.uint8)


def encoded_bytes(values: Bytes) -> tuple[bytes, Runs]:
    """Encode bytes: three and more equal ones as a repeat, the others as literals."""
    edges = np.concatenate(([0], np.flatnonzero(np.diff(values)) + 1, [len(values)])).astype(np.int64)
    lengths = np.diff(edges)
    parts: list[bytes] = []
    counts: list[int] = []
    done = 0

    def literals(end: int) -> None:
        for start in range(done, end, _MOST_LITERALS):
            part = values[start : min(end, start + _MOST_LITERALS)].tobytes()
            parts.append(bytes([256 - len(part)]) + part)
            counts.append(len(part))

    for place in np.flatnonzero(lengths >= _FEWEST_EQUAL).tolist():
        start, left = int(edges[place]), int(lengths[place])
        literals(start)
        while left >= _FEWEST_EQUAL:
            together = min(left, _MOST_REPEATED)
            parts.append(bytes([together - _FEWEST_EQUAL, int(values[start])]))
            counts.append(together)
            start, left = start + together, left - together
        done = start
    literals(len(values))
    return b"".join(parts), runs_of(list(map(len, parts)), counts)


def runs_of(sizes: Sequence[int] | Integers, counts: Sequence[int] | Integers) -> Runs:
    """Runs of so many bytes and values, one after the other."""
    return Runs(
        *(np.concatenate(([0], np.cumsum(found, dtype=np.int64))).astype(np.int64) for found in (sizes, counts))
    )


def _progressions(values: Integers) -> list[Integers]:
    """Split where the difference from one value to the next changes; two neighbours never end as parts of one value."""
    if len(values) < _FEWEST_EQUAL or _unsafe(values):
        return [values]
    changes = np.flatnonzero(np.diff(values, 2)) + 1
    if len(values) < _SHORT or len(changes) > 4:
        return [values]
    parts, start = [], 0
    for change in changes.tolist():
        if change > start:
            parts.append(values[start : change + 1])
            start = change + 1
    return [*parts, values[start:]] if start < len(values) else parts


def _progression(values: Integers, *, signed: bool) -> bytes | None:
    """A run of values that differ by the same number; None: they don't."""
    if len(values) < _FEWEST_EQUAL:
        return _direct(values, signed=signed)
    first, step = int(values[0]), int(values[1]) - int(values[0])
    if abs(first) >= _SAFE or bool((np.diff(values) != step).any()):
        return None
    return _steps(first, step, len(values), signed=signed)


def _steps(first: int, step: int, count: int, *, signed: bool) -> bytes:
    """A run of values that differ by a number."""
    number = _zigzag(first) if signed else first
    if not step and count <= _MOST_SHORT:
        size = max(1, number.bit_length() + 7 >> 3)
        return bytes([size - 1 << 3 | count - _FEWEST_EQUAL]) + number.to_bytes(size, "big")
    return _head(_DELTA, 0, count) + _varint(number) + _varint(_zigzag(step))


def _delta(values: Integers, *, signed: bool) -> bytes | None:
    """A run of values that only grow or only shrink; None: they don't, or have no first step to tell which."""
    if len(values) < _FEWEST_EQUAL or _unsafe(values):
        return None
    steps = np.diff(values)
    first = int(steps[0])
    if not first or not bool((steps >= 0).all() if first > 0 else (steps <= 0).all()):
        return None
    packed, code = _packed(np.abs(steps[1:]).astype(np.uint64), fewest=2)
    base = _zigzag(int(values[0])) if signed else int(values[0])
    return _head(_DELTA, code, len(values)) + _varint(base) + _varint(_zigzag(first)) + packed


def _direct(values: Integers, *, signed: bool) -> bytes:
    numbers = (values << 1 ^ values >> 63) if signed else values
    packed, code = _packed(numbers.astype(np.uint64))
    return _head(_DIRECT, code, len(values)) + packed


def _packed(numbers: npt.NDArray[np.uint64], fewest: int = 1) -> tuple[bytes, int]:
    """Numbers in as many bits as the largest needs, and the header's code of that width."""
    width = _ROUNDED[max(fewest, int(numbers.max()).bit_length())]
    whole = width + 7 >> 3
    wide = numbers.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 8 - whole :]
    if width % 8:
        wide = np.packbits(np.unpackbits(wide, axis=1)[:, whole * 8 - width :])
    return wide.tobytes(), _WIDTHS.index(width)


def _head(kind: int, code: int, count: int) -> bytes:
    return bytes([kind << 6 | code << 1 | count - 1 >> 8, count - 1 & 255])


def _unpacked(packed: bytes, width: int, count: int, *, signed: bool) -> Integers:
    """Numbers of so many bits each."""
    found = np.frombuffer(packed, np.uint8)
    whole = width + 7 >> 3
    if width % 8:
        bits = np.zeros((count, 8 * whole), np.uint8)
        bits[:, 8 * whole - width :] = np.unpackbits(found, count=count * width).reshape(count, width)
        found = np.packbits(bits, axis=1)
    wide = np.zeros((count, 8), np.uint8)
    wide[:, 8 - whole :] = found.reshape(-1)[: count * whole].reshape(count, whole)
    numbers = wide.view(">u8").reshape(-1).astype(np.uint64)
    if signed:
        numbers = numbers >> np.uint64(1) ^ -(numbers & np.uint64(1))
    return numbers.view(np.int64)


def _unsafe(values: Integers) -> bool:
    """Whether differences of these numbers might overflow."""
    return bool(((values >= _SAFE) | (values <= -_SAFE)).any())


def _zigzag(number: int) -> int:
    return number << 1 ^ number >> 63


def _unzigzag(number: int) -> int:
    return number >> 1 ^ -(number & 1)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while data[at] & 128:
        number |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
    return number | data[at] << shift, at + 1


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)
