"""
Where a compaction's files come into being: one hidden directory inside the partition.

    .compactor-<entry>-<attempt>/
      tasks/<task attempt>/…      written by tasks, each in a directory of its own
      out/<directory>/…           what is published: exactly the accepted files, and the markers

Made once; nothing ever makes it again. Whoever takes it away (`discard`) stops every late task and every late rename for lack of a place and a source: that is
the fence behind which a queue entry may be given to somebody else.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from compactor.acid.listing import FileEntry
from compactor.acid.names import (
    STAGING_PREFIX,
    TRASH_PREFIX,
)
from compactor.errors import CancelledError, CompactorError, OutcomeUnknownError, RefusedError
from compactor.reasons import Reason
from compactor.storage.base import Storage
from compactor.storage.location import join

EVIDENCE_PREFIX = ".evidence-compactor-"
TASKS = "tasks"
OUT = "out"


@dataclass(frozen=True, slots=True)
class Accepted:
    """A file that a task reported and the worker took: `path` relative to the staging directory, then its place in the output."""

    path: str
    directory: str
    name: str
    length: int
    checksum: int


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
        Create it.

        Raises:
            CompactorError: it is there; an attempt is never repeated under its own name.
            RefusedError: INPUT_CHANGED, the partition's directory is gone.
        """
        try:
            self._storage.mkdir(self.root)
            self._storage.mkdir(self.tasks)
        except FileExistsError:
            raise CompactorError(f"staging directory {self.root} is already there: this attempt was started before") from None
        except FileNotFoundError:
            raise RefusedError(Reason.INPUT_CHANGED, f"directory {self._location} is gone") from None

    def make_out(self, directories: list[str]) -> None:
        self._storage.mkdir(join(self.root, OUT))
        for name in directories:
            self._storage.mkdir(self.out(name))

    def out(self, directory: str) -> str:
        return join(self.root, OUT, directory)

    def place(self, directory: str, name: str) -> str:
        """Where a file of the result is until it is published."""
        return join(self.out(directory), name)

    def complete(self, files: Sequence[Accepted], directories: Mapping[str, Mapping[str, bytes]]) -> None:
        """
        Put the output directories together: accepted files, markers, and what belongs to the table (`Storage.adopt`).

        Args:
            directories: by name, the markers of each with their content (`engine.markers`).

        What can be under way at once is: closing a small file on HDFS takes half a second. The names of all that is in them are durable afterwards: the rename
        that publishes a directory must not outlive its contents.

        Raises:
            CompactorError: two files for one place.
            CancelledError: it is gone: somebody has discarded this attempt.
        """
        moves = [partial(self.accept, file) for file in files]
        marks = [partial(self.mark, name, marker, content) for name, markers in directories.items() for marker, content in markers.items()]
        at_once(self._storage.side_by_side, [*moves, *marks])
        for name, markers in directories.items() if self._storage.uploads is None else ():
            self._require_only(name, {file.name: file.length for file in files if file.directory == name} | {key: len(markers[key]) for key in markers})
        try:
            for name in directories:
                self._storage.adopt(self._location, self.out(name))
                self._storage.sync_directory(self.out(name))
        except FileNotFoundError:
            raise self._discarded() from None

    def _require_only(self, directory: str, expected: Mapping[str, int]) -> None:
        """
        Before anything is given to the table's owner: files of these lengths, and nothing else, not even a link.

        Raises:
            RefusedError: VERIFICATION_FAILED, UNKNOWN_NAME.
            CancelledError: it is gone.
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

    def accept(self, file: Accepted) -> None:
        """
        Move one finished file to its place.

        Raises:
            CompactorError: two files for one place.
            CancelledError: it is gone: somebody has discarded this attempt.
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
            CancelledError: it is gone: somebody has discarded this attempt.
        """
        try:
            self._storage.write_small(join(self.out(directory), marker), content)
        except FileNotFoundError:
            raise self._discarded() from None

    def _discarded(self) -> CancelledError:
        return CancelledError(f"{self.root} was discarded while it was put together")

    def listed(self, directory: str) -> tuple[FileEntry, ...]:
        """
        What is in a finished output directory, paths relative to it.

        Raises:
            RefusedError: VERIFICATION_FAILED, something other than files is in it.
        """
        listing = self._storage.list_tree(self.out(directory))
        if listing.directories:
            raise RefusedError(Reason.VERIFICATION_FAILED, f"{directory} holds a directory, {listing.directories[0]}")
        return listing.files

    def discard(self) -> None:
        """Take it out of sight in one step, then delete it; nothing there is fine."""
        gone = join(self._location, f"{TRASH_PREFIX}{self.tag}-delete")
        if self._storage.exists(self.root):  # where nothing was made nothing is asked of a file system that may be read-only
            with contextlib.suppress(FileNotFoundError, FileExistsError, OutcomeUnknownError):
                self._storage.rename_noreplace(self.root, gone)
        self._storage.delete_tree(gone)
        if self._storage.exists(self.root):
            self._storage.delete_tree(self.root)

    def keep_as_evidence(self) -> str:
        """Rename it aside, so that nothing in it can be published any more; returns the new directory's name."""
        name = f"{EVIDENCE_PREFIX}{self.tag}"
        self._storage.rename_noreplace(self.root, join(self._location, name))
        return name


def at_once(count: int, actions: Sequence[Callable[[], object]]) -> None:
    """Do all of them, at most so many at a time; the first error is raised when those under way have ended."""
    if count <= 1 or len(actions) <= 1:
        for action in actions:
            action()
        return
    with ThreadPoolExecutor(min(count, len(actions)), thread_name_prefix="staging") as pool:
        started = [pool.submit(action) for action in actions]
        try:
            for one in started:
                one.result()
        except BaseException:
            for one in started:
                one.cancel()
            raise
