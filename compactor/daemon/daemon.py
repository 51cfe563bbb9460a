"""
Runs the roles as threads and handles signals in the main thread, for `compactor run`.

- TERM and the first INT drain the daemon: it starts no new work. Running compactions may finish until the deadline;
  then the daemon cancels them and gives their claims back.
- A second TERM cancels the running compactions at once.
- A second INT ends the process at once; the next start clears up.
- HUP makes the daemon read the settings again.
"""

import gc
import os
import queue
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from types import FrameType

from compactor.coordination import Role
from compactor.daemon.loop import RoleLoop
from compactor.daemon.loops import WORKER, make_loops, wake_workers
from compactor.daemon.notify import ServiceManager
from compactor.daemon.presence import Board, describe, show, stands_for
from compactor.daemon.web import Endpoint, HttpAnswer, WebServer, check
from compactor.errors import CompactorError
from compactor.log import configure, get_logger
from compactor.metastore.db.rights import missing_rights
from compactor.metastore.db.serving import require_one
from compactor.metrics import CONTENT_TYPE, Metrics, version
from compactor.roles import steps
from compactor.roles.services import Services
from compactor.roles.steps import Observer
from compactor.roles.worker.cancellation import DrainedError
from compactor.roles.worker.worker import Worker
from compactor.settings import Settings
from compactor.spark.submitter import StoppableSubmitter
from compactor.status.readiness import Readiness
from compactor.storage.io_counters import totals

_log = get_logger(__name__)
_CANCEL_SECONDS = 120.0
_CLOSE_SECONDS = 30.0
_HOUR = 3600.0


