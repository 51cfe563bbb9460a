"""A worker of ours that stands still at its steps, in a thread of its own, until a history continues or kills it."""

import queue
import threading

from compactor.engine.publish.rename import RenamePublisher
from compactor.roles.worker.worker import Worker

RENAME = "rename"
"""Where a worker stands between its last look and a rename."""
_LIMIT_SECONDS = 30


class CannotPlayError(Exception):
    """A history can't be played to its end, for a reason that is no defect."""


class Killed(BaseException):
    """As SIGKILL: nothing of the process runs after it."""


def stand_before_renames(patch):
    """Let workers that have the stop `RENAME` stand there."""
    rename = RenamePublisher._rename

    def around(publisher, manifest):
        worker = getattr(threading.current_thread(), "stepped", None)
        if worker is not None:
            worker.stand(RENAME)
        rename(publisher, manifest)

    patch.setattr(RenamePublisher, "_rename", around)


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
        self._ended = False

    def start(self):
        """Run to the first of its stops; the step, or None: the cycle has ended, with a sentence."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.stepped = self
        thread.start()
        return self._hear()

    def go_on(self):
        """Run to the next stop, likewise."""
        self._go.put(True)
        return self._hear()

    def kill(self):
        """It is gone where it stands."""
        self.stop()
        self.await_end()

    def stop(self):
        """Tell it to be gone at its next stop, or where it stands."""
        self._go.put(False)

    def await_end(self):
        """It was told to stop, and so were those for which it waits."""
        while self._hear() is not None:
            pass

    def _observe(self, step, about):
        if threading.current_thread() is not threading.main_thread():
            self.stand(step)

    def stand(self, step):
        """In its thread: wait at this step, if it is one of its stops."""
        if step in self._stops:
            self._said.put(step)
            if not self._go.get():
                raise Killed

    def _run(self):
        try:
            self.sentence = self._worker.run_once().sentence
        except Killed:
            self.sentence = "killed"
        except BaseException as error:
            self._said.put(error)
            return
        self._said.put(None)

    def _hear(self):
        if self._ended:
            return None
        try:
            said = self._said.get(timeout=_LIMIT_SECONDS)
        except queue.Empty:
            raise CannotPlayError("a worker waits for the fence of another one that stands still") from None
        self._ended = said is None or isinstance(said, BaseException)
        if isinstance(said, BaseException):
            raise said
        return said
