"""
The connection to ZooKeeper: begun, waited for, begun again where kazoo gives up for good, ended.

Knows kazoo's client and its states; knows nothing of what is asked.
"""

import contextlib
import threading
from collections.abc import Callable
from typing import Any

from kazoo.protocol.states import KazooState, KeeperState

from compactor.coordination.client import Trouble, make_client
from compactor.coordination.clock import elapsed
from compactor.coordination.model import Connection
from compactor.settings import ZooKeeper

_STATES = {KazooState.CONNECTED: Connection.CONNECTED, KazooState.SUSPENDED: Connection.SUSPENDED, KazooState.LOST: Connection.LOST}
_SHORT = 1.0
"""Seconds that a question waits for a connection that has been away for long."""


class Link:
    """
    One client of kazoo's. Safe in any number of threads.

    Args:
        changed: called, from kazoo's thread, when the state changed; must not block.

    Raises:
        SettingsError: the password can't be read, or what `auth` needs isn't installed.
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
        connection = self.client._connection  # noqa: SLF001 - kazoo shows nowhere what the server grants
        connection._connect = self._noting_what_is_granted(connection._connect)  # noqa: SLF001

    # Beginning and ending

    def begin(self) -> None:
        """Connect, in threads of kazoo's, unless that goes on already; it goes on trying until it is connected, or `over` tells why it doesn't."""
        with self._moved:
            if self._begun and self._over is None:
                return
            self._begun, self._over, self._refused = True, None, False
            self._away()
        try:
            self.client.start_async()  # never after stop, which would leave an order to close for the next connection
        except Exception as error:
            self._on_broken(error)

    def wait(self, seconds: float) -> bool:
        """Whether there is a connection, at most so much later; at once when nobody tries to make one."""
        with self._moved:
            self._moved.wait_for(lambda: self._connected or self._over is not None or not self._begun, seconds)
            return self._connected

    def end(self, seconds: float) -> None:
        """Take the session back. What takes longer is left to a thread of its own, and to the session's time-out."""
        with self._moved:
            self._begun = False
        ending = threading.Thread(target=self._end, name="zookeeper-end", daemon=True)
        ending.start()
        ending.join(seconds)

    def _end(self) -> None:
        for step in (self.client.stop, self.client.close):
            with contextlib.suppress(Exception):
                step()

    # How it stands

    @property
    def over(self) -> str | None:
        """Why kazoo has given up, so that only `begin` helps; None: it hasn't."""
        with self._moved:
            return self._over

    @property
    def refused(self) -> bool:
        """Whether it gave up because the servers don't let us in."""
        with self._moved:
            return self._refused

    @property
    def trouble(self) -> str:
        """Why there is no connection, as far as that is known."""
        return self.over or self._trouble.latest or ("no answer" if self._begun else "not connected yet")

    @property
    def timeout(self) -> float:
        """The session time-out that the server granted, where it is shorter than what was asked for; seconds."""
        asked = self._settings.session_timeout_seconds
        return asked if self._granted is None else min(asked, self._granted)

    @property
    def patience(self) -> float:
        """
        How long a connection is worth waiting for now, in seconds: what is left of the session time-out since there was none, but a little in any case. Whoever asks
        several things in a row waits for one time-out, not for several.
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
        if self.client.client_state is KeeperState.AUTH_FAILED:  # a ticket or a password may come, but kazoo doesn't look again
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
        """Note since when there is no connection."""
        if self._connected:
            self._away_since = None
        elif self._away_since is None:
            self._away_since = elapsed()

    def _noting_what_is_granted(self, connect: Callable[..., Any]) -> Callable[..., Any]:
        """Before anything is answered in the session: kazoo hands out two thirds of the time-out, in milliseconds, for reading."""

        def connect_and_note(*arguments: Any) -> Any:
            reading, connecting = connect(*arguments)
            self._granted = reading * 1.5 / 1000
            return reading, connecting

        return connect_and_note
