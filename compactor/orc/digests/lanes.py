"""
64-bit hashes of many values at once, in NumPy.

Not for cryptography: a changed value goes unnoticed with a chance of about 2**-64. Arrays go in, uint64 arrays of the
same length come out. A hash is final only after `mixed`: before that, its high bits depend on more of the value than
its low ones.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

Lanes = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]

_MULTIPLIERS: Final = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9))
_HALF: Final = np.uint64(32)
_WORD: Final = 8
_FEW: Final = 3
_STRINGS: Final = 1 << 13
_BLOCK: Final = 1 << 15
"""Words that are hashed at a time, so few that they stay in a core's cache."""


def mixed(values: Lanes) -> Lanes:
    """Spread every bit of each value over all 64 bits."""
    out = folded(values, _MULTIPLIERS[0])
    out *= _MULTIPLIERS[1]
    out ^= out >> _HALF
    return out


def folded(values: Lanes, factor: np.uint64) -> Lanes:
    """Half of `mixed`: multiply by an odd number, then XOR the high half into the low one."""
    out = values * factor
    out ^= out >> _HALF
    return out


def hash_wide(low: Lanes, high: Lanes) -> Lanes:
    """Hashes of values of two words."""
    return folded(high, _MULTIPLIERS[1]) ^ low


def hash_bytes(offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8]) -> Lanes:
    """
    Hashes of byte strings that lie one after the other.

    A string's hash is made of its words of eight bytes, each folded by an odd number that depends on the word's place,
    and of the string's length.

    Args:
        offsets: positions in `data`; one more than there are strings.
    """
    lengths = np.diff(offsets)
    sums = lengths.astype(np.uint64)
    if not len(sums):
        return sums
    starts, counts = offsets[:-1] - offsets[0], np.maximum((lengths + (_WORD - 1)) >> 3, 1)
    weights = mixed(np.arange(1, int(counts.max()) + 1, dtype=np.uint64)) | np.uint64(1)
    short = len(weights) <= _FEW
    words = _words(data[offsets[0] : offsets[-1]], len(weights) if short else 1)
    if int(lengths.min()) == int(lengths.max()):
        _add_even(sums, words, int(lengths[0]), weights)
        return sums
    if short:
        for begin in range(0, len(sums), _STRINGS):
            some = slice(begin, begin + _STRINGS)
            _add_short(sums[some], words, starts[some], lengths[some], weights)
        return sums
    ends = np.cumsum(counts)
    begin = 0
    while begin < len(sums):
        before = int(ends[begin - 1]) if begin else 0
        stop = max(begin + 1, int(np.searchsorted(ends, before + _BLOCK, side="right")))
        some = slice(begin, stop)
        _add_words(sums[some], words, (starts[some], lengths[some], counts[some]), weights)
        begin = stop
    return sums


def _words(data: npt.NDArray[np.uint8], beyond: int) -> Lanes:
    """The eight bytes that start at each byte position, with zeros for `beyond` words after the last byte."""
    padded = np.empty(len(data) + beyond * _WORD, np.uint8)
    padded[: len(data)] = data
    padded[len(data) :] = 0
    return np.lib.stride_tricks.as_strided(
        padded[:_WORD].view(np.uint64), shape=(len(padded) - _WORD + 1,), strides=(1,)
    )


def _add_even(sums: Lanes, words: Lanes, length: int, weights: Lanes) -> None:
    """Add strings of one length: their first words, then their second, and so on."""
    if not length:
        return
    table = np.lib.stride_tricks.as_strided(words, shape=(len(sums), len(weights)), strides=(length, _WORD))
    rest = np.uint64(8 * (_WORD * len(weights) - length))
    rows = max(1, _BLOCK // 4)
    for begin in range(0, len(sums), rows):
        part, total = table[begin : begin + rows], sums[begin : begin + rows]
        for place, weight in enumerate(weights):
            total += folded(part[:, place] << rest if place == len(weights) - 1 and rest else part[:, place], weight)


def _add_short(
    sums: Lanes, words: Lanes, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], weights: Lanes
) -> None:
    """
    Add strings of a few words: the n-th word of every string at a time, nothing for strings that have no n-th word.
    """
    for place, weight in enumerate(weights):
        half = np.clip((place + 1) * _WORD - lengths, 0, _WORD).astype(np.uint64) << np.uint64(2)
        sums += folded((words[starts + place * _WORD] << half) << half, weight)


def _add_words(
    sums: Lanes,
    words: Lanes,
    strings: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]],
    weights: Lanes,
) -> None:
    """
    Add strings of any length. `strings` holds their start positions, their lengths in bytes and their lengths in words.
    """
    starts, lengths, counts = strings
    rest = ((counts << 3) - lengths).astype(np.uint64) << np.uint64(3)
    ends = np.cumsum(counts)
    firsts = ends - counts
    places = np.arange(int(ends[-1])) - np.repeat(firsts, counts)
    word = words[np.repeat(starts, counts) + (places << 3)]
    last = word[ends - 1] << (rest & np.uint64(63))
    last[rest > 63] = 0
    word[ends - 1] = last
    word *= weights[places]
    word ^= word >> _HALF
    sums += np.add.reduceat(word, firsts)
