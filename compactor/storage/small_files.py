"""
What drivers share: whole small files, the contents of small files in a listing, and publishing by rename.

`SmallFiles` reads a small file with a size limit and writes one at once, by the driver's open files. To a listing it
adds what the small files of its bases say. A base's `_metadata_acid` is one small JSON object whose `dataFormat` says
how the base came about. Source: Hive's AcidUtils.MetaDataFile.

`RenamingStorage` is for drivers that rename a directory in one step: publishing is a rename, and so is removing.
"""

import json
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Final

from compactor.acid.listing import FileEntry, Listing
from compactor.acid.names import METADATA_FILE, is_hidden
from compactor.acid.originals import decode_originals, lists_in
from compactor.errors import CorruptFileError, RefusedError
from compactor.reasons import Reason
from compactor.storage.base import Storage
from compactor.storage.location import join

METADATA_LIMIT: Final = 1 << 16
"""Bytes read of a `_metadata_acid` at most: the file holds about fifty."""
_ORIGINALS_LIMIT: Final = 64 << 20
"""Bytes read of a list of original files at most: half a million files in one directory."""


def data_format(content: bytes, path: str) -> str:
    """
    The value of `dataFormat`, in lower case as Hive writes it.

    Raises:
        CorruptFileError: the content isn't a JSON object, or has no text under `dataFormat`.
    """
    try:
        found = json.loads(content)
        value = found["dataFormat"]
    except (ValueError, KeyError, TypeError) as error:
        raise _malformed(path) from error
    if not isinstance(value, str):
        raise _malformed(path)
    return value.lower()


def is_base_metadata(path: str) -> bool:
    """Whether a path below a partition is the metadata file of one of its bases."""
    directory, _, name = path.rpartition("/")
    return name == METADATA_FILE and "/" not in directory and directory.startswith("base_")


def _malformed(path: str) -> CorruptFileError:
    return CorruptFileError(
        f'{path!r} isn\'t a JSON object with a "dataFormat": Hive readers fail on it; repair or remove it',
    )


class SmallFiles(Storage):
    """The part of a driver that reads and writes whole small files."""

    def exists(self, location: str) -> bool:
        return self.stat(location) is not None

    def walked(self, location: str, children: Callable[[str], Iterable[tuple[str, FileEntry | None]]]) -> Listing:
        """
        List a tree, directory by directory. Hidden directories directly in it are named and not entered; what vanishes
        meanwhile is left out.

        Args:
            children: names of what lies directly in a directory below the location ("" is itself), with the file that
                each is, its path left open, or None for a directory. Raises FileNotFoundError where there is none.

        Raises:
            RefusedError: LOCATION_MISSING.
        """
        files: list[FileEntry] = []
        directories: list[str] = []
        left = [""]
        while left:
            below = left.pop()
            try:
                found = children(below)
            except FileNotFoundError as error:
                if not below:
                    raise RefusedError(Reason.LOCATION_MISSING, f"directory {location!r} doesn't exist") from error
                continue
            if below:
                directories.append(below)
            for name, file in found:
                path = f"{below}/{name}" if below else name
                if file is not None:
                    files.append(replace(file, path=path))
                elif not below and is_hidden(name):
                    directories.append(path)
                else:
                    left.append(path)
        return self.listing(location, files, directories)

    def open_files(self, location: str, paths: Collection[str]) -> tuple[str, ...]:  # noqa: ARG002 - for others
        """Returns none: the store doesn't tell who writes."""
        return ()

    def read_small(self, location: str, limit: int = 1 << 20) -> bytes:
        with self.open_read(location) as reader:
            if reader.size > limit:
                raise RefusedError(
                    Reason.CORRUPT_FILE, f"{reader.name!r} has {reader.size} bytes, more than the {limit} it may have"
                )
            return reader.read_at(0, limit)

    def write_small(self, location: str, data: bytes) -> None:
        with self.create(location) as writer:
            writer.write(data)

    def listing(self, location: str, files: Iterable[FileEntry], directories: Iterable[str]) -> Listing:
        """
        A `Listing` that includes the contents of its bases' small files. A file that vanished meanwhile is left out.
        """
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
        """Directory, path and content of each file."""
        for path in paths:
            try:
                yield path.rpartition("/")[0], path, self.read_small(join(location, path), limit)
            except FileNotFoundError:
                continue


class RenamingStorage(SmallFiles):
    """The part of a driver that publishes and removes directories by renaming them."""

    uploads: Final = None

    def withdraw(self, location: str, aside: str) -> bool:
        try:
            self.rename_noreplace(location, aside)
        except FileNotFoundError:
            return False
        self.delete_tree(aside)
        return True
