"""
A time limit for what is asked of a NameNode, which hdfs-native doesn't have: one that neither answers nor closes the connection would be waited for for ever.

A connection on which nothing comes for too long is shut down from outside, as if the NameNode had closed it. The client then does what it does for a NameNode that
died: it asks again, of the other one where there are two, and in the end says that nobody answers. Calls cost nothing for it, and need no threads.

Which connection a question waits on can't be told from outside, so connections are judged, not questions: what is taken from others fails under their hands. Only
where a question stays overdue while something comes on every connection (a NameNode may answer some and never the others) are all of them shut down, a few times.
Who reads or writes a file waits for DataNodes, for ever even; that has a time limit of its own, `data_seconds`, after which it is left behind.
Source: Hadoop's ipc.client.rpc-timeout.ms, which is one of the connection, too.
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
from compactor.storage.hdfs_connections import Address, Silences, connections, resolved

_log = get_logger(__name__)

_LOOKS: Final = 8
"""How often a limit's time is divided for looking whether it is over."""
_DATA: Final = 6
"""Who waits for DataNodes may be waiting for a NameNode, too: that one's connection is shut down first."""
_AGAIN: Final = 5.0
"""Seconds that a NameNode gets on the next connections, while a question is overdue: the client makes one at once, and many of them."""
_SOON: Final = 1.0
"""Seconds until the next look, meanwhile."""
_LAST: Final = (2, 3, 4)
"""Limits after which a question has all connections shut down."""
_BATCH: Final = 1000
"""Files of which a listing is longer than one answer of a NameNode's, dfs.ls.limit."""
_URL: Final = re.compile(r"hdfs://(?P<address>[^/,\s]+:\d+)")
_ADDRESS: Final = "dfs.namenode.rpc-address"


def data_seconds(rpc_seconds: float) -> float:
    """How long DataNodes may take for one piece of a file, where a NameNode's answer may take so long."""
    return _DATA * rpc_seconds


class Patience:
    """
    Watches the questions of one client. Safe in any number of threads.

    Args:
        names: of the NameNodes, as (host, port); asked for when a question is overdue.
        seconds: the limit.
    """

    def __init__(self, names: Callable[[], Iterable[Address]], seconds: float) -> None:
        self._names = names
        self._pause: Final = seconds / _LOOKS
        self._seconds: Final = seconds
        self._silences = Silences(seconds, _AGAIN)
        self._peers: frozenset[Address] = frozenset()
        self._asked: dict[object, float] = {}
        self._lasts: dict[object, int] = {}
        self._lock = threading.Lock()
        self._watching = False

    @contextlib.contextmanager
    def asking(self, *, data: bool = False) -> Iterator[Callable[[], None]]:
        """
        While a question is on its way; what is given back tells that it is getting on, and has its time anew.

        Args:
            data: DataNodes are asked, too: it may be they who don't answer.
        """
        if not self._watching:
            self._watch()
        question = _Data() if data else object()

        def begin() -> None:
            self._asked[question] = time.monotonic()

        begin()
        try:
            yield begin
        finally:
            del self._asked[question]

    def look(self) -> float:
        """Shut down what has waited too long; returns the seconds until the next look. Looks at nothing while every question is young."""
        now = time.monotonic()
        ages = {question: now - began for question, began in tuple(self._asked.items())}
        if max(ages.values(), default=0) < self._pause:
            self._silences.forget()
            return self._pause
        asked = max((age for question, age in ages.items() if not isinstance(question, _Data)), default=None)
        everything = self._is_last(ages)
        try:
            self._peers |= resolved(self._names())  # a name may lead elsewhere by now, or nowhere; connections stay where they are
        except CompactorError as error:
            _log.warning("a NameNode may not answer, and where it is can't be told", reason=str(error))
        with connections(self._peers) as found:
            overdue = self._silences.overdue([one for one, _ in found.values()], now, asked, everything=everything)
            for one, handle in (found[inode] for inode in overdue):
                with contextlib.suppress(OSError):  # its other end was quicker
                    handle.shutdown(socket.SHUT_RDWR)
                _log.warning("a NameNode doesn't answer: its connection was shut down", namenode=f"{one.peer[0]}:{one.peer[1]}", silent_seconds=one.received)
        return min(self._pause, _SOON) if asked is not None and asked >= self._seconds else self._pause

    def _is_last(self, ages: dict[object, float]) -> bool:
        """Whether a question has come to one of its last limits since the latest look."""
        reached = {question: sum(age >= times * self._seconds for times in _LAST) for question, age in ages.items() if not isinstance(question, _Data)}
        before, self._lasts = self._lasts, reached
        return any(times > before.get(question, 0) for question, times in reached.items())

    def _watch(self) -> None:
        with self._lock:
            if not self._watching:
                threading.Thread(target=_keep_looking, args=(weakref.ref(self), self._pause), name="hdfs-patience", daemon=True).start()
                self._watching = True


class _Data:
    """A question for which DataNodes are asked, too."""


def _keep_looking(patience: "weakref.ref[Patience]", pause: float) -> None:
    """Until the client is gone."""
    wait = pause
    while True:
        time.sleep(wait)
        watched = patience()
        if watched is None:
            return
        try:
            wait = watched.look()
        except Exception as error:  # out of file descriptors, say
            _log.warning("whether NameNodes answer can't be told now", reason=str(error))
            wait = pause
        del watched


class Watched:
    """
    A client, or a file it writes, each of whose calls is a question.

    Args:
        data: DataNodes are asked, too.
    """

    def __init__(self, target: Any, patience: Patience, *, data: bool = False) -> None:
        self._target = target
        self._patience = patience
        self._data = data

    def list_status(self, path: str, recursive: bool) -> list[Any]:
        """All of it at once: the client asks while its answer is walked through."""
        found = []
        with self._patience.asking() as gets_on:
            for one in self._target.list_status(path, recursive):
                found.append(one)
                if len(found) % _BATCH == 0:
                    gets_on()
        return found

    def create(self, path: str, options: Any) -> "Watched":
        """An open file asks for blocks while it is written, and to be completed when it is closed."""
        with self._patience.asking():
            return Watched(self._target.create(path, options), self._patience, data=True)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._target, name)

        def asked(*arguments: Any, **named: Any) -> Any:
            with self._patience.asking(data=self._data):
                return call(*arguments, **named)

        return asked


def addresses(authority: str, properties: Iterable[tuple[str, str]]) -> frozenset[Address]:
    """
    Host and port of every NameNode that a client may be connected to.

    Args:
        authority: of its locations: a host with a port, or a name service.
        properties: names and values of core-site.xml and hdfs-site.xml.
    """
    said = [authority]
    for name, value in properties:
        said += [value] if name == _ADDRESS or name.startswith(f"{_ADDRESS}.") else _URL.findall(value)
    split = (text.strip().rpartition(":") for text in said)
    return frozenset((host.strip("[]"), int(port)) for host, _, port in split if host and port.isdecimal())
