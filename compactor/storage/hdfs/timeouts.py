"""
Time limit for calls to a NameNode. hdfs-native has none: it waits for ever for a NameNode that neither answers nor
closes the connection.

A watching thread shuts down a connection on which nothing has come for too long, as if the NameNode had closed it. The
client then does what it does when a NameNode dies: it asks again, the other NameNode where there are two, and in the
end reports that none answers. The calls themselves take no longer for it, and need no threads.

It can't be told from outside which connection a call waits on. So connections are judged, not calls, and other calls on
a connection that is shut down fail with it. When a call stays overdue although data comes on every connection (a
NameNode may answer some calls and never the others), all connections are shut down, a few times. A call that reads or
writes a file also waits for DataNodes, even for ever; it has a time limit of its own, `data_seconds`, after which it is
left behind.

A time limit on each call and a new client after it would be simpler, and doesn't suffice. A new client asks the same
NameNode first, so a name service whose active NameNode hangs would never reach the other one:
`test_a_namenode_that_hangs_is_succeeded_by_the_other` in tests/cluster/test_hdfs_failures.py fails. And a call that was
left behind would ask the other NameNode whenever the first one wakes up: a rename could come hours late.
Source: Hadoop's ipc.client.rpc-timeout.ms, which applies to the connection, too.
"""

import contextlib
import re
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from compactor.errors import CompactorError
from compactor.log import get_logger
from compactor.storage.hdfs.connections import Address, Silences, connections, resolved

_log = get_logger(__name__)

_LOOKS: Final = 8
"""How often connections are checked within one limit."""
_DATA: Final = 6
"""
Factor of the limit for DataNodes. A call that waits for DataNodes may be waiting for a NameNode, too: that connection
is shut down first.
"""
_AGAIN: Final = 5.0
"""
Seconds that a NameNode gets on the next connections while a call is overdue: the client makes them at once, and many of
them.
"""
_SOON: Final = 1.0
"""Seconds until the next check while a call is overdue."""
_LAST: Final = (2, 3, 4)
"""Multiples of the limit after which all connections are shut down for a call."""
_BATCH: Final = 1000
"""Number of files from which a listing takes more than one answer of the NameNode, dfs.ls.limit."""
_URL: Final = re.compile(r"hdfs://(?P<address>[^/,\s]+:\d+)")
_ADDRESS: Final = "dfs.namenode.rpc-address"


def data_seconds(rpc_seconds: float) -> float:
    """Time limit for DataNodes and one piece of a file, where the limit for a NameNode's answer is `rpc_seconds`."""
    return _DATA * rpc_seconds


_Question = tuple[object, bool]
"""A running call, and whether it asks DataNodes, too."""


