"""
The last checks of every way of publishing: the inputs are unchanged, and no other result would be read beside this one.
"""

from collections.abc import Collection

from compactor.acid.compaction import LayoutVersion
from compactor.acid.listing import Listing
from compactor.acid.names import TRASH_PREFIX, AcidDir, DirKind, MalformedNameError, parse_dir
from compactor.engine.request import CompactionRequest
from compactor.engine.results import Manifest
from compactor.errors import RefusedError, RivalError
from compactor.planning.document import CompactionPlan
from compactor.reasons import Reason
from compactor.storage.base import Storage
from compactor.storage.location import join


class LastLook:
    """The last checks, as a part of each publisher."""

    def __init__(self, storage: Storage, request: CompactionRequest) -> None:
        self._storage = storage
        self._request = request

    def check_inputs(self, plan: CompactionPlan, listing: Listing) -> None:
        """
        Raise unless every input has the length, modification time and version that were planned.

        Raises:
            RefusedError: INPUT_CHANGED, naming the first difference.
        """
        now = {entry.path: entry for entry in listing.files}
        for file in plan.inputs:
            found = now.get(file.path)
            if found is None:
                raise RefusedError(
                    Reason.INPUT_CHANGED, f"{self._request.entry.entity}: {file.path} is gone; nothing was published"
                )
            if (found.length, found.mtime_ms, found.version) != (file.length, file.mtime_ms, file.version):
                raise RefusedError(
                    Reason.INPUT_CHANGED,
                    f"{self._request.entry.entity}: {file.path} was replaced or changed; nothing was published",
                )

    def clear_range(self, manifest: Manifest, listing: Listing, known: Collection[str]) -> None:
        """
        Make sure that no other directory would be read beside this result, with the same rows.

        Removes the result of a compaction that is known to be aborted, if it has the same range.

        Args:
            known: directories that the plan was made from.

        Raises:
            RivalError: the result of another compaction that the plan didn't know.
            RefusedError: DUPLICATE_RANGE, another directory has the range.
        """
        location, txns = self._request.location, self._request.txns
        mine = parse_dir(manifest.directory, self._request.layout)
        for name in listing.directories:
            other = _parsed(name, self._request.layout)
            if other is None or mine is None or not are_read_together(mine, other):
                continue
            aborted = txns is not None and txns.is_aborted(other.visibility_txn)
            if not aborted and self._is_rivals(other, known):
                raise RivalError(
                    f"{self._request.entry.entity}: {name} of another compaction came meanwhile; readers would read both, and {manifest.directory}"
                )
            if not has_same_range(mine, other):
                continue  # a stream's, say, across which the plan didn't reach
            if other.visibility_txn == 0 or not aborted:
                raise RefusedError(
                    Reason.DUPLICATE_RANGE,
                    f"{self._request.entry.entity}: {name} has the same range as {manifest.directory}; both would be read",
                )
            self._storage.withdraw(join(location, name), join(location, f"{TRASH_PREFIX}{name}-delete"))

    def _is_rivals(self, other: AcidDir, known: Collection[str]) -> bool:
        """
        Whether another compaction made the directory, and the plan wasn't made with it. On Hive 4 the name tells whose it
        is, and the lists whether it counted; on 3.1 no writer can have made one of this range since the listing: what is
        written now has higher ids.
        """
        if self._request.txns is not None:
            return other.visibility_txn != 0 and not self._request.txns.is_valid(other.visibility_txn)
        return other.name not in known and (other.is_base or other.statement_id is None)


def are_read_together(mine: AcidDir, other: AcidDir) -> bool:
    """
    Whether readers would read both of two results, though they hold rows of the same write ids.

    Of two ranges one inside the other readers take the wider one. Two bases are such, and a base and a delta that ends
    within it. Ranges that lie across each other, and equal ones of one kind, are both read.
    """
    if has_same_range(mine, other):
        return True
    low, high = _range(mine)
    other_low, other_high = _range(other)
    if other_low > high or low > other_high:
        return False
    return not (low <= other_low and other_high <= high) and not (other_low <= low and high <= other_high)


def has_same_range(one: AcidDir, other: AcidDir) -> bool:
    """Whether two directories of one kind stand for exactly the same write ids."""
    if one.kind is not other.kind or one.max_write_id != other.max_write_id:
        return False
    return one.kind is DirKind.BASE or (
        one.min_write_id == other.min_write_id and one.statement_id is None and other.statement_id is None
    )


def _range(directory: AcidDir) -> tuple[int, int]:
    return (-1 if directory.is_base else directory.min_write_id), directory.max_write_id


def _parsed(name: str, layout: LayoutVersion) -> AcidDir | None:
    if "/" in name:
        return None
    try:
        return parse_dir(name, layout)
    except MalformedNameError:
        return None
