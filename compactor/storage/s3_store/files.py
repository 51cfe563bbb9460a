"""
Open objects of S3: reads ranges, and writes a new object from parts that this process sends or the store copies.

Source: Amazon S3 API Reference: GetObject, UploadPart, UploadPartCopy, CompleteMultipartUpload.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from compactor.errors import CompactorError, CorruptFileError, OutcomeUnknownError, UnreachableError
from compactor.handles import RandomReader
from compactor.storage.handles import ReadHandle, WriteHandle, truncated
from compactor.storage.s3_store import records
from compactor.storage.s3_store.client import (
    WRITE,
    S3Client,
    S3ConflictError,
    explained,
    mark_of,
    new_mark,
    persistently,
    put_new,
)
from compactor.storage.s3_store.parts import SMALLEST, Assembler


@dataclass(frozen=True, slots=True)
class Object:
    """An object as a look at it found it. `etag` tells it from any object that replaces it."""

    bucket: str
    key: str
    size: int
    etag: str


class S3Reader(ReadHandle):
    """A `ReadHandle` on an object."""

    def __init__(self, client: S3Client, name: str, found: Object) -> None:
        self.name = name
        self.size = found.size
        self.object: Final = found
        self.client: Final = client

    def read_at(self, offset: int, length: int) -> bytes:
        length = min(length, self.size - offset)
        if length <= 0:
            return b""
        found = self.object
        try:
            with explained("read", self.name):
                answer = self.client.call.get_object(
                    Bucket=found.bucket,
                    Key=found.key,
                    Range=f"bytes={offset}-{offset + length - 1}",
                    IfMatch=found.etag,
                )
                data: bytes = answer["Body"].read()
        except (FileNotFoundError, FileExistsError):
            raise replaced(self.name) from None
        self.client.count(received=len(data))
        if len(data) != length:
            raise truncated(self.name, offset, length)
        return data


class Upload:
    """
    A multipart upload that isn't an object yet. Its parts are sent in parallel, by `s3.threads` threads.

    Args:
        owner: recorded in the object's metadata, so that a process that finds the object can tell its owner.
        noted_in: the directory of notes, as the beginning of their keys; None: the upload isn't noted.
    """

    def __init__(
        self, client: S3Client, bucket: str, key: str, target: str, *, owner: str = "", noted_in: str | None = None
    ) -> None:
        self.client: Final = client
        self.bucket: Final = bucket
        self.key: Final = key
        self.target: Final = target
        self._mark: Final = new_mark()
        self._metadata: Final = {WRITE: self._mark} | ({OWNER: owner} if owner else {})
        self._noted_in: Final = noted_in
        self._notes: list[str] = []
        self._copies: list[tuple[Object, int, int]] | None = []
        self._room: Final = threading.Semaphore(client.settings.threads)
        self._begin()

    def _begin(self) -> None:
        self._parts: list[Future[str]] = []
        self._id: str = self._ask("create_multipart_upload", Metadata=self._metadata)["UploadId"]
        if self._noted_in is not None:  # before the first part: a fence that doesn't find it has removed the sources
            try:
                self._notes.append(records.note(self.client, self.bucket, self._noted_in, self.key, self._id))
            except BaseException:
                abort_upload(self.client, self.bucket, self.key, self._id, self.target)
                raise
        self._pool = ThreadPoolExecutor(self.client.settings.threads, thread_name_prefix="s3-parts")

    def put(self, data: bytes) -> None:
        """
        Send the next part. Waits while as many parts as there are threads are being sent, because they are held in
        memory.
        """
        self._copies = None  # own bytes aren't kept, so this upload can't be made anew
        self._room.acquire()
        self._add(lambda number: self._put(number, data), self._room.release)

    def copy(self, source: Object, offset: int, length: int) -> None:
        """Let the store copy the next part."""
        if self._copies is not None:
            self._copies.append((source, offset, length))
        self._add(lambda number: self._copy(number, source, offset, length))

    def wait(self) -> None:
        """
        Wait until all parts have arrived.

        Raises:
            FileNotFoundError: another process gave the upload up, or its source is gone.
            CorruptFileError: the source was replaced.
        """
        try:
            for part in self._parts:
                part.result()
        except BaseException:
            self._pool.shutdown(wait=True, cancel_futures=True)
            raise
        self._pool.shutdown(wait=True)

    def complete(self) -> None:
        """
        Make the upload an object, in one step, only if no object is there.

        After a conflict the upload is made anew from its sources. If a process that fences this one off gave the upload
        up, the sources are gone too.

        Raises:
            FileExistsError: an object is there that this upload didn't make.
            FileNotFoundError: the upload was given up, or its source is gone.
            S3ConflictError: another process is at the same key, and the upload can't be made anew, or was as often as
                allowed.
            OutcomeUnknownError: no answer; the object may be there.
        """
        persistently(self._complete, self._is_there, self._renew)

    def _complete(self) -> None:
        parts = [{"PartNumber": number, "ETag": part.result()} for number, part in enumerate(self._parts, 1)]
        with explained("complete", self.target, may_have_happened=True):
            self.client.call.complete_multipart_upload(
                Bucket=self.bucket, Key=self.key, UploadId=self._id, MultipartUpload={"Parts": parts}, IfNoneMatch="*"
            )

    def _is_there(self) -> bool:
        return mark_of(self.client, self.bucket, self.key, self.target) == self._mark

    def _renew(self) -> None:
        """Begin another upload of the same content."""
        if self._copies is None:
            raise S3ConflictError(
                f"can't complete {self.target!r}: another process was at it, and it can't be made anew from here",
                self.target,
            )
        abort_upload(self.client, self.bucket, self.key, self._id, self.target)
        copies, self._copies = self._copies, []
        self._begin()
        for source, offset, length in copies:
            self.copy(source, offset, length)
        self.wait()

    def abort(self) -> None:
        """Give the upload up. Waits for parts that are still being sent, or the store would keep them."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        abort_upload(self.client, self.bucket, self.key, self._id, self.target)
        while self._notes:
            records.remove(self.client, self.bucket, self._notes[-1])
            self._notes.pop()

    def _ask(self, operation: str, **arguments: Any) -> Any:
        with explained("write", self.target):
            return getattr(self.client.call, operation)(Bucket=self.bucket, Key=self.key, **arguments)

    def _add(self, work: Callable[[int], str], done: Callable[[], None] = lambda: None) -> None:
        number = len(self._parts) + 1
        future = self._pool.submit(work, number)
        future.add_done_callback(lambda _: done())
        self._parts.append(future)

    def _put(self, number: int, data: bytes) -> str:
        answer = self._ask("upload_part", UploadId=self._id, PartNumber=number, Body=data)
        self.client.count(sent=len(data))
        return str(answer["ETag"])

    def _copy(self, number: int, source: Object, offset: int, length: int) -> str:
        if not length:  # asks for the source: an upload made anew must fail where a fencing process removed it
            with explained("read", source.key):
                self.client.call.head_object(Bucket=source.bucket, Key=source.key)
            return self._put(number, b"")
        whole = length == source.size
        if not whole and source.size <= SMALLEST:  # a store copies an object this small only as a whole
            reader = S3Reader(self.client, f"{source.bucket}/{source.key}", source)
            return self._put(number, reader.read_at(offset, length))
        chosen = {} if whole else {"CopySourceRange": f"bytes={offset}-{offset + length - 1}"}
        try:
            answer = self._ask(
                "upload_part_copy",
                UploadId=self._id,
                PartNumber=number,
                CopySource={"Bucket": source.bucket, "Key": source.key},
                CopySourceIfMatch=source.etag,
                **chosen,
            )
        except FileExistsError:  # so `explained` reports a failed condition: the source was replaced
            raise replaced(source.key) from None
        self.client.count(copied=length)
        return str(answer["CopyPartResult"]["ETag"])


