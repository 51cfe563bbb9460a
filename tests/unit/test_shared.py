"""What takes long to ask: one answer serves for some seconds, and a slow one longer."""

import pytest

from compactor.shared import Freshness, Shared
from tests.unit.roles.world import Clock


@pytest.mark.parametrize(
    ("freshness", "takes", "serves"),
    [
        pytest.param((), 0.0, 5.0, id="quick"),
        pytest.param((), 0.2, 5.0, id="a-bit"),
        pytest.param((), 1.5, 30.0, id="slow"),
        pytest.param((Freshness(30.0),), 9.0, 30.0, id="always-as-long"),
        pytest.param((Freshness(times=10, most=30.0),), 0.5, 5.0, id="only-by-what-it-took"),
        pytest.param((Freshness(times=10, most=30.0),), 40.0, 30.0, id="longer-than-it-serves"),
    ],
)
def test_a_slow_answer_serves_longer(freshness, takes, serves):
    """From when it came: the seconds that it serves at least, or so many times as long as asking took, but never too long."""
    clock, asked = Clock(), []

    def ask():
        clock.forward(takes)
        asked.append(len(asked) + 1)
        return asked[-1]

    shared = Shared(ask, clock)
    assert [shared.get(*freshness), shared.get(*freshness)] == [1, 1]
    clock.forward(serves - 0.001)
    assert shared.get(*freshness) == 1
    clock.forward(0.002)
    assert shared.get(*freshness) == 2


def test_who_is_told_to_forget_asks_anew():
    """At the next question, not before."""
    asked = []
    shared = Shared(lambda: asked.append(1), Clock())
    shared.get()
    shared.forget()
    assert len(asked) == 1
    shared.get()
    assert len(asked) == 2


def test_an_error_is_no_answer():
    """It reaches whoever asked, and the next one asks again."""
    answers = iter([OSError("away"), 7])

    def ask():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    shared = Shared(ask, Clock())
    with pytest.raises(OSError, match="away"):
        shared.get()
    assert shared.get() == 7
