"""
Chooses how a result becomes visible: by renaming finished directories, or, on object stores, by completing files.

Completed files were prepared before under their final names, invisible to readers.
"""

from compactor.acid.compaction import LayoutVersion
from compactor.engine.publish.checks import Publisher
from compactor.engine.publish.rename import RenamePublisher
from compactor.engine.publish.uploads import UploadPublisher
from compactor.engine.request import CompactionRequest
from compactor.engine.staging.directory import Staging
from compactor.engine.staging.objects import ObjectStaging
from compactor.errors import RefusedError
from compactor.reasons import Reason
from compactor.storage.base import Storage


def way_to_publish(storage: Storage, request: CompactionRequest) -> tuple[Staging, Publisher]:
    """
    The staging directory of an attempt, and the publisher of its result.

    Raises:
        RefusedError: UNSUPPORTED_STORE, a Hive 3.1 table on a store that can't rename: readers would see a result
            appear file by file.
    """
    location, entry_id, attempt = request.location, request.entry.id, request.attempt
    if (uploads := storage.uploads) is None:
        staging = Staging(storage, location, entry_id, attempt)
        return staging, RenamePublisher(storage, request, staging)
    if request.layout is LayoutVersion.HIVE_3:
        why = "this store can't rename, and Hive 3.1's readers would see a result while it comes into being: only Hive 4 tables are compacted there"
        raise RefusedError(Reason.UNSUPPORTED_STORE, f"{location}: {why}")
    objects = ObjectStaging(storage, uploads, location, entry_id, attempt)
    return objects, UploadPublisher(storage, uploads, request, objects)