class S3Writer(WriteHandle):
    """
    A `WriteHandle` on an object that didn't exist before. No object is there until `close`. A small object is sent in
    one request.
    """

    def __init__(self, client: S3Client, bucket: str, key: str, name: str) -> None:
        super().__init__(name)
        self._client = client
        self._bucket = bucket
        self._key = key
        self._upload: Upload | None = None
        self._assembler: Assembler[Object] = Assembler(
            self, own_bytes=client.settings.part_bytes, copy_bytes=client.settings.copy_part_bytes
        )

    def write(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data).cast("B")
        self._assembler.write(view)
        self._position += len(view)

    def copy_from(self, reader: RandomReader, offset: int, length: int) -> None:
        if isinstance(reader, S3Reader) and reader.client is self._client:
            if offset + length > reader.size:
                raise truncated(reader.name, offset, length)
            self._assembler.copy(reader.object, offset, length)
            self._position += length
        else:
            super().copy_from(reader, offset, length)

    def _finish(self) -> None:
        content = self._assembler.finish()
        if content is None:
            self._complete()
            return
        put_new(self._client, self._bucket, self._key, content, self.name)
        self._client.count(sent=len(content))

    def _give_up(self) -> None:
        if self._upload is not None:
            self._upload.abort()

    # Called by the assembler

    def read(self, source: Object, offset: int, length: int) -> bytes:
        """Read bytes of another object through this process."""
        return S3Reader(self._client, f"{source.bucket}/{source.key}", source).read_at(offset, length)

    def put(self, data: bytes) -> None:
        """Send a part."""
        self._begun().put(data)

    def copy(self, source: Object, offset: int, length: int) -> None:
        """Let the store copy a part."""
        self._begun().copy(source, offset, length)

    def _begun(self) -> Upload:
        if self._upload is None:
            self._upload = Upload(self._client, self._bucket, self._key, self.name)
        return self._upload

    def _complete(self) -> None:
        upload = self._begun()
        try:
            upload.wait()
            upload.complete()
        except FileNotFoundError:
            raise CompactorError(
                f"{self.name} was given up while it was written, or a file that is copied into it is gone"
            ) from None
        except OutcomeUnknownError as error:
            raise UnreachableError(f"{error}; it isn't used") from error


OWNER: Final = "compactor-attempt"
"""Metadata key of an object: its owner, as `prepare` was given it."""


def abort_upload(client: S3Client, bucket: str, key: str, upload_id: str, name: str) -> None:
    """Give an upload up. An upload that is over is no error."""
    try:
        with explained("give up", name):
            client.call.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload_id)
    except FileNotFoundError:
        return


def replaced(name: str) -> CorruptFileError:
    """The error for an object that isn't the one that was opened."""
    return CorruptFileError(f"{name!r} was replaced or removed while it was read")
