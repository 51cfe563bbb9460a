"""
The connection to an S3 store: a client made from the settings, byte counts, translated errors, conditional writes.

Credentials come from where every AWS client looks for them (environment, shared files, web identity, container,
instance), and are never logged. A message of the store could hold a signed request, so only its code is passed on.
Source: Amazon S3 API Reference, "Error responses"; botocore's error tree.

Conditional writes make an object only if none is there (If-None-Match). Each write carries a mark of its own in the
object's metadata, which tells whether this write made the object that is there. The store's answers:

- 412 PreconditionFailed: an object is there. An earlier try of the same request, whose answer was lost, may have made
  it.
- 409 ConditionalRequestConflict: another process wrote or deleted the same key at that moment, and the request made
  nothing. The write is tried again. Amazon drops the upload with this answer, so an upload is begun anew. When an
  object is there after a conflict, that counts as for 412.

Source: Amazon S3 API Reference, PutObject and CompleteMultipartUpload (If-None-Match).
"""

import random
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from compactor.errors import CompactorError, OutcomeUnknownError, RefusedError, UnreachableError
from compactor.reasons import Reason
from compactor.settings.stores import S3
from compactor.storage.io_counters import OWN, BytesMoved, IoCounters

try:
    import botocore.session
    from botocore import exceptions as boto
    from botocore.config import Config
except ImportError:
    raise RefusedError(
        Reason.UNSUPPORTED_STORE, "locations on S3 need the package botocore: pip install 'compactor[s3]'"
    ) from None

