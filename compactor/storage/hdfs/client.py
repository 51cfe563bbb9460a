"""
Makes a client of HDFS from the settings and the cluster's own configuration.

hdfs-native reads core-site.xml and hdfs-site.xml for addresses, name services and security. In Hadoop the client
decides on replication and block size of new files, so this module reads these two. Source: hdfs-default.xml.
"""

import os
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from compactor.errors import RefusedError, UnreachableError
from compactor.reasons import Reason
from compactor.settings.stores import Hdfs
from compactor.storage.hdfs.connections import Address
from compactor.storage.hdfs.kerberos_probe import SECONDS, wants_kerberos
from compactor.storage.hdfs.timeouts import Timeouts, Watched, addresses
from compactor.storage.hdfs.tokens import HELD
from compactor.storage.location import LocationParts

_SIZE: Final = re.compile(r"(?P<number>\d+)(?P<unit>[kmgtpe]?)", re.IGNORECASE)
_UNITS: Final = {unit: 1024**power for power, unit in enumerate(("", "k", "m", "g", "t", "p", "e"))}


@dataclass(frozen=True, slots=True)
class FileDefaults:
    """Replication and block size of new files; None: the NameNode decides."""

    replication: int | None
    block_size: int | None


def connect(parts: LocationParts, options: Hdfs) -> Any:
    """
    Make a client. It connects when it is first used, and waits for an answer no longer than the settings say.

    Raises:
        RefusedError: UNSUPPORTED_STORE (hdfs-native isn't installed; the location has no host, and no default file
            system is configured).
        UnreachableError: the configuration's directory or the keytab doesn't exist or can't be read; or the NameNode
            wants Kerberos and the configuration doesn't; or a task was given tokens for other NameNodes only.
    """
    native = require_package()
    if options.user is not None:
        # hdfs-native has no other way; a Spark JVM that is started later has the same user
        os.environ["HADOOP_USER_NAME"] = options.user
    directory = conf_dir(options)
    by_token = reached_by_token(parts, options)
    url = f"{parts.scheme}://{parts.authority}" if parts.authority else None
    timeouts = Timeouts(lambda: addresses(parts.authority, _site(directory)), options.rpc_timeout_seconds)
    try:
        client = native.Client(
            url,
            config_dir=None if directory is None else str(directory),
            kerberos_principal=None if by_token else options.principal,
            kerberos_keytab=None if by_token or options.keytab is None else str(options.keytab),
            kerberos_cache=None if by_token else options.ticket_cache,
        )
    except (OSError, RuntimeError, ValueError) as error:
        where = (
            f"configuration {directory}"
            if directory is not None
            else "no configuration (set hdfs.conf_dir or HADOOP_CONF_DIR)"
        )
        shown = url or f"{parts.scheme}:{parts.path}"
        raise RefusedError(
            Reason.UNSUPPORTED_STORE, f"{shown} can't be used with {where}: {' '.join(str(error).split())}"
        ) from error
    return Watched(client, timeouts)


def reached_by_token(parts: LocationParts, options: Hdfs) -> bool:
    """
    Whether the client logs in by a delegation token. A task has no other login, unless a keytab lies on every node.

    Raises:
        UnreachableError: no login would succeed. The client would try for minutes, or fail with an unclear message.
    """
    directory = conf_dir(options)
    site = _site(directory)
    kerberos = dict(site).get("hadoop.security.authentication", "simple").lower() == "kerberos"
    services = HELD.services(addresses(parts.authority, site))
    wanted = parts.authority if ":" in parts.authority else f"ha-hdfs:{parts.authority}"
    # only the client knows where a mount table leads
    if kerberos and services and (wanted in services or parts.scheme != "hdfs" or not parts.authority):
        return True
    # Kerberos' library would only report a missing ticket cache
    if options.keytab is not None and not os.access(options.keytab, os.R_OK):
        without = f"; {_only_for(parts, wanted, services)}" if services else ""
        raise UnreachableError(
            f"hdfs.keytab leads to {options.keytab}, which isn't there or may not be read by the user of this process{without}"
        )
    if kerberos:
        if services and options.principal is None:
            raise UnreachableError(_only_for(parts, wanted, services))
        return False
    where = "no configuration names" if directory is None else f"core-site.xml in {directory} doesn't name"
    what = f"but {where} kerberos as hadoop.security.authentication: set hdfs.conf_dir to the cluster's configuration"
    if options.principal is not None:  # the client would connect without a ticket
        raise UnreachableError(f"hdfs.principal is set, {what}")
    if (asked := wants_kerberos(_names(parts, site), min(SECONDS, options.rpc_timeout_seconds))) is not None:
        raise UnreachableError(f"the NameNode at {asked[0]}:{asked[1]} wants Kerberos, {what}")
    return False


