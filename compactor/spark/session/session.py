"""
One long-lived SparkSession for all compactions of a process.

The first compaction starts the session, off the main thread (on the main thread, SparkContext would take over SIGINT).
Concurrent workers share it under FAIR scheduling. The session is stopped when no job ran for a while. It is replaced
when its JVM has died, or when it is old and no job runs in it. Each compaction is a job group of its own whose
description is its name. No thread waits for a start while it holds the lock. So a waiting thread can be cancelled, and
the daemon's end doesn't wait for the start.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from compactor.errors import CancelledError, CompactorError, UnreachableError
from compactor.log import get_logger
from compactor.settings import Settings
from compactor.spark.results import Counted
from compactor.spark.session.jobs import POLL_SECONDS, SparkJob, first_line
from compactor.spark.session.jvm import ALONE, Live
from compactor.spark.session.start import Start
from compactor.spark.submitter import BrokenDownError, JobName, Runner, SessionEndedError

Given = TypeVar("Given")
Made = TypeVar("Made")

_log = get_logger(__name__)
CLEAR_SECONDS: Final = 25.0
"""How long the daemon's end waits until a start that was given up has left nothing behind, on YARN too."""


@dataclass(slots=True)
class _Shared:
    """A session and the compactions in it."""

    live: Live
    running: list[str] = field(default_factory=list)
    """Keys of the compactions that have a running job."""
    known: set[str] = field(default_factory=set)
    """Keys of the compactions that have had a job in the session and haven't ended."""
    together: int | None = None
    """How many compactions had a running job when it was first noticed that the session had ended."""


