"""
The connection to an S3 store: made from the settings, counting what goes through it, with errors in our own words.

Credentials come from where every AWS client looks for them (environment, shared files, web identity, container, instance), and are never logged: no message of
the store that could hold a signed request is passed on, only its code.
Source: Amazon S3 API Reference, "Error responses"; botocore's error tree.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from compactor.errors import CompactorError, OutcomeUnknownError, RefusedError, UnreachableError
from compactor.reasons import Reason
from compactor.settings.stores import S3
from compactor.storage.traffic import OWN, Moved, Traffic

try:
    import botocore.session
    from botocore import exceptions as boto
    from botocore.config import Config
except ImportError:
    raise RefusedError(Reason.UNSUPPORTED_STORE, "locations on S3 need the package botocore: pip install 'compactor[s3]'") from None

MISSING: Final = frozenset({"404", "NoSuchKey", "NotFound"})
EXISTS: Final = frozenset({"412", "PreconditionFailed"})
NO_UPLOAD: Final = frozenset({"NoSuchUpload"})
_FORBIDDEN: Final = frozenset({"403", "AccessDenied", "AllAccessDisabled", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"})
_FULL: Final = frozenset({"507", "QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "EntityTooLarge"})
_UNABLE: Final = frozenset({"501", "NotImplemented", "MethodNotAllowed"})
BUSY: Final = frozenset({"SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "RequestTimeTooSkewed"})
_CONFLICT: Final = frozenset({"ConditionalRequestConflict", "OperationAborted"})
_NO_BUCKET: Final = frozenset({"NoSuchBucket", "PermanentRedirect", "301", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"})


class ConflictError(UnreachableError):
    """
    Somebody else was writing or deleting the same key; this request did nothing.

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
    Requests to one endpoint; safe in any number of threads, not across a fork.

    Args:
        settings: of the section `s3`.

    Raises:
        RefusedError: PERMISSION_DENIED (a profile or credentials that aren't there).
    """

    def __init__(self, settings: S3) -> None:
        self.settings: Final = settings
        self.traffic: Final = Traffic()
        """Its own part of `traffic.OWN`."""
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
        """What a request has moved; from any thread."""
        for traffic in (self.traffic, OWN):
            traffic.count(Moved(sent, received, copied))


def code_of(error: Exception) -> str:
    """What the store called it: a code of S3's, or an HTTP status where a HEAD request has no more to say."""
    if not isinstance(error, boto.ClientError):
        return ""
    return str(error.response.get("Error", {}).get("Code", ""))


@contextmanager
def explained(doing: str, what: str, *, may_have_happened: bool = False) -> Iterator[None]:
    """
    Turn what botocore raises into FileNotFoundError, FileExistsError, or the error of ours that says what to do about it.

    Args:
        doing: the sentence's verb, as in "can't write".
        what: a location.
        may_have_happened: whether a request without an answer is an outcome that must be looked up.
    """
    try:
        yield
    except boto.ClientError as error:
        raise _answered(error, doing, what, may_have_happened=may_have_happened) from None
    except (boto.NoCredentialsError, boto.PartialCredentialsError, boto.CredentialRetrievalError, boto.ProfileNotFound, boto.TokenRetrievalError) as error:
        raise RefusedError(
            Reason.PERMISSION_DENIED, f"can't {doing} {what!r}: {type(error).__name__}: see s3 in the settings for where they are looked for"
        ) from None
    except (boto.HTTPClientError, boto.ConnectionError, boto.IncompleteReadError) as error:
        sentence = f"can't {doing} {what!r}: {type(error).__name__}"
        raise (OutcomeUnknownError(sentence) if may_have_happened else UnreachableError(sentence)) from None
    except boto.BotoCoreError as error:
        raise RefusedError(Reason.UNSUPPORTED_STORE, f"can't {doing} {what!r}: {' '.join(str(error).split())}") from None


def _answered(error: boto.ClientError, doing: str, what: str, *, may_have_happened: bool) -> Exception:
    code, status = code_of(error), error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    sentence = f"can't {doing} {what!r}: {code}"
    if code in EXISTS:
        return FileExistsError(17, "already there", what)
    if code in _NO_BUCKET:
        return RefusedError(Reason.LOCATION_MISSING, f"{sentence}: see the bucket's name, and s3.region and s3.endpoint in the settings")
    if code in MISSING or (code in NO_UPLOAD):
        return FileNotFoundError(2, "not there", what)
    if code in _FORBIDDEN or status in {401, 403}:
        return RefusedError(Reason.PERMISSION_DENIED, f"{sentence}: the daemon's credentials must allow it")
    if code in _FULL or status == 507:
        return RefusedError(Reason.DISK_FULL, sentence)
    if code in _UNABLE or status in {405, 501}:
        return RefusedError(Reason.UNSUPPORTED_STORE, f"{sentence}: this store lacks what compacting on it needs (docs/storage.md)")
    if code in _CONFLICT:
        return ConflictError(sentence, what)
    if code in BUSY or status >= 500 or status == 429:
        return OutcomeUnknownError(sentence) if may_have_happened else UnreachableError(sentence)
    return CompactorError(sentence)
