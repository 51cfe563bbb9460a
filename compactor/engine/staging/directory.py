"""
The staging directory of a compaction: one hidden directory inside the partition, which receives all its files.

    .compactor-<entry>-<attempt>/
      tasks/<task attempt>/…      written by tasks, each in a directory of its own
      out/<directory>/…           the directories to publish: exactly the accepted files, and the markers

An attempt makes its directory once; no process ever makes it again. Removing it (`discard`) stops every late task, which
finds no place to write to, and every late rename, which finds no source. Behind this fence the queue entry may be given
to another worker.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from compactor.acid.listing import FileEntry
from compactor.acid.names import (
    STAGING_PREFIX,
    TRASH_PREFIX,
)
from compactor.engine.results import OutputFile
from compactor.errors import CancelledError, CompactorError, OutcomeUnknownError, RefusedError
from compactor.reasons import Reason
from compactor.storage.base import Storage
from compactor.storage.location import join

Made = TypeVar("Made")

EVIDENCE_PREFIX = ".evidence-compactor-"
TASKS = "tasks"
OUT = "out"


class Staging:
    """
    The staging directory of one attempt.

    Args:
        location: the partition's directory.
    """

    def __init__(self, storage: Storage, location: str, entry_id: int, attempt: str) -> None:
        self._storage = storage
        self._location = location
        self.tag = f"{entry_id}-{attempt}"
        self.name = f"{STAGING_PREFIX}{self.tag}"
        self.root = join(location, self.name)
        self.tasks = join(self.root, TASKS)

    def make(self) -> None:
        """
        Create the staging directory.

        Raises:
            CompactorError: the directory exists; an attempt is never repeated under its own name.
            RefusedError: INPUT_CHANGED, the partition's directory is gone.
        """
        try:
            self._storage.mkdir(self.root)
            self._storage.sync_directory(self._location)  # where that is refused, no rename would ever be durable
            self._storage.mkdir(self.tasks)
        except FileExistsError:
            raise CompactorError(
                f"staging directory {self.root} is already there: this attempt was started before"
            ) from None
        except FileNotFoundError:
            raise RefusedError(Reason.INPUT_CHANGED, f"directory {self._location} is gone") from None

    def make_out(self, directories: list[str]) -> None:
        self._storage.mkdir(join(self.root, OUT))
        for name in directories:
            self._storage.mkdir(self.out(name))

    def out(self, directory: str) -> str:
        return join(self.root, OUT, directory)

    def place(self, directory: str, name: str) -> str:
        """The location of a file of the result until it is published."""
        return join(self.out(directory), name)

    def complete(self, files: Sequence[OutputFile], directories: Mapping[str, Mapping[str, bytes]]) -> None:
        """
        Put the output directories together: accepted files, markers, and the table's owner and rights (`Storage.adopt`).

        Works in parallel where the store allows, because closing a small file on HDFS takes half a second. Afterwards
        the names in the directories are durable: the rename that publishes a directory must not outlive its contents.

        Args:
            directories: name of each output directory → its markers with their content (`engine.results`).

        Raises:
            CompactorError: two files for one place.
            CancelledError: another process has discarded this attempt.
            RefusedError: VERIFICATION_FAILED, UNKNOWN_NAME: a directory holds other entries.
        """
        moves = [partial(self.accept, file) for file in files]
        marks = [
            partial(self.mark, name, marker, content)
            for name, markers in directories.items()
            for marker, content in markers.items()
        ]
        at_once(self._storage.side_by_side, [*moves, *marks])
        for name, markers in directories.items():
            self.require_only(
                name,
                {file.name: file.length for file in files if file.directory == name}
                | {key: len(markers[key]) for key in markers},
            )
        try:
            for name in directories:
                self._storage.adopt(self._location, self.out(name))
                self._storage.sync_directory(self.out(name))
        except FileNotFoundError:
            raise self._discarded() from None

    def require_only(self, directory: str, expected: Mapping[str, int]) -> None:
        """
        Raise unless a directory holds exactly these files with these lengths, and no other entry, not even a link.

        Checked before files are given to the table's owner.

        Raises:
            RefusedError: VERIFICATION_FAILED, UNKNOWN_NAME.
            CancelledError: the directory is gone: another process has discarded this attempt.
        """
        try:
            found = {entry.path: entry.length for entry in self.listed(directory)}
        except RefusedError as error:
            if error.reason is Reason.LOCATION_MISSING:
                raise self._discarded() from None
            raise
        if found != expected:
            odd = min(name for name, _ in found.items() ^ expected.items())
            raise RefusedError(Reason.VERIFICATION_FAILED, f"{directory}/{odd} in {self.root} isn't what was put there")

    def accept(self, file: OutputFile) -> None:
        """
        Move one finished file to its place.

        Raises:
            CompactorError: two files for one place.
            CancelledError: the file is gone: another process has discarded this attempt.
        """
        try:
            self._storage.rename_noreplace(join(self.root, file.path), join(self.out(file.directory), file.name))
        except FileExistsError:
            raise CompactorError(f"two tasks reported {file.directory}/{file.name}") from None
        except FileNotFoundError:
            raise self._discarded() from None

    def mark(self, directory: str, marker: str, content: bytes) -> None:
        """
        Write one marker.

        Raises:
            CancelledError: the directory is gone: another process has discarded this attempt.
        """
        try:
            self._storage.write_small(join(self.out(directory), marker), content)
        except FileNotFoundError:
            raise self._discarded() from None

    def _discarded(self) -> CancelledError:
        return CancelledError(f"{self.root} was discarded while it was put together")

    def listed(self, directory: str) -> tuple[FileEntry, ...]:
        """
        The files in a finished output directory, with paths relative to it.

        Raises:
            RefusedError: VERIFICATION_FAILED, the directory holds another directory.
        """
        listing = self._storage.list_tree(self.out(directory))
        if listing.directories:
            raise RefusedError(Reason.VERIFICATION_FAILED, f"{directory} holds a directory, {listing.directories[0]}")
        return listing.files

    def discard(self) -> None:
        """Rename the staging directory to a trash directory, then delete that; works if both are gone, too."""
        gone = join(self._location, f"{TRASH_PREFIX}{self.tag}-delete")
        if self._storage.exists(self.root):  # without a staging directory: no rename, the file system may be read-only
            with contextlib.suppress(FileNotFoundError, FileExistsError, OutcomeUnknownError):
                self._storage.rename_noreplace(self.root, gone)
        self._storage.delete_tree(gone)
        if self._storage.exists(self.root):
            self._storage.delete_tree(self.root)

    def keep_as_evidence(self) -> str:
        """Rename the staging directory, so that it can't be published any more; returns the new name."""
        name = f"{EVIDENCE_PREFIX}{self.tag}"
        self._storage.rename_noreplace(self.root, join(self._location, name))
        return name


def at_once(count: int, actions: Sequence[Callable[[], Made]]) -> list[Made]:
    """
    Run all actions, at most `count` at a time, and return what they return, in their order; raises the first error once
    the running actions have ended.
    """
    if count <= 1 or len(actions) <= 1:
        return [action() for action in actions]
    with ThreadPoolExecutor(min(count, len(actions)), thread_name_prefix="staging") as pool:
        started = [pool.submit(action) for action in actions]
        try:
            return [one.result() for one in started]
        except BaseException:
            for one in started:
                one.cancel()
            raise
