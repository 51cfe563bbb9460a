"""
Coordination by ZooKeeper.

    <root>/members/<instance>            ephemeral: a member's record
    <root>/leaders/<role>/<instance>-N   ephemeral, numbered: the lowest number leads; its creation transaction is the epoch
    <root>/control/<key>                 control state, compare-and-set by version

A client learns late that its session is over: after a pause it still believes what it knew before. So leadership counts only for the session time-out since it was
last confirmed by an answer, measured from when the question was asked; the server can't have given it to somebody else before that.
"""

import contextlib
import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState, KeeperState

from compactor.coordination.base import Changed, Coordinator
from compactor.coordination.client import make_client
from compactor.coordination.clock import elapsed
from compactor.coordination.model import Activity, ConflictError, Connection, Member, Role, SeenMember, Term, Value
from compactor.errors import CompactorError, OutcomeUnknownError, OwnershipLostError, SettingsError, UnreachableError
from compactor.log import get_logger
from compactor.settings import ZooKeeper

_log = get_logger(__name__)
_STATES = {KazooState.CONNECTED: Connection.CONNECTED, KazooState.SUSPENDED: Connection.SUSPENDED, KazooState.LOST: Connection.LOST}
_NO_ANSWER = (ConnectionLoss, OperationTimeoutError, SessionExpiredError, KazooTimeoutError)