def _only_for(parts: LocationParts, wanted: str, services: frozenset[str]) -> str:
    there = f"Spark has no delegation token for {wanted}, only for {', '.join(sorted(services))}"
    return f"{there}: name {parts.scheme}://{parts.authority} in spark.kerberos.access.hadoopFileSystems of spark.conf"


def _names(parts: LocationParts, site: list[tuple[str, str]]) -> list[Address]:
    """The NameNodes of this authority alone; none for a mount table."""
    if parts.scheme != "hdfs":
        return []
    prefix = f"dfs.namenode.rpc-address.{parts.authority}."
    return sorted(
        addresses(
            parts.authority, [("dfs.namenode.rpc-address", value) for name, value in site if name.startswith(prefix)]
        )
    )


def require_package() -> Any:
    """
    The module `hdfs_native`.

    Raises:
        RefusedError: UNSUPPORTED_STORE, the package isn't installed.
    """
    try:
        import hdfs_native  # noqa: PLC0415 - an extra, needed for such locations only
    except ImportError as error:
        raise RefusedError(
            Reason.UNSUPPORTED_STORE, "locations on HDFS need the package hdfs-native: pip install 'compactor[hdfs]'"
        ) from error
    return hdfs_native


def conf_dir(options: Hdfs) -> Path | None:
    """
    The directory of core-site.xml and hdfs-site.xml; None where neither settings nor environment name one.

    Raises:
        UnreachableError: the directory that the settings or the environment name doesn't exist.
    """
    for said, found in (
        ("hdfs.conf_dir", options.conf_dir),
        ("HADOOP_CONF_DIR", _path(os.environ.get("HADOOP_CONF_DIR"))),
        ("HADOOP_HOME", _path(os.environ.get("HADOOP_HOME"), "etc/hadoop")),
    ):
        if found is None:
            continue
        if found.is_dir():
            return found
        raise UnreachableError(f"{said} leads to {found}, which isn't a directory with core-site.xml and hdfs-site.xml")
    return None


def file_defaults(options: Hdfs) -> FileDefaults:
    """
    Replication and block size of new files: those of the settings, else `dfs.replication` and `dfs.blocksize` of the
    configuration.

    Raises:
        UnreachableError: hdfs-site.xml can't be read.
    """
    directory = conf_dir(options)
    site = _properties(directory / "hdfs-site.xml") if directory is not None else {}
    replication = _number(site.get("dfs.replication"))
    block_size = _number(site.get("dfs.blocksize") or site.get("dfs.block.size"))
    return FileDefaults(
        options.replication or replication, int(options.block_size) if options.block_size else block_size
    )


def _site(directory: Path | None) -> list[tuple[str, str]]:
    """Names and values of the properties in core-site.xml and hdfs-site.xml."""
    files = [] if directory is None else [directory / "core-site.xml", directory / "hdfs-site.xml"]
    return [item for file in files for item in _properties(file).items()]


def _path(value: str | None, *below: str) -> Path | None:
    return Path(value, *below) if value else None


def _properties(file: Path) -> dict[str, str]:
    try:
        root = ET.parse(file).getroot()  # noqa: S314 - the cluster's own configuration
    except FileNotFoundError:
        return {}
    except (OSError, ET.ParseError) as error:
        raise UnreachableError(f"{file} can't be read: {error}") from error
    return {
        (item.findtext("name") or "").strip(): (item.findtext("value") or "").strip() for item in root.iter("property")
    }


def _number(value: str | None) -> int | None:
    """A number as Hadoop writes sizes (`134217728`, `128m`); None for any other text."""
    found = _SIZE.fullmatch(value) if value else None
    return int(found["number"]) * _UNITS[found["unit"].lower()] if found else None
