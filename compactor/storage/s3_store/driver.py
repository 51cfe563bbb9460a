"""
The driver for Amazon S3 and stores that speak its protocol.

S3 has no directories and no rename. A file appears when its upload is completed: whole, in one step, and only if none
is there (If-None-Match). An upload that isn't completed is invisible to readers, but any process can list it and give
it up. That is how a paused process is fenced off here.
Source: docs/storage.md; Amazon S3 API Reference; Hadoop's S3AFileSystem.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from compactor.acid.listing import FileEntry, Listing
from compactor.errors import RefusedError, RetryableError, UnreachableError
from compactor.reasons import Reason
from compactor.storage.location import LocationParts, parent, split
from compactor.storage.object_store import FOLDER_SUFFIX, ObjectStorage, files_and_directories
from compactor.storage.registry import StorageOptions
from compactor.storage.s3_store.client import BUSY, S3Client, explained, put_new
from compactor.storage.s3_store.files import OWNER, Object, S3Reader, S3Writer, Upload, abort_upload
from compactor.storage.s3_store.parts import whole_parts

_DELETED_AT_ONCE: Final = 1000
_ROUNDS: Final = 10


class S3Storage(ObjectStorage):
    """
    A `Storage` on one bucket.

    Args:
        parts: of any location in the bucket.
    """

    def __init__(self, parts: LocationParts, options: StorageOptions) -> None:
        super().__init__(parts)
        self._bucket: Final = parts.authority
        self.client: Final = S3Client(options.s3)
        self.side_by_side: Final = options.s3.threads

    # Looking

    def list_tree(self, location: str) -> Listing:
        prefix = _prefix(location)
        found = [replace(entry, path=entry.path.removeprefix(prefix)) for entry in self._entries(prefix, location)]
        if not found and prefix:
            raise RefusedError(Reason.LOCATION_MISSING, f"directory {location!r} doesn't exist")
        files, directories = files_and_directories(found, location)
        return self.listing(location, files, directories)

    def directories(self, location: str) -> tuple[str, ...]:
        prefix = _prefix(location)
        names = set(self.pending(location))
        with explained("list", location):
            for page in self._pages("list_objects_v2", Prefix=prefix, Delimiter="/"):
                names.update(
                    common["Prefix"].removeprefix(prefix).rstrip("/") for common in page.get("CommonPrefixes", ())
                )
        return tuple(sorted(names - {""}))

    def pending(self, location: str) -> tuple[str, ...]:
        prefix = _prefix(location)
        below = (key.removeprefix(prefix) for key, _ in self._unfinished(prefix, location))
        return tuple(sorted({path.split("/", 1)[0] for path in below if "/" in path} - {""}))

    def stat(self, location: str) -> FileEntry | None:
        prefix = _prefix(location)
        if key := prefix.rstrip("/"):
            try:
                head = self._head(key, location)
            except FileNotFoundError:
                pass
            else:
                return _entry(location, head["ContentLength"], head)
        first = next(iter(self._entries(prefix, location, 1)), None)
        if first is None and prefix:
            return None
        return FileEntry(location, 0, first.mtime_ms if first is not None else 0)

    # Reading and writing

    def open_read(self, location: str) -> S3Reader:
        found = self._object(location)
        return S3Reader(self.client, location, found)

    def create(self, location: str) -> S3Writer:
        self._require_free(location)
        return S3Writer(self.client, self._bucket, _key(location), location)

    def mkdir(self, location: str) -> None:
        self._require_free(location)
        self._mark(location, exclusive=True)

    def link_or_copy(self, source: str, target: str) -> None:
        self._require_free(target)
        prepared = self.prepare(source, target, "")
        try:
            prepared.complete()
        except BaseException:
            prepared.abort()
            raise

    # Publishing

    def prepare(self, source: str, target: str, owner: str) -> Upload:
        found = self._object(source)
        upload = Upload(self.client, self._bucket, _key(target), target, owner)
        try:
            for offset, length in whole_parts(found.size, self.client.settings.copy_part_bytes):
                upload.copy(found, offset, length)
            upload.wait()
        except BaseException:
            upload.abort()
            raise
        return upload

    def owner_of(self, location: str) -> str | None:
        try:
            head = self._head(_key(location), location)
        except FileNotFoundError:
            return None
        return str(head.get("Metadata", {}).get(OWNER, ""))

    # Removing

    def delete_file(self, location: str) -> None:
        try:
            self._head(_key(location), location)
        except FileNotFoundError:
            return
        self._delete([_key(location)], location)
        self._keep_directory(parent(location))

    def withdraw(self, location: str, aside: str) -> bool:  # noqa: ARG002 - nothing can be laid aside here
        prefix = _prefix(location)
        if not prefix:
            raise RefusedError(Reason.UNKNOWN_NAME, f"{location} is a whole bucket: that isn't removed")
        for number in range(_ROUNDS):
            unfinished = list(self._unfinished(prefix, location))
            entries = [entry.path for entry in self._entries(prefix, location)]
            if not unfinished and not entries:
                if number:
                    self._delete([prefix.rstrip("/") + FOLDER_SUFFIX], location)
                    self._keep_directory(parent(location))
                return number > 0
            self._delete(entries, location)
            for key, upload_id in unfinished:
                abort_upload(self.client, self._bucket, key, upload_id, location)
        raise RetryableError(f"{location} is being written to while it is removed")

    def _delete(self, keys: Sequence[str], location: str) -> None:
        """Delete objects. Missing keys are no error."""
        remaining = iter(keys)
        while batch := list(islice(remaining, _DELETED_AT_ONCE)):
            with explained("delete", location):
                answer = self.client.call.delete_objects(
                    Bucket=self._bucket, Delete={"Objects": [{"Key": key} for key in batch], "Quiet": True}
                )
            if errors := answer.get("Errors"):
                worst = next((error for error in errors if error.get("Code") not in BUSY), errors[0])
                code, key = worst.get("Code"), worst.get("Key")
                if code in BUSY:
                    raise UnreachableError(f"can't delete {key!r} of bucket {self._bucket}: {code}")
                reason = Reason.PERMISSION_DENIED if code == "AccessDenied" else Reason.UNSUPPORTED_STORE
                raise RefusedError(reason, f"can't delete {key!r} of bucket {self._bucket}: {code}")

    def _keep_directory(self, location: str) -> None:
        """Mark a directory whose last entry was removed, so that it stays a directory, as S3A does."""
        if _key(location) and not self.exists(location):
            self._mark(location, exclusive=False)

    # Keys

    def _mark(self, location: str, *, exclusive: bool) -> None:
        if exclusive:
            put_new(self.client, self._bucket, _prefix(location), b"", location)
            return
        with explained("make directory", location):
            self.client.call.put_object(Bucket=self._bucket, Key=_prefix(location), Body=b"")

    def _is_directory(self, location: str) -> bool:
        prefix = _prefix(location)
        return not prefix or any(self._entries(prefix, location, 1))

    def _object(self, location: str) -> Object:
        key = _key(location)
        head = self._head(key, location)
        if not head.get("ETag"):
            raise RefusedError(
                Reason.UNSUPPORTED_STORE,
                f"the store gives no ETag for {location!r}: a replaced object couldn't be told from the one that was planned",
            )
        return Object(self._bucket, key, head["ContentLength"], head["ETag"])

    def _head(self, key: str, location: str) -> Any:
        with explained("read", location):
            return self.client.call.head_object(Bucket=self._bucket, Key=key)

    def _entries(self, prefix: str, location: str, limit: int | None = None) -> Iterator[FileEntry]:
        """Objects whose keys begin with a prefix; paths are whole keys."""
        chosen = {} if limit is None else {"PaginationConfig": {"MaxItems": limit, "PageSize": limit}}
        with explained("list", location):
            for page in self._pages("list_objects_v2", Prefix=prefix, **chosen):
                for item in page.get("Contents", ()):
                    yield _entry(item["Key"], item["Size"], item)

    def _unfinished(self, prefix: str, location: str) -> Iterator[tuple[str, str]]:
        """Uploads that are neither completed nor given up: (key, upload id)."""
        with explained("list", location):
            for page in self._pages("list_multipart_uploads", Prefix=prefix):
                for item in page.get("Uploads", ()):
                    yield item["Key"], item["UploadId"]

    def _pages(self, operation: str, **arguments: Any) -> Iterable[Any]:
        pages: Iterable[Any] = self.client.call.get_paginator(operation).paginate(Bucket=self._bucket, **arguments)
        return pages


def _entry(path: str, length: int, said: Mapping[str, Any]) -> FileEntry:
    """
    An object as a `FileEntry`. Times are whole seconds, as headers have them: some stores give more digits in listings,
    and a file must be the same entry in a listing and in a HEAD answer.
    """
    return FileEntry(path, length, int(said["LastModified"].timestamp()) * 1000, str(said.get("ETag", "")))


def _key(location: str) -> str:
    return split(location).path.strip("/")


def _prefix(location: str) -> str:
    """What the keys of all objects in a directory begin with; empty for the bucket itself."""
    key = _key(location)
    return f"{key}/" if key else ""