class ZooKeeperCoordinator(Coordinator):
    """
    Args:
        settings: hosts, root, session time-out, credentials, TLS.
        heartbeat_seconds: how often a member's record is written, and watched keys looked at, at least.

    Raises:
        SettingsError: the password can't be read, or what `auth` needs isn't installed.
    """

    by = "zookeeper"

    def __init__(self, settings: ZooKeeper, heartbeat_seconds: float) -> None:
        self._settings = settings
        self._root = settings.root
        self._seconds = heartbeat_seconds
        self._client: KazooClient = make_client(settings)
        self._client.add_listener(self._on_state)
        self._lock = threading.RLock()
        self._state = Connection.LOST
        self._heard: float | None = None
        """When the question was asked that was answered last."""
        self._me: Member | None = None
        self._roles: set[Role] = set()
        self._terms: dict[Role, int] = {}
        self._stepping_back: set[Role] = set()
        self._session: object = None
        self._announced: tuple[float, object] = (0.0, None)
        self._watched: dict[str, list[Changed]] = {}
        self._versions: dict[str, int | None] = {}
        self._changed: Changed = lambda: None
        self._told: object = (Connection.LOST, ())
        self._troubled = ""
        self._wake = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None

    # Coming and going

    def connect(self) -> None:
        if self._client.connected:
            return
        try:
            self._client.start(timeout=self._settings.session_timeout_seconds)
            with contextlib.suppress(NoAuthError):  # told where it matters
                self._answer(self._client.exists_async(self._root))  # credentials are looked at after the connection
        except (*_NO_ANSWER, AuthFailedError) as error:
            refused = isinstance(error, AuthFailedError) or self._client.client_state is KeeperState.AUTH_FAILED
            self._end_client()
            if refused:
                raise SettingsError("zookeeper.user: ZooKeeper refused our user or password") from None
            raise UnreachableError(f"ZooKeeper {self._settings.hosts} can't be reached, or doesn't let us in") from None

    def join(self, me: Member, candidate_for: Iterable[Role], changed: Changed = lambda: None) -> None:
        self._me, self._roles, self._changed = me, set(candidate_for), changed
        self._client.start_async()
        self._thread = threading.Thread(target=self._run, name="election", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing = True
        self._wake.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(2 * self._timeout)
        self._end_client()

    def _end_client(self) -> None:
        with contextlib.suppress(Exception):  # whatever is left, the session times out
            self._client.stop()
            self._client.close()

    @property
    def connection(self) -> Connection:
        with self._lock:
            if self._state is not Connection.LOST and self._me is not None and not self._fresh():
                return Connection.LOST
            return self._state

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
        return self._heard is not None and elapsed() - self._heard < self._timeout

    @property
    def _timeout(self) -> float:
        """The session time-out that the server granted, which may be shorter than what was asked for."""
        return float(min(self._settings.session_timeout_seconds, self._client._session_timeout / 1000))  # noqa: SLF001 - kazoo shows it nowhere else

    # The thread

    def _on_state(self, state: str) -> None:
        """From kazoo's own thread: notes only."""
        with self._lock:
            self._state = _STATES[state]
            if self._state is Connection.LOST:
                self._terms.clear()
                self._heard = None
        self._wake.set()

    def _run(self) -> None:
        while not self._closing:
            try:
                if self._client.client_state is KeeperState.AUTH_FAILED:
                    self._complain("ZooKeeper refused our user or password")
                    self._client.restart()
                elif self._client.connected:
                    self._confirm()
                    self._troubled = ""
            except _NO_ANSWER as error:
                _log.debug("no answer from ZooKeeper", error=type(error).__name__)
            except NoAuthError:
                self._complain(f"ZooKeeper doesn't let us write below {self._root}: it belongs to another user")
            except Exception as error:
                self._complain(f"{type(error).__name__}: {error}")
            self._tell()
            self._wake.wait(min(self._seconds, self._timeout / 4))
            self._wake.clear()

    def _complain(self, why: str) -> None:
        if why != self._troubled:
            _log.error("can't take part in elections", error=why)
        self._troubled = why

    def _tell(self) -> None:
        """Say it to the log and to the daemon when something changed."""
        with self._lock:
            leading = tuple(sorted(self._terms)) if self._fresh() else tuple[Role, ...]()
            now = (self.connection, leading)
        if now != self._told:
            _log.info("ZooKeeper", connection=now[0].value, leads=[role.value for role in leading])
            self._told = now
            self._changed()

    def _confirm(self) -> None:
        """Be registered and a candidate in the present session, and see who leads."""
        asked = elapsed()
        session = self._client.client_id
        if session != self._session:
            for path in ("members", "control", *(f"leaders/{role}" for role in Role)):
                self._answer(self._client.ensure_path_async(self._path(path)))
            with self._lock:
                self._terms.clear()
            self._announced = (0.0, None)
            self._session = session
        terms = {role: epoch for role in Role if (epoch := self._candidacy(role)) is not None}
        self._announce()
        with self._lock:
            if self._client.client_id == session and self._state is Connection.CONNECTED:
                self._terms = {role: epoch for role, epoch in terms.items() if role in self._roles}
                self._heard = asked
        self._look_at_watched()

    def _candidacy(self, role: Role) -> int | None:
        """Stand for a role, or no longer; the epoch when we are first."""
        assert self._me is not None
        place = self._path("leaders", role)
        children = self._answer(self._client.get_children_async(place, watch=self._on_event))
        with self._lock:
            again = role in self._stepping_back
            self._stepping_back.discard(role)
        mine = None
        for name in (name for name in children if name.startswith(f"{self._me.instance}-")):
            stat = self._answer(self._client.exists_async(f"{place}/{name}"))
            if stat is not None and role in self._roles and mine is None and not again and stat.ephemeralOwner == self._session_id:
                mine = (name, stat.czxid)
            elif stat is not None:  # of a session that is over, made twice after an answer was lost, or others shall go first
                self._remove(f"{place}/{name}")
        if role not in self._roles:
            return None
        if mine is None:
            made = self._answer(self._client.create_async(f"{place}/{self._me.instance}-", self._me.host.encode(), ephemeral=True, sequence=True))
            stat = self._answer(self._client.exists_async(made))
            children = self._answer(self._client.get_children_async(place, watch=self._on_event))
            if stat is None:
                return None
            mine = (made.rpartition("/")[2], stat.czxid)
        return mine[1] if mine[0] == _first(children) else None

    def _announce(self) -> None:
        """Write our record, when it is due or has changed."""
        assert self._me is not None
        with self._lock:
            me = self._me
        if me == self._announced[1] and elapsed() - self._announced[0] < self._seconds:
            return
        path, data = self._path("members", me.instance), json.dumps({**me.record(), "heartbeat_seconds": self._seconds}).encode()
        began = elapsed()
        stat = self._answer(self._client.exists_async(path))
        if stat is not None and stat.ephemeralOwner != self._session_id:
            self._remove(path)
            stat = None
        if stat is None:
            self._answer(self._client.create_async(path, data, ephemeral=True))
        else:
            self._answer(self._client.set_async(path, data))
        self._announced = (began, me)

    @property
    def _session_id(self) -> int:
        client_id = self._client.client_id
        return int(client_id[0]) if client_id else 0

    def _remove(self, path: str) -> None:
        with contextlib.suppress(NoNodeError):
            self._answer(self._client.delete_async(path))

    def _on_event(self, _: object) -> None:
        self._wake.set()

    # Members

    def report(self, doing: Iterable[Activity]) -> None:
        with self._lock:
            if self._me is not None:
                self._me = self._me.now_doing(doing)

    def members(self) -> list[SeenMember]:
        with self._answering():
            leading: dict[str, list[Role]] = {}
            for role in Role:
                if (first := _first(self._children("leaders", role))) is not None:
                    leading.setdefault(first.rpartition("-")[0], []).append(role)
            found = []
            for name in self._children("members"):
                try:
                    data, stat = self._answer(self._client.get_async(self._path("members", name)))
                except NoNodeError:
                    continue
                found.append((Member.of({**_loaded(data), "instance": name}), int(stat.mtime)))
            now = self._now_ms() or max((heard for _, heard in found), default=0)
        seen = [SeenMember(member, tuple(leading.get(member.instance, ())), max(0, now - heard)) for member, heard in found]
        return sorted(seen, key=lambda one: (one.member.host, one.member.pid, one.member.instance))

    def present(self) -> frozenset[str] | None:
        try:
            with self._answering():
                return frozenset(self._children("members"))
        except CompactorError:
            return None

    def _now_ms(self) -> int:
        """ZooKeeper's clock, as it stamps a node that lives for a moment; 0 where we may only read."""
        try:
            path = self._answer(self._client.create_async(self._path("clock-"), ephemeral=True, sequence=True, makepath=True))
        except NoAuthError:
            return 0
        stat = self._answer(self._client.exists_async(path))
        self._remove(path)
        return int(stat.ctime) if stat is not None else 0

    def _children(self, *parts: str) -> list[str]:
        try:
            return list(self._answer(self._client.get_children_async(self._path(*parts))))
        except NoNodeError:
            return []

    # Control state

    def read(self, key: str) -> Value | None:
        with self._answering():
            try:
                self._answer(self._client.sync_async(self._path("control", key)))  # else a server that lags behind answers with what was
                data, stat = self._answer(self._client.get_async(self._path("control", key)))
            except NoNodeError:
                return None
            return Value(_loaded(data), int(stat.version)) if data else None

    def write(self, key: str, data: Mapping[str, Any], version: int | None) -> Value:
        path, content = self._path("control", key), json.dumps(data).encode()
        with self._answering(writing=True):
            try:
                if version is not None:
                    stat = self._answer(self._client.set_async(path, content, version=version))
                    return Value(dict(data), int(stat.version))
                return Value(dict(data), self._create(path, content))
            except (BadVersionError, NodeExistsError, NoNodeError):
                raise ConflictError(f"{key} was changed by somebody else meanwhile") from None

    def _create(self, path: str, content: bytes) -> int:
        """The first value of a key, whose node may be there as the parent of others; returns its version."""
        try:
            self._answer(self._client.create_async(path, content, makepath=True))
        except NodeExistsError:
            data, stat = self._answer(self._client.get_async(path))
            if data:
                raise
            return int(self._answer(self._client.set_async(path, content, version=stat.version)).version)
        return 0

    def watch(self, key: str, changed: Changed) -> None:
        with self._lock:
            self._watched.setdefault(key, []).append(changed)
        self._wake.set()

    def _look_at_watched(self) -> None:
        with self._lock:
            watched = {key: list(callbacks) for key, callbacks in self._watched.items()}
        for key, callbacks in watched.items():
            stat = self._answer(self._client.exists_async(self._path("control", key), watch=self._on_event))
            version = None if stat is None else int(stat.mzxid)
            if version != self._versions.get(key):
                self._versions[key] = version
                for changed in callbacks:
                    changed()

    # Asking

    def _path(self, *parts: str) -> str:
        return "/".join((self._root, *parts))

    def _answer(self, result: Any) -> Any:
        """An answer within the session time-out; kazoo would wait for ever while it reconnects."""
        return result.get(timeout=self._timeout)

    @contextlib.contextmanager
    def _answering(self, *, writing: bool = False) -> Iterator[None]:
        """Kazoo's errors in, ours out."""
        try:
            yield
        except _NO_ANSWER as error:
            said = f"ZooKeeper {self._settings.hosts}: no answer ({type(error).__name__})"
            raise OutcomeUnknownError(said) if writing else UnreachableError(said) from None
        except NoAuthError:
            raise SettingsError(f"zookeeper.user: isn't allowed to do that below {self._root}") from None
        except KazooException as error:
            raise CompactorError(f"ZooKeeper {self._settings.hosts}: {type(error).__name__} {error}".rstrip()) from None


def _first(candidates: Iterable[str]) -> str | None:
    """The candidate with the lowest number."""
    return min(candidates, key=lambda name: (name.rpartition("-")[2], name), default=None)


def _loaded(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
