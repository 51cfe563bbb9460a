"""
Under which options a random life is played: all of them, one after another, so that a difference between two of them is
seen on the same life.
"""

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import structlog
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

from tests.counts import count

OptionSet, Life = TypeVar("OptionSet"), TypeVar("Life")
_PHASES = [phase for phase in Phase if phase is not Phase.explain]
"""Without tracing each line, which costs more than it tells."""


class Played(Protocol):
    """One play of a life, when it has come to its end."""

    told: list[str]
    """What happened, step by step."""
    compacted: int
    """How many compactions were published."""
    alike: object
    """What plays have in common after which the same rows are read."""
    rows_at_end: list[object]
    """What a new reader finds in the files, in order, without what may differ."""


def play_lives(
    play: Callable[[OptionSet, Life], Played],
    sets: Sequence[OptionSet],
    lives: SearchStrategy[Life],
    number: int,
    last: Life,
) -> "Plays":
    """
    Draw so many lives, and play each under all option sets.

    Args:
        last: played after them, so that no test passes by lives in which nothing happens: it has something to compact
            under each option set, and what was compacted is in the answer. (What it finds isn't shrunk, so the others
            come before.)
    """
    plays = Plays(sets, play)

    @settings(
        max_examples=number,
        database=None,
        phases=_PHASES,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(lives)
    def live(life):
        plays(life)

    with _quietly():
        live()
        plays(last)
    return plays


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without the log of all those plays: it would hide what a failure says."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.reset_defaults()


@dataclass
class Plays:
    """
    Plays each life under all option sets, and compares what is read in the end.

    As soon as a life fails, only the option sets at fault are played any more: Hypothesis then shrinks in seconds.

    Args:
        sets: all of them.
        play: of one life under one of them.
    """

    sets: Sequence[OptionSet]
    play: Callable[[OptionSet, Life], Played]
    compacted: Counter = field(default_factory=Counter)
    """By option set, how many compactions were published."""
    failed: tuple[OptionSet, ...] | None = None

    def __call__(self, life: Life) -> None:
        ends: dict[object, tuple[OptionSet, Played]] = {}
        count("random lives of tables: drawn")
        for one in self.failed or self.sets:
            try:
                played = self.play(one, life)
            except Exception as error:
                self.failed = self.failed or (one,)
                error.add_note(f"Options: {one}")
                raise
            count("random lives of tables: played")
            count("random lives of tables: compactions published", played.compacted)
            self.compacted[one] += played.compacted
            other, twin = ends.setdefault(played.alike, (one, played))
            if played.rows_at_end != twin.rows_at_end:
                self.failed = self.failed or (other, one)
                raise AssertionError(
                    f"after the same life other rows are read\nwith {other}:\n{tale(twin.told)}\nwith {one}:\n"
                    f"{tale(played.told)}"
                )

    def busy(self, sets: Sequence[OptionSet] | None = None) -> None:
        """Require that something was compacted under each of these option sets."""
        idle = [one for one in (self.sets if sets is None else sets) if not self.compacted[one]]
        assert not idle, f"nothing was compacted under {idle}"


def tale(told: list[str]) -> str:
    """What happened, a line a step."""
    return "\n".join(f"  {number}. {line}" for number, line in enumerate(told, 1))
