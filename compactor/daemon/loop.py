"""
Runs the cycles of one role in a thread of its own.

The loop knows when to call `run_once`, measures it, logs its sentence when a cycle tells something new, and survives
every exception that it raises. The loop knows nothing of what the role does.
"""

import threading
import time
from collections.abc import Callable

from compactor.errors import CompactorError, RetryableError, UnreachableError
from compactor.log import get_logger
from compactor.metrics import Metrics
from compactor.roles.cycle import Cycle, Phrase, Progress
from compactor.roles.unreachable import news

_log = get_logger(__name__)
_LONGEST_PAUSE = 320.0


class RoleLoop:
    """
    A thread that calls `run_once` again and again.

    Args:
        name: names the loop in thread, log and health: `initiator`, `worker-1`.
        role: names the role in metrics: `initiator`, `worker`.
        run_once: one cycle.
        interval: seconds between the starts of two cycles; asked before each pause, since settings may change.
        limit: seconds without a completed cycle and without progress inside a cycle, after which the loop counts as
            stuck.
        told: whether another component tells why nothing works at present, for all loops; then this loop logs at debug
            level only.
        progress: records the role's progress inside a cycle; None: only completed cycles count.
    """

    def __init__(
        self,
        name: str,
        role: str,
        run_once: Callable[[], Cycle],
        *,
        interval: Callable[[], float],
        limit: Callable[[], float],
        metrics: Metrics,
        told: Callable[[], bool] = lambda: False,
        progress: Progress | None = None,
    ) -> None:
        self.name = name
        self.role = role
        self._run_once = run_once
        self._interval = interval
        self._limit = limit
        self._metrics = metrics
        self._told = told
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._progress = progress or Progress()
        self._latest = Cycle.idle("")
        self._failures = 0
        self.succeeded = False
        """Whether the latest cycle ended without an error; False before the first cycle."""
        self._running = False
        metrics.last_cycle.labels(role)  # present from the start: a role that completed no cycle shows 0
        for outcome in ("ok", "no-turn", "unreachable", "error"):
            metrics.cycles.labels(role, outcome)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._progress.made()
        self._thread.start()

    def stop(self) -> None:
        """Let no further cycle begin; a running cycle goes on."""
        self._stop.set()
        self._wake.set()

    def wake(self) -> None:
        """End the pause: the next cycle begins now."""
        self._wake.set()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the thread for at most `timeout` seconds; returns whether it has ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def trouble(self) -> str | None:
        """Why this loop isn't healthy; None when it is."""
        if self._stop.is_set() or not self._began:
            return None
        if not self._thread.is_alive():
            return f"{self.name} has ended"
        if (age := self._progress.age()) > (limit := self._limit()):
            return f"{self.name} has neither completed a cycle nor got on in one for {age:.0f} s (limit {limit:.0f} s)"
        return None

    def slack(self) -> float:
        """For how many more seconds the loop counts as healthy without progress; 0 when it isn't healthy."""
        if self._stop.is_set() or not self._began:
            return self._limit()
        return max(0.0, self._limit() - self._progress.age()) if self._thread.is_alive() else 0.0

    @property
    def _began(self) -> bool:
        """Whether the thread was started. Until then the daemon is still starting and may wait for ZooKeeper."""
        return self._thread.ident is not None

    @property
    def sentence(self) -> str:
        """The sentence of the latest cycle; empty before the first cycle."""
        return self._latest.sentence

    @property
    def busy(self) -> bool:
        """Whether a cycle is running."""
        return self._running

    @property
    def working(self) -> bool:
        """Whether the latest cycle ended without an error, or a cycle is running that follows no failed one."""
        return self.succeeded or (self._running and not self._failures)

    def _run(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            self._running = True
            cycle = self._cycle()
            self._running = False
            self._progress.made()
            if cycle.again:
                continue
            self._wake.wait(self._pause(time.monotonic() - began))
            if not self._stop.is_set():
                self._wake.clear()

    def _cycle(self) -> Cycle:
        began = time.monotonic()
        try:
            cycle = self._run_once()
        except (UnreachableError, RetryableError) as error:
            return self._failed("can't work", error, "unreachable")
        except CompactorError as error:
            return self._failed("failed", error, "error")
        except Exception as error:
            _log.exception("cycle.crashed", role=self.name)
            return self._failed("failed", error, "error")
        finally:
            self._metrics.cycle_duration.labels(self.role).observe(time.monotonic() - began)
        self.succeeded, self._failures = True, 0
        self._metrics.cycles.labels(self.role, "ok" if cycle.has_turn else "no-turn").inc()
        if cycle.has_turn:
            self._metrics.last_cycle.labels(self.role).set_to_current_time()
        (_log.info if self._is_news(cycle) else _log.debug)("cycle.completed", role=self.name, sentence=cycle.sentence)
        self._latest = cycle
        return cycle

    def _failed(self, words: str, error: Exception, outcome: str) -> Cycle:
        self.succeeded = False
        self._failures += 1
        self._metrics.cycles.labels(self.role, outcome).inc()
        cycle = Cycle.held(Phrase(f"{words}: {error}", (words, news(error))))
        (_log.warning if self._is_news(cycle) else _log.debug)(
            "cycle.failed", role=self.name, outcome=outcome, sentence=cycle.sentence
        )
        self._latest = cycle
        return cycle

    def _is_news(self, cycle: Cycle) -> bool:
        """Whether it tells anything that neither the latest cycle nor another component has told."""
        known = cycle.told or self._told()
        return not known and cycle.phrase.news != self._latest.phrase.news

    def _pause(self, took: float) -> float:
        pause = self._interval()
        if self._failures:
            return float(min(max(pause, _LONGEST_PAUSE), pause * 2 ** min(self._failures - 1, 10)))
        return max(0.0, pause - took)
