"""
Two calls to one database, statement by statement, in a chosen order: Hive's by its own gate, ours by an event of the
engine.
"""

import queue
import threading

from sqlalchemy import event

_LIMIT_SECONDS = 120
_GLANCE_SECONDS = 0.005


class Stepped:
    """A call of ours in a thread of its own, stopped before each statement and each commit."""

    def __init__(self, database, call):
        self._engine, self._call = database.engine, call
        self._events, self._permits = queue.SimpleQueue(), threading.Semaphore(0)
        self.outcome = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        event.listen(self._engine, "before_cursor_execute", self._statement)
        event.listen(self._engine, "commit", self._commit)
        self._thread.start()

    def look(self, seconds):
        """Whether it "stands" or has "ended"; None: it is still running."""
        try:
            return self._events.get(timeout=seconds)
        except queue.Empty:
            return None

    def go(self):
        """On to the next statement."""
        self._permits.release()

    def result(self):
        """What it returned; what it raised is raised here."""
        self._thread.join()
        event.remove(self._engine, "before_cursor_execute", self._statement)
        event.remove(self._engine, "commit", self._commit)
        returned, error = self.outcome
        if error is not None:
            raise error
        return returned

    def _statement(self, *_):
        if threading.current_thread() is self._thread:
            self._events.put("stands")
            self._permits.acquire()

    def _commit(self, _):
        self._statement()

    def _run(self):
        try:
            self.outcome = (self._call(), None)
        except BaseException as error:
            self.outcome = (None, error)
        self._events.put("ended")


class InTurn:
    """Calls as one: each begins when the one before it has ended, and takes its result."""

    def __init__(self, *begin):
        self._begin, self._call, self._result = list(begin), None, None
        self._next()

    def look(self, seconds):
        """As `Stepped.look`."""
        found = self._call.look(seconds)
        if found == "ended" and self._begin:
            self._next()
            return None
        return found

    def go(self):
        """On to the next statement."""
        self._call.go()

    def result(self):
        """What the last one returned."""
        return self._call.result()

    def _next(self):
        self._call = self._begin.pop(0)(self._call and self._call.result())


def interleave(server, database, calls, turns):
    """
    Run calls (`Stepped`, or a gated `tests.hive.party.Pending`) to their ends; returns how many statements were
    ordered.

    A call that waits for a lock of another is passed over until it has it.

    Args:
        server, database: for how many wait for a lock.
        turns: whose statement is next, by position among the calls that stand; used in a circle.
    """
    running, standing, number = list(calls), [], 0
    name = str(database).rpartition("/")[2]
    for _ in range(int(_LIMIT_SECONDS / _GLANCE_SECONDS)):
        for call in list(running):
            found = call.look(_GLANCE_SECONDS)
            if found is not None:
                running.remove(call)
                if found == "stands":
                    standing.append(call)
        if not running and not standing:
            return number
        if standing and len(running) <= (server.waiting(name) if running else 0):
            call = standing.pop(turns[number % len(turns)] % len(standing))
            number += 1
            running.append(call)
            call.go()
    raise AssertionError("the calls don't end")
