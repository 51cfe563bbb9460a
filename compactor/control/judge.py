"""
Decides whether a compaction may begin now, and if not, why not.

Pure: all facts are given. The reasons are checked in this order, and the first that applies is the answer: control
state unknown, host drained, not included (`control.only`), paused, blackout, outside every maintenance window, budget of
concurrent jobs, budget of bytes.
Source: docs/control.md.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo

from compactor.control.records import Drain, Holds, Pause
from compactor.control.scope import Scope, ScopeFilter, Subject, listed
from compactor.control.spending import SpendingBudget, room_at, used
from compactor.control.times import shown
from compactor.control.windows import Window, WindowStanding, standing
from compactor.reasons import Reason
from compactor.words import binary_units

ON_PURPOSE = frozenset({Reason.NOT_INCLUDED, Reason.PAUSED, Reason.BLACKOUT, Reason.OUTSIDE_WINDOW})
"""An entry that waits for one of these waits on purpose: no alert counts its age."""
_NAMED = 3
"""Patterns of `control.only` that a sentence names."""


@dataclass(frozen=True, slots=True)
class Denial:
    """
    Why a compaction may not begin.

    Args:
        until_ms: when the reason may end by itself; None: unknown.
        scope: of the pause that denies it; None: the reason is another one.
        host: the drained one; None: the reason is another one.
    """

    reason: Reason
    sentence: str
    until_ms: int | None = None
    scope: Scope | None = None
    host: str | None = None


@dataclass(eq=False, slots=True)
class Judge:
    """
    Decides for one moment; each window is evaluated once, however many entries are asked about.

    Args:
        now_ms: the database clock.
        unknown: why the pauses aren't known; None: `holds` is reliable.
        host: the host whose workers ask; None: no particular host.
        records: the stored record of each budget of bytes.
        zone: the time zone of times in sentences.
        only: the tables that this daemon works on.
    """

    now_ms: int
    holds: Holds = field(default_factory=Holds)
    unknown: str | None = None
    host: str | None = None
    windows: tuple[Window, ...] = ()
    blackouts: tuple[Window, ...] = ()
    budgets: tuple[SpendingBudget, ...] = ()
    records: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    zone: tzinfo = UTC
    only: ScopeFilter = field(default_factory=ScopeFilter)
    pauses: tuple[Pause, ...] = field(init=False)
    """Those that haven't ended."""
    _standings: dict[Window, WindowStanding] = field(init=False, default_factory=dict)
    _known: dict[Subject, Denial | None] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.pauses = tuple(pause for pause in self.holds.pauses if pause.active(self.now_ms))

    @property
    def free(self) -> bool:
        """
        Whether nothing could deny any compaction: no pause, drain, window, blackout, budget or unknown state, and all
        tables are included.
        """
        limits = self.only.tables or self.pauses or self.windows or self.blackouts or self.budgets
        return self.unknown is None and not limits and self.drained() is None

    @property
    def counts(self) -> bool:
        """Whether decisions depend on the compactions that are running: some budget limits concurrent jobs."""
        return any(budget.jobs is not None for budget in self.budgets)

    def spent(self) -> Iterable[tuple[SpendingBudget, Mapping[str, object]]]:
        """The budgets of bytes, each with its stored record."""
        return [
            (budget, self.records.get(budget.name, {})) for budget in self.budgets if budget.bytes_per_hour is not None
        ]

    @property
    def drains(self) -> tuple[Drain, ...]:
        """Of all hosts."""
        return self.holds.drains

    @property
    def drain(self) -> Drain | None:
        """The stored drain of this host; None: the host isn't drained."""
        return None if self.host is None else self.holds.drain_of(self.host)

    def drained(self, host: str | None = None) -> Denial | None:
        """Why that host's workers claim nothing; without a host, this one's."""
        if (drain := self.drain if host is None else self.holds.drain_of(host)) is None:
            return None
        why = f": {drain.reason}" if drain.reason else ""
        return Denial(Reason.DRAINED, f"host {drain.host} is drained by {drain.by}{why}", host=drain.host)

    def closed(self) -> Denial | None:
        """Why no compaction at all may begin on this host."""
        return (
            self.uncertain()
            or self.drained()
            or self._paused(pause for pause in self.pauses if str(pause.scope) == "all")
        )

    def uncertain(self) -> Denial | None:
        """The denial while the control state is unknown: an unseen pause might forbid the compaction."""
        return None if self.unknown is None else Denial(Reason.CONTROL_UNKNOWN, self.unknown)

    def may_begin(self, subject: Subject, working: Sequence[Subject] = ()) -> Denial | None:
        """
        Why a compaction may not begin on this host; None: it may.

        Args:
            working: a subject for each compaction that is being worked on, on any host.
        """
        return self.uncertain() or self.drained() or self.waits(subject, working)

    def waits(self, subject: Subject, working: Sequence[Subject] = ()) -> Denial | None:
        """As `may_begin`, without regard to drained hosts."""
        if (unknown := self.uncertain()) is not None:
            return unknown
        if subject not in self._known:
            self._known[subject] = self.paused(subject) or self._blackout(subject) or self._outside(subject)
        return self._known[subject] or self._crowded(subject, working) or self._spent(subject)

    def left_alone(self, subject: Subject) -> Denial | None:
        """Why no daemon with these settings works on that table; None: it is included."""
        if self.only.covers(subject):
            return None
        return Denial(Reason.NOT_INCLUDED, f"control.only leaves it out, and names {shortened(self.only.tables)}")

    def paused(self, subject: Subject) -> Denial | None:
        """What holds a compaction, and keeps the Initiator from asking for one; other reasons are ignored."""
        return self.left_alone(subject) or self._paused(pause for pause in self.pauses if pause.scope.covers(subject))

    def cleaning(self, subject: Subject) -> Denial | None:
        """Why the Cleaner may not clean there; None: it may."""
        return (
            self.uncertain()
            or self.left_alone(subject)
            or self._paused(pause for pause in self.pauses if pause.cleaner and pause.scope.covers(subject))
        )

    def cancelled(self, subject: Subject) -> Denial | None:
        """Why a running compaction must stop; None: it may go on."""
        return self._paused(pause for pause in self.pauses if pause.cancel and pause.scope.covers(subject))

    def gate(self) -> "Gate":
        """The gate that a claim asks."""
        return Gate(self)

    # The single reasons

    def _paused(self, pauses: Iterable[Pause]) -> Denial | None:
        """The denial of the pause that ends last."""
        found = max(pauses, key=lambda pause: (pause.until_ms is None, pause.until_ms or 0), default=None)
        return None if found is None else self.told(found)

    def told(self, pause: Pause) -> Denial:
        """The denial of one pause."""
        until = f"until {shown(pause.until_ms, self.zone)}" if pause.until_ms is not None else "until it is resumed"
        return Denial(
            Reason.PAUSED,
            f"{pause.scope.words} paused by {pause.by} {until}: {pause.reason}",
            pause.until_ms,
            pause.scope,
        )

    def _blackout(self, subject: Subject) -> Denial | None:
        for window in self.blackouts:
            if window.selection.covers(subject) and (now := self._standing(window)).inside:
                until = f"until {shown(now.until_ms, window.zone)}" if now.until_ms is not None else "without an end"
                return Denial(Reason.BLACKOUT, f"blackout {window.name}, {until}", now.until_ms)
        return None

    def _outside(self, subject: Subject) -> Denial | None:
        mine = [window for window in self.windows if window.selection.covers(subject)]
        standings = [self._standing(window) for window in mine]
        if not mine or any(now.inside for now in standings):
            return None
        names = listed([window.name for window in mine])
        opening = [
            (now.until_ms, window) for now, window in zip(standings, mine, strict=True) if now.until_ms is not None
        ]
        if not opening:
            return Denial(
                Reason.OUTSIDE_WINDOW, f"outside maintenance window {names}, which doesn't open within a year"
            )
        at, window = min(opening, key=lambda one: one[0])
        return Denial(
            Reason.OUTSIDE_WINDOW,
            f"outside maintenance window {names}; {window.name} opens {shown(at, window.zone)}",
            at,
        )

    def _standing(self, window: Window) -> WindowStanding:
        if window not in self._standings:
            self._standings[window] = standing(window, self.now_ms)
        return self._standings[window]

    def _crowded(self, subject: Subject, working: Sequence[Subject]) -> Denial | None:
        for budget in self.budgets:
            if budget.jobs is None or not budget.selection.covers(subject):
                continue
            running = sum(budget.selection.covers(other) for other in working)
            if running >= budget.jobs:
                return Denial(
                    Reason.JOBS_BUDGET,
                    f"budget {budget.name} allows {budget.jobs} at a time, being worked on: {running}",
                )
        return None

    def _spent(self, subject: Subject) -> Denial | None:
        for budget in self.budgets:
            limit = budget.bytes_per_hour
            if limit is None or not budget.selection.covers(subject):
                continue
            record = self.records.get(budget.name, {})
            if (written := used(record, self.now_ms)) >= limit:
                again = room_at(record, self.now_ms, limit)
                said = f"budget {budget.name}: {binary_units(written)} of {binary_units(limit)} an hour are written; room from {shown(again, self.zone)} on"
                return Denial(Reason.BYTES_BUDGET, said, again)
        return None


class Gate:
    """
    The test that `Queue.claim` applies to entries; `first` is the first subject that it denied, of those that this
    daemon works on at all.
    """

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self.counts = judge.counts
        self.first: tuple[Subject, Denial] | None = None

    def open(self, working: Iterable[tuple[str, str, str | None]]) -> Callable[[str, str, str | None], bool]:
        """
        The test for one attempt to claim; the test takes database, table and pool.

        Args:
            working: database, table and pool of each compaction that is being worked on; needed only if `counts`.
        """
        busy = [Subject(*one) for one in working]
        self.first = None

        def may(database: str, table: str, pool: str | None) -> bool:
            subject = Subject(database, table, pool)
            denial = self._judge.may_begin(subject, busy)
            if denial is not None and denial.reason is not Reason.NOT_INCLUDED and self.first is None:
                self.first = (subject, denial)
            return denial is None

        return may


def shortened(patterns: Sequence[str]) -> str:
    """Patterns as a list for people, of many the first few and how many more there are."""
    more = len(patterns) - _NAMED
    return listed([*patterns[:_NAMED], f"{more} more"] if more > 0 else patterns)
