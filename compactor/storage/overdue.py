"""
Calls that nobody waits for any longer once they take too long: for a client that has no time limit of its own, and can't be interrupted.

The call runs in a spare thread. One that is overdue is left behind there, ends whenever it ends, and what it returns is forgotten; a process that ends doesn't wait
for it. Handing a call over and its answer back takes tens of microseconds.
"""

import os
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

_Result = TypeVar("_Result")
_Answer = tuple[bool, Any]
_Job = tuple[Callable[..., Any], tuple[Any, ...], "SimpleQueue[_Answer]"]


class _Spare:
    """A thread that makes one call after the other."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        threading.Thread(target=self._work, name="waits-for-storage", daemon=True).start()

    def hand_over(self, call: Callable[..., Any], arguments: tuple[Any, ...]) -> "SimpleQueue[_Answer]":
        answer: SimpleQueue[_Answer] = SimpleQueue()
        self._jobs.put((call, arguments, answer))
        return answer

    def leave_behind(self) -> None:
        """It ends with what it is doing."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            call, arguments, answer = job
            del job
            try:
                result = (True, call(*arguments))
            except BaseException as error:
                result = (False, error)
            answer.put(result)
            del call, arguments, answer, result


_idle: list[_Spare] = []
os.register_at_fork(after_in_child=_idle.clear)  # threads aren't copied


def within(seconds: float | None, call: Callable[..., _Result], *arguments: Any) -> _Result:
    """
    What a call returns, or raises.

    Args:
        seconds: how long to wait; None: for ever, in this thread.

    Raises:
        TimeoutError: it takes longer. It may still be done later.
    """
    if seconds is None:
        return call(*arguments)
    try:
        spare = _idle.pop()
    except IndexError:
        spare = _Spare()
    try:
        returned, value = spare.hand_over(call, arguments).get(timeout=seconds)
    except BaseException as error:
        spare.leave_behind()
        if isinstance(error, Empty):
            raise TimeoutError(f"no answer for {seconds:g} s") from None
        raise
    _idle.append(spare)
    if not returned:
        raise value
    result: _Result = value
    return result
