"""
One long-lived Spark session for all compactions of a process.

The session's driver, a child process (`compactor.spark.session.process`), starts before the first entry is claimed. Concurrent
workers share the session under FAIR scheduling. A session in which no job ran for a while is stopped; one that is gone
or old is followed by another, and what has begun in an old one may go on there. Each compaction is a job group of its
own whose description is its name. No thread waits for a start while it holds the lock, so a waiting thread can be
cancelled, and the daemon's end doesn't wait for the start.
"""

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from compactor.errors import CancelledError, CompactorError, UnreachableError
from compactor.log import get_logger
from compactor.settings import Settings
from compactor.spark.code_identity import code
from compactor.spark.results import JobEnd
from compactor.spark.session.process import POLL_SECONDS, DriverEndedError, DriverProcess
from compactor.spark.submitter import BrokenDownError, Failed, JobName, Runner, SessionEndedError

Given = TypeVar("Given")
Made = TypeVar("Made")

_log = get_logger(__name__)
UNASKED_SECONDS: Final = 15.0
"""How long a start goes on that no worker waits for or asks about."""
CLAIM_SECONDS: Final = 60.0
"""How long a session is kept at least for a worker that has asked for it and will claim an entry, and plan."""
CLEAR_SECONDS: Final = 25.0
"""How long the daemon's end waits until its drivers have left nothing behind, on YARN too."""


@dataclass(slots=True, eq=False)
class _Shared:
    """A session and the compactions in it."""

    driver: DriverProcess
    running: list[str] = field(default_factory=list)
    """Keys of the compactions that have a running job."""
    known: set[str] = field(default_factory=set)
    """Keys of the compactions that have had a job in the session and haven't ended."""
    waiting: int = 0
    """How many compactions wait for the start."""
    together: int | None = None
    """How many compactions had a running job when it was first noticed that the session had ended."""
    idle: threading.Timer | None = None
    until: float = 0.0
    """Until when, by the monotonic clock, a worker that has asked for it may still come."""


