"""
Makes a finished compaction visible: last checks, then one rename per directory, which fails if the target exists.

After an error it is unknown whether the rename happened. The publisher then finds out: it lists the target and compares
it with the staged files. A directory that is there counts as published once its name is durable.
"""

from collections.abc import Callable, Collection

from compactor.acid.compaction import LayoutVersion
from compactor.acid.listing import Listing
from compactor.acid.names import DirKind
from compactor.engine.publish.checks import Publisher
from compactor.engine.request import CompactionRequest
from compactor.engine.results import Manifest, files_below
from compactor.engine.staging.directory import Staging
from compactor.engine.verify.result import Verified
from compactor.errors import CompactorError, OutcomeUnknownError, RefusedError, RetryableError, UnreachableError
from compactor.planning.document import CompactionPlan
from compactor.reasons import Reason
from compactor.storage.base import Storage
from compactor.storage.location import join


class RenamePublisher(Publisher):
    """A `Publisher` on a store that can rename."""

    def __init__(self, storage: Storage, request: CompactionRequest, staging: Staging) -> None:
        super().__init__(storage, request)
        self._staging = staging

    def publish(self, verified: Verified, guard: Callable[[], None], known: Collection[str]) -> None:
        """
        See `Publisher.publish`. RefusedError is also LOCATION_MISSING: the attempt was discarded.

        The delete delta is renamed first: a reader between the two renames might miss rows, but never sees deleted rows
        again.
        """
        for manifest in sorted(verified.manifests, key=lambda item: item.kind is not DirKind.DELETE_DELTA):
            guard()
            listing = self._storage.list_tree(self._request.location)
            self._check_inputs(verified.staged.plan, listing)
            if self._is_there(manifest, listing):
                self._make_durable(manifest)
            else:
                self._clear_range(manifest, listing.directories, known)
                if self._request.layout is LayoutVersion.HIVE_3:
                    self._look_again(verified.staged.plan, manifest, guard, known)
                self._rename(manifest)

    def _look_again(
        self, plan: CompactionPlan, manifest: Manifest, guard: Callable[[], None], known: Collection[str]
    ) -> None:
        """
        On Hive 3.1 the rename is the commit. Another compaction of ours may have published since the listing, which
        takes as long as there are files; so the names are looked at again when none can any more: its staging directory
        is gone.

        The names are read twice. One that renames its result and ends while the first reading is under way may appear in
        it neither with its staging directory nor with its result.
        """
        self._alone_with(self._staging.name)
        guard()  # the listing and the removal may have taken long
        self._check_names(plan, manifest, known, self._staging.name)

    def _is_there(self, manifest: Manifest, listing: Listing) -> bool:
        if manifest.directory not in listing.directories:
            return False
        if files_below(listing, manifest.directory) == manifest.files:
            return True
        raise self._refused(Reason.DUPLICATE_RANGE, f"{manifest.directory} is already there, and isn't ours")

    def _rename(self, manifest: Manifest) -> None:
        source, target = self._staging.out(manifest.directory), join(self._request.location, manifest.directory)
        if not self._storage.exists(source):
            raise self._refused(Reason.LOCATION_MISSING, f"{source} is gone since it was verified")
        try:
            self._storage.rename_noreplace(source, target)
        except RefusedError:
            raise
        except (CompactorError, OSError) as error:
            self._look(manifest, source, target, error)

    def _make_durable(self, manifest: Manifest) -> None:
        """
        Make the name of a directory durable that a rename without a good answer brought there. Until then it may be gone
        after a power failure, while the metastore counts its rows as compacted and the Cleaner has removed the inputs.
        """
        try:
            self._storage.sync_directory(self._request.location)
        except (CompactorError, OSError) as error:
            raise OutcomeUnknownError(
                f"{self._entity}: {manifest.directory} is there, but can't be made durable: {error}"
            ) from error

    def _look(self, manifest: Manifest, source: str, target: str, error: Exception) -> None:
        """After an error: return if the rename happened (target equals manifest, source is gone), else raise."""
        try:
            staged = self._storage.exists(source)
            found = files_below(self._storage.list_tree(target), "") if self._storage.exists(target) else None
        except (CompactorError, OSError) as second:
            raise OutcomeUnknownError(
                f"{self._entity}: can't tell whether {manifest.directory} was published: {error}; then {second}"
            ) from error
        if found == manifest.files and not staged:
            self._make_durable(manifest)
            return
        if found is not None and isinstance(error, FileExistsError):
            raise self._refused(
                Reason.DUPLICATE_RANGE, f"{manifest.directory} appeared while it was published"
            ) from error
        if staged and found is None:
            kind = UnreachableError if isinstance(error, UnreachableError) else RetryableError
            raise kind(f"{self._entity}: {manifest.directory} wasn't published: {error}") from error
        raise OutcomeUnknownError(
            f"{self._entity}: {manifest.directory} is there but isn't what was staged: {error}"
        ) from error
