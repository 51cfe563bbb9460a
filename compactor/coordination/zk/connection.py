"""
The connection to ZooKeeper: starts it, waits for it, starts it again after kazoo has given up for good, ends it.

Knows kazoo's client and its states; knows nothing of the requests.
"""

import contextlib
import threading
from collections.abc import Callable
from typing import Any

from kazoo.protocol.states import KazooState, KeeperState

from compactor.coordination.base import elapsed
from compactor.coordination.model import Connection
from compactor.coordination.zk.client import Trouble, make_client
from compactor.settings import ZooKeeper

_STATES = {
    KazooState.CONNECTED: Connection.CONNECTED,
    KazooState.SUSPENDED: Connection.SUSPENDED,
    KazooState.LOST: Connection.LOST,
}
_SHORT = 1.0
"""Seconds that a request waits at least for a connection, even if there has been none for long."""


class Link:
    """
    The connection of one kazoo client. Safe in any number of threads.

    Args:
        changed: called, from kazoo's thread, when the state changed; must not block.

    Raises:
        SettingsError: the password can't be read, or a package that `auth` needs isn't installed.
    """

    def __init__(self, settings: ZooKeeper, changed: Callable[[Connection], None]) -> None:
        self._settings = settings
        self._changed = changed
        self._trouble = Trouble()
        self._moved = threading.Condition()
        self._begun = False
        self._connected = False
        self._over: str | None = None
        self._refused = False
        self._granted: float | None = None
        self._away_since: float | None = None
        self.client = make_client(settings, self._trouble, self._on_broken)
        self.client.add_listener(self._on_state)
        connection = self.client._connection  # noqa: SLF001 - kazoo hides the granted time-out
        connection._connect = self._noting_what_is_granted(connection._connect)  # noqa: SLF001

    # Beginning and ending

    def begin(self) -> None:
        """
        Start connecting, in kazoo's threads, unless that has started already.

        Kazoo tries until it is connected; once it has given up, `over` tells why.
        """
        with self._moved:
            if self._begun and self._over is None:
                return
            self._begun, self._over, self._refused = True, None, False
            self._away()
        try:
            self.client.start_async()  # must not follow `stop`, which would close the next connection
        except Exception as error:
            self._on_broken(error)

    def wait(self, seconds: float) -> bool:
        """Wait for a connection, and tell whether there is one; returns at once when no attempt is being made."""
        with self._moved:
            self._moved.wait_for(lambda: self._connected or self._over is not None or not self._begun, seconds)
            return self._connected

    def end(self, seconds: float) -> None:
        """End the session; after `seconds` that is left to a thread of its own, and to the session's time-out."""
        with self._moved:
            self._begun = False
        ending = threading.Thread(target=self._end, name="zookeeper-end", daemon=True)
        ending.start()
        ending.join(seconds)

    def _end(self) -> None:
        for step in (self.client.stop, self.client.close):
            with contextlib.suppress(Exception):
                step()

    # State

    @property
    def over(self) -> str | None:
        """Why kazoo has given up, so that only `begin` helps; None: kazoo hasn't given up."""
        with self._moved:
            return self._over

    @property
    def refused(self) -> bool:
        """Whether kazoo has given up because the servers refused its credentials."""
        with self._moved:
            return self._refused

    @property
    def trouble(self) -> str:
        """Why there is no connection, as far as known."""
        return self.over or self._trouble.latest or ("no answer" if self._begun else "not connected yet")

    @property
    def timeout(self) -> float:
        """The session time-out in seconds: the requested one, or a shorter one that the server granted."""
        asked = self._settings.session_timeout_seconds
        return asked if self._granted is None else min(asked, self._granted)

    @property
    def patience(self) -> float:
        """
        Seconds that a request should wait for a connection now.

        That is the rest of the session time-out, counted from the loss of the connection, but at least one second. A
        caller that sends several requests in a row waits for one time-out, not for several.
        """
        since = self._away_since
        return max(_SHORT, self.timeout - (0.0 if since is None else elapsed() - since))

    @property
    def _refusal(self) -> str:
        if self._settings.auth == "kerberos":
            no_login = self._trouble.no_login
            refused = f"can't log in to ZooKeeper by Kerberos ({no_login})" if no_login else "ZooKeeper refused us"
            return f"{refused}: the process needs a valid ticket in its cache (KRB5CCNAME), and zookeeper.hosts must name hosts as the servers' principals do"
        return "ZooKeeper refused our user or password"

    # From kazoo's threads

    def _on_state(self, state: str) -> None:
        # kazoo doesn't try again, though a valid ticket or password may come later
        if self.client.client_state is KeeperState.AUTH_FAILED:
            with self._moved:
                self._over, self._refused = self._refusal, True
        self._changed(_STATES[state])
        with self._moved:
            self._connected = state == KazooState.CONNECTED
            if self._connected:
                self._trouble.latest = ""
            self._away()
            self._moved.notify_all()

    def _on_broken(self, error: Exception) -> None:
        with self._moved:
            self._connected, self._over = False, f"{type(error).__name__}: {error}"
            self._away()
            self._moved.notify_all()
        self._changed(Connection.LOST)

    def _away(self) -> None:
        """Note when the connection was lost, or that there is one."""
        if self._connected:
            self._away_since = None
        elif self._away_since is None:
            self._away_since = elapsed()

    def _noting_what_is_granted(self, connect: Callable[..., Any]) -> Callable[..., Any]:
        """
        Wrap kazoo's connecting so that it notes the granted session time-out before the first answer of the session.

        Kazoo returns two thirds of the time-out, in milliseconds, as the read time-out.
        """

        def connect_and_note(*arguments: Any) -> Any:
            reading, connecting = connect(*arguments)
            self._granted = reading * 1.5 / 1000
            return reading, connecting

        return connect_and_note
