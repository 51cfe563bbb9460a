"""
Keeps the control state (pauses, drains, spending, settings) at hand for the roles, which ask before they begin work.

Reads the stored record through the coordinator: after a notice of a change, when the last read is
`control.refresh_seconds` old, and once more after each claim, so that a pause holds from the moment at which
`compactor pause` returns. When the coordinator doesn't answer, the last record read is trusted for
`control.trust_seconds`; after that no compaction may begin. The time is the database clock, the same for all daemons
however their hosts' clocks differ.
Source: docs/control.md.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from compactor.control.configured import Configured
from compactor.control.judge import Denial, Judge
from compactor.control.records import HOLDS, SPENT, Holds
from compactor.control.scope import Subject
from compactor.control.spending import SLOT_MS, charged, slot_of
from compactor.coordination import Coordinator
from compactor.coordination.base import elapsed
from compactor.durations import HOUR_MS
from compactor.errors import CompactorError
from compactor.log import get_logger
from compactor.settings import Settings
from compactor.words import one_line

_log = get_logger(__name__)
_KEPT_SLOTS = 2 * HOUR_MS // SLOT_MS
Spent = Mapping[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class Charge:
    """Bytes that one compaction is expected to write, or by how much that was wrong, and the budgets that they count against."""

    budgets: tuple[str, ...]
    slot: int
    bytes: int


@dataclass(slots=True)
class _Known:
    """The state read last, and when; the clock goes on while the process is stopped. None: never."""

    holds: Holds = field(default_factory=Holds)
    spent: Spent = field(default_factory=dict)
    read_at: float | None = None
    tried_at: float | None = None
    trouble: str = ""


class Control:
    """
    Answers whether compactions may begin, and counts the bytes they write. Safe in any number of threads.

    Args:
        coordinator, settings: called at each use, because both may be replaced.
        now_ms: the database clock.
        host: the host whose workers ask; None: the caller has no workers and only looks.
        clock: seconds that pass, also while the process is stopped.
    """

    def __init__(
        self,
        coordinator: Callable[[], Coordinator],
        settings: Callable[[], Settings],
        now_ms: Callable[[], int],
        host: str | None,
        clock: Callable[[], float] = elapsed,
    ) -> None:
        self._coordinator = coordinator
        self._settings = settings
        self._now_ms = now_ms
        self._host = host
        self._clock = clock
        self._lock = threading.Lock()
        self._paying = threading.Lock()
        self._known = _Known()
        self._configured: tuple[Settings, Configured] | None = None
        self._stale = False
        self._unpaid: list[Charge] = []

    # Deciding

    def judge(self, *, fresh: bool = False) -> Judge:
        """
        The judge for the control state that is known now.

        Args:
            fresh: read the stored state again, however recent the last read is.

        Raises:
            CompactorError: the database clock can't be read.
        """
        configured = self.configured()
        known = self._look(fresh=fresh, spent=configured.counts_bytes)
        unknown = self._unknown(known)
        timed = (
            configured.windows
            or configured.blackouts
            or configured.counts_bytes
            or any(pause.until_ms is not None for pause in known.holds.pauses)
        )
        return Judge(
            now_ms=self._now_ms() if timed else 0,
            holds=known.holds,
            unknown=unknown,
            host=self._host,
            windows=configured.windows,
            blackouts=configured.blackouts,
            budgets=configured.budgets,
            records=self._with_unpaid(known.spent),
            zone=configured.zone,
            only=configured.only,
        )

    def last_look(self, subject: Subject) -> Denial | None:
        """
        Why a claimed entry may not begin after all; None: it may.

        Reads the stored state again. Concurrent jobs aren't counted again: the claim has counted them.

        Raises:
            CompactorError: as `judge`.
        """
        return self.judge(fresh=True).may_begin(subject)

    def configured(self) -> Configured:
        """The included tables, windows, blackouts and budgets of the current settings."""
        settings = self._settings()
        if self._configured is None or self._configured[0] is not settings:
            self._configured = (settings, Configured.of(settings))
        return self._configured[1]

    def includes(self, database: str, table: str) -> bool:
        """Whether this daemon works on that table by its settings; asks nothing."""
        return self.configured().includes(database, table)

    # Looking

    def tell(self, changed: Callable[[], None]) -> None:
        """Have `changed` called, from another thread, soon after a pause or drain was set or ended; for members."""

        def told() -> None:
            self._stale = True
            changed()

        self._coordinator().watch(HOLDS, told)

    def _look(self, *, fresh: bool, spent: bool) -> _Known:
        with self._lock:
            known, now = self._known, self._clock()
            if (
                not fresh
                and not self._stale
                and known.tried_at is not None
                and now - known.tried_at < self._settings().control.refresh_seconds
            ):
                return known
            self._stale = False
        try:
            holds = self._read(HOLDS)
            read = Holds.of(holds)
            written: Spent = known.spent
            if spent:
                written = _budgets(self._read(SPENT))
        except (CompactorError, ValueError) as error:
            found = _Known(known.holds, known.spent, known.read_at, now, one_line(error))
            if found.trouble != known.trouble:
                # before the first successful read, the caller that waits for it reports the trouble
                (_log.debug if known.read_at is None else _log.warning)(
                    "control_state.not_read",
                    error=found.trouble,
                    trusted_seconds=self._settings().control.trust_seconds,
                )
        else:
            found = _Known(read, written, now, now)
        with self._lock:
            # a later read by another thread takes precedence
            if self._known.tried_at is None or self._known.tried_at <= now:
                self._known = found
            return found

    def _read(self, key: str) -> Mapping[str, Any] | None:
        value = self._coordinator().read(key)
        return None if value is None else value.data

    def _unknown(self, known: _Known) -> str | None:
        if not known.trouble:
            return None
        if known.read_at is None:
            return f"it can't be told what is paused: {known.trouble}"
        trusted = self._settings().control.trust_seconds
        if self._clock() - known.read_at <= trusted:
            return None
        return f"it can't be told any more what is paused, for more than {trusted:g} s: {known.trouble}"

    # Spending

    def charge(self, subject: Subject, count: int) -> Charge | None:
        """
        Count bytes that are about to be written against the budgets of bytes that cover the subject.

        Never fails: a charge that can't be stored now is kept here and stored with the next one. When the database
        clock can't be read, the bytes aren't counted.

        Returns None when no budget of bytes covers the subject, or the clock can't be read.
        """
        names = tuple(
            budget.name
            for budget in self.configured().budgets
            if budget.bytes_per_hour is not None and budget.selection.covers(subject)
        )
        if not names:
            return None
        try:
            slot = slot_of(self._now_ms())
        except CompactorError as error:
            _log.warning("budget.not_charged", budgets=names, bytes=count, error=str(error))
            return None
        charge = Charge(names, slot, count)
        self._pay(charge)
        return charge

    def correct(self, charge: Charge | None, count: int) -> None:
        """Replace the expected bytes of a charge by the bytes that were written."""
        if charge is not None and count != charge.bytes:
            self._pay(replace(charge, bytes=count - charge.bytes))

    def _pay(self, charge: Charge) -> None:
        with self._paying:
            due = [*(earlier for earlier in self._unpaid if earlier.slot > charge.slot - _KEPT_SLOTS), charge]
            self._unpaid = due
            try:
                now = self._now_ms()
                value = self._coordinator().update(SPENT, lambda data: {**data, "budgets": _with(data, due, now)})
            except CompactorError as error:
                _log.warning("charge.postponed", error=str(error))
                return
            with self._lock:
                self._unpaid = []
                self._known.spent = _budgets(value.data)

    def _with_unpaid(self, spent: Spent) -> Spent:
        due = self._unpaid
        return _with({"budgets": spent}, due, 0) if due else spent


def _budgets(data: Mapping[str, Any] | None) -> dict[str, Mapping[str, object]]:
    found = (data or {}).get("budgets")
    return (
        {str(name): record for name, record in found.items() if isinstance(record, Mapping)}
        if isinstance(found, Mapping)
        else {}
    )


def _with(data: Mapping[str, Any], due: Iterable[Charge], now_ms: int) -> dict[str, Mapping[str, object]]:
    budgets = _budgets(data)
    for charge in due:
        for name in charge.budgets:
            budgets[name] = charged(budgets.get(name, {}), now_ms, charge.slot, charge.bytes)
    return budgets
