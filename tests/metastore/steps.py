"""One call of a side, as `test_interleaved` plays it beside one of the other's."""

from collections.abc import Callable
from dataclasses import dataclass


def _nothing(_):
    return None


@dataclass(frozen=True)
class Step:
    """
    Args:
        call: a function of ours; or the name and arguments of a method of Hive's TxnStore.
        then: told what was returned.
        failed: told what was raised; raises it if it may not be. None: Hive may refuse, ours must not.
        touches: entries of the queue that it may change without asking whose they are.
    """

    call: Callable[[], object] | tuple
    then: Callable[[object], object] = _nothing
    failed: Callable[[Exception], object] | None = None
    touches: frozenset[int] = frozenset()