class SparkSubmitter(Runner):
    """
    The `Submitter` of `spark.mode: session`.

    Args:
        settings: `spark.*` says where and how.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings.spark
        self._name = f"{settings.host_name}-compactor"
        self._lock = threading.Lock()
        self._shared: _Shared | None = None
        self._start: Start | None = None
        self._waiting = 0
        self._given_up: list[Start] = []
        self._idle: threading.Timer | None = None

    def _answers(
        self,
        job: JobName,
        function: Callable[[Given], Made],
        tasks: Sequence[Given],
        progress: Callable[[float], None],
        cancelled: Callable[[], bool],
    ) -> list[Counted]:
        with self._session(job, cancelled) as shared:
            running = SparkJob(shared.live.context, job, function, tasks)
            while not running.wait(POLL_SECONDS):
                if cancelled():
                    running.cancel()
                    raise CancelledError(f"{job.name} was cancelled")
                if (share := running.share_done()) is not None:
                    progress(share)
            if running.error is not None:
                raise self._explained(shared, job, running.error)
        progress(1.0)
        return running.results

    def application(self, job: JobName) -> str | None:
        """See `StoppableSubmitter.application`. None while the compaction waits for a session."""
        shared = self._shared
        return shared.live.application if shared is not None and job.key in shared.known else None

    def end(self, job: JobName) -> None:
        """See `Submitter.end`. The session stays, because all compactions share it."""
        with self._lock:
            if self._shared is not None:
                self._shared.known.discard(job.key)

    def end_left_over(self, keys: Collection[str], application: str | None) -> None:
        """Does nothing: a session's JVM ends when the process does, and with it the application on a cluster."""

    def _explained(self, shared: _Shared, job: JobName, error: BaseException) -> CompactorError:
        if shared.live.alive():
            return BrokenDownError(f"Spark job {job.name} failed: {first_line(error)}")
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

    @contextlib.contextmanager
    def _session(self, job: JobName, cancelled: Callable[[], bool]) -> Iterator[_Shared]:
        """
        A live session that isn't stopped during the block.

        Raises:
            CancelledError: `cancelled` returned True during the wait.
            UnreachableError: the session can't be started, or didn't start in time.
        """
        shared = self._enter(job, cancelled)
        try:
            yield shared
        finally:
            with self._lock:
                shared.running.remove(job.key)
                self._rest()

    def _enter(self, job: JobName, cancelled: Callable[[], bool]) -> _Shared:
        with self._lock:
            self._waiting += 1
            self._rest()
        try:
            return self._wait(job, cancelled)
        finally:
            with self._lock:
                self._waiting -= 1
                if not self._waiting and self._start is not None:
                    self._give_up(self._start, "no compaction waits for it")
                self._rest()

    def _wait(self, job: JobName, cancelled: Callable[[], bool]) -> _Shared:
        start: Start | None = None
        while True:
            if start is not None and start.why_not is not None:
                raise UnreachableError(start.why_not)
            with self._lock:
                shared = self._current()
            alive = shared is not None and shared.live.alive()
            with self._lock:
                if shared is self._current():
                    if shared is not None and alive and self._may_enter(shared, job):
                        shared.running.append(job.key)
                        shared.known.add(job.key)
                        return shared
                    if shared is None or not alive:
                        self._begin(shared, "gone")
                    elif not shared.running:
                        self._begin(shared, "old")
                start = self._start
            if cancelled():
                raise CancelledError(f"{job.name} was cancelled before Spark was there")
            if start is None:
                time.sleep(POLL_SECONDS)
            elif not start.wait(POLL_SECONDS) and start.seconds > self._settings.start_seconds:
                with self._lock:
                    self._give_up(
                        start,
                        f"Spark hasn't started with master {self._settings.master} within {self._settings.start_seconds:g} s (spark.start_seconds)",
                    )

    # With the lock held

    def _current(self) -> _Shared | None:
        """The session, also one that was started just now."""
        if self._start is not None and self._start.settled:
            if self._start.live is not None:
                self._shared = _Shared(self._start.live)
            self._start = None
        return self._shared

    def _may_enter(self, shared: _Shared, job: JobName) -> bool:
        """
        Whether a job may run in a session. Compactions that began in an old session may go on there; all others wait
        for the next.
        """
        hours = self._settings.session_max_hours
        return not hours or job.key in shared.known or time.monotonic() - shared.live.since < hours * 3600

    def _begin(self, before: _Shared | None, why: str) -> None:
        """Start a session, unless a start is under way."""
        if self._start is not None:
            return
        if before is not None:
            (_log.warning if why == "gone" else _log.info)(
                "spark_session.replaced", why=why, application=before.live.application
            )
        self._shared, self._start = None, Start(self._settings, self._name, before.live if before is not None else None)

    def _give_up(self, start: Start, why: str) -> None:
        if start.give_up(why):
            self._given_up = [*(one for one in self._given_up if not one.wait_until_cleared(0)), start]

    def _rest(self) -> None:
        """Set the idle timer anew: it stops a session that no compaction uses for a while."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if (shared := self._current()) is not None and not shared.running and not self._waiting:
            self._idle = threading.Timer(self._settings.idle_seconds, self._stop_when_idle)
            self._idle.daemon = True
            self._idle.start()

    # Without the lock

    def _stop_when_idle(self) -> None:
        with self._lock:
            shared = self._shared
            if shared is None or shared.running or self._waiting:
                return
            if not ALONE.acquire(
                blocking=False
            ):  # taken before the lock is released: the next start must find this session gone
                self._rest()
                return
            self._shared = None
        _log.info("spark_session.stopped", why="idle")
        _end(shared)

    def stop(self) -> None:
        """
        End the session and its JVM, or its start; takes half a minute at most. A later `run` starts another session.
        """
        deadline = time.monotonic() + CLEAR_SECONDS
        with self._lock:
            if self._start is not None:
                self._give_up(self._start, "Spark's start was given up: the daemon stops")
            shared, given_up = self._current(), self._given_up
            self._shared, self._given_up = None, []
            self._rest()
            if shared is not None:
                ALONE.acquire()  # free, or soon free: besides a session only starts that were given up can hold it
        if shared is not None:
            _end(shared)
        for start in given_up:
            start.wait_until_cleared(max(deadline - time.monotonic(), 0))


def _end(shared: _Shared) -> None:
    """End a session. The caller holds `ALONE`, which is free afterwards."""
    try:
        shared.live.end()
    finally:
        ALONE.release()
