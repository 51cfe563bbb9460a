"""
Finds the connections of this process to NameNodes, and how long each has been waiting for an answer.

hdfs-native doesn't tell, so the operating system is asked. A connection to a NameNode is known by the address of its
peer. Until the first packet comes back a socket has no such address; then the system's table of connections is asked.
Why connections are read from outside: `compactor.storage.hdfs.timeouts`.
Source: TCP_INFO of tcp(7), shutdown(2), proc_net_tcp of Linux.
"""

import contextlib
import os
import socket
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SYN_SENT: Final = "02"
_AGES: Final = struct.Struct("=44xI4xI")
"""Fields of `struct tcp_info`: milliseconds since data was last sent, and since data last came."""
_COUNT: Final = struct.Struct("=128xQ")
"""Field of `struct tcp_info`, since Linux 4.1: bytes that came."""
_SLACK: Final = 1 / 16
"""Share of the limit by which a call may have begun before it was sent."""

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class TcpConnection:
    """
    A connection of this process, as it was seen.

    Attributes:
        inode: identifies the connection as long as it is open.
        peer: address of the NameNode, by number.
        sent: seconds since the connection last sent data.
        received: seconds since data last came, or since the connection was made; None: it isn't made yet.
        fresh: no data ever came, as far as the system tells.
    """

    inode: int
    peer: Address
    sent: float
    received: float | None
    fresh: bool = False


class Silences:
    """
    Decides which connections have waited too long: no data came since they sent some, for the limit's seconds. Each
    connection is reported once.

    When an answer came in the same tick of the system's clock as the last call, it can't be told which was first. Such
    a connection is unused, or has been silent since a call that is overdue: it counts only when an overdue call is as
    old.

    Args:
        seconds: the limit.
        again: the limit while a call is overdue, which then waits on its next connection.
    """

    def __init__(self, seconds: float, again: float) -> None:
        self._seconds: Final = seconds
        self._again: Final = min(again, seconds)
        self._since: dict[int, float] = {}
        self._told: frozenset[int] = frozenset()

    def overdue(
        self, seen: Iterable[TcpConnection], now: float, asked: float | None = None, *, everything: bool = False
    ) -> frozenset[int]:
        """
        Inodes of the connections that have waited too long.

        Args:
            seen: all connections that there are now.
            now: of a clock that never goes back, in seconds.
            asked: age of the oldest call that only a NameNode can answer, in seconds; None: there is none.
            everything: include connections on which data comes.
        """
        every = {one.inode: one for one in seen}
        self._since = {inode: began for inode, one in every.items() if (began := self._began(one, now)) is not None}
        late = asked is not None and asked >= self._seconds
        limit = self._again if late else self._seconds
        found = {inode for inode, began in self._since.items() if now - began >= limit}
        if late and asked is not None:
            found |= {
                inode
                for inode, one in every.items()
                if one.received is not None and one.sent == one.received >= asked - _SLACK * self._seconds
            }
        new = frozenset(every if everything else found) - self._told
        self._told = (self._told & every.keys()) | new
        return new

    def forget(self) -> None:
        """
        Drop what was seen, when connections aren't checked any longer. Since when a connection waits is only known
        while it is seen again and again.
        """
        self._since = {}

    def _began(self, one: TcpConnection, now: float) -> float | None:
        """Since when a connection waits; None: it doesn't wait, or that can't be told."""
        if one.received is None:
            return self._since.get(one.inode, now)
        if one.sent < one.received or (one.fresh and one.sent == one.received):
            return max(self._since.get(one.inode, now - one.sent), now - one.received)
        return None


def resolved(names: Iterable[Address]) -> frozenset[Address]:
    """The same addresses by number. Names that can't be resolved now are left out."""
    found: set[Address] = set()
    for host, port in names:
        with contextlib.suppress(OSError, UnicodeError):  # UnicodeError: a name that no host can have
            found.update((str(info[4][0]), port) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    return frozenset(found)


@contextlib.contextmanager
def connections(peers: frozenset[Address]) -> Iterator[Mapping[int, tuple[TcpConnection, socket.socket]]]:
    """
    Every connection of this process to one of these peers, made or being made, by inode. Each socket is a second
    handle: the connection's owner keeps its own.
    """
    begun = _begun(peers)
    with contextlib.ExitStack() as opened:
        found = {}
        for descriptor in tuple(Path("/proc/self/fd").iterdir()):
            with contextlib.suppress(OSError), contextlib.ExitStack() as one:
                if (handle := _handle(descriptor)) is not None:
                    one.enter_context(handle)
                    if (seen := _seen(handle, peers, begun)) is not None:
                        found[seen.inode] = (seen, handle)
                        opened.push(one.pop_all())
        yield found


def _handle(descriptor: Path) -> socket.socket | None:
    """A second handle of a descriptor's socket; None: the descriptor is no socket."""
    if not str(descriptor.readlink()).startswith("socket:"):
        return None
    own = os.dup(int(descriptor.name))  # the descriptor may be closed and its number reused at any moment
    try:
        return socket.socket(fileno=own)
    except OSError:
        os.close(own)
        return None


def _seen(handle: socket.socket, peers: frozenset[Address], begun: Mapping[int, Address]) -> TcpConnection | None:
    if handle.family not in {socket.AF_INET, socket.AF_INET6}:
        return None
    inode = os.fstat(handle.fileno()).st_ino
    if inode in begun:
        return TcpConnection(inode, begun[inode], 0, None)
    host, port = handle.getpeername()[:2]
    peer = (host.removeprefix("::ffff:"), port)
    if peer not in peers:
        return None
    told = handle.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _COUNT.size)
    sent, received = _AGES.unpack_from(told)
    fresh = len(told) >= _COUNT.size and not _COUNT.unpack_from(told)[0]
    return TcpConnection(inode, peer, sent / 1000, received / 1000, fresh)


def _begun(peers: frozenset[Address]) -> dict[int, Address]:
    """Connections to these peers that have no answer yet, by inode; of all processes in this network namespace."""
    found = {}
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/thread-self/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                if fields[3] == _SYN_SENT and (peer := _address(family, fields[2])) in peers:
                    found[int(fields[9])] = peer
    return found


def _address(family: int, shown: str) -> Address:
    """An address, from its form in the system's table: words of 32 bits in this machine's byte order, and the port."""
    host, _, port = shown.partition(":")
    words = b"".join(int(host[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(host), 8))
    return socket.inet_ntop(family, words).removeprefix("::ffff:"), int(port, 16)
