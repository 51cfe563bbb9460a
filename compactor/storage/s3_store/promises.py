"""
Tries what a store promises, one request after the other: stores that speak S3's protocol often ignore a condition that
they don't know, and answer as if it held.

The objects lie in a hidden directory with a name that the Cleaner removes if the process is killed, and in it where an
attempt's notes would lie: a store may have names of its own that it doesn't list. A promise counts as broken when it was
broken in two directories, since the Cleaner of another daemon may have removed the first meanwhile.
Each promise's code is its name in messages and in docs/storage.md.
Source: docs/storage.md, "What the store must do".
"""

import contextlib
import uuid
from collections.abc import Callable
from typing import Any, Final

from compactor.acid.names import TRASH_PREFIX
from compactor.errors import CompactorError, RefusedError
from compactor.reasons import Reason
from compactor.storage.base import Promises
from compactor.storage.object_store import UPLOADS
from compactor.storage.s3_store.client import WRITE, S3Client, explained

_OTHER: Final = '"00000000000000000000000000000000"'
"""An ETag that no object has."""
_FIRST, _SECOND = b"compactor tries the store", b"this must not be there"


def tried(client: S3Client, bucket: str, prefix: str) -> Promises:
    """
    Try each promise in a hidden directory.

    Args:
        prefix: what keys in the directory begin with.

    Raises:
        CompactorError: the store can't be asked; RefusedError: a right is missing.
    """
    found = _tried_once(client, bucket, prefix)
    return _tried_once(client, bucket, prefix) if found.broken else found


def _tried_once(client: S3Client, bucket: str, prefix: str) -> Promises:
    trial = _Trial(client, bucket, f"{prefix}{TRASH_PREFIX}gone-{uuid.uuid4().hex[:8]}-delete/{UPLOADS}/")
    try:
        for step, promise in (
            (trial.objects, "create-if-absent"),
            (trial.uploads, "complete-if-absent"),
            (trial.deletions, "delete-at-once"),
        ):
            try:
                step()
            except RefusedError as error:
                if error.reason is not Reason.UNSUPPORTED_STORE:
                    raise
                trial.must(promise, error.message)
                break
            except (FileNotFoundError, FileExistsError):
                trial.must(promise, "what was written isn't there any more, or is there again")
                break
    finally:
        trial.clean()
    return Promises(tuple(trial.broken), tuple(trial.missed))


