"""The connection to ZooKeeper as the settings describe it: credentials, rights of what we create, TLS."""

import importlib.util
import logging

from kazoo.client import KazooClient
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from compactor.errors import SettingsError
from compactor.log import keep_secret
from compactor.settings import ZooKeeper


def make_client(settings: ZooKeeper) -> KazooClient:
    """
    A client that isn't started.

    Raises:
        SettingsError: the password can't be read, or what `auth` needs isn't installed.
    """
    password = settings.secret()
    keep_secret(password)
    acl = list(OPEN_ACL_UNSAFE)
    if settings.auth != "none":  # what we create is ours alone, whoever we are
        acl = [*CREATOR_ALL_ACL, *(READ_ACL_UNSAFE if settings.world_readable else [])]
    tls = settings.tls
    logger = logging.getLogger("kazoo.compactor")
    logger.setLevel(logging.CRITICAL)  # it tells of each lost connection, with tracebacks; what matters is told by the coordinator
    return KazooClient(
        hosts=settings.hosts,
        timeout=settings.session_timeout_seconds,
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
        raise SettingsError("zookeeper.auth: kerberos needs the Python package kerberos (or winkerberos under that name)")
    return {"mechanism": "GSSAPI", "service": settings.service}


def _text(path: object) -> str | None:
    return None if path is None else str(path)
