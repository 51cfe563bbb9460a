"""Which way a result becomes visible: by renaming finished directories, or, on object stores, by completing files that were prepared unseen."""

from collections.abc import Callable, Sequence
from typing import Protocol

from compactor.acid.compaction import LayoutVersion
from compactor.acid.write_ids import ValidTxnList
from compactor.engine.manifest import Manifest
from compactor.engine.publish import RenamePublisher
from compactor.engine.publish_uploads import UploadPublisher
from compactor.engine.staging import Staging
from compactor.engine.staging_objects import ObjectStaging
from compactor.errors import RefusedError
from compactor.planning.document import CompactionPlan
from compactor.reasons import Reason
from compactor.storage.base import Storage


class Publisher(Protocol):
    """Makes the staged directories of one plan visible."""

    def publish(self, manifests: Sequence[Manifest], guard: Callable[[], None]) -> None:
        """
        Check for the last time, then let everything appear; what is there already, and is ours, counts as done.

        Args:
            guard: raises when the entry isn't ours any more; called directly before anything appears.

        Raises:
            RefusedError: INPUT_CHANGED, DUPLICATE_RANGE.
            CancelledError: somebody has discarded this attempt.
            RetryableError: nothing appeared.
            OutcomeUnknownError: can't be told.
        """


def staging_for(storage: Storage, layout: LayoutVersion, location: str, entry_id: int, attempt: str) -> Staging:
    """
    The staging directory of an attempt.

    Raises:
        RefusedError: UNSUPPORTED_STORE, a Hive 3.1 table on a store that can't rename: its readers would see a result come into being file by file.
    """
    if storage.uploads is None:
        return Staging(storage, location, entry_id, attempt)
    if layout is LayoutVersion.HIVE_3:
        why = "this store can't rename, and Hive 3.1's readers would see a result while it comes into being: only Hive 4 tables are compacted there"
        raise RefusedError(Reason.UNSUPPORTED_STORE, f"{location}: {why}")
    return ObjectStaging(storage, location, entry_id, attempt)


def publisher_for(storage: Storage, plan: CompactionPlan, staging: Staging, txns: ValidTxnList | None) -> Publisher:
    """The publisher for what was staged."""
    if storage.uploads is None:
        return RenamePublisher(storage, plan, staging, txns)
    return UploadPublisher(storage, storage.uploads, plan, staging, txns)
