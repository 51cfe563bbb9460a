"""
A failing history made shorter: the same steps but some, played again on the same server, for as long as it still fails.
Bounded in time.
"""

import time
from collections.abc import Callable, Sequence

from tests.hive.live.world import Step


def shrink(
    steps: Sequence[Step], root: str, fails: Callable[[Sequence[Step]], bool], seconds: float
) -> tuple[list[Step], int]:
    """
    Fewer steps that still fail, and how many times they were played.

    Args:
        root: the table that was wrong: what is about others goes first.
        fails: plays steps on new tables.
    """
    deadline = time.monotonic() + seconds
    plays = 0
    left = list(steps)

    def shorter(candidate: Sequence[Step]) -> bool:
        nonlocal plays, left
        if len(candidate) == len(left) or time.monotonic() > deadline:
            return False
        plays += 1
        if fails(candidate):
            left = list(candidate)
            return True
        return False

    shorter([step for step in left if step.root == root])
    size = len(left) // 2
    while size >= 1 and time.monotonic() < deadline:
        start = 0
        while start < len(left):
            if not shorter(left[:start] + left[start + size :]):
                start += size
        size //= 2
    return left, plays
