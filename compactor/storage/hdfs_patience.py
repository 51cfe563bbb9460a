"""
A time limit for what is asked of a NameNode, which hdfs-native doesn't have: one that neither answers nor closes the connection would be waited for for ever.

The connection of a question that waits for too long is shut down from outside, as if the NameNode had closed it. The client then does what it does for a NameNode
that died: it asks again, of the other one where there are two, and in the end says that nobody answers. Calls cost nothing for it, and need no threads.

What goes to a NameNode is known by the address at its other end; where no packet comes back there is none yet, and the system's table of connections is asked.
Where DataNodes are only the NameNode knows: who reads or writes a file has a time limit of its own, `data_seconds`, after which it is left behind.
Source: Hadoop's ipc.client.rpc-timeout.ms; shutdown(2); proc_net_tcp of Linux.
"""

import contextlib
import os
import re
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from compactor.errors import CompactorError
from compactor.log import get_logger

_log = get_logger(__name__)

_LOOKS: Final = 8
"""How often a limit's time is divided for looking whether it is over."""
_WRITES: Final = 5
"""A file that is written also waits for DataNodes, each of which the client gives a minute: so many limits are its own."""
_DATA: Final = _WRITES + 1
"""Who waits for DataNodes may be waiting for a NameNode, too: that one's connection is shut down first."""
_AGAIN: Final = 1.0
"""Seconds until the next connection of an overdue question is shut down: the client makes a new one at once."""
_URL: Final = re.compile(r"hdfs://(?P<address>[^/,\s]+:\d+)")
_ADDRESS: Final = "dfs.namenode.rpc-address"
_SYN_SENT: Final = "02"

Address = tuple[str, int]


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
        self.seconds: Final = seconds
        self._names = names
        self._until: dict[object, float] = {}
        self._lock = threading.Lock()
        self._watching = False

    @contextlib.contextmanager
    def asking(self, limits: int = 1) -> Iterator[None]:
        """While a question is on its way that may take so many limits."""
        if not self._watching:
            self._watch()
        question = object()
        self._until[question] = time.monotonic() + limits * self.seconds
        try:
            yield
        finally:
            del self._until[question]

    def look(self) -> float:
        """Shut down what is overdue; returns the seconds until the next look."""
        until = min(tuple(self._until.values()), default=None)
        if until is None or time.monotonic() < until:
            return self.seconds / _LOOKS
        try:
            names = self._names()
        except CompactorError as error:
            _log.warning("a NameNode doesn't answer, and where it is can't be told", reason=str(error))
            return self.seconds
        count = shut_down(resolved(names))
        if count:
            _log.warning("a NameNode doesn't answer: its connection was shut down", connections=count, seconds=self.seconds)
        return min(_AGAIN, self.seconds)

    def _watch(self) -> None:
        with self._lock:
            if not self._watching:
                self._watching = True
                threading.Thread(target=_keep_looking, args=(weakref.ref(self), self.seconds / _LOOKS), name="hdfs-patience", daemon=True).start()


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
    """A client, or a file it writes, each of whose calls is a question that may take so many limits."""

    def __init__(self, target: Any, patience: Patience, limits: int = 1) -> None:
        self._target = target
        self._patience = patience
        self._limits = limits

    def list_status(self, path: str, recursive: bool) -> list[Any]:
        """All of it at once: the client asks while its answer is walked through."""
        with self._patience.asking():
            return list(self._target.list_status(path, recursive))

    def create(self, path: str, options: Any) -> "Watched":
        """An open file asks for blocks while it is written, and to be completed when it is closed."""
        with self._patience.asking():
            return Watched(self._target.create(path, options), self._patience, _WRITES)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._target, name)

        def asked(*arguments: Any, **named: Any) -> Any:
            with self._patience.asking(self._limits):
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


def resolved(names: Iterable[Address]) -> frozenset[Address]:
    """The same by number; what can't be resolved now is left out."""
    found: set[Address] = set()
    for host, port in names:
        with contextlib.suppress(OSError, UnicodeError):  # the latter: what no host can be called
            found.update((str(info[4][0]), port) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    return frozenset(found)


def shut_down(peers: frozenset[Address]) -> int:
    """Shut down every connection of this process to one of these, made or on its way; returns how many there were. They are closed by whoever owns them."""
    begun = _begun(peers)
    return sum(_shut_down(descriptor, peers, begun) for descriptor in tuple(Path("/proc/self/fd").iterdir()))


def _shut_down(descriptor: Path, peers: frozenset[Address], begun: frozenset[str]) -> bool:
    with contextlib.suppress(OSError):
        if not str(descriptor.readlink()).startswith("socket:"):
            return False
        own = os.dup(int(descriptor.name))  # it may be closed, and its number be another's, at any moment
        try:
            connection = socket.socket(fileno=own)
        except OSError:
            os.close(own)
            return False
        with connection:
            if connection.family not in {socket.AF_INET, socket.AF_INET6}:
                return False
            if _inode(connection) in begun or _peer(connection) in peers:
                connection.shutdown(socket.SHUT_RDWR)
                return True
    return False


def _inode(connection: socket.socket) -> str:
    return str(os.fstat(connection.fileno()).st_ino)


def _peer(connection: socket.socket) -> Address:
    host, port = connection.getpeername()[:2]
    return host.removeprefix("::ffff:"), port


def _begun(peers: frozenset[Address]) -> frozenset[str]:
    """Inodes of connections to these whose other end hasn't answered yet; anybody's in this network."""
    found = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/thread-self/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                if fields[3] == _SYN_SENT and _address(family, fields[2]) in peers:
                    found.add(fields[9])
    return frozenset(found)


def _address(family: int, shown: str) -> Address:
    """From how the table shows it: words of 32 bits in this machine's order of bytes, and the port."""
    host, _, port = shown.partition(":")
    words = b"".join(int(host[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(host), 8))
    return socket.inet_ntop(family, words).removeprefix("::ffff:"), int(port, 16)
