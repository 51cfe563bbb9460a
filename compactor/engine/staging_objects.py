"""
Staging where nothing can be renamed: tasks' files stay where tasks wrote them, and only what was accepted as which file of the result is remembered.

    .compactor-<entry>-<attempt>/
      tasks/<task attempt>/…      written by tasks; a file of the result is published from here
      out/<directory>/…           the markers

Taking all of it away is the same fence: what is published is copied from here, and what was copied already and hasn't appeared is given up with it.
"""

from compactor.acid.listing import FileEntry
from compactor.acid.names import TRASH_PREFIX
from compactor.engine.staging import EVIDENCE_PREFIX, Accepted, Staging
from compactor.errors import CancelledError, CompactorError
from compactor.storage.base import Storage
from compactor.storage.location import join


class ObjectStaging(Staging):
    """A `Staging` on an object store; Hive 4 only."""

    def __init__(self, storage: Storage, location: str, entry_id: int, attempt: str) -> None:
        super().__init__(storage, location, entry_id, attempt)
        self._places: dict[tuple[str, str], str] = {}

    def place(self, directory: str, name: str) -> str:
        return self._places.get((directory, name)) or super().place(directory, name)

    def accept(self, file: Accepted) -> None:
        """See `Staging.accept`; nothing is moved."""
        location = join(self.root, file.path)
        if self._places.setdefault((file.directory, file.name), location) != location:
            raise CompactorError(f"two tasks reported {file.directory}/{file.name}")
        if not self._storage.exists(location):
            raise self._discarded()

    def mark(self, directory: str, marker: str, content: bytes) -> None:
        """See `Staging.mark`."""
        super().mark(directory, marker, content)
        self._places[directory, marker] = super().place(directory, marker)

    def listed(self, directory: str) -> tuple[FileEntry, ...]:
        """
        What a finished output directory will hold.

        Raises:
            CancelledError: some of it is gone: somebody has discarded this attempt.
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
        """Take it away; nothing there is fine."""
        self._storage.withdraw(self.root, join(self._location, f"{TRASH_PREFIX}{self.tag}-delete"))

    def keep_as_evidence(self) -> str:
        """Have the store copy what was accepted, then discard; returns the new directory's name."""
        name = f"{EVIDENCE_PREFIX}{self.tag}"
        top = join(self._location, name)
        self._storage.mkdir(top)
        for directory in sorted({where for where, _ in self._places}):
            self._storage.mkdir(join(top, directory))
        for (directory, file), location in self._places.items():
            self._storage.link_or_copy(location, join(top, directory, file))
        self.discard()
        return name
