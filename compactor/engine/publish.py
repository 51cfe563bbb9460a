"""
Making a finished compaction visible: last checks, then one rename per directory that refuses whatever is in its way.

After an error of the rename nobody knows whether it happened, so the answer is looked up: the target is listed and compared with what was staged.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from compactor.acid.compaction import LayoutVersion
from compactor.acid.listing import Listing
from compactor.acid.names import TRASH_PREFIX, AcidDir, DirKind, MalformedNameError, parse_dir
from compactor.acid.write_ids import ValidTxnList
from compactor.engine.staging import Staging
from compactor.errors import CompactorError, OutcomeUnknownError, RefusedError, RetryableError
from compactor.planning.document import CompactionPlan
from compactor.reasons import Reason
from compactor.storage.base import Storage
from compactor.storage.location import join


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """One file of a published directory."""

    name: str
    length: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """A directory as it was staged; what is found after the rename must equal it."""

    directory: str
    kind: DirKind
    files: tuple[ManifestFile, ...]

    @property
    def bytes(self) -> int:
        return sum(file.length for file in self.files)


@dataclass(frozen=True, slots=True)
class Published:
    """
    What readers find now (on 4.x: will find once the transaction commits).

    Args:
        copied_bytes, recoded_bytes: of the inputs' stripes (or whole files), by what was done with them.
        written_bytes, files: of the published directories, without markers.
    """

    manifests: tuple[Manifest, ...]
    copied_bytes: int = 0
    recoded_bytes: int = 0
    written_bytes: int = 0
    files: int = 0

    @property
    def directories(self) -> tuple[str, ...]:
        return tuple(manifest.directory for manifest in self.manifests)


class Publisher:
    """
    Publishes the staged directories of one plan.

    Args:
        txns: the snapshot of the compaction (None on 3.1): tells which `_v` transactions are known aborted.
    """

    def __init__(self, storage: Storage, plan: CompactionPlan, staging: Staging, txns: ValidTxnList | None) -> None:
        self._storage = storage
        self._plan = plan
        self._staging = staging
        self._txns = txns

    def publish(self, manifests: Sequence[Manifest], guard: Callable[[], None]) -> None:
        """
        Check for the last time and rename; a directory that is there already, and is ours, counts as done.

        Delete events go first: were another reader to look in between, it would miss rows rather than see deleted ones again.

        Raises:
            RefusedError: INPUT_CHANGED, DUPLICATE_RANGE.
            RetryableError: the rename didn't happen.
            OutcomeUnknownError: can't be told.
        """
        for manifest in sorted(manifests, key=lambda item: item.kind is not DirKind.DELETE_DELTA):
            guard()
            listing = self._storage.list_tree(self._plan.location)
            self._check_inputs(listing)
            if not self._is_there(manifest, listing):
                self._clear_range(manifest, listing)
                self._rename(manifest)

    def _check_inputs(self, listing: Listing) -> None:
        now = {entry.path: entry for entry in listing.files}
        for file in self._plan.inputs:
            found = now.get(file.path)
            if found is None:
                raise RefusedError(Reason.INPUT_CHANGED, f"{self._plan.entity}: {file.path} is gone; nothing was published")
            if (found.length, found.mtime_ms) != (file.length, file.mtime_ms):
                raise RefusedError(Reason.INPUT_CHANGED, f"{self._plan.entity}: {file.path} was replaced or changed; nothing was published")

    def _is_there(self, manifest: Manifest, listing: Listing) -> bool:
        if manifest.directory not in listing.directories:
            return False
        if _files_below(listing, manifest.directory) == manifest.files:
            return True
        raise RefusedError(Reason.DUPLICATE_RANGE, f"{self._plan.entity}: {manifest.directory} is already there, and isn't ours")

    def _clear_range(self, manifest: Manifest, listing: Listing) -> None:
        """No second directory of the same kind and range; the result of a compaction known aborted is taken away, anything else refuses."""
        mine = parse_dir(manifest.directory, self._plan.layout)
        for name in listing.directories:
            other = _parsed(name, self._plan.layout)
            if other is None or mine is None or not _same_range(mine, other):
                continue
            if other.visibility_txn == 0 or self._txns is None or not self._txns.is_aborted(other.visibility_txn):
                raise RefusedError(Reason.DUPLICATE_RANGE, f"{self._plan.entity}: {name} has the same range as {manifest.directory}; both would be read")
            gone = join(self._plan.location, f"{TRASH_PREFIX}{name}-delete")
            with contextlib.suppress(FileNotFoundError):
                self._storage.rename_noreplace(join(self._plan.location, name), gone)
            self._storage.delete_tree(gone)

    def _rename(self, manifest: Manifest) -> None:
        source, target = self._staging.out(manifest.directory), join(self._plan.location, manifest.directory)
        try:
            self._storage.rename_noreplace(source, target)
        except RefusedError:
            raise
        except (CompactorError, OSError) as error:
            self._look(manifest, source, target, error)

    def _look(self, manifest: Manifest, source: str, target: str, error: Exception) -> None:
        """After an error: published iff the target is there, equals the manifest, and the source is gone."""
        try:
            staged = self._storage.exists(source)
            found = _files_below(self._storage.list_tree(target), "") if self._storage.exists(target) else None
        except (CompactorError, OSError) as second:
            raise OutcomeUnknownError(f"{self._plan.entity}: can't tell whether {manifest.directory} was published: {error}; then {second}") from error
        if found == manifest.files and not staged:
            return
        if found is not None and isinstance(error, FileExistsError):
            raise RefusedError(Reason.DUPLICATE_RANGE, f"{self._plan.entity}: {manifest.directory} appeared while it was published") from error
        if staged and found is None:
            raise RetryableError(f"{self._plan.entity}: {manifest.directory} wasn't published: {error}") from error
        raise OutcomeUnknownError(f"{self._plan.entity}: {manifest.directory} is there but isn't what was staged: {error}") from error


def _files_below(listing: Listing, directory: str) -> tuple[ManifestFile, ...]:
    prefix = f"{directory}/" if directory else ""
    return tuple(ManifestFile(entry.path.removeprefix(prefix), entry.length) for entry in sorted(listing.files) if entry.path.startswith(prefix))


def _parsed(name: str, layout: LayoutVersion) -> AcidDir | None:
    if "/" in name:
        return None
    try:
        return parse_dir(name, layout)
    except MalformedNameError:
        return None


def _same_range(one: AcidDir, other: AcidDir) -> bool:
    if one.kind is not other.kind or one.max_write_id != other.max_write_id:
        return False
    return one.kind is DirKind.BASE or (one.min_write_id == other.min_write_id and one.statement_id is None and other.statement_id is None)
