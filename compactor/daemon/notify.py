"""
Tells the service manager (systemd, or another one that sets NOTIFY_SOCKET) how the daemon is: started, reloading,
stopping, alive, and one sentence of status.

Knows the protocol of sd_notify(3): one datagram of `NAME=value` lines. Knows nothing of roles. Without NOTIFY_SOCKET
the functions here do nothing. A message that can't be sent doesn't stop the daemon: the first failure is logged, and
the manager's own time-outs do the rest.
"""

import os
import socket
import time
from collections.abc import MutableMapping, Sequence
from typing import Self

from compactor.log import get_logger
from compactor.words import one_line

_log = get_logger(__name__)
_STATUS_LENGTH = 400
_MICROSECONDS = 1_000_000


class ServiceManager:
    """
    The service manager that started this process.

    Args:
        address: of the manager's datagram socket: a path, or `@name` for the abstract namespace; None: there is no
            manager.
        watchdog_seconds: the longest time that the manager allows between two signs of life; None: it wants none.
    """

    def __init__(self, address: str | None, watchdog_seconds: float | None = None) -> None:
        self._address = f"\0{address[1:]}" if address is not None and address.startswith("@") else address
        self._pause = None if watchdog_seconds is None else watchdog_seconds / 3
        self._alive_at: float | None = None
        self._status = ""
        self._complained = False

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str]) -> Self:
        """
        The manager that NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID describe.

        The variables are removed from `environment`: they are meant for this process and not for its child, Spark's
        JVM.
        """
        address, interval, process = (
            environment.pop(name, None) for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
        )
        if not address:
            return cls(None)
        ours = process in {None, str(os.getpid())}
        return cls(
            address,
            int(interval) / _MICROSECONDS
            if ours and interval is not None and interval.isdecimal() and int(interval)
            else None,
        )

    def ready(self) -> None:
        """Report that the daemon has started, or has finished a reload."""
        self._send("READY=1")

    def reloading(self) -> None:
        """
        Report that a reload begins; `ready` must follow.

        The time that is sent lets the manager tell this reload from an earlier one.
        """
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self, seconds: float) -> None:
        """Report that the daemon stops and may take `seconds`, even if the unit's own limit is shorter."""
        self._send("STOPPING=1", f"EXTEND_TIMEOUT_USEC={round(seconds * _MICROSECONDS)}", "STATUS=draining")

    def report(self, troubles: Sequence[str], status: str) -> None:
        """
        Send a sign of life when one is due, and the status when it changed. To be called often.

        With troubles the daemon sends no signs of life, so that the manager restarts it after the unit's WatchdogSec;
        the status then shows the troubles.
        """
        lines = []
        now = time.monotonic()
        if self._pause is not None and not troubles and (self._alive_at is None or now - self._alive_at >= self._pause):
            self._alive_at = now
            lines.append("WATCHDOG=1")
        status = one_line("; ".join(troubles) or status)[:_STATUS_LENGTH]
        if status != self._status:
            self._status = status
            lines.append(f"STATUS={status}")
        if lines:
            self._send(*lines)

    def _send(self, *lines: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as there:
                there.settimeout(1)
                there.sendto("\n".join(lines).encode(), self._address)
        except (OSError, ValueError) as error:
            if not self._complained:
                self._complained = True
                _log.warning("notification.failed", error=str(error), notification=lines[0])
