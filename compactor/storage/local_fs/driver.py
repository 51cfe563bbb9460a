"""
The driver for POSIX file systems on this machine, network mounts included.

Holds no state: safe in any number of threads and processes. The driver opens every path by descriptors from its root
down (`storage.local_fs.beneath`).
"""

import contextlib
import errno
import os
import pwd
import stat as modes
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from compactor.acid.listing import FileEntry, Listing
from compactor.acid.names import is_hidden
from compactor.errors import OutcomeUnknownError, RefusedError
from compactor.reasons import Reason
from compactor.storage.base import Room
from compactor.storage.failures import explained, explanation
from compactor.storage.local_fs import beneath
from compactor.storage.local_fs.access_lists import AccessLists, access_lists, give_access_lists
from compactor.storage.local_fs.beneath import Entry, RootOf, open_directory, open_regular, opened
from compactor.storage.local_fs.files import LocalReader, LocalWriter
from compactor.storage.local_fs.renameat2 import rename_noreplace
from compactor.storage.location import local_path, parent
from compactor.storage.small_files import RenamingStorage

Result = TypeVar("Result")

_FILE_MODE: Final = 0o666
_NO_LINK: Final = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES, errno.ENOENT}
)
"""Errors of linking an open file that mean "copy it". ENOENT: there is no /proc, or the file has lost its last name."""

_NO_SYNC: Final = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOSYS})
"""Errors of syncing a directory that mean "never", as some FUSE and network file systems answer."""


