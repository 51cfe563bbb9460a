"""
Compares a copied stripe with its source, without decoding it.

Source: docs/compaction.md, "Verification".
"""

from typing import Final

from compactor.handles import RandomReader
from compactor.orc.tail import Tail

SAMPLE: Final = 4096
"""Bytes at a stripe's start and end that are compared."""


def difference(  # noqa: PLR0917 - a stripe of two files: reader, tail, number
    reader: RandomReader, tail: Tail, index: int, source: RandomReader, source_tail: Tail, number: int
) -> str | None:
    """
    How a stripe differs from the one it was copied from, in lengths, rows, statistics, or first and last bytes.

    Args:
        index: the copy, in `reader`.
        number: the original, in `source`.

    Returns:
        None without a difference; else the rest of a sentence that begins with the file's name.
    """
    ours, theirs = tail.stripes[index], source_tail.stripes[number]
    here, there = f"stripe {index + 1}", f"stripe {number + 1} of {source.name}"
    lengths = (theirs.index_length, theirs.data_length, theirs.footer_length, theirs.number_of_rows)
    if (ours.index_length, ours.data_length, ours.footer_length, ours.number_of_rows) != lengths:
        return f"{here} isn't as long as its source, {there}"
    statistics = source_tail.metadata.stripe_stats[number].SerializeToString()
    if tail.metadata.stripe_stats[index].SerializeToString() != statistics:
        return f"{here} hasn't the statistics of its source, {there}"
    length = source_tail.stripe_length(number)
    for start in (0, max(0, length - SAMPLE)):
        size = min(SAMPLE, length - start)
        if reader.read_at(ours.offset + start, size) != source.read_at(theirs.offset + start, size):
            return f"{here} hasn't the bytes of its source, {there}"
    return None
