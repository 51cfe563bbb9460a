"""Tables of the builder on an S3 server: built here, carried there, compacted there, carried back to be read."""

import shutil
from dataclasses import replace

from compactor.acid.compaction import CompactionKind
from compactor.engine.compaction import Compaction
from compactor.storage.registry import storage_for
from tests.compacting import Attempt
from tests.reference.compare import read_table


class OnS3:
    """
    One table, every partition of it.

    Args:
        location: of an empty directory on the server.
    """

    def __init__(self, server, location, warehouse, table):
        self.server = server
        self.location = location
        self.warehouse = warehouse
        self.table = table
        self.rows = read_table(warehouse, table)
        self._bucket, self._prefix = location.removeprefix("s3a://").split("/", 1)
        server.upload_tree(table.location, self._bucket, self._prefix)

    @property
    def storage(self):
        return storage_for(self.location)

    def attempt(self, kind=CompactionKind.MAJOR, partition=None, **how):
        """A compaction of what is on the server."""
        attempt = Attempt(self.warehouse, self.table, kind, partition, **how)
        location = f"{self.location}/{partition}" if partition else self.location
        attempt.request = replace(attempt.request, location=location)
        attempt.compaction = Compaction(attempt.request, self.storage, attempt.submitter, attempt.settings)
        return attempt

    def names(self, *, hidden=True):
        """First parts of what is on the server, directories with something on its way into them included."""
        return [name for name in self.storage.directories(self.location) if hidden or not name.startswith(".")]

    def uploads(self):
        """Keys of what was prepared and hasn't appeared."""
        return [key for key, _ in self.server.uploads(self._bucket) if key.startswith(f"{self._prefix}/")]

    def objects(self):
        """Keys of all objects, hidden ones too, without markers of directories."""
        keys = (
            key.removeprefix(f"{self._prefix}/")
            for key in self.server.keys(self._bucket)
            if key.startswith(f"{self._prefix}/")
        )
        return [key for key in keys if key and not key.endswith("/")]

    def read(self, snapshot=None):
        """What a reader sees there."""
        shutil.rmtree(self.table.location)
        self.server.download_tree(self._bucket, self._prefix, self.table.location)
        return read_table(self.warehouse, self.table, snapshot) if snapshot else read_table(self.warehouse, self.table)
