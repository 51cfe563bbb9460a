"""
Free ports for servers that a test starts.

Outside the range from which the system gives connections their own: between the look and the server's start it may give
such a port to anybody's.
"""

import contextlib
import random
import socket
from pathlib import Path

_FIRST = 15_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_CHOICE = random.SystemRandom()
"""Not the tests' own random numbers: these are the same in each process."""


def free_ports(count: int) -> list[int]:
    """As many different ones."""
    last = int(_RANGE.read_text(encoding="ascii").split()[0])
    with contextlib.ExitStack() as stack:
        found: list[int] = []
        while len(found) < count:
            probe = stack.enter_context(socket.socket())
            port = _CHOICE.randrange(_FIRST, last)
            with contextlib.suppress(OSError):
                probe.bind(("", port))
                found.append(port)
        return found


def free_port() -> int:
    """One."""
    return free_ports(1)[0]
