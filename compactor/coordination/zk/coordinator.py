"""
Coordination by ZooKeeper: keeps the session, and the memberships and leaderships that depend on it.

`election`, `members` and `values` describe the nodes below the root; `connection` makes and keeps the connection.

A client learns late that its session is over: after a pause it still believes its old state. So a leadership counts
only for one session time-out after the latest answer that confirmed it, measured from the moment of the request: before
that the server can't have given it to another daemon.
"""

import contextlib
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from kazoo.exceptions import AuthFailedError, NoAuthError, SessionClosedRequireSaslError

from compactor.coordination.base import NOTHING_NEW, Changed, Coordinator, elapsed
from compactor.coordination.model import Connection, Member, Role, SeenMember, Term, Value
from compactor.coordination.zk.connection import Link
from compactor.coordination.zk.election import LEADERS, stand
from compactor.coordination.zk.members import MEMBERS, announce, members
from compactor.coordination.zk.nodes import NO_ANSWER, ONLY_SASL, Nodes
from compactor.coordination.zk.values import CONTROL, read, versions, write
from compactor.errors import CompactorError, OwnershipLostError, SettingsError, UnreachableError
from compactor.log import get_logger
from compactor.settings import ZooKeeper

_log = get_logger(__name__)
_SOON = 5.0
"""Seconds after which a starting member that isn't connected logs why."""
_AWAY = 1.0
"""Seconds that suffice to end a link that isn't connected."""


