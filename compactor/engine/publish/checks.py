"""
What every way of publishing has in common, above all its last checks: the inputs are unchanged, and no other result would
be read beside this one.
"""

import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection

from compactor.acid.compaction import LayoutVersion
from compactor.acid.listing import Listing
from compactor.acid.names import STAGING_PREFIX, TRASH_PREFIX, AcidDir, MalformedNameError, parse_dir
from compactor.engine.request import CompactionRequest
from compactor.engine.results import Manifest
from compactor.engine.verify.result import Verified
from compactor.errors import RefusedError, RivalError
from compactor.planning.document import CompactionPlan
from compactor.planning.rivals import Beside, beside
from compactor.reasons import Reason
from compactor.storage.base import Storage
from compactor.storage.location import join


class Publisher(ABC):
    """Makes the verified result of one attempt visible, after the last checks."""

    def __init__(self, storage: Storage, request: CompactionRequest) -> None:
        self._storage = storage
        self._request = request
        self._entity = request.entry.entity

    @abstractmethod
    def publish(self, verified: Verified, guard: Callable[[], None], known: Collection[str]) -> None:
        """
        Do the last checks, then make all directories visible; those that this attempt has published already are kept.

        Args:
            known: directories that the plan was made from.
            guard: raises when this worker doesn't own the entry any more; called directly before files appear.

        Raises:
            RefusedError: INPUT_CHANGED, DUPLICATE_RANGE.
            RivalError: another compaction's result, which would be read beside this one.
            CancelledError: another process has discarded this attempt.
            RetryableError: the directory didn't appear.
            OutcomeUnknownError: whether files appeared is unknown.
        """

    def _refused(self, reason: Reason, what: str) -> RefusedError:
        return RefusedError(reason, f"{self._entity}: {what}")

    def _check_inputs(self, plan: CompactionPlan, listing: Listing) -> None:
        """
        Raise unless every input has the length, modification time and version that were planned.

        Raises:
            RefusedError: INPUT_CHANGED, naming the first difference.
        """
        now = {entry.path: entry for entry in listing.files}
        for file in plan.inputs:
            found = now.get(file.path)
            if found is None:
                raise self._refused(Reason.INPUT_CHANGED, f"{file.path} is gone; nothing was published")
            if (found.length, found.mtime_ms, found.version) != (file.length, file.mtime_ms, file.version):
                raise self._refused(Reason.INPUT_CHANGED, f"{file.path} was replaced or changed; nothing was published")

    def _check_names(self, plan: CompactionPlan, manifest: Manifest, known: Collection[str], staging: str) -> None:
        """
        Look once more, at names alone and so at once, when no other compaction of ours can publish here any more: all
        directories with inputs are there, and none came since the listing that would be read beside this result.

        Args:
            staging: the name of this attempt's staging directory.

        Raises:
            RefusedError, RivalError: as `_check_inputs` and `_clear_range`.
        """
        names = self._alone_with(staging)
        inside = {file.path.partition("/")[0] for file in plan.inputs if "/" in file.path}
        if gone := sorted(inside.difference(names)):
            raise self._refused(Reason.INPUT_CHANGED, f"{gone[0]} is gone; nothing was published")
        self._clear_range(manifest, names, known)

    def _alone_with(self, staging: str) -> Collection[str]:
        """
        Take away the staging directories of all other attempts in the place; returns the names that are left there.

        Then no rename of theirs can come later, however long they stood still after their own look. Of two that do this
        at once at most one publishes: the staging directory of each was there before its look.
        """
        location = self._request.location
        while True:
            names = self._storage.directories(location)
            others = [name for name in names if name.startswith(STAGING_PREFIX) and name != staging]
            if not others:
                return names
            for name in others:
                aside = join(location, f"{TRASH_PREFIX}gone-{uuid.uuid4().hex[:8]}-delete")
                self._storage.withdraw(join(location, name), aside)

    def _clear_range(self, manifest: Manifest, names: Collection[str], known: Collection[str]) -> None:
        """
        Make sure that no other directory would be read beside this result, with the same rows.

        Removes the result of a compaction that is known to be aborted, if it has the same range.

        Args:
            names: of directories in the partition.
            known: directories that the plan was made from.

        Raises:
            RivalError: the result of another compaction that the plan didn't know.
            RefusedError: DUPLICATE_RANGE, another directory has the range.
        """
        location, txns = self._request.location, self._request.txns
        mine = parse_dir(manifest.directory, self._request.layout)
        for name in names:
            other = _parsed(name, self._request.layout)
            if other is None or mine is None:
                continue
            match beside(mine, other, known, txns):
                case Beside.RIVAL:
                    raise RivalError(
                        f"{self._entity}: {name} of another compaction came meanwhile; readers would read both, and {manifest.directory}"
                    )
                case Beside.SAME_RANGE:
                    raise self._refused(
                        Reason.DUPLICATE_RANGE, f"{name} has the same range as {manifest.directory}; both would be read"
                    )
                case Beside.LEFT_OVER:
                    self._storage.withdraw(join(location, name), join(location, f"{TRASH_PREFIX}{name}-delete"))
                case Beside.READ_RIGHTLY:
                    pass


def _parsed(name: str, layout: LayoutVersion) -> AcidDir | None:
    if "/" in name:
        return None
    try:
        return parse_dir(name, layout)
    except MalformedNameError:
        return None