class Timeouts:
    """
    Watches the calls of one client. Safe in any number of threads.

    Args:
        names: returns the NameNodes as (host, port); called when a call may be overdue.
        seconds: the limit.
    """

    def __init__(self, names: Callable[[], Iterable[Address]], seconds: float) -> None:
        self._names = names
        self._pause: Final = seconds / _LOOKS
        self._seconds: Final = seconds
        self._silences = Silences(seconds, _AGAIN)
        self._peers: frozenset[Address] = frozenset()
        self._asked: dict[_Question, float] = {}
        self._lasts: dict[_Question, int] = {}
        self._lock = threading.Lock()
        self._watching = False

    @contextlib.contextmanager
    def asking(self, *, data: bool = False) -> Iterator[Callable[[], None]]:
        """
        Marks a call as running, inside the block. Yields a function that tells that the call makes progress, and
        restarts its time.

        Args:
            data: the call asks DataNodes, too; they may be the ones that don't answer.
        """
        if not self._watching:
            self._watch()
        question = object(), data

        def begin() -> None:
            self._asked[question] = time.monotonic()

        begin()
        try:
            yield begin
        finally:
            del self._asked[question]

    def look(self) -> float:
        """
        Shut down connections that have waited too long; returns the seconds until the next check. Checks no connection
        while every call is young.
        """
        now = time.monotonic()
        ages = {question: now - began for question, began in tuple(self._asked.items())}
        if max(ages.values(), default=0) < self._pause:
            self._silences.forget()
            return self._pause
        asked = max((age for question, age in ages.items() if not question[1]), default=None)
        everything = self._is_last(ages)
        try:
            # a name may resolve differently by now; connections keep their peers
            self._peers |= resolved(self._names())
        except CompactorError as error:
            _log.warning("namenodes.not_resolved", error=str(error), detail="a NameNode may not answer")
        with connections(self._peers) as found:
            overdue = self._silences.overdue([one for one, _ in found.values()], now, asked, everything=everything)
            for one, handle in (found[inode] for inode in overdue):
                with contextlib.suppress(OSError):  # the NameNode closed it first
                    handle.shutdown(socket.SHUT_RDWR)
                _log.warning(
                    "namenode_connection.shut_down",
                    namenode=f"{one.peer[0]}:{one.peer[1]}",
                    silent_seconds=one.received,
                )
        return min(self._pause, _SOON) if asked is not None and asked >= self._seconds else self._pause

    def _is_last(self, ages: dict[_Question, float]) -> bool:
        """Whether a call has reached one of its last limits since the latest check."""
        reached = {
            question: sum(age >= times * self._seconds for times in _LAST)
            for question, age in ages.items()
            if not question[1]
        }
        before, self._lasts = self._lasts, reached
        return any(times > before.get(question, 0) for question, times in reached.items())

    def _watch(self) -> None:
        with self._lock:
            if not self._watching:
                threading.Thread(
                    target=_keep_looking, args=(weakref.ref(self), self._pause), name="hdfs-timeouts", daemon=True
                ).start()
                self._watching = True


def _keep_looking(timeouts: "weakref.ref[Timeouts]", pause: float) -> None:
    """Check again and again, until the client is gone."""
    wait = pause
    while True:
        time.sleep(wait)
        watched = timeouts()
        if watched is None:
            return
        try:
            wait = watched.look()
        except Exception as error:  # for example, no file descriptor is left
            _log.warning("namenodes.not_checked", error=str(error))
            wait = pause
        del watched


class Watched:
    """
    A client, or a file that it writes, whose calls are watched.

    Args:
        data: the calls ask DataNodes, too.
    """

    def __init__(self, target: Any, timeouts: Timeouts, *, data: bool = False) -> None:
        self._target = target
        self._timeouts = timeouts
        self._data = data

    def list_status(self, path: str, recursive: bool) -> list[Any]:
        """The whole listing at once: the client asks the NameNode while its answer is iterated."""
        found = []
        with self._timeouts.asking() as gets_on:
            for one in self._target.list_status(path, recursive):
                found.append(one)
                if len(found) % _BATCH == 0:
                    gets_on()
        return found

    def create(self, path: str, options: Any) -> "Watched":
        """
        Open a new file. An open file asks for blocks while it is written, and for its completion when it is closed.
        """
        with self._timeouts.asking():
            return Watched(self._target.create(path, options), self._timeouts, data=True)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._target, name)

        def asked(*arguments: Any, **named: Any) -> Any:
            with self._timeouts.asking(data=self._data):
                return call(*arguments, **named)

        return asked


def addresses(authority: str, properties: Iterable[tuple[str, str]]) -> frozenset[Address]:
    """
    Host and port of every NameNode that a client may be connected to.

    Args:
        authority: of the client's locations: a host with a port, or a name service.
        properties: names and values of core-site.xml and hdfs-site.xml.
    """
    said = [authority]
    for name, value in properties:
        said += [value] if name == _ADDRESS or name.startswith(f"{_ADDRESS}.") else _URL.findall(value)
    split = (text.strip().rpartition(":") for text in said)
    return frozenset((host.strip("[]"), int(port)) for host, _, port in split if host and port.isdecimal())
