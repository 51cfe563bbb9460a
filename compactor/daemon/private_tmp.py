"""
Finds Kerberos ticket caches that the daemon can't see: a systemd unit with PrivateTmp has a /tmp and a /var/tmp of its
own, so the daemon doesn't see a cache that another process keeps in the host's /tmp.

The Kerberos library would only report that there is no cache.
Source: systemd.exec(5), PrivateTmp; proc_pid_mountinfo(5); docs/edge-node.md (Kerberos).
"""

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

_TYPE = re.compile(r"^(?:FILE|DIR):")
_SHARED = (PurePosixPath("/tmp"), PurePosixPath("/var/tmp"))  # noqa: S108 - the places themselves are the subject
_MADE_BY_SYSTEMD = "/systemd-private-"


def unseen_caches(ticket_cache: str | None, environment: Mapping[str, str], mounts: str | None = None) -> list[str]:
    """
    A sentence for each configured ticket cache that lies in a directory private to this service.

    Args:
        ticket_cache: the setting `hdfs.ticket_cache`.
        environment: may name a cache in KRB5CCNAME.
        mounts: the text of /proc/self/mountinfo; None: read the file.
    """
    named = {"hdfs.ticket_cache": ticket_cache, "KRB5CCNAME": environment.get("KRB5CCNAME")}
    own = _private(_mounts() if mounts is None else mounts)
    return [
        f"{name} is {cache}, but this service has a {directory} of its own (PrivateTmp) and sees no file of others there: keep the cache in its state directory"
        for name, cache in named.items()
        if cache is not None
        for directory in own
        if directory in PurePosixPath(_TYPE.sub("", cache)).parents
    ]


def _private(mounts: str) -> list[PurePosixPath]:
    found = [(fields[3], PurePosixPath(fields[4])) for fields in map(str.split, mounts.splitlines()) if len(fields) > 4]
    return [
        directory for directory in _SHARED if any(_MADE_BY_SYSTEMD in root and at == directory for root, at in found)
    ]


def _mounts() -> str:
    """The text of /proc/self/mountinfo; empty on systems without /proc."""
    try:
        return Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
