"""
The staging directory on a store that can't rename: files stay where tasks wrote them.

The worker only remembers which of them it accepted as which file of the result.

    .compactor-<entry>-<attempt>/
      tasks/<task attempt>/…      written by tasks; the files of the result are published from here
      out/<directory>/…           the markers
      noted/…                     which files are being prepared, noted by the store's driver

Removing the staging directory is the same fence as on a file system: published files are copied from here, and prepared
copies that haven't appeared yet are given up with it, as they were noted.
"""

from collections.abc import Mapping

from compactor.acid.listing import FileEntry
from compactor.acid.names import TRASH_PREFIX
from compactor.engine.results import OutputFile
from compactor.engine.staging.directory import EVIDENCE_PREFIX, Staging
from compactor.errors import CancelledError, CompactorError
from compactor.storage.base import Storage, Uploads
from compactor.storage.location import join
from compactor.storage.object_store import UPLOADS, require_promises


class ObjectStaging(Staging):
    """A `Staging` on an object store; Hive 4 only."""

    def __init__(self, storage: Storage, uploads: Uploads, location: str, entry_id: int, attempt: str) -> None:
        super().__init__(storage, location, entry_id, attempt)
        self._uploads = uploads
        self.records = join(self.root, UPLOADS)
        self._places: dict[tuple[str, str], str] = {}

    def make(self) -> None:
        """
        See `Staging.make`.

        Raises:
            RefusedError: UNSUPPORTED_STORE too, the store breaks a promise.
        """
        require_promises(self._uploads, self._location)
        super().make()

    def place(self, directory: str, name: str) -> str:
        return self._places.get((directory, name)) or super().place(directory, name)

    def accept(self, file: OutputFile) -> None:
        """See `Staging.accept`; the file isn't moved."""
        location = join(self.root, file.path)
        if self._places.setdefault((file.directory, file.name), location) != location:
            raise CompactorError(f"two tasks reported {file.directory}/{file.name}")
        if not self._storage.exists(location):
            raise self._discarded()

    def mark(self, directory: str, marker: str, content: bytes) -> None:
        super().mark(directory, marker, content)
        self._places[directory, marker] = super().place(directory, marker)

    def require_only(self, directory: str, expected: Mapping[str, int]) -> None:
        """Nothing is to be checked: an output directory consists of the accepted files."""

    def listed(self, directory: str) -> tuple[FileEntry, ...]:
        """
        The files that an output directory will hold, with paths relative to it.

        Raises:
            CancelledError: a file is gone: another process has discarded this attempt.
        """
        listed = []
        for (where, name), location in sorted(self._places.items()):
            if where == directory:
                found = self._storage.stat(location)
                if found is None:
                    raise CancelledError(f"{self.root} was discarded: {location} is gone")
                listed.append(FileEntry(name, found.length, found.mtime_ms))
        return tuple(listed)

    def discard(self) -> None:
        """Remove the staging directory and abort prepared files; it may be gone already."""
        self._storage.withdraw(self.root, join(self._location, f"{TRASH_PREFIX}{self.tag}-delete"))

    def keep_as_evidence(self) -> str:
        """Have the store copy the accepted files to an evidence directory, then discard; returns its name."""
        name = f"{EVIDENCE_PREFIX}{self.tag}"
        top = join(self._location, name)
        self._storage.mkdir(top)
        for directory in sorted({where for where, _ in self._places}):
            self._storage.mkdir(join(top, directory))
        for (directory, file), location in self._places.items():
            self._storage.link_or_copy(location, join(top, directory, file))
        self.discard()
        return name
