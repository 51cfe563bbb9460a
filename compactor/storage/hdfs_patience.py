"""
A time limit for what is asked of a NameNode, which hdfs-native doesn't have: one that neither answers nor closes the connection would be waited for for ever.

A connection on which nothing comes for too long is shut down from outside, as if the NameNode had closed it. The client then does what it does for a NameNode that
died: it asks again, of the other one where there are two, and in the end says that nobody answers. Calls cost nothing for it, and need no threads.

Connections are judged, not questions: a question may wait for DataNodes, for ever even, and that is no reason to take a connection from others that share it. Who
reads or writes a file has a time limit of its own, `data_seconds`, after which it is left behind. Source: Hadoop's ipc.client.rpc-timeout.ms, which is one of the connection, too.
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
"""Seconds that a NameNode which was silent gets on the next connection: the client makes one at once, and many of them."""
_SOON: Final = 1.0
"""Seconds until the next look, after one was silent."""
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
        self._begun: dict[object, float] = {}
        self._lock = threading.Lock()
        self._watching = False

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """While a question is on its way."""
        if not self._watching:
            self._watch()
        question = object()
        self._begun[question] = time.monotonic()
        try:
            yield
        finally:
            del self._begun[question]

    def look(self) -> float:
        """Shut down what has waited too long; returns the seconds until the next look. Looks at nothing while every question is young."""
        now = time.monotonic()
        if now - min(tuple(self._begun.values()), default=now) < self._pause:
            self._silences.forget()
            return self._pause
        try:
            names = self._names()
        except CompactorError as error:
            _log.warning("a NameNode may not answer, and where it is can't be told", reason=str(error))
            return self._seconds
        for peer in shut_down(resolved(names), self._silences):
            _log.warning("a NameNode doesn't answer: its connection was shut down", namenode=f"{peer[0]}:{peer[1]}")
        return min(self._pause, _SOON) if self._silences.any else self._pause

    def _watch(self) -> None:
        with self._lock:
            if not self._watching:
                self._watching = True
                threading.Thread(target=_keep_looking, args=(weakref.ref(self), self._pause), name="hdfs-patience", daemon=True).start()


def _keep_looking(patience: "weakref.ref[Patience]", pause: float) -> None:
    """Until the client is gone."""
    while True:
        time.sleep(pause)
        watched = patience()
        if watched is None:
            return
        pause = watched.look()
        del watched


class Watched:
    """A client, or a file it writes, each of whose calls is a question."""

    def __init__(self, target: Any, patience: Patience) -> None:
        self._target = target
        self._patience = patience

    def list_status(self, path: str, recursive: bool) -> list[Any]:
        """All of it at once: the client asks while its answer is walked through."""
        with self._patience.asking():
            return list(self._target.list_status(path, recursive))

    def create(self, path: str, options: Any) -> "Watched":
        """An open file asks for blocks while it is written, and to be completed when it is closed."""
        with self._patience.asking():
            return Watched(self._target.create(path, options), self._patience)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._target, name)

        def asked(*arguments: Any, **named: Any) -> Any:
            with self._patience.asking():
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


def shut_down(peers: frozenset[Address], silences: Silences) -> list[Address]:
    """Shut down every connection of this process to one of these that has waited too long; returns where they led to. They are closed by whoever owns them."""
    with connections(peers) as found:
        late = [found[inode] for inode in silences.overdue([one for one, _ in found.values()], time.monotonic())]
        for _, handle in late:
            with contextlib.suppress(OSError):  # its other end was quicker
                handle.shutdown(socket.SHUT_RDWR)
        return [one.peer for one, _ in late]
