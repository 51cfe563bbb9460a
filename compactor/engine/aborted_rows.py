"""
Finds the aborted writes that still have rows in a partition.

The metastore must keep their transactions as aborted: otherwise readers would take those rows for committed.

Most compactions leave such rows out, but a `_v` in the name doesn't prove it: Hive's merge compaction joins files as
they are. The keys in the files prove it. The key columns of a stripe are decoded only where its key statistics admit
an aborted id, so checking a result that is sorted and filtered costs its tails and a few stripes.
Source: docs/layout.md; HIVE-24481; Hive's AcidUtils (uncompacted aborts), MergeCompactor.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from compactor.acid.children import ListedDir, data_files
from compactor.acid.snapshot import AcidState
from compactor.acid.write_ids import ValidWriteIdList
from compactor.engine.inputs import open_input
from compactor.errors import CorruptFileError, RefusedError
from compactor.log import get_logger
from compactor.orc.events.keys import read_keys, stripe_bounds
from compactor.orc.format.tail import Tail, read_tail
from compactor.storage.base import Storage

_log = get_logger(__name__)


def aborted_with_rows(
    storage: Storage, location: str, state: AcidState, write_ids: ValidWriteIdList, *, insert_only: bool
) -> frozenset[int]:
    """
    Aborted write ids whose rows lie, or may lie, in a directory that holds other write ids, too.

    Replaced directories count for as long as they exist. Files are opened only in results of compactions that every
    reader sees as complete. In any other directory an aborted writer may still write, so the directory's name decides.
    Results of insert-only tables are skipped: readers read all their rows without regard to write ids, and the
    compaction put only rows of visible ids there.

    Args:
        location: the directory of the partition that `state` describes.

    Raises:
        UnreachableError, RetryableError: the store doesn't answer.
    """
    seen_by_all = (*state.deltas, *state.obsolete)
    others = [
        *(listed for listed in seen_by_all if not listed.compacted),
        *(excluded.dir for excluded in state.excluded),
    ]
    found = {write_id for listed in others for write_id in _aborted_within(listed, write_ids)}
    if insert_only:
        return frozenset(found)
    for listed in seen_by_all:
        wanted = (
            [write_id for write_id in _aborted_within(listed, write_ids) if write_id not in found]
            if listed.compacted
            else []
        )
        if wanted:
            found |= _seen_in(storage, location, listed, wanted)
    return frozenset(found)


def aborted_in(
    storage: Storage, location: str, listed: ListedDir, write_ids: ValidWriteIdList, *, insert_only: bool
) -> tuple[int, ...]:
    """
    Aborted write ids whose rows lie, or may lie, in one directory, ascending. A base's rows count as well.

    Args:
        location: the directory that holds the listed one.

    Raises:
        UnreachableError, RetryableError: the store doesn't answer.
    """
    acid = listed.acid
    if not listed.compacted:
        return write_ids.aborted_within(acid.first_written, acid.max_write_id)
    wanted = list(write_ids.aborted_within(*acid.span))
    return () if insert_only or not wanted else tuple(sorted(_seen_in(storage, location, listed, wanted)))


def may_hold_aborted(state: AcidState, write_ids: ValidWriteIdList) -> bool:
    """
    Whether any directory's name admits an aborted write id among other ids.

    When it is False, `aborted_with_rows` finds no id and opens no file.
    """
    return any(
        _aborted_within(listed, write_ids)
        for listed in (*state.deltas, *state.obsolete, *(excluded.dir for excluded in state.excluded))
    )


def _aborted_within(listed: ListedDir, write_ids: ValidWriteIdList) -> tuple[int, ...]:
    return () if listed.acid.is_base else write_ids.aborted_within(*listed.acid.span)


def _seen_in(storage: Storage, location: str, listed: ListedDir, wanted: list[int]) -> set[int]:
    """The wanted ids that have rows in a directory; all of them when one of its files can't be understood."""
    found: set[int] = set()
    for entry in data_files(listed, insert_only=False):
        if not entry.length:
            continue
        try:
            found |= _seen_in_file(storage, location, entry.path, np.array(wanted, dtype=np.int64))
        except (CorruptFileError, RefusedError) as error:
            _log.warning(
                "aborted_rows.not_read",
                directory=listed.name,
                error=str(error),
                detail="whether the directory holds rows of aborted writes isn't known: the writes stay known as aborted",
            )
            return set(wanted)
        if len(found) == len(wanted):
            break
    return found


def _seen_in_file(storage: Storage, location: str, path: str, wanted: npt.NDArray[np.int64]) -> set[int]:
    found: set[int] = set()
    with open_input(storage, location, path) as reader:
        tail = read_tail(reader)
        if not tail.is_acid:
            raise CorruptFileError(f"{path} isn't a full-ACID file: its columns are {tail.tree}")
        for stripe in range(len(tail.stripes)):
            possible = _possible(tail, stripe, wanted)
            if len(possible):
                for keys in read_keys(reader, tail, stripe):
                    found.update(_among(possible, (keys.current, keys.write_id)))
    return found


def _possible(tail: Tail, stripe: int, wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    bounds = stripe_bounds(tail, stripe)
    if bounds is None or bounds.current is None:
        return wanted
    inside = np.zeros(len(wanted), dtype=bool)
    for low, high in (bounds.current, bounds.write_id):
        inside |= (wanted >= low) & (wanted <= high)
    return wanted[inside]


def _among(wanted: npt.NDArray[np.int64], columns: Iterable[npt.NDArray[np.int64]]) -> set[int]:
    return {int(write_id) for column in columns for write_id in wanted[np.isin(wanted, column)]}