class LocalStorage(RenamingStorage):
    """
    A `Storage` on `file:` locations and plain absolute paths.

    Args:
        root_of: returns the trusted directory for a location. Below it no symbolic link is followed on the way.
    """

    side_by_side: Final = 1
    links: Final = True
    mounts: Final = True

    def __init__(self, root_of: RootOf = lambda _: None) -> None:
        self._root_of = root_of

    def list_tree(self, location: str) -> Listing:
        path = local_path(location)
        files: list[FileEntry] = []
        directories: list[str] = []
        try:
            with explained("list", path):
                top = beneath.directory(path, self._root_of(location))
                try:
                    _scan(top, path, "", files, directories)
                finally:
                    os.close(top)
        except FileNotFoundError as error:
            raise RefusedError(Reason.LOCATION_MISSING, f"directory {path!r} doesn't exist") from error
        return self.listing(path, files, directories)

    def directories(self, location: str) -> tuple[str, ...]:
        try:
            with self._directory("list", location) as top, os.scandir(top) as children:
                return tuple(sorted(child.name for child in children if child.is_dir(follow_symlinks=False)))
        except FileNotFoundError:
            return ()

    def stat(self, location: str) -> FileEntry | None:
        try:
            found = self._status(location)
        except FileNotFoundError:
            return None
        return FileEntry(location, 0 if modes.S_ISDIR(found.st_mode) else found.st_size, found.st_mtime_ns // 1_000_000)

    def exists(self, location: str) -> bool:
        path = local_path(location)
        with explained("look at", path):
            return beneath.exists(path, self._root_of(location))

    def open_read(self, location: str) -> LocalReader:
        return LocalReader(local_path(location), self._root_of(location))

    def create(self, location: str) -> LocalWriter:
        return LocalWriter(local_path(location), self._root_of(location))

    def mkdir(self, location: str) -> None:
        self._at("make directory", location, lambda entry: os.mkdir(entry.name, dir_fd=entry.directory))

    def rename_noreplace(self, source: str, target: str) -> None:
        doing = f"rename {local_path(source)!r} to"
        self._at(
            doing,
            target,
            lambda new: beneath.at(local_path(source), self._root_of(source), lambda old: _rename(old, new)),
        )

    def delete_file(self, location: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._at("delete", location, beneath.remove_file)

    def delete_tree(self, location: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._at("delete", location, beneath.remove_tree)

    def link_or_copy(self, source: str, target: str) -> None:
        with self.open_read(source) as reader:
            if self._at("write", target, lambda entry: _link(reader, entry)):
                return
            with self.create(target) as writer:
                writer.copy_from(reader, 0, reader.size)

    def room(self, location: str) -> Room:
        with self._directory("look at", location) as directory:
            found = os.fstatvfs(directory)
        names = found.f_favail if found.f_files else None  # some file systems make inodes on demand, and report 0
        return Room(found.f_bavail * found.f_frsize, names, "the file system")

    def adopt(self, source: str, target: str) -> None:
        with self._directory("look at", source) as directory:
            found, lists = os.fstat(directory), access_lists(directory)
        self._at("give owner and permission to", target, lambda entry: _adopt_all(entry, found, lists))

    def owner(self, location: str) -> str:
        number = self._status(location).st_uid
        try:
            return pwd.getpwuid(number).pw_name
        except KeyError:
            return str(number)

    def sync_directory(self, location: str) -> None:
        with self._directory("sync", location) as directory:
            try:
                os.fsync(directory)
            except OSError as error:
                if error.errno not in _NO_SYNC:
                    raise
                what = f"{local_path(location)!r}: this file system can't make the names in a directory durable (fsync)"
                raise RefusedError(Reason.UNSUPPORTED_STORE, f"{what}: {error.strerror}") from error

    def _at(self, doing: str, location: str, act: Callable[[Entry], Result]) -> Result:
        path = local_path(location)
        with explained(doing, path):
            return beneath.at(path, self._root_of(location), act)

    def _status(self, location: str) -> os.stat_result:
        path = local_path(location)
        with explained("look at", path):
            return beneath.status(path, self._root_of(location))

    @contextlib.contextmanager
    def _directory(self, doing: str, location: str) -> Iterator[int]:
        """Yields a descriptor of a directory."""
        path = local_path(location)
        with explained(doing, path):
            directory = beneath.directory(path, self._root_of(location))
            try:
                yield directory
            finally:
                os.close(directory)


def _scan(directory: int, top: str, below: str, files: list[FileEntry], directories: list[str]) -> None:
    """
    List one directory and everything below. Entries that vanish meanwhile (staging of running jobs) are left out.

    Args:
        below: the directory's path inside `top`; empty for `top` itself.
    """
    inside = []
    with os.scandir(directory) as children:
        for child in children:
            path = f"{below}/{child.name}" if below else child.name
            if child.is_dir(follow_symlinks=False):
                inside.append((child.name, path))
            elif child.is_file(follow_symlinks=False):
                try:
                    found = child.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                files.append(FileEntry(path, found.st_size, found.st_mtime_ns // 1_000_000))
            elif not is_hidden(child.name):
                what = "a symbolic link" if child.is_symlink() else "neither a file nor a directory"
                raise RefusedError(Reason.UNKNOWN_NAME, f"'{top}/{path}' is {what}: move it away")
    for name, path in inside:
        try:
            if below or not is_hidden(name):
                _scan_below(Entry(directory, name, f"{top}/{path}"), top, path, files, directories)
            directories.append(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise explanation(error, "list", f"{top}/{path}") from error


def _scan_below(entry: Entry, top: str, path: str, files: list[FileEntry], directories: list[str]) -> None:
    directory = open_directory(entry)
    try:
        _scan(directory, top, path, files, directories)
    finally:
        os.close(directory)


def _rename(source: Entry, target: Entry) -> None:
    rename_noreplace(source, target)
    try:
        _sync(target)
        if parent(source.path) != parent(target.path):
            _sync(source)
    except OSError as error:
        what = f"renamed {source.path!r} to {target.path!r}, but can't tell whether that is durable: {error}"
        raise OutcomeUnknownError(what) from error


def _sync(entry: Entry) -> None:
    """Sync the directory that holds an entry."""
    with opened(Entry(entry.directory, ".", entry.path)) as directory:
        os.fsync(directory)


def _link(reader: LocalReader, entry: Entry) -> bool:
    """
    Give the open file another name, even when its old name leads elsewhere by now. Returns False where no link is
    possible.
    """
    try:
        os.link(f"/proc/self/fd/{reader.fileno()}", entry.name, dst_dir_fd=entry.directory, follow_symlinks=True)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        return False
    return True


def _adopt_all(entry: Entry, found: os.stat_result, lists: AccessLists) -> None:
    """Adopt a directory and the files directly in it. Directories in it keep their attributes."""
    with opened(entry) as directory:
        _adopt(directory, found, lists, modes.S_IMODE(found.st_mode))
        for child in os.listdir(directory):  # noqa: PTH208 - of a descriptor
            if modes.S_ISDIR(os.stat(child, dir_fd=directory, follow_symlinks=False).st_mode):
                continue
            descriptor = open_regular(Entry(directory, child, f"{entry.path}/{child}"))
            try:
                if os.fstat(descriptor).st_nlink == 1:  # else an input's second name, whose attributes are right
                    _adopt(descriptor, found, lists.of_file(), modes.S_IMODE(found.st_mode) & _FILE_MODE)
            finally:
                os.close(descriptor)


def _adopt(descriptor: int, found: os.stat_result, lists: AccessLists, mode: int) -> None:
    if os.geteuid() == 0:
        os.fchown(descriptor, found.st_uid, found.st_gid)
    elif os.fstat(descriptor).st_gid != found.st_gid:
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, -1, found.st_gid)
    give_access_lists(descriptor, lists)  # first: with a list, the group's part of the mode is the list's mask
    os.fchmod(descriptor, mode)
