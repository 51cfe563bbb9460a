"""
The interface of a file system that the rest of the package uses (`Storage`).

All drivers keep the same promises; one test module checks every driver against them. They inherit from these classes,
so that mypy says which of their methods a driver lacks. Locations are Hadoop path strings:
never percent-encoded, with or without a scheme. Drivers report missing and existing paths by Python's FileNotFoundError
and FileExistsError, because callers decide on them. Every other failure is one of `compactor.errors`, with one clear
line.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from compactor.acid.listing import FileEntry, Listing
from compactor.reasons import Reason
from compactor.storage.handles import ReadHandle, WriteHandle


@dataclass(frozen=True, slots=True)
class Room:
    """
    How much may still be written at a location.

    Args:
        bytes: of file content, each counted once however often the store keeps it; None where there is no limit.
        names: files and directories; None where there is no limit.
        limited_by: what sets the limit, for a message: "the file system", "the space quota of /warehouse".
        reason: of the refusal when the room isn't enough: DISK_FULL or QUOTA_EXCEEDED.
    """

    bytes: int | None
    names: int | None
    limited_by: str
    reason: Reason = Reason.DISK_FULL


class PreparedFile(Protocol):
    """A file that is ready to appear under its final name."""

    @property
    def target(self) -> str: ...

    def complete(self) -> None:
        """
        Make the file appear in one step, only if nothing is at the target.

        Raises:
            FileExistsError: the target exists.
            FileNotFoundError: another process gave the file up, or its source is gone.
            OutcomeUnknownError: the file may have appeared.
        """

    def abort(self) -> None:
        """Give the prepared file up."""


@dataclass(frozen=True, slots=True)
class Contents:
    """
    Everything below a directory of a store that can't rename, hidden directories included. Paths are relative to it.

    Args:
        markers: what only says that a directory is there, the directory itself included.
        uploads: path and id of each file that is being prepared, as far as the store lists them.
    """

    files: tuple[FileEntry, ...]
    markers: tuple[FileEntry, ...] = ()
    uploads: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Promises:
    """
    How a store kept its promises when each was tried.

    Args:
        broken: those on which publishing and cleaning rest, each by its name and what was seen.
        missed: those without which a window stays open that is closed elsewhere.
    """

    broken: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()


class Uploads(Protocol):
    """
    What a store that can't rename does instead: files appear by being prepared unseen under their final names, and then
    completed; they go in place, one by one.
    """

    def prepare(self, source: str, target: str, owner: str, records: str) -> PreparedFile:
        """
        Prepare a copy of a file; the store makes the copy itself.

        Args:
            owner: recorded with the file, for `owner_of`.
            records: a directory, `UPLOADS` in the one that `source` lies in: there it is noted which file is being
                prepared, before anything is copied. `withdraw` of the directory around it gives up what is noted.

        Raises:
            FileNotFoundError: the source doesn't exist.
        """

    def owner_of(self, location: str) -> str | None:
        """
        The `owner` that `prepare` recorded with the file at a location; empty when the file was made in another way;
        None when no file is there.
        """

    def contents(self, location: str) -> Contents:
        """What lies below a directory; nothing where it is gone."""

    def delete_listed(self, location: str, listed: Contents, still: Callable[[], None]) -> None:
        """
        Remove exactly what was listed: files that are still the same entries, uploads by their ids, and markers, these
        only where nothing else is left in the first directory of their path. What came later stays.

        Args:
            location: a directory.
            listed: what `contents` found in directories in it; paths are relative to the location.
            still: called before each batch of deletions, after the batch was compared; raises when nothing more may be
                removed.

        Raises:
            RefusedError: INPUT_CHANGED, naming an entry that is missing or was replaced. It stays, and so does what
                would have come after it.
        """

    def promises(self, location: str) -> Promises:
        """
        How the store keeps its promises. Tried once in a process, in a hidden directory at this location, until none is
        broken.
        """


class Storage(Protocol):
    """One kind of file system or object store."""

    @property
    def uploads(self) -> Uploads | None:
        """
        How the store publishes where it can't rename a directory, else None. With `uploads`, `rename_noreplace` is
        refused.
        """

    @property
    def side_by_side(self) -> int:
        """
        How many small-file operations and renames are best run in parallel: 1 where each takes no time, more where each
        waits for a remote server.
        """

    @property
    def links(self) -> bool:
        """Whether `link_or_copy` usually takes no space."""

    @property
    def mounts(self) -> bool:
        """
        Whether a part of the store may be absent without an error: an unmounted file system looks like an empty
        directory, as if its content had been removed.
        """

    def list_tree(self, location: str) -> Listing:
        """
        List everything below a partition's directory, as `Listing` describes. Entries that vanish meanwhile are left
        out.

        Raises:
            RefusedError: LOCATION_MISSING; UNKNOWN_NAME (a visible symbolic link, device or socket); CORRUPT_FILE (a
                malformed `_metadata_acid`).
        """

    def directories(self, location: str) -> tuple[str, ...]:
        """
        Names of the directories directly inside a location, ascending; none where the location is gone. All other
        entries are ignored. Cleaning up needs no other listing.
        """

    def withdraw(self, location: str, aside: str) -> bool:
        """
        Remove a directory for good, with all its content.

        A late rename out of the directory finds no source. On a store with `uploads`, a file that was prepared from the
        directory and noted in it never appears. Returns whether anything was there.

        Args:
            aside: a free location beside the directory, with a name that marks it as removable. A store that can rename
                moves the directory there first.
        """

    def stat(self, location: str) -> FileEntry | None:
        """
        Length (0 for a directory), modification time and version of the entry at a location, with the location as its
        path; None when nothing is there.
        """

    def exists(self, location: str) -> bool: ...

    def open_files(self, location: str, paths: Collection[str]) -> tuple[str, ...]:
        """
        Which of these files (paths relative to the location) are still being written, as far as the store tells: their
        lengths aren't final. A missing file isn't one of them.
        """

    def open_read(self, location: str) -> ReadHandle:
        """
        Open a file for reading.

        Raises:
            FileNotFoundError: nothing is there.
        """

    def create(self, location: str) -> WriteHandle:
        """
        Create a new file; its directory must exist.

        Raises:
            FileExistsError: the location exists already; it isn't touched.
            FileNotFoundError: the directory doesn't exist.
        """

    def mkdir(self, location: str) -> None:
        """
        Make one new directory, but never its parents: a removed staging directory must stay removed.

        Raises:
            FileExistsError: the location exists already.
            FileNotFoundError: the parent doesn't exist.
        """

    def rename_noreplace(self, source: str, target: str) -> None:
        """
        Move a file or directory in one atomic step, durably, only if nothing is at the target.

        Raises:
            FileExistsError: the target exists, even as an empty directory.
            FileNotFoundError: the source or the target's parent doesn't exist.
            RefusedError: UNSUPPORTED_STORE (the file system can't do it; always raised where there are `uploads`).
            OutcomeUnknownError: the rename may have happened.
        """

    def delete_file(self, location: str) -> None:
        """Remove one file. A missing file is no error."""

    def delete_tree(self, location: str) -> None:
        """
        Remove a directory and everything below; a missing one is no error. Symbolic links are removed, never followed.
        """

    def link_or_copy(self, source: str, target: str) -> None:
        """
        Give a file's bytes a second name: a hard link where possible, else a durable copy. The source stays.

        Raises:
            FileExistsError: the target exists.
            FileNotFoundError: the source or the target's directory doesn't exist.
        """

    def read_small(self, location: str, limit: int = 1 << 20) -> bytes:
        """
        Read a whole small file.

        Raises:
            FileNotFoundError: nothing is there.
            RefusedError: CORRUPT_FILE (the file is longer than `limit` bytes).
        """

    def write_small(self, location: str, data: bytes) -> None:
        """
        Write a whole new file, durably.

        Raises:
            FileExistsError: the location exists already.
        """

    def room(self, location: str) -> Room:
        """
        How much an ordinary user may still write at a location, quotas included. May be slow: called once before a
        compaction.

        Raises:
            FileNotFoundError: nothing is there.
        """

    def adopt(self, source: str, target: str) -> None:
        """
        Give a directory, and the files directly in it, the attributes that the table's own writers would give.

        These are owner, group and permission of `source` (a partition's or a table's directory), and its access control
        list where the store has one. Callers adopt `target` before other processes can see it. Attributes that the
        daemon may not set stay as they are: where the daemon isn't the superuser, its user stays the owner.

        Raises:
            FileNotFoundError: `source` or `target` doesn't exist.
        """

    def owner(self, location: str) -> str:
        """
        The user that owns a file or directory.

        Raises:
            FileNotFoundError: nothing is there.
        """

    def sync_directory(self, location: str) -> None:
        """
        Make the names inside a directory durable.

        Raises:
            RefusedError: UNSUPPORTED_STORE (the file system can't do it).
        """
