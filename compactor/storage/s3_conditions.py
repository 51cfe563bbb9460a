"""
Writing only what isn't there yet: what the store's answers to a condition mean, and whether what is there is ours.

    412 PreconditionFailed             something is there. It may be what an earlier try of the same request made, whose answer was lost: each write carries a
                                       mark of its own, so that it can be told
    409 ConditionalRequestConflict     somebody wrote or deleted the same key at that moment, and nothing was made: to be asked again. Amazon takes the upload
                                       away by it, so an upload is begun anew

After the last try it is looked what is there, and decided as for 412. Source: Amazon S3 API Reference, PutObject and CompleteMultipartUpload (If-None-Match).
"""

import random
import time
import uuid
from collections.abc import Callable
from typing import Final

from compactor.errors import CompactorError
from compactor.storage.s3_client import ConflictError, S3Client, explained

WRITE: Final = "compactor-write"
"""Metadata of an object: which request made it."""
_PAUSES: Final = (0.1, 0.3, 0.9, 2.7)
"""Seconds between the tries, each up to half as much again."""


def new_mark() -> str:
    """For one write, however often it is sent."""
    return uuid.uuid4().hex


def put_new(client: S3Client, bucket: str, key: str, body: bytes, name: str) -> None:
    """
    Make an object of one request.

    Raises:
        FileExistsError: one is there that isn't of this call.
        ConflictError: each time somebody else was at it, and nothing is there.
        CompactorError: anything else; it may be there all the same.
    """
    mark = new_mark()

    def put() -> None:
        with explained("write", name):
            client.call.put_object(Bucket=bucket, Key=key, Body=body, IfNoneMatch="*", Metadata={WRITE: mark})

    def is_ours() -> bool:
        return mark_of(client, bucket, key, name) == mark

    persistently(put, is_ours)


def persistently(write: Callable[[], None], is_ours: Callable[[], bool], renew: Callable[[], None] = lambda: None) -> None:
    """
    A write that makes something, if nothing is there; tried again while others are at it.

    Args:
        is_ours: whether what is there was made by this write; raises FileNotFoundError when nothing is.
        renew: gets ready for another try.

    Raises:
        FileExistsError: something else is there.
        ConflictError: nothing is there, and each try met with somebody else's.
    """
    for number in range(len(_PAUSES) + 1):
        try:
            _once(write, is_ours)
        except ConflictError:
            if number == len(_PAUSES):
                raise
            time.sleep(_PAUSES[number] * (1 + random.random() / 2))  # noqa: S311 - spreads competitors, no secret
            renew()
        else:
            return


def _once(write: Callable[[], None], is_ours: Callable[[], bool]) -> None:
    """One try; whatever it ends with, it is done if what is there is ours. After a conflict something that is there counts as for 412."""
    try:
        write()
    except (FileExistsError, FileNotFoundError, CompactorError) as error:
        try:
            ours = is_ours()
        except (CompactorError, OSError):  # nothing is there, or it can't be asked
            raise error from None
        if ours:
            return
        if isinstance(error, ConflictError):
            raise FileExistsError(17, "already there", error.what) from None
        raise


def mark_of(client: S3Client, bucket: str, key: str, name: str) -> str:
    """
    Which write made the object that is there; empty when it says nothing.

    Raises:
        FileNotFoundError: none is there.
    """
    with explained("read", name):
        said = client.call.head_object(Bucket=bucket, Key=key)
    return str(said.get("Metadata", {}).get(WRITE, ""))
