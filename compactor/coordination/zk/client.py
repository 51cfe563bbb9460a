"""
Makes kazoo's client from the settings (credentials, ACLs of created nodes, TLS, time for each server).

Also keeps the latest complaint of the client.
"""

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
    Keeps kazoo's latest complaint, shortened: kazoo logs each failed attempt, and reports it nowhere else.

    `no_login` is what the Kerberos library said when it provided no credentials; empty when it provided some, also if
    the servers refused them.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.latest = ""
        self.no_login = ""

    def emit(self, record: logging.LogRecord) -> None:
        # kazoo logs this error while it handles it, without its cause
        if isinstance(refused := sys.exc_info()[1], AuthFailedError):
            self.no_login = _said_by_kerberos(refused.__cause__)
        said = record.getMessage()
        if record.levelno == logging.WARNING and not said.startswith("Transition"):
            said = said.rpartition("socket connection error: ")[2]
            self.latest = "timed out" if said == "None" else said


def _said_by_kerberos(error: BaseException | None) -> str:
    """
    The text of the minor status of a GSSError; empty when there is none.

    GSSError carries a pair of text and number for the major and for the minor status; the text of the major status is
    the same for all causes.
    """
    statuses = [status for status in getattr(error, "args", ()) if isinstance(status, tuple) and status]
    return str(statuses[-1][0]) if statuses else ""


class KazooHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """
    Kazoo's threads and sockets.

    Connecting to one server may take its share of the session time-out, as in ZooKeeper's own client: kazoo would spend
    all of it on a host that is down, while other servers answer.

    Args:
        broken: called with the error that ended a thread.
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
        trouble: receives the client's complaints.
        broken: called, from the client's thread, with the error that ended this thread.

    Raises:
        SettingsError: the password can't be read, or a package that `auth` needs isn't installed.
    """
    password = settings.secret()
    keep_secret(password)
    acl = list(OPEN_ACL_UNSAFE)
    if settings.auth != "none":  # only the creator may change nodes that it creates
        acl = [*CREATOR_ALL_ACL, *(READ_ACL_UNSAFE if settings.world_readable else [])]
    tls = settings.tls
    # apart from the other loggers: kazoo logs each attempt with a traceback; the coordinator logs what matters
    logger = logging.Logger("kazoo", logging.WARNING)  # noqa: LOG001
    logger.addHandler(trouble)
    return KazooClient(
        hosts=settings.hosts,
        timeout=settings.session_timeout_seconds,
        handler=KazooHandler((settings.hosts or "").count(",") + 1, broken),
        default_acl=acl,
        auth_data=[("digest", f"{settings.user}:{password}")] if settings.auth == "digest" else None,
        sasl_options=_sasl(settings, password),
        connection_retry=KazooRetry(
            max_tries=-1, delay=0.1, backoff=2, max_delay=min(2.0, settings.session_timeout_seconds / 4)
        ),
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
        raise SettingsError(
            "zookeeper.auth: kerberos needs the Python package kerberos (requirements-kerberos.lock has it)"
        )
    return {"mechanism": "GSSAPI", "service": settings.service}


def _text(path: object) -> str | None:
    return None if path is None else str(path)
