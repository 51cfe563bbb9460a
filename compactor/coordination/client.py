"""Kazoo's client as the settings describe it: credentials, rights of what we create, TLS, time for each server; and what it complains of."""

import importlib.util
import logging
import sys
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from compactor.errors import SettingsError
from compactor.log import keep_secret
from compactor.settings import ZooKeeper


class Trouble(logging.Handler):
    """
    The latest thing that kazoo complained of, in short: it logs each attempt, and tells it nowhere else.

    `no_login` is what Kerberos' library said when it gave us nothing to log in by; empty when it did, and when the servers refused that.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.latest = ""
        self.no_login = ""

    def emit(self, record: logging.LogRecord) -> None:
        if isinstance(refused := sys.exc_info()[1], AuthFailedError):  # kazoo logs it where it handles it, without its cause
            self.no_login = _said_by_kerberos(refused.__cause__)
        said = record.getMessage()
        if record.levelno == logging.WARNING and not said.startswith("Transition"):
            said = said.rpartition("socket connection error: ")[2]
            self.latest = "timed out" if said == "None" else said


def _said_by_kerberos(error: BaseException | None) -> str:
    """The words for the minor status: GSSError has a pair of words and number for each of both, and those of the major one are the same whatever happened."""
    statuses = [status for status in getattr(error, "args", ()) if isinstance(status, tuple) and status]
    return str(statuses[-1][0]) if statuses else ""


class Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """
    Kazoo's threads and sockets.

    Each server gets its share of the session time-out to be connected to, as from ZooKeeper's own client: kazoo would spend all of it on a host that is off, while
    the others answer.

    Args:
        broken: called with what ended a thread.
    """

    def __init__(self, servers: int, broken: Callable[[Exception], None]) -> None:
        super().__init__()
        self._servers = servers
        self._broken = broken

    def create_connection(self, *arguments: Any, timeout: float, **more: Any) -> Any:
        return super().create_connection(*arguments, timeout=timeout / self._servers, **more)

    def spawn(self, run: Callable[..., object], *arguments: Any, **more: Any) -> Any:
        def run_and_tell() -> None:
            try:
                run(*arguments, **more)
            except Exception as error:
                self._broken(error)

        return super().spawn(run_and_tell)


def make_client(settings: ZooKeeper, trouble: Trouble, broken: Callable[[Exception], None]) -> KazooClient:
    """
    A client that isn't started.

    Args:
        trouble: hears what it complains of.
        broken: called, from its thread, with what ended its thread.

    Raises:
        SettingsError: the password can't be read, or what `auth` needs isn't installed.
    """
    password = settings.secret()
    keep_secret(password)
    acl = list(OPEN_ACL_UNSAFE)
    if settings.auth != "none":  # what we create is ours alone, whoever we are
        acl = [*CREATOR_ALL_ACL, *(READ_ACL_UNSAFE if settings.world_readable else [])]
    tls = settings.tls
    # not among the others: it tells of each attempt, with tracebacks; what matters is told by the coordinator
    logger = logging.Logger("kazoo", logging.WARNING)  # noqa: LOG001
    logger.addHandler(trouble)
    return KazooClient(
        hosts=settings.hosts,
        timeout=settings.session_timeout_seconds,
        handler=Handler((settings.hosts or "").count(",") + 1, broken),
        default_acl=acl,
        auth_data=[("digest", f"{settings.user}:{password}")] if settings.auth == "digest" else None,
        sasl_options=_sasl(settings, password),
        connection_retry=KazooRetry(max_tries=-1, delay=0.1, backoff=2, max_delay=min(2.0, settings.session_timeout_seconds / 4)),
        logger=logger,
        use_ssl=tls.enabled,
        ca=_text(tls.ca_file),
        certfile=_text(tls.cert_file),
        keyfile=_text(tls.key_file),
        verify_certs=tls.verify,
        check_hostname=tls.enabled and tls.verify and tls.check_hostname,
    )


def _sasl(settings: ZooKeeper, password: str | None) -> dict[str, object] | None:
    if settings.auth not in {"sasl-digest", "kerberos"}:
        return None
    if importlib.util.find_spec("puresasl") is None:
        raise SettingsError(f"zookeeper.auth: {settings.auth} needs the Python package pure-sasl")
    if settings.auth == "sasl-digest":
        return {"mechanism": "DIGEST-MD5", "username": settings.user, "password": password, "service": settings.service}
    if importlib.util.find_spec("kerberos") is None:
        raise SettingsError("zookeeper.auth: kerberos needs the Python package kerberos (requirements-kerberos.lock has it)")
    return {"mechanism": "GSSAPI", "service": settings.service}


def _text(path: object) -> str | None:
    return None if path is None else str(path)
