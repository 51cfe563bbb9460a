"""
Makes a finished compaction visible on an object store, which can't rename.

First every file is prepared under its final name: the store copies it from the staging directory, invisible to readers.
Only when all files are ready, and this worker still owns the entry, the files are completed in parallel: first delete
events, then rows. Hive's readers ignore them until the transaction commits; readers that ignore `_v` see a part of the
files while the completing takes place.

A worker that was paused before completing finds no file to complete once another process has discarded the attempt: the
prepared files were noted in the staging directory before anything was copied, and are given up with it; none can be
prepared again without the staged files. Each file notes its attempt, so that after an error the publisher can tell
whether its own file appeared.
Source: docs/storage.md.
"""

import contextlib
from collections.abc import Callable, Collection, Sequence
from functools import partial

from compactor.acid.listing import FileEntry
from compactor.acid.names import DirKind
from compactor.engine.publish.checks import Publisher
from compactor.engine.request import CompactionRequest
from compactor.engine.results import Manifest, files_below
from compactor.engine.staging.directory import at_once
from compactor.engine.staging.objects import ObjectStaging
from compactor.engine.verify.result import Verified
from compactor.errors import CancelledError, CompactorError, OutcomeUnknownError
from compactor.reasons import Reason
from compactor.storage.base import PreparedFile, Storage, Uploads
from compactor.storage.location import join


class UploadPublisher(Publisher):
    """
    A `Publisher` on a store that can't rename.

    Args:
        uploads: the store's uploads.
    """

    def __init__(self, storage: Storage, uploads: Uploads, request: CompactionRequest, staging: ObjectStaging) -> None:
        super().__init__(storage, request)
        self._uploads = uploads
        self._staging = staging

    def publish(self, verified: Verified, guard: Callable[[], None], known: Collection[str]) -> None:
        """See `Publisher.publish`; on Hive 3.1 no table is compacted in such a store."""
        guard()
        listing = self._storage.list_tree(self._request.location)
        missing: list[tuple[Manifest, FileEntry]] = []
        for manifest in verified.manifests:
            there = files_below(listing, manifest.directory)
            self._require_ours(manifest, there)
            if not there:
                self._clear_range(manifest, listing.directories, known)
            missing += [(manifest, file) for file in manifest.files if file not in there]
        prepared = self._prepare(missing)
        try:
            self._check_inputs(verified.staged.plan, self._storage.list_tree(self._request.location))
            guard()
            for deletes in (True, False):
                self._complete(
                    [item for manifest, _, item in prepared if (manifest.kind is DirKind.DELETE_DELTA) is deletes]
                )
        except BaseException:
            self._give_up([item for _, _, item in prepared])
            raise

    def _require_ours(self, manifest: Manifest, there: Sequence[FileEntry]) -> None:
        """Raise unless all files that are already in an output directory were completed by this attempt."""
        for file in there:
            owner = self._uploads.owner_of(self._target(manifest, file))
            if file not in manifest.files or owner != self._staging.tag:
                what = f"{manifest.directory} is already there, and {file.path} in it isn't ours"
                raise self._refused(Reason.DUPLICATE_RANGE, what)

    def _prepare(self, missing: Sequence[tuple[Manifest, FileEntry]]) -> list[tuple[Manifest, FileEntry, PreparedFile]]:
        """Prepare all files; after an error, abort those that were prepared."""
        prepared: list[tuple[Manifest, FileEntry, PreparedFile]] = []

        def one(item: tuple[Manifest, FileEntry]) -> None:
            manifest, file = item
            source, staging = self._staging.place(manifest.directory, file.path), self._staging
            copy = self._uploads.prepare(source, self._target(manifest, file), staging.tag, staging.records)
            prepared.append((manifest, file, copy))

        try:
            at_once(self._storage.side_by_side, [partial(one, item) for item in missing])
        except BaseException as error:
            self._give_up([item for _, _, item in prepared])
            if isinstance(error, FileNotFoundError):
                raise self._discarded() from None
            raise
        return prepared

    def _complete(self, prepared: Sequence[PreparedFile]) -> None:
        def one(item: PreparedFile) -> None:
            try:
                item.complete()
            except (FileExistsError, FileNotFoundError, CompactorError) as error:
                self._look(item.target, error)

        at_once(self._storage.side_by_side, [partial(one, item) for item in prepared])

    def _look(self, target: str, error: Exception) -> None:
        """After an error: return if this attempt's file is there (files appear whole), else raise."""
        try:
            owner = self._uploads.owner_of(target)
        except (CompactorError, OSError) as second:
            raise OutcomeUnknownError(
                f"{self._entity}: can't tell whether {target} was published: {error}; then {second}"
            ) from error
        if owner == self._staging.tag:
            return
        if owner is not None:
            raise self._refused(Reason.DUPLICATE_RANGE, f"{target} appeared while it was published") from error
        if isinstance(error, FileNotFoundError):
            raise self._discarded() from error
        raise OutcomeUnknownError(f"{self._entity}: can't tell whether {target} will still appear: {error}") from error

    def _discarded(self) -> CancelledError:
        return CancelledError(f"{self._staging.root} was discarded while it was published")

    def _give_up(self, prepared: Sequence[PreparedFile]) -> None:
        """Abort prepared files; completed ones stay. `Staging.discard` aborts those that can't be aborted now."""
        for item in prepared:
            with contextlib.suppress(CompactorError, OSError):
                item.abort()

    def _target(self, manifest: Manifest, file: FileEntry) -> str:
        return join(self._request.location, manifest.directory, file.path)
