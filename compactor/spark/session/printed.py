"""
What Spark's processes print: their own log lines, Java's warnings, tracebacks. It becomes events of the daemon's log.

What ended a job or a session comes as an error of its own. So what is known to say nothing new is a debug event.
"""

from collections.abc import Iterable, Iterator
from typing import Final

_LINE_CHARACTERS: Final = 8192
_TRACEBACK: Final = "Traceback (most recent call last)"
_MEANINGLESS: Final = ("WARNING: Using incubator modules", "Picked up JAVA_TOOL_OPTIONS", "Picked up _JAVA_OPTIONS")
"""What Java says of options that Spark's own start script or the operator gives it."""
_LEFT_ALONE: Final = ("BrokenPipeError", "ConnectionResetError", "EOFError")
"""How a Python worker ends whose JVM has gone."""


def messages(lines: Iterable[str]) -> Iterator[str]:
    """The messages that lines are: each line that isn't blank is one, and so is a traceback with all its lines."""
    block: list[str] = []
    for line in lines:
        text = line.rstrip()[:_LINE_CHARACTERS]
        if block:
            block.append(text)
            if not text or text[0].isspace():
                continue
            yield "\n".join(block)
            block = []
        elif text.startswith(_TRACEBACK):
            block = [text]
        elif text:
            yield text
    if block:
        yield "\n".join(block)


def says_something(message: str) -> bool:
    """Whether a message may tell something that no error of ours tells."""
    last = message.rpartition("\n")[2]
    return not (message.startswith(_MEANINGLESS) or (message.startswith(_TRACEBACK) and last.startswith(_LEFT_ALONE)))