class Daemon:
    """
    One daemon process: its role loops, workers, HTTP server and place among the other daemons.

    Args:
        settings: the settings as loaded.
        reload: reads the settings again, for HUP. None: on HUP the daemon logs that it can't reload them.
        observers: called at each step of the roles.
        submitter: runs the Spark jobs; None: the submitter that `spark.mode` names.
        configure_log: whether to put `settings.log` into effect; False when the calling program has set up logging.
        manager: the service manager that `run` and `stop` report to; None: there is none.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        reload: Callable[[], Settings] | None = None,
        observers: Iterable[Observer] = (),
        submitter: StoppableSubmitter | None = None,
        configure_log: bool = True,
        manager: ServiceManager | None = None,
    ) -> None:
        self._settings = settings
        self._reload = reload
        self._board = Board()
        self._observers = (*observers, self._wake_the_next, self._board.note)
        self._submitter = submitter
        self._configure_log = configure_log
        self._manager = manager or ServiceManager(None)
        self.metrics = Metrics(totals)
        self.metrics.stuck_threads.set_function(lambda: len(self.troubles()))
        self.metrics.slack.set_function(
            lambda: min((loop.slack() for loop in list(self._loops.values())), default=_HOUR)
        )
        self.metrics.ready.set_function(lambda: not self.unready())
        self._signals: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._told_to_stop = False
        self._stack = ExitStack()
        self._loops: dict[str, RoleLoop] = {}
        self._led: list[Role] = []
        self._workers: list[Worker] = []
        self._services: Services | None = None
        self._web: WebServer | None = None

    # For the command line

    def run(self) -> int:
        """
        Work until a signal stops the daemon. To be called from the main thread.

        The daemon reports itself ready to the service manager when its coordinator (ZooKeeper, or the metastore's
        database) was reached for the first time; until then the status says what the daemon waits for.

        Returns:
            The exit code: 0, or 1 when a loop didn't end in time.

        Raises:
            SettingsError, UnreachableError, RefusedError: the daemon can't start.
        """
        previous = {
            number: signal.signal(number, self._on_signal) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        }
        try:
            self.start()
            gc.freeze()  # modules stay: collections that looked at them took as long as planning a small compaction
            ready = False
            while True:
                if not ready and self._reached():
                    ready = True
                    self._manager.ready()
                self._manager.report(self.troubles(), self._status())
                match self._next_signal():
                    case None:
                        continue
                    case signal.SIGHUP:
                        if ready:
                            self._manager.reloading()
                        self.reload()
                        if ready:
                            self._manager.ready()
                    case number:
                        _log.info("daemon.draining", signal=signal.Signals(number).name)
                        return 0 if self.stop() else 1
        finally:
            self._stack.close()
            for number, handler in previous.items():
                signal.signal(number, handler)

    # For programs that embed the daemon

    def start(self) -> None:
        """
        Start the threads. Waits for the metastore but for no store: the Housekeeper's first cycle clears up what an
        earlier process left.

        Raises:
            SettingsError, UnreachableError, RefusedError: the daemon can't start; nothing is left running.
        """
        settings = self._settings
        if self._configure_log:
            configure(settings.log.level, settings.log.format)
        with ExitStack() as stack:
            if settings.http.enabled:
                self._web = WebServer(settings.http.host, settings.http.port, self._endpoints())
                stack.callback(self._web.close)
                self._web.start()
            self._services = services = Services.open(
                settings, metrics=self.metrics, observers=self._observers, submitter=self._submitter
            )
            stack.callback(services.close)
            require_one(services.database)
            if missing := missing_rights(services.database):
                script = services.database.dialect.grants_script
                _log.error("grants.missing", missing=missing, remedy=f"run {script} again, as the tables' owner")
            stack.enter_context(services.identity)
            self._loops, self._workers = make_loops(
                services, self.metrics, self._board, self._control_changed, self.readiness
            )
            self._led = list(stands_for(services.settings))
            roles = [*self._led, *([WORKER] if self._workers else [])]
            services.coordinator.join(describe(services, roles), self._led, self._coordination_changed)
            services.control.tell(self._loops["control"].wake)
            for loop in self._loops.values():
                loop.start()
            self._stack = stack.pop_all()
        _log.info(
            "daemon.started",
            version=version(),
            database=str(services.database),
            schema=services.layout.value,
            workers=len(self._workers),
            instance=services.identity.instance,
            http=":".join(map(str, self._web.address)) if self._web else None,
        )

    def stop(self) -> bool:
        """Drain and close the daemon; returns whether all loops ended in time."""
        services = self._services
        if services is None:
            return True
        self._manager.stopping(self._settings.drain.timeout_seconds + _CANCEL_SECONDS + _CLOSE_SECONDS)
        services.stopping.set()
        for loop in self._loops.values():
            loop.stop()
        deadline = time.monotonic() + self._settings.drain.timeout_seconds
        if not self._wait_for_loops(lambda: time.monotonic() >= deadline, cancel_on_signal=True):
            _log.info("compactions.cancelled", busy=[worker.worker_id for worker in self._workers if worker.busy])
        for worker in self._workers:
            worker.cancel(DrainedError("the daemon stops"))
        last = time.monotonic() + _CANCEL_SECONDS
        ended = self._wait_for_loops(lambda: time.monotonic() >= last, cancel_on_signal=False)
        stuck = [name for name, loop in self._loops.items() if not loop.join(0)]
        if stuck:
            _log.error("loops.stuck", loops=stuck, detail="the next start clears up")
        if stuck or self._has_claims(services):
            services.identity.leave_trace()
        self._stack.close()
        _log.info("daemon.stopped")
        return ended

    def reload(self) -> None:
        """
        Read the settings again and apply those that can change in a running daemon. Settings with an error change
        nothing.
        """
        services = self._services
        if self._reload is None or services is None:
            _log.warning("settings.not_reloaded", error="the settings came from no file")
            return
        try:
            new = self._reload()
        except CompactorError as error:
            _log.error("settings.not_reloaded", error=str(error))
            return
        changed, fixed = self._settings.changes(new)
        self._settings = services.settings = self._settings.taking_over(new)
        if self._configure_log:
            configure(new.log.level, new.log.format)
        _log.info("settings.reloaded", changed=list(changed))
        if fixed:
            _log.warning("restart.required", keys=list(fixed))
        for loop in self._loops.values():
            loop.wake()

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port of the HTTP server."""
        return self._web.address if self._web else None

    def troubles(self) -> list[str]:
        """The reasons why the process isn't healthy, such that a restart would help; empty when it is healthy."""
        return [trouble for loop in self._loops.values() if (trouble := loop.trouble())]

    def readiness(self) -> Readiness:
        """Whether the daemon does its work now."""
        return Readiness.of(self._services, {name: loop.working for name, loop in self._loops.items()})

    def unready(self) -> list[str]:
        """The reasons why the daemon doesn't do its work now; empty when it is ready."""
        return self.readiness().sentences

    # Pieces

    def _endpoints(self) -> dict[str, Endpoint]:
        """By path, what the HTTP server answers. Called before anything else is there."""
        return {
            "/metrics": lambda: HttpAnswer(self.metrics.render(), content_type=CONTENT_TYPE),
            "/-/healthy": check(self.troubles),
            "/-/ready": check(self.unready),
        }

    def _reached(self) -> bool:
        return self._services is not None and self._services.coordinator.reached

    def _status(self) -> str:
        """The sentence that `systemctl status` shows."""
        return "; ".join(self.unready()) or f"queue: {self._loops['watch'].sentence}"

    def _coordination_changed(self) -> None:
        """Update the metrics and wake the loops of led roles and workers. The coordinator's thread calls this."""
        services = self._services
        if services is None:
            return
        show(self.metrics, services)
        for name, loop in self._loops.items():
            if name in self._led or loop.role == WORKER:
                loop.wake()

    def _control_changed(self) -> None:
        """Wake the Workers, Initiator and Cleaner after a pause, resume or drain: those that waited may go on."""
        for loop in self._loops.values():
            if loop.role in {WORKER, Role.INITIATOR, Role.CLEANER}:
                loop.wake()

    @staticmethod
    def _has_claims(services: Services) -> bool:
        """Whether this process still holds claims on entries; True also when the metastore can't be asked."""
        try:
            return any(services.identity.is_mine(entry.worker_id) for entry in services.queue.working())
        except CompactorError as error:
            _log.warning("claims.not_read", error=str(error), detail="the next start looks for claims that are left")
            return True

    def _wake_the_next(self, step: str, _: object) -> None:
        """Wake the loops that continue a step's work, so that they don't wait for their interval to pass."""
        if step == steps.INITIATOR_QUEUED and self._services is not None:
            wake_workers(self._services, self._loops)
        if step == steps.WORKER_COMMITTED and (cleaner := self._loops.get("cleaner")) is not None:
            cleaner.wake()

    def _wait_for_loops(self, over: Callable[[], bool], *, cancel_on_signal: bool) -> bool:
        """
        Wait until all loops have ended, listening to signals meanwhile.

        Args:
            over: ends the wait when it returns True.
            cancel_on_signal: whether TERM ends the wait.

        Returns:
            Whether all loops have ended.
        """
        while not all(loop.join(0.05) for loop in self._loops.values()):
            if over():
                return False
            self._resign()
            self._manager.report(
                (),
                f"draining; still at work: {', '.join(name for name, loop in self._loops.items() if not loop.join(0)) or 'none'}",
            )
            try:
                number = self._signals.get_nowait()
            except queue.Empty:
                continue
            if number == signal.SIGTERM and cancel_on_signal:
                return False
        return True

    def _resign(self) -> None:
        """Give up the roles whose loops have ended: another daemon may lead them while compactions still run here."""
        for role in list(self._led):
            if self._services is not None and self._loops[role].join(0):
                self._services.coordinator.resign(role)
                self._led.remove(role)

    def _next_signal(self) -> int | None:
        """
        The next signal, or None after 0.5 s.

        The wait is short because a signal that arrives just before the wait begins doesn't end it; such a signal is
        handled after the wait.
        """
        try:
            return self._signals.get(timeout=0.5)
        except queue.Empty:
            return None

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT and self._told_to_stop:
            os.write(2, b"left at once; the next start clears up\n")
            os._exit(130)
        self._told_to_stop = self._told_to_stop or number != signal.SIGHUP
        self._signals.put(number)
