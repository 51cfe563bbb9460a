"""
The driver for HDFS (`hdfs:` and `viewfs:` locations), through hdfs-native: no JVM in this process.

Holds one client, which is safe in any number of threads; a copy of the driver that is sent to an executor makes its own
client. Publishing is the NameNode's rename2 without OVERWRITE, which refuses any existing target. Source:
docs/storage.md.
"""

import threading
import uuid
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from compactor.acid.listing import FileEntry, Listing
from compactor.acid.names import is_hidden
from compactor.errors import OutcomeUnknownError, RefusedError
from compactor.reasons import Reason
from compactor.settings.stores import Hdfs
from compactor.storage.base import Room
from compactor.storage.failures import missing
from compactor.storage.hdfs.access import carry_over
from compactor.storage.hdfs.client import FileDefaults, connect, file_defaults, require_package
from compactor.storage.hdfs.failures import explained, explanation, java_class
from compactor.storage.hdfs.files import HdfsReader, HdfsWriter
from compactor.storage.hdfs.open_files import is_open_file
from compactor.storage.hdfs.quotas import Quotas
from compactor.storage.hdfs.timeouts import data_seconds
from compactor.storage.location import LocationParts, join, split
from compactor.storage.registry import StorageOptions
from compactor.storage.small_files import RenamingStorage