class SparkSubmitter(Runner):
    """
    The `Submitter` of `spark.mode: session`.

    Args:
        settings: `spark.*` says where and how.
        failed: see `Runner`.
    """

    def __init__(self, settings: Settings, failed: Failed = lambda _: None) -> None:
        super().__init__(failed)
        code()  # before an upgrade may replace the files that this process has loaded
        self._settings = settings.spark
        self._name = f"{settings.host_name}-compactor"
        self._lock = threading.Lock()
        self._sessions: list[_Shared] = []
        """Those that aren't over; new compactions run in the last one."""

    def _answers(
        self,
        job: JobName,
        function: Callable[[Given], Made],
        tasks: Sequence[Given],
        progress: Callable[[float], None],
        cancelled: Callable[[], bool],
    ) -> JobEnd:
        shared = self._enter(job, cancelled)
        try:
            return shared.driver.run(job, function, tasks, progress, cancelled)
        except DriverEndedError:
            raise self._ended(shared, job) from None
        finally:
            with self._lock:
                shared.running.remove(job.key)
                self._rest(shared)

    @property
    def cold(self) -> bool:
        with self._lock:
            return not self._sessions or not self._sessions[-1].driver.alive or self._is_old(self._sessions[-1])

    def warm_up(self, seconds: float) -> bool:
        with self._lock:
            shared = self._session(None)
            shared.waiting += 1
            self._rest(shared)
        try:
            return self._is_there(shared.driver, seconds)
        finally:
            with self._lock:
                shared.waiting -= 1
                shared.until = time.monotonic() + CLAIM_SECONDS
                self._rest(shared)

    def application(self, job: JobName) -> str | None:
        """See `StoppableSubmitter.application`. None while the compaction waits for a session."""
        with self._lock:
            return next((one.driver.application for one in self._sessions if job.key in one.known), None)

    def end(self, job: JobName) -> None:
        """See `Submitter.end`. The session stays, because all compactions share it."""
        with self._lock:
            for shared in self._sessions:
                shared.known.discard(job.key)
                self._rest(shared)

    def end_left_over(self, keys: Collection[str], application: str | None) -> None:
        """Does nothing: a session's driver ends when the process does, and with it the application on a cluster."""

    def _ended(self, shared: _Shared, job: JobName) -> CompactorError:
        with self._lock:
            if shared.together is None:  # recorded before any job leaves the session
                shared.together = len(shared.running)
            others = shared.together - 1
        if others:
            return SessionEndedError(
                f"Spark's session ended while {job.name} ran, with {others} more in it; the next job starts a new one"
            )
        return BrokenDownError(
            f"Spark's session ended while {job.name} ran, and nothing else in it; the next job starts a new one"
        )

    def _enter(self, job: JobName, cancelled: Callable[[], bool]) -> _Shared:
        """
        A live session in which the job counts as running.

        Raises:
            CancelledError: `cancelled` returned True during the wait.
            UnreachableError: the session can't be started, or didn't start in time.
        """
        with self._lock:
            shared = self._session(job.key)
            shared.waiting += 1
            self._rest(shared)
        driver = shared.driver
        try:
            while not self._is_there(driver, POLL_SECONDS):
                if cancelled():
                    raise CancelledError(f"{job.name} was cancelled before Spark was there")
            with self._lock:
                shared.running.append(job.key)
                shared.known.add(job.key)
            return shared
        finally:
            with self._lock:
                shared.waiting -= 1
                if not shared.waiting and time.monotonic() > shared.until:
                    driver.give_up("no compaction waits for it")
                self._rest(shared)

    def _is_there(self, driver: DriverProcess, seconds: float) -> bool:
        """
        Wait for a start, `seconds` at most; returns whether it is over.

        Raises:
            UnreachableError: it failed, or takes too long.
        """
        there, limit = driver.wait(seconds), self._settings.start_seconds
        if not there and driver.seconds > limit:
            driver.give_up(
                f"Spark hasn't started with master {self._settings.master} within {limit:g} s (spark.start_seconds)"
            )
        if driver.why_not is not None:
            raise UnreachableError(driver.why_not)
        return there

    # With the lock held

    def _session(self, key: str | None) -> _Shared:
        """The session for a job: that of its compaction, by key; else the newest, else one that starts now."""
        newest = self._sessions[-1] if self._sessions else None
        for shared in self._sessions:
            if key in shared.known and shared.driver.alive:
                return shared
        if newest is not None and not self._is_old(newest):
            if newest.driver.alive or not newest.driver.settled:
                return newest
            if newest.driver.application is not None:
                _log.warning("spark_session.replaced", why="gone", application=newest.driver.application)
        self._sessions = [one for one in self._sessions if not one.driver.wait_until_over(0)]
        self._sessions.append(_Shared(DriverProcess(self._settings, self._name)))
        if newest is not None and newest.driver.alive:
            _log.info("spark_session.replaced", why="old", application=newest.driver.application)
            self._rest(newest)
        return self._sessions[-1]

    def _is_old(self, shared: _Shared) -> bool:
        hours = self._settings.session_max_hours
        return bool(hours) and shared.driver.age > hours * 3600

    def _rest(self, shared: _Shared) -> None:
        """
        Set a session's timer anew: it stops a session in which no job runs for a while, one that another has followed
        as soon as its compactions have ended, and a start that isn't waited for.
        """
        if shared.idle is not None:
            shared.idle.cancel()
            shared.idle = None
        if shared.running or shared.waiting or (shared.driver.settled and not shared.driver.alive):
            return
        followed = shared not in self._sessions[-1:] and not shared.known
        idle = 0.0 if followed else max(shared.until - time.monotonic(), self._settings.idle_seconds)
        seconds, end = (idle, self._stop) if shared.driver.alive else (UNASKED_SECONDS, self._unasked)
        timer = shared.idle = threading.Timer(seconds, lambda: end(shared, timer))
        timer.daemon = True
        timer.start()

    # Without the lock

    def _unasked(self, shared: _Shared, timer: threading.Timer) -> None:
        with self._lock:
            if shared.waiting or shared.idle is not timer:
                return
            shared.driver.give_up("no compaction waits for it")
            self._rest(shared)

    def _stop(self, shared: _Shared, timer: threading.Timer) -> None:
        with self._lock:
            if shared.running or shared.waiting or shared not in self._sessions or shared.idle is not timer:
                return
            self._sessions.remove(shared)
        _log.info("spark_session.stopped", why="idle", application=shared.driver.application)
        shared.driver.end()

    def stop(self) -> None:
        """
        End the sessions, also those that start; takes half a minute at most. A later `run` starts another session.
        """
        deadline = time.monotonic() + CLEAR_SECONDS
        with self._lock:
            sessions, self._sessions = self._sessions, []
            for shared in sessions:
                if shared.idle is not None:
                    shared.idle.cancel()
        for shared in sessions:
            threading.Thread(target=shared.driver.end, name="spark-stop", daemon=True).start()
        for shared in sessions:
            shared.driver.wait_until_over(max(deadline - time.monotonic(), 0))
