"""
Which small stripes or row groups are encoded anew together.

Pure. Joining pays where it saves readers a part and costs little: one part after the other grows, and must not be
written again for a few rows each time. So a part is joined with its neighbours only if they have at least half of its
weight; until then they stay apart. A part is then written again only after it has grown by half, and parts that stay
apart shrink by half from one to the next, so there are few of them.
"""

from collections.abc import Iterator, Sequence


def joined(weights: Sequence[int], copyable: Sequence[bool]) -> Iterator[int]:
    """
    Of a run of neighbouring small parts the positions of those that are encoded anew together.

    Args:
        weights: bytes that a reader handles.
        copyable: whether a part could be copied; others are encoded anew in any case, and not returned.
    """
    yield from _within(weights, copyable, 0, len(weights))


def _within(weights: Sequence[int], copyable: Sequence[bool], start: int, end: int) -> Iterator[int]:
    candidates = [place for place in range(start, end) if copyable[place]]
    if end - start < 2 or not candidates:
        return
    largest = max(candidates, key=lambda place: weights[place])
    if 2 * (sum(weights[start:end]) - weights[largest]) >= weights[largest]:
        yield from candidates
        return
    yield from _within(weights, copyable, start, largest)
    yield from _within(weights, copyable, largest + 1, end)
