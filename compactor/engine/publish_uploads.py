"""
Making a finished compaction visible on an object store, where nothing can be renamed.

Every file is prepared under its final name first: the store copies it from the staging directory, and nobody sees it. Only when all are ready, and the entry is
still ours, they are completed, side by side: first delete events, then rows. Hive's readers don't look at them before the transaction commits; readers that ignore
`_v` see some of the files and not the others for as long as that takes.

A worker that is paused anywhere before finds nothing to complete once somebody has discarded the attempt: what was prepared is given up with it, and can't be
prepared again without the staging directory. Each file notes whose it is, so that after an error it can be told whether ours appeared.
Source: docs/storage.md.
"""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial

from compactor.acid.names import DirKind
from compactor.acid.write_ids import ValidTxnList
from compactor.engine.last_look import LastLook
from compactor.engine.manifest import Manifest, ManifestFile, files_below
from compactor.engine.staging import Staging, at_once
from compactor.errors import CancelledError, CompactorError, OutcomeUnknownError, RefusedError
from compactor.planning.document import CompactionPlan
from compactor.reasons import Reason
from compactor.storage.base import Prepared, Storage, Uploads
from compactor.storage.location import join


class UploadPublisher:
    """
    Publishes the staged directories of one plan.

    Args:
        uploads: the store's.
        txns: the snapshot of the compaction: tells which `_v` transactions are known aborted.
    """

    def __init__(self, storage: Storage, uploads: Uploads, plan: CompactionPlan, staging: Staging, txns: ValidTxnList | None) -> None:
        self._storage = storage
        self._uploads = uploads
        self._plan = plan
        self._staging = staging
        self._last = LastLook(storage, plan, txns)

    def publish(self, manifests: Sequence[Manifest], guard: Callable[[], None]) -> None:
        """See `Publisher.publish`."""
        guard()
        listing = self._storage.list_tree(self._plan.location)
        self._last.check_inputs(listing)
        missing: list[tuple[Manifest, ManifestFile]] = []
        for manifest in manifests:
            there = files_below(listing, manifest.directory)
            self._require_ours(manifest, there)
            if not there:
                self._last.clear_range(manifest, listing)
            missing += [(manifest, file) for file in manifest.files if file not in there]
        prepared = self._prepare(missing)
        try:
            self._last.check_inputs(self._storage.list_tree(self._plan.location))
            guard()
            for deletes in (True, False):
                self._complete([item for manifest, _, item in prepared if (manifest.kind is DirKind.DELETE_DELTA) is deletes])
        except BaseException:
            self._give_up([item for _, _, item in prepared])
            raise

    def _require_ours(self, manifest: Manifest, there: Sequence[ManifestFile]) -> None:
        """What is in a directory of ours already must be what a call before this one has completed."""
        for file in there:
            owner = self._uploads.owner_of(self._target(manifest, file))
            if file not in manifest.files or owner != self._staging.tag:
                what = f"{self._plan.entity}: {manifest.directory} is already there, and {file.name} in it isn't ours"
                raise RefusedError(Reason.DUPLICATE_RANGE, what)

    def _prepare(self, missing: Sequence[tuple[Manifest, ManifestFile]]) -> list[tuple[Manifest, ManifestFile, Prepared]]:
        """All or none."""
        prepared: list[tuple[Manifest, ManifestFile, Prepared]] = []

        def one(item: tuple[Manifest, ManifestFile]) -> None:
            manifest, file = item
            source = self._staging.place(manifest.directory, file.name)
            prepared.append((manifest, file, self._uploads.prepare(source, self._target(manifest, file), self._staging.tag)))

        try:
            at_once(self._storage.side_by_side, [partial(one, item) for item in missing])
        except FileNotFoundError:
            self._give_up([item for _, _, item in prepared])
            raise self._discarded() from None
        except BaseException:
            self._give_up([item for _, _, item in prepared])
            raise
        return prepared

    def _complete(self, prepared: Sequence[Prepared]) -> None:
        def one(item: Prepared) -> None:
            try:
                item.complete()
            except (FileExistsError, FileNotFoundError, CompactorError) as error:
                self._look(item.target, error)

        at_once(self._storage.side_by_side, [partial(one, item) for item in prepared])

    def _look(self, target: str, error: Exception) -> None:
        """After an error: whose file is there, if any. It appears whole or not at all, so ours is what was staged."""
        try:
            owner = self._uploads.owner_of(target)
        except (CompactorError, OSError) as second:
            raise OutcomeUnknownError(f"{self._plan.entity}: can't tell whether {target} was published: {error}; then {second}") from error
        if owner == self._staging.tag:
            return
        if owner is not None:
            raise RefusedError(Reason.DUPLICATE_RANGE, f"{self._plan.entity}: {target} appeared while it was published") from error
        if isinstance(error, FileNotFoundError):
            raise self._discarded() from error
        raise OutcomeUnknownError(f"{self._plan.entity}: can't tell whether {target} will still appear: {error}") from error

    def _discarded(self) -> CancelledError:
        return CancelledError(f"{self._staging.root} was discarded while it was published")

    def _give_up(self, prepared: Sequence[Prepared]) -> None:
        """What was completed isn't touched by it; what can't be given up now is when the attempt is discarded."""
        for item in prepared:
            with contextlib.suppress(CompactorError, OSError):
                item.abort()

    def _target(self, manifest: Manifest, file: ManifestFile) -> str:
        return join(self._plan.location, manifest.directory, file.name)
