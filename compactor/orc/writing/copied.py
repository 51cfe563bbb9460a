"""
Compares a copied stripe with its source, without decoding it.

Source: docs/compaction.md, "What is verified".
"""

from compactor.handles import RandomReader, same_ends
from compactor.orc.format.tail import Tail


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
    if not same_ends(reader, ours.offset, source, theirs.offset, source_tail.stripe_length(number)):
        return f"{here} hasn't the bytes of its source, {there}"
    return None