MISSING: Final = frozenset({"404", "NoSuchKey", "NoSuchVersion", "NotFound"})
EXISTS: Final = frozenset({"412", "PreconditionFailed"})
NO_UPLOAD: Final = frozenset({"NoSuchUpload"})
_FORBIDDEN: Final = frozenset(
    {
        "403",
        "AccessDenied",
        "AllAccessDisabled",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "InvalidToken",
    }
)
_FULL: Final = frozenset({"507", "QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "EntityTooLarge"})
_UNABLE: Final = frozenset({"501", "NotImplemented", "MethodNotAllowed"})
_CLOCK: Final = "this machine's clock and the store's differ too much"
_EXPIRED: Final = "the credentials have expired, and no newer ones are there yet"
LATER: Final = {
    "SlowDown": "",
    "ServiceUnavailable": "",
    "InternalError": "",
    "RequestTimeout": "",
    "RequestLimitExceeded": "",
    "Throttling": "",
    "ThrottlingException": "",
    "TooManyRequests": "",
    "XMinioServerNotInitialized": "",
    "RequestTimeTooSkewed": _CLOCK,
    "RequestExpired": _CLOCK,
    "ExpiredToken": _EXPIRED,
    "ExpiredTokenException": _EXPIRED,
    "TokenRefreshRequired": _EXPIRED,
}
"""
Codes after which the same request may succeed later, with what to add to the message. Many come with status 403, and
say nothing of rights all the same.
"""
_CONFLICT: Final = frozenset({"ConditionalRequestConflict", "OperationAborted"})
_NO_BUCKET: Final = frozenset(
    {"NoSuchBucket", "PermanentRedirect", "301", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
)
WRITE: Final = "compactor-write"
"""Metadata key of an object: the mark of the request that made it."""
_PAUSES: Final = (0.1, 0.3, 0.9, 2.7)
"""Seconds between the tries; each is lengthened by up to a half at random."""


class S3ConflictError(UnreachableError):
    """
    Another process wrote or deleted the same key at that moment; this request did nothing.

    Args:
        what: a location.
    """

    def __init__(self, message: str, what: str) -> None:
        super().__init__(message)
        self.what: Final = what

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (*self.args, self.what)


class S3Client:
    """
    Makes requests to one endpoint. Safe in any number of threads, not across a fork.

    Args:
        settings: the section `s3`.

    Raises:
        RefusedError: PERMISSION_DENIED (the profile or the credentials don't exist).
    """

    def __init__(self, settings: S3) -> None:
        self.settings: Final = settings
        self.traffic: Final = IoCounters()
        """This client's part of `io_counters.OWN`."""
        with explained("reach", settings.endpoint or "Amazon S3"):
            session = botocore.session.Session(profile=settings.profile)
            if settings.credentials_file is not None:
                session.set_config_variable("credentials_file", str(settings.credentials_file))
            self.call: Final[Any] = session.create_client(
                "s3",
                endpoint_url=settings.endpoint,
                region_name=settings.region,
                verify=str(settings.ca_file) if settings.ca_file is not None else None,
                config=Config(
                    s3={"addressing_style": "path" if settings.path_style else "auto"},
                    retries={"mode": "standard", "total_max_attempts": settings.attempts},
                    connect_timeout=settings.connect_timeout_seconds,
                    read_timeout=settings.read_timeout_seconds,
                    max_pool_connections=2 * settings.threads,
                    request_checksum_calculation="when_required",  # other stores than Amazon's don't know the trailers
                    response_checksum_validation="when_required",
                ),
            )

    def count(self, *, sent: int = 0, received: int = 0, copied: int = 0) -> None:
        """Add the bytes that a request has moved. May be called from any thread."""
        for traffic in (self.traffic, OWN):
            traffic.count(BytesMoved(sent, received, copied))


def code_of(error: Exception) -> str:
    """
    The store's error code: S3's own, or the HTTP status where a HEAD request has no other; empty for all other errors.
    """
    if not isinstance(error, boto.ClientError):
        return ""
    return str(error.response.get("Error", {}).get("Code", ""))


@contextmanager
def explained(doing: str, what: str, *, may_have_happened: bool = False) -> Iterator[None]:
    """
    Translate botocore's errors into FileNotFoundError, FileExistsError, or the error of `compactor.errors` that says
    what to do about it.

    Args:
        doing: the verb of the message, as in "can't write".
        what: a location.
        may_have_happened: whether a request without a clear answer has an unknown outcome, which must be looked up.
    """
    try:
        yield
    except boto.ClientError as error:
        raise _answered(error, doing, what, may_have_happened=may_have_happened) from None
    except (
        boto.NoCredentialsError,
        boto.PartialCredentialsError,
        boto.CredentialRetrievalError,
        boto.ProfileNotFound,
        boto.TokenRetrievalError,
    ) as error:
        raise RefusedError(
            Reason.PERMISSION_DENIED,
            f"can't {doing} {what!r}: {type(error).__name__}: see s3 in the settings for where they are looked for",
        ) from None
    except (boto.HTTPClientError, boto.ConnectionError, boto.IncompleteReadError) as error:
        sentence = f"can't {doing} {what!r}: {type(error).__name__}"
        raise (OutcomeUnknownError(sentence) if may_have_happened else UnreachableError(sentence)) from None
    except boto.BotoCoreError as error:
        raise RefusedError(
            Reason.UNSUPPORTED_STORE, f"can't {doing} {what!r}: {' '.join(str(error).split())}"
        ) from None


def _answered(error: boto.ClientError, doing: str, what: str, *, may_have_happened: bool) -> Exception:
    code, status = code_of(error), error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    sentence = f"can't {doing} {what!r}: {code}"
    if code in EXISTS:
        return FileExistsError(17, "already there", what)
    if code in _NO_BUCKET:
        return RefusedError(
            Reason.LOCATION_MISSING, f"{sentence}: see the bucket's name, and s3.region and s3.endpoint in the settings"
        )
    if code in MISSING or (code in NO_UPLOAD):
        return FileNotFoundError(2, "not there", what)
    if code in LATER:  # before the status, which is 403 for some of them
        sentence += f": {LATER[code]}" if LATER[code] else ""
        return OutcomeUnknownError(sentence) if may_have_happened else UnreachableError(sentence)
    if code in _FORBIDDEN or status in {401, 403}:
        return RefusedError(Reason.PERMISSION_DENIED, f"{sentence}: the daemon's credentials must allow it")
    if code in _FULL or status == 507:
        return RefusedError(Reason.DISK_FULL, sentence)
    if code in _UNABLE or status in {405, 501}:
        return RefusedError(
            Reason.UNSUPPORTED_STORE, f"{sentence}: this store lacks what compacting on it needs (docs/storage.md)"
        )
    if code in _CONFLICT:
        return S3ConflictError(sentence, what)
    if status >= 500 or status == 429:
        return OutcomeUnknownError(sentence) if may_have_happened else UnreachableError(sentence)
    return CompactorError(sentence)


def new_mark() -> str:
    """A mark for one write, the same for all its tries."""
    return uuid.uuid4().hex


def put_new(client: S3Client, bucket: str, key: str, body: bytes, name: str) -> None:
    """
    Make an object with one request.

    Raises:
        FileExistsError: an object is there that this call didn't make.
        S3ConflictError: each try met another process at the same key, and no object is there.
        CompactorError: any other failure; the object may exist all the same.
    """
    mark = new_mark()

    def put() -> None:
        with explained("write", name):
            client.call.put_object(Bucket=bucket, Key=key, Body=body, IfNoneMatch="*", Metadata={WRITE: mark})

    def is_ours() -> bool:
        return mark_of(client, bucket, key, name) == mark

    persistently(put, is_ours)


def persistently(
    write: Callable[[], None], is_ours: Callable[[], bool], renew: Callable[[], None] = lambda: None
) -> None:
    """
    Run a conditional write; try again while other processes are at the same key.

    Args:
        is_ours: whether this write made the object that is there; raises FileNotFoundError when none is.
        renew: prepares another try.

    Raises:
        FileExistsError: an object of another write is there.
        S3ConflictError: each try met another process at the same key, and no object is there.
    """
    for number in range(len(_PAUSES) + 1):
        try:
            _once(write, is_ours)
        except S3ConflictError:
            if number == len(_PAUSES):
                raise
            time.sleep(_PAUSES[number] * (1 + random.random() / 2))  # noqa: S311 - spreads competitors, no secret
            renew()
        else:
            return


def _once(write: Callable[[], None], is_ours: Callable[[], bool]) -> None:
    """
    Make one try. Even when the try fails, the write is done if it made the object that is there. After a conflict
    another object counts as for 412.
    """
    try:
        write()
    except (FileExistsError, FileNotFoundError, CompactorError) as error:
        try:
            ours = is_ours()
        except (CompactorError, OSError):  # no object is there, or the store can't be asked
            raise error from None
        if ours:
            return
        if isinstance(error, S3ConflictError):
            raise FileExistsError(17, "already there", error.what) from None
        raise


def mark_of(client: S3Client, bucket: str, key: str, name: str) -> str:
    """
    The mark of the write that made the object at a key; empty when the object has none.

    Raises:
        FileNotFoundError: no object is there.
    """
    with explained("read", name):
        said = client.call.head_object(Bucket=bucket, Key=key)
    return str(said.get("Metadata", {}).get(WRITE, ""))
