"""
What the rest of the package may ask of a file system.

Every driver keeps the same promises, and one test module holds them all to it. Locations are Hadoop path strings: never percent-encoded, with or without
a scheme. Missing and existing paths are told by Python's FileNotFoundError and FileExistsError, for callers decide on them; every other failure is one of
`compactor.errors` with one clear line.
"""

from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from compactor.acid.listing import FileEntry, Listing
from compactor.orc.handles import RandomReader, Sink
from compactor.reasons import Reason


class ReadHandle(RandomReader, Protocol):
    """An open file that is read at any position, by any number of threads; `name` is its path, `size` its length when it was opened."""

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


class WriteHandle(Sink, Protocol):
    """
    A new file being written front to back; as a context manager it closes, or aborts when the block raises.

    `write` and `copy_from` raise RefusedError (DISK_FULL); `copy_from` copies inside the kernel or the store where that is possible, and raises
    CorruptFileError when the source ends early.
    """

    def close(self) -> None:
        """Make it durable and complete. Only then other processes may rely on it."""

    def abort(self) -> None:
        """Give up: the file is gone afterwards. Does nothing after `close`."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


@dataclass(frozen=True, slots=True)
class Room:
    """
    What may still be written at a location.

    Args:
        bytes: of file content, each counted once however often the store keeps it; None where there is no limit.
        names: files and directories; None where there is no limit.
        limited_by: what sets the limit, for a sentence: "the file system", "the space quota of /warehouse".
        reason: of the refusal when it isn't enough: DISK_FULL or QUOTA_EXCEEDED.
    """

    bytes: int | None
    names: int | None
    limited_by: str
    reason: Reason = Reason.DISK_FULL


class Prepared(Protocol):
    """A file of which everything but its name is there already."""

    @property
    def target(self) -> str: ...

    def complete(self) -> None:
        """
        Make it appear, in one step, only if nothing is at the target.

        Raises:
            FileExistsError: something is there.
            FileNotFoundError: it was given up by somebody, or what it is made from is gone.
            OutcomeUnknownError: it may have happened.
        """

    def abort(self) -> None:
        """Give it up."""


class Uploads(Protocol):
    """How files appear in a store without renaming: prepared under their final names, unseen, then completed."""

    def prepare(self, source: str, target: str, owner: str) -> Prepared:
        """
        Get a copy of a file ready, made by the store itself.

        Args:
            owner: noted with the file, for `owner_of`.

        Raises:
            FileNotFoundError: no source.
        """

    def owner_of(self, location: str) -> str | None:
        """What `prepare` was told about the file that is there; empty when it was made otherwise; None when nothing is there."""


class Storage(Protocol):
    """One kind of file system."""

    @property
    def uploads(self) -> Uploads | None:
        """How the store publishes, when not by renaming a directory; `rename_noreplace` is then refused."""

    @property
    def side_by_side(self) -> int:
        """Small files and renames that are best on the way at once: 1 where each takes no time, more where each waits for a far server."""

    @property
    def links(self) -> bool:
        """Whether `link_or_copy` usually takes no room."""

    @property
    def mounts(self) -> bool:
        """Whether a part of it may be absent without an error: what isn't mounted looks like an empty directory, and what was in it as if it had been removed."""

    def list_tree(self, location: str) -> Listing:
        """
        Everything below a partition's directory, as `Listing` says; entries that vanish meanwhile are left out.

        Raises:
            RefusedError: LOCATION_MISSING; UNKNOWN_NAME (a visible symbolic link, device or socket); CORRUPT_FILE (a `_metadata_acid` that isn't one).
        """

    def directories(self, location: str) -> tuple[str, ...]:
        """Names of the directories directly inside, ascending, whatever else lies there; none where the location is gone. Clearing up asks no more than this."""

    def pending(self, location: str) -> tuple[str, ...]:
        """
        Names of the directories directly inside into which something was prepared that hasn't appeared yet, ascending; none where publishing is renaming.

        They are among `directories` too: a directory is there when something is on its way into it.
        """

    def withdraw(self, location: str, aside: str) -> bool:
        """
        Take a directory away for good: what is in it, and what is prepared to appear in it. A late rename out of it finds no source, a late completion nothing
        to complete, and neither half of it. Returns whether anything was there.

        Args:
            aside: a free location beside it, whose name says that it may be deleted; used where it goes in one rename first.
        """

    def stat(self, location: str) -> FileEntry | None:
        """Length (0 for a directory), time of change and version of what is there, with the location as its path; None when nothing is."""

    def exists(self, location: str) -> bool: ...

    def open_read(self, location: str) -> ReadHandle:
        """
        Raises:
            FileNotFoundError: nothing there.
        """

    def create(self, location: str) -> WriteHandle:
        """
        A new file; its directory must exist.

        Raises:
            FileExistsError: something is there already; it isn't touched.
            FileNotFoundError: the directory isn't there.
        """

    def mkdir(self, location: str) -> None:
        """
        One new directory. Never makes parents: a removed staging directory must stay removed.

        Raises:
            FileExistsError: something is there already.
            FileNotFoundError: the parent isn't there.
        """

    def rename_noreplace(self, source: str, target: str) -> None:
        """
        Move a file or directory in one atomic step, durably, only if nothing is at the target.

        Raises:
            FileExistsError: something is at the target, be it an empty directory.
            FileNotFoundError: no source, or the target's parent isn't there.
            RefusedError: UNSUPPORTED_STORE (this file system can't do it; always where there are `uploads`).
            OutcomeUnknownError: it may have happened.
        """

    def delete_file(self, location: str) -> None:
        """Remove one file; none there is fine."""

    def delete_tree(self, location: str) -> None:
        """Remove a directory and everything below; none there is fine. Symbolic links are removed, never followed."""

    def link_or_copy(self, source: str, target: str) -> None:
        """
        The same bytes under a second name: a hard link where possible, else a durable copy. The source stays.

        Raises:
            FileExistsError: something is at the target.
            FileNotFoundError: no source, or the target's directory isn't there.
        """

    def read_small(self, location: str, limit: int = 1 << 20) -> bytes:
        """
        A whole small file.

        Raises:
            FileNotFoundError: nothing there.
            RefusedError: CORRUPT_FILE (longer than `limit` bytes).
        """

    def write_small(self, location: str, data: bytes) -> None:
        """
        A whole new file, durable.

        Raises:
            FileExistsError: something is there already.
        """

    def room(self, location: str) -> Room:
        """
        What an ordinary user may still write there, quotas included. May be slow: asked once before a compaction.

        Raises:
            FileNotFoundError: nothing there.
        """

    def adopt(self, source: str, target: str) -> None:
        """
        Give a directory, and the files directly in it, what a writer's own would have that belongs to the table: owner, group and permission of `source`
        (a partition's or a table's directory), and its access control list where the store has one. Called before `target` can be seen by others.

        What we aren't allowed to give is left as it is: where the daemon isn't the superuser, its user stays the owner.

        Raises:
            FileNotFoundError: one of them isn't there.
        """

    def owner(self, location: str) -> str:
        """
        The user a file or directory belongs to.

        Raises:
            FileNotFoundError: nothing there.
        """

    def sync_directory(self, location: str) -> None:
        """Make the names inside a directory durable."""
