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
from compactor.storage.local_files import LocalReader, LocalWriter, remove_if_there
from compactor.storage.location import local_path, parent
from compactor.storage.rename import rename_noreplace
from compactor.storage.renaming import RenamingStorage

_FILE_MODE: Final = 0o666
_NO_LINK: Final = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES})


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
        return Listing(tuple(sorted(files)), tuple(sorted(directories)), self.formats(root, files))

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
        try:
            os.link(old, new, follow_symlinks=True)
        except (FileNotFoundError, FileExistsError):
            raise
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise explanation(error, "write", new) from error
        else:
            return
        with self.open_read(old) as reader, self.create(new) as writer:
            writer.copy_from(reader, 0, reader.size)

    def room(self, location: str) -> Room:
        path = local_path(location)
        with explained("look at", path):
            found = os.statvfs(path)
        names = found.f_favail if found.f_files else None  # some file systems make them as they are needed, and say 0
        return Room(found.f_bavail * found.f_frsize, names, "the file system")

    def adopt(self, source: str, target: str) -> None:
        model, top = Path(local_path(source)), Path(local_path(target))
        with explained("give owner and permission to", str(top)):
            found = model.stat()
            for path in (top, *top.iterdir()):
                if path != top and path.stat().st_nlink > 1:
                    continue  # an input under a second name: it has what it should have
                if os.geteuid() == 0:
                    os.chown(path, found.st_uid, found.st_gid, follow_symlinks=False)
                elif path.stat().st_gid != found.st_gid:
                    with contextlib.suppress(PermissionError):
                        os.chown(path, -1, found.st_gid, follow_symlinks=False)
                mode = modes.S_IMODE(found.st_mode)
                path.chmod(mode if path == top else mode & _FILE_MODE)

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


def _ignore_missing(_function: object, _path: str, failure: tuple[type[BaseException], BaseException, object]) -> None:
    if not isinstance(failure[1], FileNotFoundError):
        raise failure[1]
