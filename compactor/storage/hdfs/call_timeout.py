"""
Time limit for calls of a client that has none of its own and can't be interrupted.

The call runs in a spare thread. When the call is overdue, its caller leaves it behind in that thread. The call ends
later, its result is forgotten, and a process that ends doesn't wait for it. Handing over a call and its answer takes
tens of microseconds.
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
        """Let the thread end after its current call."""
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
os.register_at_fork(after_in_child=_idle.clear)  # a fork doesn't copy threads


def within(seconds: float | None, call: Callable[..., _Result], *arguments: Any) -> _Result:
    """
    Make a call with a time limit; returns its result, or raises its error.

    Args:
        seconds: how long to wait; None: without limit, in the caller's thread.

    Raises:
        TimeoutError: the call takes longer. It may still take effect later.
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