class _Trial:
    """One trial; the steps build on each other."""

    def __init__(self, client: S3Client, bucket: str, prefix: str) -> None:
        self._call: Final[Any] = client.call
        self._bucket = bucket
        self._prefix = prefix
        self._uploads: list[tuple[str, str]] = []
        self.broken: list[str] = []
        self.missed: list[str] = []

    def objects(self) -> None:
        """What is made once, how it is listed, and how it is read."""
        self._refused(lambda: self._put("a", _FIRST))  # a second try of botocore's own finds what the first one made
        head, listed = self._head("a"), self._listed().get("a")
        self.must("metadata", "an object doesn't keep it", kept=_mark(head) == "a")
        self.must("list-after-write", "an object isn't listed once it is written", kept=listed is not None)
        etags = [said.get("ETag") for said in (head, listed) if said is not None]
        self.must("etag", "listings and HEAD answers don't give the same", kept=all(etags) and len(set(etags)) == 1)
        refused = self._refused(lambda: self._put("a", _SECOND)) and self._read("a") == _FIRST
        self.must("create-if-absent", "PutObject with If-None-Match replaces an object", kept=refused)
        refused = self._refused(lambda: self._get("a", IfMatch=_OTHER))
        self.must("read-if-match", "GetObject ignores If-Match", kept=refused)

    def uploads(self) -> None:
        """What is prepared unseen, given up, and completed once."""
        refused = self._refused(lambda: self._copied(self._begun("b"), "b", _OTHER))
        self.must("copy-if-match", "UploadPartCopy ignores x-amz-copy-source-if-match", kept=refused)
        upload, part = self._prepared("b")
        unseen = self._head("b") is None and "b" not in self._listed()
        self.must("unseen-until-completed", "an object is there before its upload is completed", kept=unseen)
        self._abort("b", upload)
        gone = self._refused(lambda: self._complete("b", upload, part)) and self._head("b") is None
        self.must("abort-by-id", "an upload can be completed after it was given up", kept=gone)
        if not gone:
            return
        upload, part = self._prepared("b")
        late, late_part = self._prepared("b")
        self._refused(lambda: self._complete("b", upload, part))  # as for the first object
        self.must("metadata", "an object made by an upload doesn't keep it", kept=_mark(self._head("b")) == "b")
        self.must("copy-if-match", "UploadPartCopy doesn't copy the object", kept=self._read("b") == self._read("a"))
        refused = self._refused(lambda: self._complete("b", late, late_part))
        self.must("complete-if-absent", "CompleteMultipartUpload ignores If-None-Match", kept=refused)
        self._abort("b", upload)
        there = self._head("b") is not None
        self.must("abort-by-id", "giving up a completed upload removes its object", kept=there)

    def deletions(self) -> None:
        """What is deleted conditionally, and what deleting leaves."""
        late = self._begun("c")
        self._refused(lambda: self._delete("b", _OTHER))
        if (kept := self._head("b")) is not None:
            self._refused(lambda: self._delete("b", kept.get("ETag")))
        if kept is None or self._head("b") is not None:
            self.missed.append("delete-if-match")
        self._delete("a")
        gone = self._head("a") is None and self._refused(lambda: self._copied(late, "c", None))
        self.must("delete-at-once", "a deleted object can still be read or copied", kept=gone)
        self.must("list-after-write", "a deleted object is still listed", kept="a" not in self._listed())

    def clean(self) -> None:
        """Remove what the trial made, as far as that is possible."""
        for key, upload in self._uploads:
            with contextlib.suppress(CompactorError, OSError):
                self._abort(key, upload)
        for name in ("a", "b", "c"):
            with contextlib.suppress(CompactorError, OSError):
                self._delete(name)

    def must(self, promise: str, otherwise: str, *, kept: bool = False) -> None:
        """Note a promise that wasn't kept, with what was seen instead. Its first sentence stays."""
        if not kept and not any(said.startswith(f"{promise} (") for said in self.broken):
            self.broken.append(f"{promise} ({otherwise})")

    # Requests

    def _ask(self, operation: str, name: str | None = None, **arguments: Any) -> Any:
        key = {} if name is None else {"Key": self._prefix + name}
        with explained("try the store with", self._prefix):
            answer = getattr(self._call, operation)(Bucket=self._bucket, **key, **arguments)
            return answer["Body"].read() if operation == "get_object" else answer

    @staticmethod
    def _refused(request: Callable[[], object]) -> bool:
        """
        Whether a request is refused: by a failed condition, since what it names isn't there, or by a code of the
        store's own, which says neither that it may be tried again nor that a right is missing.
        """
        try:
            request()
        except (FileExistsError, FileNotFoundError):
            return True
        except CompactorError as error:
            if type(error) is not CompactorError:
                raise
            return True
        return False

    def _put(self, name: str, body: bytes) -> None:
        self._ask("put_object", name, Body=body, IfNoneMatch="*", Metadata={WRITE: name})

    def _head(self, name: str) -> Any:
        try:
            return self._ask("head_object", name)
        except FileNotFoundError:
            return None

    def _get(self, name: str, **condition: str) -> bytes:
        return bytes(self._ask("get_object", name, **condition))

    def _read(self, name: str) -> bytes | None:
        try:
            return self._get(name)
        except FileNotFoundError:
            return None

    def _listed(self) -> dict[str, Any]:
        answer = self._ask("list_objects_v2", Prefix=self._prefix)
        return {item["Key"].removeprefix(self._prefix): item for item in answer.get("Contents", ())}

    def _begun(self, name: str) -> str:
        upload = str(self._ask("create_multipart_upload", name, Metadata={WRITE: name})["UploadId"])
        self._uploads.append((name, upload))
        return upload

    def _copied(self, upload: str, name: str, etag: str | None) -> str:
        """Copy the first object as a part; returns the part's ETag."""
        source = {"CopySource": {"Bucket": self._bucket, "Key": f"{self._prefix}a"}}
        chosen = {} if etag is None else {"CopySourceIfMatch": etag}
        answer = self._ask("upload_part_copy", name, UploadId=upload, PartNumber=1, **source, **chosen)
        return str(answer["CopyPartResult"]["ETag"])

    def _prepared(self, name: str) -> tuple[str, str]:
        """An upload that only has to be completed, and its part."""
        upload, head = self._begun(name), self._head("a")
        return upload, self._copied(upload, name, None if head is None else head.get("ETag"))

    def _complete(self, name: str, upload: str, part: str) -> None:
        parts = {"Parts": [{"PartNumber": 1, "ETag": part}]}
        self._ask("complete_multipart_upload", name, UploadId=upload, MultipartUpload=parts, IfNoneMatch="*")

    def _abort(self, name: str, upload: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._ask("abort_multipart_upload", name, UploadId=upload)

    def _delete(self, name: str, etag: str | None = None) -> None:
        item = {"Key": self._prefix + name} | ({} if etag is None else {"ETag": etag})
        self._ask("delete_objects", Delete={"Objects": [item], "Quiet": True})


def _mark(head: Any) -> str | None:
    """The mark that an object's metadata was given."""
    return None if head is None else head.get("Metadata", {}).get(WRITE)
