"""Whole small files, by a driver's open ones: read with a bound, written at once; and the formats of bases, which are such files."""

from abc import ABC, abstractmethod
from collections.abc import Iterable

from compactor.acid.listing import FileEntry
from compactor.errors import RefusedError
from compactor.reasons import Reason
from compactor.storage.base import ReadHandle, WriteHandle
from compactor.storage.location import join
from compactor.storage.metadata import METADATA_LIMIT, data_format, is_base_metadata


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

    def formats(self, location: str, files: Iterable[FileEntry]) -> tuple[tuple[str, str], ...]:
        """Of a listing's bases, as `Listing.formats` says; a file that vanished since is left out."""
        return tuple(sorted(self._formats(location, [file.path for file in files if is_base_metadata(file.path)])))

    def _formats(self, location: str, paths: Iterable[str]) -> Iterable[tuple[str, str]]:
        for path in paths:
            place = join(location, path)
            try:
                content = self.read_small(place, METADATA_LIMIT)
            except FileNotFoundError:
                continue
            yield path.rpartition("/")[0], data_format(content, place)
