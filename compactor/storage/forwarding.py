"""
The base of wrappers around a driver: each call of `Storage`, passed on through one method of the wrapper.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import TypeVar

from compactor.acid.listing import FileEntry, Listing
from compactor.storage.base import Room, Storage, Uploads
from compactor.storage.handles import ReadHandle, WriteHandle

Answer = TypeVar("Answer")


class ForwardingStorage(Storage, ABC):
    """A `Storage` around another one."""

    def __init__(self, driver: Storage) -> None:
        self._driver = driver

    @abstractmethod
    def _call(self, call: Callable[[], Answer], *changed: str, of_content: bool = False) -> Answer:
        """
        Make one call of the driver.

        Args:
            changed: the places that the call changes.
            of_content: the call is about the content of one file, not only about names.
        """

    @property
    def uploads(self) -> Uploads | None:
        return self._driver.uploads

    @property
    def side_by_side(self) -> int:
        return self._driver.side_by_side

    @property
    def links(self) -> bool:
        return self._driver.links

    @property
    def mounts(self) -> bool:
        return self._driver.mounts

    def list_tree(self, location: str) -> Listing:
        return self._call(lambda: self._driver.list_tree(location))

    def directories(self, location: str) -> tuple[str, ...]:
        return self._call(lambda: self._driver.directories(location))

    def withdraw(self, location: str, aside: str) -> bool:
        return self._call(lambda: self._driver.withdraw(location, aside), location, aside)

    def stat(self, location: str) -> FileEntry | None:
        return self._call(lambda: self._driver.stat(location))

    def open_files(self, location: str, paths: Collection[str]) -> tuple[str, ...]:
        return self._call(lambda: self._driver.open_files(location, paths))

    def exists(self, location: str) -> bool:
        return self._call(lambda: self._driver.exists(location))

    def open_read(self, location: str) -> ReadHandle:
        return self._call(lambda: self._driver.open_read(location), of_content=True)

    def create(self, location: str) -> WriteHandle:
        return self._call(lambda: self._driver.create(location), location, of_content=True)

    def mkdir(self, location: str) -> None:
        self._call(lambda: self._driver.mkdir(location), location)

    def rename_noreplace(self, source: str, target: str) -> None:
        self._call(lambda: self._driver.rename_noreplace(source, target), source, target)

    def delete_file(self, location: str) -> None:
        self._call(lambda: self._driver.delete_file(location), location)

    def delete_tree(self, location: str) -> None:
        self._call(lambda: self._driver.delete_tree(location), location)

    def link_or_copy(self, source: str, target: str) -> None:
        self._call(lambda: self._driver.link_or_copy(source, target), target, of_content=True)

    def read_small(self, location: str, limit: int = 1 << 20) -> bytes:
        return self._call(lambda: self._driver.read_small(location, limit), of_content=True)

    def write_small(self, location: str, data: bytes) -> None:
        self._call(lambda: self._driver.write_small(location, data), location, of_content=True)

    def room(self, location: str) -> Room:
        return self._call(lambda: self._driver.room(location))

    def adopt(self, source: str, target: str) -> None:
        self._call(lambda: self._driver.adopt(source, target), target)

    def owner(self, location: str) -> str:
        return self._call(lambda: self._driver.owner(location))

    def sync_directory(self, location: str) -> None:
        self._call(lambda: self._driver.sync_directory(location), of_content=True)
