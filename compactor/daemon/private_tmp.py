"""
Ticket caches that somebody renews and the daemon doesn't see: a systemd unit with PrivateTmp has a /tmp and a /var/tmp of its own.

Kerberos' library would say only that there is no cache. Source: systemd.exec(5), PrivateTmp; proc_pid_mountinfo(5); docs/edge-node.md (Kerberos).
"""

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

_TYPE = re.compile(r"^(?:FILE|DIR):")
_SHARED = (PurePosixPath("/tmp"), PurePosixPath("/var/tmp"))  # noqa: S108 - the places themselves are the subject
_MADE_BY_SYSTEMD = "/systemd-private-"


def unseen_caches(ticket_cache: str | None, environment: Mapping[str, str], mounts: str | None = None) -> list[str]:
    """
    A sentence for each cache that is named in a directory which is this service's own.

    Args:
        ticket_cache: `hdfs.ticket_cache`.
        mounts: the text of /proc/self/mountinfo; None: read it.
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
    return [directory for directory in _SHARED if any(_MADE_BY_SYSTEMD in root and at == directory for root, at in found)]


def _mounts() -> str:
    """Empty where there is no /proc."""
    try:
        return Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