class ZooKeeperCoordinator(Coordinator):
    """
    Coordinates through nodes below one root in ZooKeeper.

    Args:
        settings: hosts, root, session time-out, credentials, TLS.
        heartbeat_seconds: longest time between two writes of a member's record, and between two checks of watched keys.

    Raises:
        SettingsError: the password can't be read, or a package that `auth` needs isn't installed.
    """

    by = "zookeeper"

    def __init__(self, settings: ZooKeeper, heartbeat_seconds: float) -> None:
        super().__init__()
        self._settings = settings
        self._root = settings.root
        self._seconds = heartbeat_seconds
        self._wake = threading.Event()
        self._link = Link(settings, self._on_state)
        self._client = self._link.client
        self._nodes = Nodes(self._link, settings, self._wake.set)
        self._announced: tuple[float, Member | None] = (0.0, None)
        """When this daemon's record was written last, and what."""
        self._state = Connection.LOST
        self._heard: float | None = None
        """When the latest answered request was sent."""
        self._roles: set[Role] = set()
        self._terms: dict[Role, int] = {}
        self._stepping_back: set[Role] = set()
        self._session: object = None
        self._changed: Changed = lambda: None
        self._told: object = (Connection.LOST, ())
        self._troubled = ""
        self._reached = False
        self._closing = False
        self._thread: threading.Thread | None = None

    # Connecting, joining, leaving

    def connect(self) -> None:
        if self._client.connected:
            return
        began, limit = elapsed(), self._settings.session_timeout_seconds
        self._link.begin()
        try:
            if self._link.wait(limit):
                with contextlib.suppress(NoAuthError):  # reported when a value is read or written
                    # the servers check credentials only after the connection is made
                    self._client.exists_async(self._root).get(timeout=max(_AWAY, limit - (elapsed() - began)))
                return
        except SessionClosedRequireSaslError:
            self._link.end(_AWAY)
            raise SettingsError(ONLY_SASL) from None
        except (*NO_ANSWER, AuthFailedError):
            pass  # raised below, with the cause that the link knows
        trouble, refused = self._link.trouble, self._link.refused
        self._link.end(_AWAY)
        if refused:
            raise SettingsError(f"zookeeper.{'auth' if self._settings.auth == 'kerberos' else 'user'}: {trouble}")
        raise UnreachableError(f"ZooKeeper {self._settings.hosts} can't be reached: {trouble}")

    def join(self, me: Member, candidate_for: Iterable[Role], changed: Changed = lambda: None) -> None:
        self._me, self._roles, self._changed = me, set(candidate_for), changed
        _log.info("zookeeper_connection.started", hosts=self._settings.hosts, root=self._root)
        self._link.begin()
        self._thread = threading.Thread(target=self._run, name="election", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing = True
        self._wake.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(2 * self._link.timeout)
        with self._lock:  # before the servers let another daemon lead, which this client learns later
            self._terms.clear()
        self._link.end(self._link.timeout if self._client.connected else _AWAY)

    @property
    def connection(self) -> Connection:
        with self._lock:
            if self._state is not Connection.LOST and self._me is not None and not self._fresh():
                return Connection.LOST
            return self._state

    @property
    def reached(self) -> bool:
        return self._reached

    def why_not_start(self) -> str | None:
        if (connection := self.connection) is Connection.CONNECTED:
            return None
        if not self._reached:
            return f"{NOTHING_NEW}: {self._troubled or f'ZooKeeper {self._settings.hosts} is not reached yet'}"
        return f"{NOTHING_NEW}: {self._troubled or f'the connection to {self.by} is {connection.value}'}"

    # Leadership

    def lead(self, role: Role) -> Term | None:
        with self._lock:
            epoch = self._terms.get(role)
            if epoch is not None and self._fresh() and self._state is Connection.CONNECTED:
                return Term(role, epoch, lambda: self._check(role, epoch))
        self._wake.set()
        return None

    def leading(self) -> frozenset[Role]:
        with self._lock:
            return frozenset(self._terms) if self._fresh() and self._state is not Connection.LOST else frozenset()

    def resign(self, role: Role) -> None:
        with self._lock:
            self._roles.discard(role)
            self._terms.pop(role, None)
        self._wake.set()

    def step_back(self, role: Role) -> None:
        with self._lock:
            if self._terms.pop(role, None) is not None:
                self._stepping_back.add(role)
        self._wake.set()

    def _check(self, role: Role, epoch: int) -> None:
        with self._lock:
            if self._state is not Connection.LOST and self._terms.get(role) == epoch and self._fresh():
                return
        raise OwnershipLostError(f"this daemon isn't the leader for the {role} any more, or can't tell: it lets go")

    def _fresh(self) -> bool:
        return self._heard is not None and elapsed() - self._heard < self._link.timeout

    # The thread

    def _on_state(self, state: Connection) -> None:
        """Note the new state; called in kazoo's thread, so it must not block."""
        with self._lock:
            self._state = state
            if state is Connection.LOST:
                self._terms.clear()
                self._heard = None
        self._wake.set()

    def _run(self) -> None:
        began, again = elapsed(), 0.0
        while not self._closing:
            try:
                if (over := self._link.over) is not None:
                    if elapsed() >= again:
                        again = elapsed() + self._seconds
                        self._complain(over)
                        self._link.begin()
                elif self._client.connected:
                    self._confirm()
                    self._reached, self._troubled = True, ""
            except AuthFailedError:
                self._complain(self._link.trouble)
            except SessionClosedRequireSaslError:
                self._complain(ONLY_SASL)
            except NO_ANSWER as error:
                _log.debug("zookeeper_call.failed", error=type(error).__name__)
            except NoAuthError:
                self._complain(f"ZooKeeper doesn't let us write below {self._root}: it belongs to another user")
            except Exception as error:
                self._complain(f"{type(error).__name__}: {error}")
            if not (self._reached or self._troubled) and elapsed() - began >= min(_SOON, self._link.timeout):
                self._complain(f"ZooKeeper {self._settings.hosts} can't be reached: {self._link.trouble}")
            self._tell()
            self._wake.wait(min(self._seconds, self._link.timeout / 4))
            self._wake.clear()

    def _complain(self, why: str) -> None:
        if why != self._troubled:
            _log.error("candidacy.not_renewed", error=why, detail="the daemon goes on trying to take part in elections")
        self._troubled = why

    def _tell(self) -> None:
        """Log a change of the connection or of leadership, and notify the daemon."""
        with self._lock:
            leading = tuple(sorted(self._terms)) if self._fresh() else tuple[Role, ...]()
            now = (self.connection, leading)
        if now != self._told:
            facts = {"connection": now[0].value, "leads": [role.value for role in leading]}
            if now[0] is Connection.CONNECTED:
                _log.info("zookeeper_connection.changed", **facts)
            else:
                _log.warning("zookeeper_connection.changed", **facts, error=self._link.trouble)
            self._told = now
            self._changed()

    def _confirm(self) -> None:
        """Renew the member record and the candidatures in the present session, and learn which roles are led here."""
        nodes, asked = self._nodes, elapsed()
        session = self._client.client_id
        # The leader of the servers must answer: a server that is cut off from it goes on for a while, with sessions
        # that the other servers have ended.
        nodes.answer(self._client.sync_async(self._root))
        if session != self._session:
            for path in (MEMBERS, CONTROL, *(f"{LEADERS}/{role}" for role in Role)):
                nodes.answer(self._client.ensure_path_async(nodes.path(path)))
            with self._lock:
                self._terms.clear()
            self._announced = (0.0, None)  # the record went away with the old session
            self._session = session
        terms = {role: epoch for role in Role if (epoch := self._stand(role)) is not None}
        with self._lock:
            me = self._me
        assert me is not None
        began = elapsed()
        if me != self._announced[1] or began - self._announced[0] >= self._seconds:
            announce(nodes, me, self._seconds)
            self._announced = (began, me)
        with self._lock:
            if self._client.client_id == session and self._state is Connection.CONNECTED and not self._closing:
                self._terms = {
                    role: epoch
                    for role, epoch in terms.items()
                    if role in self._roles and role not in self._stepping_back
                }
                self._heard = asked
        self._call_watchers(lambda keys: versions(nodes, keys))

    def _stand(self, role: Role) -> int | None:
        """Be a candidate for a role, or withdraw; the epoch if this daemon is first in line, else None."""
        with self._lock:
            me, candidate, again = self._me, role in self._roles, role in self._stepping_back
            self._stepping_back.discard(role)
        assert me is not None
        try:
            return stand(self._nodes, role, me, candidate=candidate, again=again)
        except Exception:
            if again:  # the old place may still be held
                with self._lock:
                    self._stepping_back.add(role)
            raise

    # Members

    def members(self) -> list[SeenMember]:
        with self._nodes.answering():
            return members(self._nodes)

    def present(self) -> frozenset[str] | None:
        try:
            with self._nodes.answering():
                return frozenset(self._nodes.children(MEMBERS))
        except CompactorError:
            return None

    # Control state

    def read(self, key: str) -> Value | None:
        return read(self._nodes, key)

    def write(self, key: str, data: Mapping[str, Any], version: int | None) -> Value:
        return write(self._nodes, key, data, version)

    def watch(self, key: str, changed: Changed) -> None:
        super().watch(key, changed)
        self._wake.set()
