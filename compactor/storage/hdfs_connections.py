"""
The connections of this process to NameNodes, and how long each has been waiting for an answer, as the system knows it; hdfs-native doesn't say.

What goes to a NameNode is known by the address at its other end; where no packet comes back there is none yet, and the system's table of connections is asked.
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
"""Of `struct tcp_info`: milliseconds since data was last sent, and since data last came."""

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Connection:
    """
    One of this process, as it was seen.

    Attributes:
        inode: which one it is, as long as it is open.
        peer: of the NameNode, by number.
        sent: seconds since it last sent something.
        received: seconds since anything came; None: it isn't made yet.
    """

    inode: int
    peer: Address
    sent: float
    received: float | None


class Silences:
    """
    Which connections have waited too long: nothing came since they sent something, for so many seconds.

    A NameNode that was silent for so long gets less time on the next connection: the client makes one at once. One that answers in the same tick of the system's clock
    can't be told from one that doesn't: its connection is taken for one that waits, and may be lost once nobody has needed it for that long.

    Args:
        seconds: the limit.
        again: the limit after one was silent.
    """

    def __init__(self, seconds: float, again: float) -> None:
        self._seconds: Final = seconds
        self._again: Final = min(again, seconds)
        self._since: dict[int, float] = {}
        self._silent: dict[Address, float] = {}

    def overdue(self, seen: Iterable[Connection], now: float) -> frozenset[int]:
        """
        Inodes of those that have waited too long.

        Args:
            seen: all there are now.
            now: of a clock that never goes back, in seconds.
        """
        since = {one.inode: began for one in seen if (began := self._began(one, now)) is not None}
        self._since = since
        self._silent = {peer: until for peer, until in self._silent.items() if now < until}
        late = [one for one in seen if one.inode in since and now - since[one.inode] >= (self._again if one.peer in self._silent else self._seconds)]
        self._silent = {one.peer: now + self._seconds for one in late} | self._silent
        return frozenset(one.inode for one in late)

    @property
    def any(self) -> bool:
        """Whether a NameNode was silent a short time ago."""
        return bool(self._silent)

    def forget(self) -> None:
        """What was seen, for nothing is looked at any more: since when a connection waits is known only of one that is seen again and again."""
        self._since = {}

    def _began(self, one: Connection, now: float) -> float | None:
        """Since when it waits; None: it doesn't."""
        if one.received is None:
            return self._since.get(one.inode, now)
        if one.sent > one.received:
            self._silent.pop(one.peer, None)
            return None
        return max(self._since.get(one.inode, now - one.sent), now - one.received)


def resolved(names: Iterable[Address]) -> frozenset[Address]:
    """The same by number; what can't be resolved now is left out."""
    found: set[Address] = set()
    for host, port in names:
        with contextlib.suppress(OSError, UnicodeError):  # the latter: what no host can be called
            found.update((str(info[4][0]), port) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    return frozenset(found)


@contextlib.contextmanager
def connections(peers: frozenset[Address]) -> Iterator[Mapping[int, tuple[Connection, socket.socket]]]:
    """Every connection of this process to one of these, made or on its way, by inode. Its socket is a second handle of it: whoever owns it doesn't lose it."""
    begun = _begun(peers)
    with contextlib.ExitStack() as opened:
        found = {}
        for descriptor in tuple(Path("/proc/self/fd").iterdir()):
            with contextlib.suppress(OSError):
                if (handle := _handle(descriptor)) is not None:
                    opened.enter_context(handle)
                    if (seen := _seen(handle, peers, begun)) is not None:
                        found[seen.inode] = (seen, handle)
        yield found


def _handle(descriptor: Path) -> socket.socket | None:
    """Of a socket; None: it is something else."""
    if not str(descriptor.readlink()).startswith("socket:"):
        return None
    own = os.dup(int(descriptor.name))  # it may be closed, and its number be another's, at any moment
    try:
        return socket.socket(fileno=own)
    except OSError:
        os.close(own)
        return None


def _seen(handle: socket.socket, peers: frozenset[Address], begun: Mapping[int, Address]) -> Connection | None:
    if handle.family not in {socket.AF_INET, socket.AF_INET6}:
        return None
    inode = os.fstat(handle.fileno()).st_ino
    if inode in begun:
        return Connection(inode, begun[inode], 0, None)
    host, port = handle.getpeername()[:2]
    peer = (host.removeprefix("::ffff:"), port)
    if peer not in peers:
        return None
    sent, received = _AGES.unpack(handle.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _AGES.size))
    return Connection(inode, peer, sent / 1000, received / 1000)


def _begun(peers: frozenset[Address]) -> dict[int, Address]:
    """Connections to these whose other end hasn't answered yet, by inode; anybody's in this network."""
    found = {}
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/thread-self/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
                fields = line.split()
                if fields[3] == _SYN_SENT and (peer := _address(family, fields[2])) in peers:
                    found[int(fields[9])] = peer
    return found


def _address(family: int, shown: str) -> Address:
    """From how the table shows it: words of 32 bits in this machine's order of bytes, and the port."""
    host, _, port = shown.partition(":")
    words = b"".join(int(host[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(host), 8))
    return socket.inet_ntop(family, words).removeprefix("::ffff:"), int(port, 16)
