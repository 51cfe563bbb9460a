"""
Translates errors of HDFS into those of `compactor.errors`.

hdfs-native tells missing and existing paths by Python's own errors. A NameNode's refusal comes as a RuntimeError whose
text holds the Java class; a call without an answer comes as another OSError. The class decides. Only a failed Kerberos
login, a missing DataNode and a wrong checksum are recognised by the text.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from compactor.errors import CompactorError, RefusedError, RetryableError, UnreachableError
from compactor.reasons import Reason
from compactor.storage.failures import missing, taken

_ANSWERED: Final = re.compile(r'^(?P<kind>\w+)\((?:"(?P<java>[\w.]+(?:\$\w+)*)", )?"(?P<text>.*)', re.DOTALL)
_NO_LOGIN: Final = re.compile(r'^GSSAPIError\((?:GssMajorCodes ?[({].*?[)}], \d+, )?"(?P<text>.*)"\)$', re.DOTALL)
"""An error of Kerberos' library: its codes as numbers, and its text."""
_QUOTAS: Final = frozenset(
    {
        "NSQuotaExceededException",
        "DSQuotaExceededException",
        "QuotaByStorageTypeExceededException",
        "QuotaExceededException",
    }
)
_FORBIDDEN: Final = frozenset({"AccessControlException", "AuthorizationException"})
_LATER: Final = frozenset({"RetriableException", "NotReplicatedYetException"})
_ELSEWHERE: Final = frozenset(
    {"SafeModeException", "StandbyException", "ObserverRetryOnActiveException", "InvalidToken", "SaslException"}
)
_NO_PARENT: Final = frozenset({"ParentNotDirectoryException", "PathIsNotDirectoryException"})
_GONE: Final = frozenset({"LeaseExpiredException"})
_LONGEST: Final = 300
"""Characters of an error's text that are shown at most: the client prints whole DataNodes."""
_NO_NODES: Final = re.compile(r"could only be written to \d+ of the \d+ minReplication nodes")


@contextmanager
def explained(doing: str, path: str) -> Iterator[None]:
    """
    Translate the client's errors inside the block into the error that says what to do about it. `doing` is the verb of
    the message, as in "can't write".
    """
    try:
        yield
    except FileNotFoundError as error:
        raise missing(path) from error
    except FileExistsError as error:
        raise taken(path) from error
    except (OSError, RuntimeError, ValueError) as error:
        raise explanation(error, doing, path) from error


def java_class(error: BaseException) -> str:
    """The last part of the Java class in a NameNode's answer; empty when the error is no such answer."""
    found = _ANSWERED.match(str(error)) if isinstance(error, RuntimeError) else None
    return re.split(r"[.$]", found["java"])[-1] if found is not None and found["java"] else ""


def explanation(error: Exception, doing: str, path: str) -> CompactorError | FileNotFoundError:
    """The error to raise for an error of the client."""
    java, said = java_class(error), _first_line(error)
    what = f"can't {doing} {path!r}: {said}"
    if (login := _NO_LOGIN.match(str(error))) is not None:
        said = login["text"].replace('\\"', '"').strip()
        return UnreachableError(
            f"can't {doing} {path!r}: Kerberos: {said[:_LONGEST]}; hdfs.principal must be in hdfs.keytab, or have a valid ticket in the cache"
        )
    if java in _NO_PARENT:
        return missing(path)
    if java in _QUOTAS:
        return RefusedError(Reason.QUOTA_EXCEEDED, f"{what}; raise the quota (hdfs dfsadmin) or make room, then retry")
    if java in _FORBIDDEN or isinstance(error, PermissionError):
        return RefusedError(Reason.PERMISSION_DENIED, f"{what}; the daemon's user needs read and write access there")
    if java in _LATER:
        return RetryableError(what)
    if java in _GONE:
        return RetryableError(f"{what}; it was removed while it was written")
    if java == "InvalidPathException":
        return RefusedError(Reason.UNKNOWN_NAME, what)
    if java in _ELSEWHERE or _NO_NODES.search(str(error)):
        return UnreachableError(what)
    if "ChecksumError" in str(error):
        return RefusedError(Reason.CORRUPT_FILE, f"{what}; no replica that answers has the right checksum")
    if java:
        return CompactorError(f"{what} ({java})")
    return UnreachableError(what)


def _first_line(error: Exception) -> str:
    """The first line of an error's text, without the NameNode's stack."""
    text = str(error)
    found = _ANSWERED.match(text) if isinstance(error, RuntimeError) else None
    line = re.split(r"\\n|\n", found["text"] if found is not None else text, maxsplit=1)[0]
    line = line.removesuffix('")').replace('\\"', '"').strip().rstrip(".")
    return line[:_LONGEST] or type(error).__name__
