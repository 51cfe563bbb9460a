"""A worker of ours that stands still at its steps, in a thread of its own, until a history continues or kills it."""

import queue
import threading

from compactor.roles.worker.worker import Worker

_LIMIT_SECONDS = 120


class Killed(BaseException):
    """As SIGKILL: nothing of the process runs after it."""


class SteppedWorker:
    """
    One cycle of a worker of another daemon.

    Args:
        world: of the history (`tests.unit.roles.world`).
        stops: the steps at which it stands still.
    """

    def __init__(self, world, number, stops) -> None:
        self._stops, self._said, self._go = frozenset(stops), queue.SimpleQueue(), queue.SimpleQueue()
        observers, world.observers = world.observers, (*world.observers, self._observe)
        try:
            self.services = world.new_services()
        finally:
            world.observers = observers
        self.services.settings = world.services.settings
        self._worker = Worker(self.services, number)
        self.sentence: str | None = None

    def start(self):
        """Run to the first of its stops; the step, or None: the cycle has ended, with a sentence."""
        threading.Thread(target=self._run, daemon=True).start()
        return self._hear()

    def go_on(self):
        """Run to the next stop, likewise."""
        self._go.put(True)
        return self._hear()

    def kill(self):
        """It is gone where it stands."""
        self._go.put(False)
        assert self._hear() is None

    def _observe(self, step, about):
        if step in self._stops and threading.current_thread() is not threading.main_thread():
            self._said.put(step)
            if not self._go.get():
                raise Killed

    def _run(self):
        try:
            self.sentence = self._worker.run_once()
        except Killed:
            self.sentence = "killed"
        except BaseException as error:
            self._said.put(error)
            return
        self._said.put(None)

    def _hear(self):
        said = self._said.get(timeout=_LIMIT_SECONDS)
        if isinstance(said, BaseException):
            raise said
        return said
