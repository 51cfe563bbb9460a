"""Whole small files, by a driver's open ones: read with a bound, written at once; and what such files say of the bases of a listing."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Final

from compactor.acid.listing import FileEntry, Listing
from compactor.acid.originals import decode_originals, lists_in
from compactor.errors import RefusedError
from compactor.reasons import Reason
from compactor.storage.base import ReadHandle, WriteHandle
from compactor.storage.location import join
from compactor.storage.metadata import METADATA_LIMIT, data_format, is_base_metadata

_ORIGINALS_LIMIT: Final = 64 << 20
"""Bytes: half a million original files in one directory."""


class SmallFiles(ABC):
    """Part of a `Storage`."""

    @abstractmethod
    def open_read(self, location: str) -> ReadHandle:
        """See `Storage.open_read`."""

    @abstractmethod
    def create(self, location: str) -> WriteHandle:
        """See `Storage.create`."""

    def read_small(self, location: str, limit: int = 1 << 20) -> bytes:
        """See `Storage.read_small`."""
        with self.open_read(location) as reader:
            if reader.size > limit:
                raise RefusedError(Reason.CORRUPT_FILE, f"{reader.name!r} has {reader.size} bytes, more than the {limit} it may have")
            return reader.read_at(0, limit)

    def write_small(self, location: str, data: bytes) -> None:
        """See `Storage.write_small`."""
        with self.create(location) as writer:
            writer.write(data)

    def listing(self, location: str, files: Iterable[FileEntry], directories: Iterable[str]) -> Listing:
        """A `Listing`, with what the files of its bases say; one that vanished since is left out."""
        found = tuple(sorted(files))
        formats = self._contents(location, [file.path for file in found if is_base_metadata(file.path)], METADATA_LIMIT)
        lists = self._contents(location, lists_in(found), _ORIGINALS_LIMIT)
        return Listing(
            found,
            tuple(sorted(directories)),
            tuple((directory, data_format(content, join(location, path))) for directory, path, content in formats),
            tuple((directory, decode_originals(content)) for directory, _, content in lists),
        )

    def _contents(self, location: str, paths: Iterable[str], limit: int) -> Iterable[tuple[str, str, bytes]]:
        """Directory, path and content."""
        for path in paths:
            try:
                yield path.rpartition("/")[0], path, self.read_small(join(location, path), limit)
            except FileNotFoundError:
                continue
