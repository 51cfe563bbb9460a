"""
The driver for POSIX file systems on this machine, network mounts included.

Holds no state: safe in any number of threads and processes, and cheap to send to an executor.
"""

import contextlib
import errno
import os
import pwd
import shutil
import stat as modes
from pathlib import Path
from typing import Final

from compactor.acid.listing import FileEntry, Listing
from compactor.acid.names import is_hidden
from compactor.errors import OutcomeUnknownError, RefusedError
from compactor.reasons import Reason
from compactor.storage.base import Room
from compactor.storage.failures import explained, explanation
from compactor.storage.local_files import LocalReader, LocalWriter, open_directory, open_regular, remove_if_there
from compactor.storage.location import local_path, name, parent
from compactor.storage.rename import rename_noreplace
from compactor.storage.renaming import RenamingStorage

_FILE_MODE: Final = 0o666
_NO_LINK: Final = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES, errno.ENOENT})
"""Of linking an open file; ENOENT where there is no /proc, or the file has lost its last name."""


class LocalStorage(RenamingStorage):
    """A `Storage` on `file:` locations and plain absolute paths."""

    side_by_side: Final = 1
    links: Final = True
    mounts: Final = True

    def list_tree(self, location: str) -> Listing:
        root = local_path(location)
        files: list[FileEntry] = []
        directories: list[str] = []
        try:
            self._scan(root, "", files, directories)
        except FileNotFoundError as error:
            raise RefusedError(Reason.LOCATION_MISSING, f"directory {root!r} doesn't exist") from error
        return self.listing(root, files, directories)

    def directories(self, location: str) -> tuple[str, ...]:
        path = local_path(location)
        try:
            with explained("list", path), os.scandir(path) as children:
                return tuple(sorted(child.name for child in children if child.is_dir(follow_symlinks=False)))
        except FileNotFoundError:
            return ()

    def stat(self, location: str) -> FileEntry | None:
        path = local_path(location)
        try:
            with explained("look at", path):
                found = Path(path).stat()
        except FileNotFoundError:
            return None
        return FileEntry(location, 0 if modes.S_ISDIR(found.st_mode) else found.st_size, found.st_mtime_ns // 1_000_000)

    def exists(self, location: str) -> bool:
        return os.path.lexists(local_path(location))

    def open_read(self, location: str) -> LocalReader:
        return LocalReader(local_path(location))

    def create(self, location: str) -> LocalWriter:
        return LocalWriter(local_path(location))

    def mkdir(self, location: str) -> None:
        path = local_path(location)
        with explained("make directory", path):
            Path(path).mkdir()

    def rename_noreplace(self, source: str, target: str) -> None:
        old, new = local_path(source), local_path(target)
        rename_noreplace(old, new)
        try:
            for directory in {parent(old), parent(new)}:
                self.sync_directory(directory)
        except Exception as error:
            raise OutcomeUnknownError(f"renamed {old!r} to {new!r}, but can't tell whether that is durable: {error}") from error

    def delete_file(self, location: str) -> None:
        path = local_path(location)
        with explained("delete", path):
            remove_if_there(path)

    def delete_tree(self, location: str) -> None:
        path = local_path(location)
        with explained("delete", path):
            if Path(path).is_symlink():
                remove_if_there(path)
                return
            shutil.rmtree(path, onerror=_ignore_missing)

    def link_or_copy(self, source: str, target: str) -> None:
        old, new = local_path(source), local_path(target)
        with self.open_read(old) as reader:
            if self._link(reader, new):
                return
            with self.create(new) as writer:
                writer.copy_from(reader, 0, reader.size)

    @staticmethod
    def _link(reader: LocalReader, target: str) -> bool:
        """Another name for the very file that is open, whatever its name leads to by now; False where there can't be one."""
        with explained("write", target):
            directory = open_directory(parent(target))
        try:
            os.link(f"/proc/self/fd/{reader.fileno()}", name(target), dst_dir_fd=directory, follow_symlinks=True)
        except FileExistsError:
            raise
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise explanation(error, "write", target) from error
            return False
        finally:
            os.close(directory)
        return True

    def room(self, location: str) -> Room:
        path = local_path(location)
        with explained("look at", path):
            found = os.statvfs(path)
        names = found.f_favail if found.f_files else None  # some file systems make them as they are needed, and say 0
        return Room(found.f_bavail * found.f_frsize, names, "the file system")

    def adopt(self, source: str, target: str) -> None:
        model, top = local_path(source), local_path(target)
        with explained("give owner and permission to", top), contextlib.ExitStack() as opened:
            found = Path(model).stat()
            directory = open_directory(top)
            opened.callback(os.close, directory)
            _adopt(directory, found, modes.S_IMODE(found.st_mode))
            for child in os.listdir(directory):  # noqa: PTH208 - of a descriptor
                descriptor = open_regular(child, directory)
                try:
                    if os.fstat(descriptor).st_nlink == 1:  # else an input under a second name: it has what it should have
                        _adopt(descriptor, found, modes.S_IMODE(found.st_mode) & _FILE_MODE)
                finally:
                    os.close(descriptor)

    def owner(self, location: str) -> str:
        path = local_path(location)
        with explained("look at", path):
            number = Path(path).stat().st_uid
        try:
            return pwd.getpwuid(number).pw_name
        except KeyError:
            return str(number)

    def sync_directory(self, location: str) -> None:
        path = local_path(location)
        with explained("sync", path):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def _scan(self, root: str, below: str, files: list[FileEntry], directories: list[str]) -> None:
        """Walk one directory; whatever vanishes on the way (staging of running jobs) is left out."""
        directory = f"{root}/{below}"
        with explained("list", directory), os.scandir(directory) as children:
            for child in children:
                path = f"{below}/{child.name}" if below else child.name
                try:
                    self._visit(root, path, child, files, directories)
                except FileNotFoundError:
                    continue

    def _visit(self, root: str, path: str, child: "os.DirEntry[str]", files: list[FileEntry], directories: list[str]) -> None:
        if child.is_dir(follow_symlinks=False):
            if "/" in path or not is_hidden(child.name):
                self._scan(root, path, files, directories)
            directories.append(path)
        elif child.is_file(follow_symlinks=False):
            found = child.stat(follow_symlinks=False)
            files.append(FileEntry(path, found.st_size, found.st_mtime_ns // 1_000_000))
        elif not is_hidden(child.name):
            what = "a symbolic link" if child.is_symlink() else "neither a file nor a directory"
            raise RefusedError(Reason.UNKNOWN_NAME, f"'{root}/{path}' is {what}: move it away")


def _adopt(descriptor: int, found: os.stat_result, mode: int) -> None:
    if os.geteuid() == 0:
        os.fchown(descriptor, found.st_uid, found.st_gid)
    elif os.fstat(descriptor).st_gid != found.st_gid:
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, -1, found.st_gid)
    os.fchmod(descriptor, mode)


def _ignore_missing(_function: object, _path: str, failure: tuple[type[BaseException], BaseException, object]) -> None:
    if not isinstance(failure[1], FileNotFoundError):
        raise failure[1]
