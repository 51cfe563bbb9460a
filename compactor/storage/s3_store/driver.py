"""
The driver for Amazon S3 and stores that speak its protocol.

S3 has no directories and no rename. A file appears when its upload is completed: whole, in one step, and only if none
is there (If-None-Match). An upload that isn't completed is invisible to readers, but any process that knows its id can give
it up. That is how a paused process is fenced off here: uploads are noted by their ids (`records`), since not every store
lists them.
Source: docs/storage.md; Amazon S3 API Reference; Hadoop's S3AFileSystem.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from os.path import commonprefix
from typing import Any, Final, Self, TypeVar

from compactor.acid.listing import FileEntry, Listing
from compactor.errors import RefusedError, RetryableError, UnreachableError
from compactor.reasons import Reason
from compactor.storage.base import Contents, Promises, Uploads
from compactor.storage.failures import missing, taken
from compactor.storage.location import LocationParts, join, parent, split
from compactor.storage.object_store import FOLDER_SUFFIX, UPLOADS, ObjectStorage, apart, changed, files_and_directories
from compactor.storage.registry import StorageOptions
from compactor.storage.s3_store import records
from compactor.storage.s3_store.client import EXISTS, LATER, MISSING, S3Client, explained, put_new
from compactor.storage.s3_store.files import OWNER, Object, S3Reader, S3Writer, Upload, abort_upload
from compactor.storage.s3_store.parts import whole_parts
from compactor.storage.s3_store.promises import tried

_DELETED_AT_ONCE: Final = 1000
_ROUNDS: Final = 10
Item = TypeVar("Item")


class S3Storage(ObjectStorage, Uploads):
    """
    A `Storage` on one bucket, and its uploads.

    Args:
        parts: of any location in the bucket.
    """

    def __init__(self, parts: LocationParts, options: StorageOptions) -> None:
        if not parts.authority:
            what = f"an {parts.scheme}: location names a bucket: {parts.scheme}://bucket{parts.path}"
            raise RefusedError(Reason.UNSUPPORTED_STORE, what)
        self._bucket: Final = parts.authority
        self.client: Final = S3Client(options.s3)
        self._promises: Promises | None = None

    @property
    def uploads(self) -> Self:
        return self

    @property
    def side_by_side(self) -> int:
        return self.client.settings.threads

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
        names: set[str] = set()
        with explained("list", location):
            for page in self._pages("list_objects_v2", Prefix=prefix, Delimiter="/"):
                names.update(
                    common["Prefix"].removeprefix(prefix).rstrip("/") for common in page.get("CommonPrefixes", ())
                )
        return tuple(sorted(names - {""}))

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
        prepared = self._prepared(source, target)
        try:
            prepared.complete()
        except BaseException:
            prepared.abort()
            raise

    def rename_noreplace(self, source: str, target: str) -> None:
        """Always refuses: an object store can't rename."""
        what = f"can't rename {source!r} to {target!r}: an object store can't rename"
        raise RefusedError(Reason.UNSUPPORTED_STORE, what)

    def adopt(self, source: str, target: str) -> None:
        """Changes nothing: the bucket decides who may read an object."""
        self._require(source)
        self._require(target)

    def sync_directory(self, location: str) -> None:
        """Does nothing: a visible object is durable."""

    def _require_free(self, location: str) -> None:
        if self.exists(location):
            raise taken(location)
        above = parent(location)
        if (prefix := _prefix(above)) and not any(self._entries(prefix, above, 1)):
            raise missing(above)

    # Publishing

    def prepare(self, source: str, target: str, owner: str, records: str) -> Upload:
        return self._prepared(source, target, owner, _prefix(records))

    def _prepared(self, source: str, target: str, owner: str = "", noted_in: str | None = None) -> Upload:
        found = self._object(source)
        upload = Upload(self.client, self._bucket, _key(target), target, owner=owner, noted_in=noted_in)
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

    def delete_tree(self, location: str) -> None:
        self.withdraw(location, "")

    def delete_file(self, location: str) -> None:
        try:
            self._head(_key(location), location)
        except FileNotFoundError:
            return
        self._delete([{"Key": _key(location)}], location)
        self._keep_directory(parent(location))

    def withdraw(self, location: str, aside: str) -> bool:  # noqa: ARG002 - nothing can be laid aside here
        prefix = _prefix(location)
        if not prefix:
            raise RefusedError(Reason.UNKNOWN_NAME, f"{location} is a whole bucket: that isn't removed")
        notes = f"{prefix}{UPLOADS}/"
        for number in range(_ROUNDS):
            unfinished = list(self._unfinished(prefix, location))
            entries = [entry.path for entry in self._entries(prefix, location)]
            if not unfinished and not entries:
                if number:
                    self._delete([{"Key": prefix.rstrip("/") + FOLDER_SUFFIX}], location)
                    self._keep_directory(parent(location))
                return number > 0
            # Notes are read from a listing without sources: what is noted later finds nothing to copy.
            sources = [key for key in entries if not key.startswith(notes)]
            if not sources:
                unfinished += self._noted(entries, location)
            for key, upload_id in unfinished:
                abort_upload(self.client, self._bucket, key, upload_id, location)
            self._delete([{"Key": key} for key in sources or entries], location)
        raise RetryableError(f"{location} is being written to while it is removed")

    def _noted(self, notes: Iterable[str], location: str) -> list[tuple[str, str]]:
        """Key and id of the uploads that were noted in a directory, of files beside it."""
        within = _prefix(parent(location))
        found = (records.read(self.client, self._bucket, noted, within) for noted in notes)
        return [upload for upload in found if upload is not None]

    def contents(self, location: str) -> Contents:
        prefix = _prefix(location)
        found = [replace(entry, path=entry.path.removeprefix(prefix)) for entry in self._entries(prefix, location)]
        uploads = ((key.removeprefix(prefix), upload_id) for key, upload_id in self._unfinished(prefix, location))
        return replace(apart(found), uploads=tuple(uploads))

    def delete_listed(self, location: str, listed: Contents, still: Callable[[], None]) -> None:
        if listed.uploads:
            still()
        for path, upload_id in listed.uploads:
            abort_upload(self.client, self._bucket, f"{_prefix(location)}{path}", upload_id, location)
        before = ""
        for batch in _batches(sorted(listed.files)):
            self._require_same(location, batch, before)
            still()
            self._delete_exactly(location, batch)
            before = batch[-1].path
        for left in _batches(self._bare_markers(location, listed.markers)):
            still()
            self._delete_exactly(location, left)
        if tops := {_prefix(location) + _top(entry.path) for entry in (*listed.files, *listed.markers)}:
            still()
            self._delete([{"Key": top + FOLDER_SUFFIX} for top in sorted(tops)], location)

    def _bare_markers(self, location: str, markers: Sequence[FileEntry]) -> list[FileEntry]:
        """Listed markers in directories that hold nothing else any more."""
        bare = []
        for top, inside in groupby(sorted(markers), lambda marker: _top(marker.path)):
            listed = set(inside)
            now = self.contents(join(location, top))
            left = {replace(marker, path=f"{top}/{marker.path}") for marker in now.markers}
            if not now.files and left <= listed:
                bare += sorted(left)
        return bare

    def promises(self, location: str) -> Promises:
        if self._promises is None or self._promises.broken:
            self._promises = tried(self.client, self._bucket, _prefix(location))
        return self._promises

    def _require_same(self, location: str, batch: Sequence[FileEntry], before: str) -> None:
        """
        Raise unless listed files are still the same entries.

        Args:
            batch: ascending.
            before: a path before the first of them; what lies between isn't looked at.
        """
        prefix = _prefix(location)
        last = prefix + batch[-1].path
        found: set[FileEntry] = set()
        in_common = commonprefix([prefix + batch[0].path, last])  # noqa: RUF071 - keys begin with any characters
        for entry in self._entries(in_common, location, after=prefix + before if before else ""):
            if entry.path > last:
                break
            found.add(replace(entry, path=entry.path.removeprefix(prefix)))
        if different := next((file for file in batch if file not in found), None):
            gone = all(entry.path != different.path for entry in found)
            raise changed(location, different.path, "is missing" if gone else "was replaced")

    def _delete_exactly(self, location: str, entries: Sequence[FileEntry]) -> None:
        """Delete objects that were just compared; where the store can, only if each is still the same."""
        asked = "delete-if-match" not in self.promises(location).missed
        prefix = _prefix(location)
        objects = [{"Key": prefix + entry.path} | ({"ETag": entry.version} if asked else {}) for entry in entries]
        self._delete(objects, location)

    def _delete(self, objects: Sequence[Mapping[str, str]], location: str) -> None:
        """
        Delete objects. Missing keys are no error.

        Args:
            objects: keys, some with the ETag that the object must have.
        """
        for batch in _batches(objects):
            with explained("delete", location):
                answer = self.client.call.delete_objects(Bucket=self._bucket, Delete={"Objects": batch, "Quiet": True})
            errors = [error for error in answer.get("Errors", ()) if error.get("Code") not in MISSING]
            if not errors:
                continue
            worst = next((error for error in errors if error.get("Code") not in LATER), errors[0])
            code, key = worst.get("Code"), worst.get("Key")
            if code in EXISTS:  # so S3 says that a condition failed
                raise changed(location, str(key).removeprefix(_prefix(location)), "was replaced")
            if code in LATER:
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

    def _entries(self, prefix: str, location: str, limit: int | None = None, after: str = "") -> Iterator[FileEntry]:
        """Objects whose keys begin with a prefix, ascending, those behind a key; paths are whole keys."""
        chosen: dict[str, Any] = {"StartAfter": after} if after else {}
        if limit is not None:
            chosen["PaginationConfig"] = {"MaxItems": limit, "PageSize": limit}
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


def _top(path: str) -> str:
    return path.split("/", 1)[0]


def _batches(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """As many at a time as one request may delete."""
    for first in range(0, len(items), _DELETED_AT_ONCE):
        yield items[first : first + _DELETED_AT_ONCE]


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
