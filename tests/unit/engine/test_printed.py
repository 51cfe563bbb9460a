"""What Spark's processes print becomes messages: none is lost, a traceback stays together, noise is told from news."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.spark.session.printed import messages, says_something

BROKEN = ["Traceback (most recent call last):", '  File "daemon.py", line 95, in worker', "BrokenPipeError: [Errno 32]"]
FAILED = [*BROKEN[:2], "MemoryError"]


@given(st.lists(st.sampled_from([*FAILED, "a word", "", "  indented", "Traceback (most recent call last):"])))
def test_no_line_is_lost(lines):
    """But blank ones, which only a traceback keeps."""
    found = [part for message in messages(f"{line}\n" for line in lines) for part in message.split("\n")]
    assert [part for part in found if part] == [line for line in lines if line]


def test_a_traceback_is_one_message():
    assert list(messages(["before", *FAILED, "after"])) == ["before", "\n".join(FAILED), "after"]


def test_a_traceback_that_breaks_off():
    assert list(messages(FAILED[:2])) == ["\n".join(FAILED[:2])]


@pytest.mark.parametrize(
    ("message", "something"),
    [
        ("WARNING: Using incubator modules: jdk.incubator.vector", False),
        ("Picked up JAVA_TOOL_OPTIONS: -Dx=y", False),
        ("\n".join(BROKEN), False),
        ("\n".join(FAILED), True),
        ("BrokenPipeError: alone", True),
        ("# A fatal error has been detected by the Java Runtime Environment:", True),
        ('Exception in thread "main" java.lang.OutOfMemoryError: Java heap space', True),
    ],
)
def test_what_says_something(message, something):
    assert says_something(message) is something
