"""
Chooses how a result becomes visible: by renaming finished directories, or, on object stores, by completing files.

Completed files were prepared before under their final names, invisible to readers.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from compactor.acid.compaction import LayoutVersion
from compactor.acid.write_ids import ValidTxnList
from compactor.engine.publish.rename import RenamePublisher
from compactor.engine.publish.uploads import UploadPublisher
from compactor.engine.results import Manifest
from compactor.engine.staging.directory import Staging
from compactor.engine.staging.objects import ObjectStaging
from compactor.errors import RefusedError
from compactor.planning.document import CompactionPlan
from compactor.reasons import Reason
from compactor.storage.base import Storage


class Publisher(Protocol):
    """Makes the staged directories of one plan visible."""

    def publish(self, manifests: Sequence[Manifest], guard: Callable[[], None]) -> None:
        """
        Do the last checks, then make all directories visible; those that this attempt has published already are kept.

        Args:
            guard: raises when this worker doesn't own the entry any more; called directly before files appear.

        Raises:
            RefusedError: INPUT_CHANGED, DUPLICATE_RANGE.
            CancelledError: another process has discarded this attempt.
            RetryableError: the directory didn't appear.
            OutcomeUnknownError: whether files appeared is unknown.
        """


def staging_for(storage: Storage, layout: LayoutVersion, location: str, entry_id: int, attempt: str) -> Staging:
    """
    The staging directory of an attempt.

    Raises:
        RefusedError: UNSUPPORTED_STORE, a Hive 3.1 table on a store that can't rename: readers would see a result
            appear file by file.
    """
    if storage.uploads is None:
        return Staging(storage, location, entry_id, attempt)
    if layout is LayoutVersion.HIVE_3:
        why = "this store can't rename, and Hive 3.1's readers would see a result while it comes into being: only Hive 4 tables are compacted there"
        raise RefusedError(Reason.UNSUPPORTED_STORE, f"{location}: {why}")
    return ObjectStaging(storage, location, entry_id, attempt)


def publisher_for(storage: Storage, plan: CompactionPlan, staging: Staging, txns: ValidTxnList | None) -> Publisher:
    """The publisher for the staged directories of a plan."""
    if storage.uploads is None:
        return RenamePublisher(storage, plan, staging, txns)
    return UploadPublisher(storage, storage.uploads, plan, staging, txns)