class HdfsStorage(RenamingStorage):
    """
    A `Storage` on one name service, NameNode, or mount table.

    Args:
        parts: of any location on it.
    """

    side_by_side: Final = 16
    links: Final = False
    mounts: Final = False

    def __init__(self, parts: LocationParts, options: StorageOptions) -> None:
        self._parts = LocationParts(parts.scheme, parts.authority, "/")
        self._all = options
        self._options: Hdfs = options.hdfs
        self._data_seconds: Final = data_seconds(options.hdfs.rpc_timeout_seconds)
        self._lock = threading.Lock()
        self._made: tuple[Any, FileDefaults] | None = None
        self._quotas: Final = Quotas(lambda: self._client, lambda: self._defaults)

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self._parts, self._all)

    def list_tree(self, location: str) -> Listing:
        root, client = self._path(location), self._client

        def children(below: str) -> list[tuple[str, FileEntry | None]]:
            found = self._children(client, f"{root}/{below}" if below else root)
            return [
                (name, None if child.isdir else FileEntry(name, child.length, child.modification_time))
                for name, child in found
            ]

        return self.walked(location, children)

    def directories(self, location: str) -> tuple[str, ...]:
        try:
            return tuple(
                sorted(name for name, child in self._children(self._client, self._path(location)) if child.isdir)
            )
        except FileNotFoundError:
            return ()

    def stat(self, location: str) -> FileEntry | None:
        found = self._info(location)
        return (
            None if found is None else FileEntry(location, 0 if found.isdir else found.length, found.modification_time)
        )

    def open_files(self, location: str, paths: Collection[str]) -> tuple[str, ...]:
        client, root = self._client, self._path(location)

        def is_open(path: str) -> bool:
            try:
                with explained("look at", join(location, path)):
                    return is_open_file(client, f"{root}/{path}")
            except FileNotFoundError:
                return False

        with ThreadPoolExecutor(self.side_by_side, thread_name_prefix="hdfs-open-files") as pool:
            answers = pool.map(is_open, paths)
            return tuple(path for path, is_written in zip(paths, answers, strict=True) if is_written)

    def open_read(self, location: str) -> HdfsReader:
        return HdfsReader(self._client, self._path(location), location, self._data_seconds)

    def create(self, location: str) -> HdfsWriter:
        client, path = self._client, self._path(location)
        defaults = self._defaults
        how = require_package().WriteOptions(
            block_size=defaults.block_size, replication=defaults.replication, overwrite=False, create_parent=False
        )
        with explained("create", location):
            return HdfsWriter(client, client.create(path, how), path, location, self._data_seconds)

    def mkdir(self, location: str) -> None:
        """
        See `Storage.mkdir`. HDFS' own mkdir accepts an existing directory, a rename doesn't. So a hidden directory is
        made beside the target and renamed.
        """
        client, path = self._client, self._path(location)
        above, _, name = path.rpartition("/")
        made = f"{above}/{name if is_hidden(name) else f'.{name}'}-{uuid.uuid4().hex[:8]}"
        with explained("make directory", location):
            if _is_there(client, path):
                raise FileExistsError
            client.mkdirs(made, create_parent=False)
        try:
            self._rename(client, made, path)
        except BaseException:
            with explained("delete", made):
                client.delete(made, False)
            raise

    def rename_noreplace(self, source: str, target: str) -> None:
        old, new = split(source), split(target)
        if (old.scheme, old.authority) != (new.scheme, new.authority):
            raise RefusedError(
                Reason.UNSUPPORTED_STORE, f"can't rename {source!r} to {target!r}: they are on different file systems"
            )
        self._rename(self._client, old.path, new.path)

    def delete_file(self, location: str) -> None:
        with explained("delete", location):
            self._client.delete(self._path(location), False)

    def delete_tree(self, location: str) -> None:
        with explained("delete", location):
            self._client.delete(self._path(location), True)

    def link_or_copy(self, source: str, target: str) -> None:
        with self.open_read(source) as reader, self.create(target) as writer:
            writer.copy_from(reader, 0, reader.size)

    def room(self, location: str) -> Room:
        """
        See `Storage.room`. Returns what the nearest quotas above leave; clients can't ask here how full the cluster is.
        """
        return self._quotas.room(self._path(location))

    def adopt(self, source: str, target: str) -> None:
        carry_over(self._client, self._path(source), self._path(target))

    def owner(self, location: str) -> str:
        found = self._info(location)
        if found is None:
            raise missing(location)
        return str(found.owner)

    def sync_directory(self, location: str) -> None:
        """Does nothing: the NameNode writes names down before it answers."""

    @property
    def _client(self) -> Any:
        return self._ready()[0]

    @property
    def _defaults(self) -> FileDefaults:
        return self._ready()[1]

    def _ready(self) -> tuple[Any, FileDefaults]:
        with self._lock:
            if self._made is None:
                self._made = (connect(self._parts, self._options), file_defaults(self._options))
            return self._made

    def _path(self, location: str) -> str:
        return split(location).path

    def _info(self, location: str) -> Any:
        try:
            with explained("look at", location):
                return self._client.get_file_info(self._path(location))
        except FileNotFoundError:
            return None

    def _children(self, client: Any, path: str) -> list[tuple[str, Any]]:
        """
        Names and status of the entries directly in a directory. Raises FileNotFoundError when it isn't a directory.
        """
        prefix = path if path == "/" else f"{path}/"
        with explained("list", path):
            found = list(client.list_status(path, False))
        if len(found) == 1 and not found[0].isdir and found[0].path == path:
            raise missing(path)  # listing a file returns the file
        return [(child.path.removeprefix(prefix), child) for child in found]

    def _rename(self, client: Any, old: str, new: str) -> None:
        """
        Make one rename2. The client repeats a request that got no answer. So after any failure but "it exists", only
        source and target tell whether the rename happened.
        """
        with explained("look at", new):
            taken = _is_there(client, new)
        try:
            client.rename(old, new, overwrite=False)
        except FileExistsError as error:
            with explained("rename", new):
                raise FileExistsError from error
        except (OSError, RuntimeError) as error:
            self._failed_rename(client, old, new, error, taken=taken)

    def _failed_rename(self, client: Any, old: str, new: str, error: Exception, *, taken: bool) -> None:
        unknown = OutcomeUnknownError(
            f"renaming {old!r} to {new!r} failed and may have happened all the same: {' '.join(str(error).split())[:200]}"
        )
        answered = isinstance(error, FileNotFoundError) or bool(java_class(error))
        try:
            source, target = _is_there(client, old), _is_there(client, new)
        except (OSError, RuntimeError):
            raise unknown from error
        if not answered or (target and not source and not taken):
            raise unknown from error
        if isinstance(error, FileNotFoundError):
            raise missing(new if source else old) from error
        if target and java_class(error) == "IOException":  # source and target are a file and a directory
            with explained("rename", new):
                raise FileExistsError from error
        raise explanation(error, f"rename {old!r} to", new) from error


def _is_there(client: Any, path: str) -> bool:
    """Whether anything is at a path; asks the client directly."""
    try:
        client.get_file_info(path)
    except FileNotFoundError:
        return False
    return True
