"""
Which part of a partition's delete events somebody needs: those of one bucket, those between two keys.

What lies outside is passed over where the statistics of a stripe tell, else row by row; so a task that recodes some stripes holds only their events.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compactor.acid.row_id import RowKey, decode_buckets
from compactor.orc.key_columns import KeyColumns
from compactor.orc.keys import stripe_bounds
from compactor.orc.tail import Tail


@dataclass(frozen=True, slots=True)
class Share:
    """
    Args:
        bucket: events of rows whose bucket field decodes to it; None: of all.
        first, last: events whose keys lie between these, both included; None: no bound.
    """

    bucket: int | None = None
    first: RowKey | None = None
    last: RowKey | None = None

    def may_be_in(self, tail: Tail, stripe: int) -> bool:
        """
        Whether a stripe can hold such events; what its statistics don't tell is possible.

        Its ranges alone count, not the key index: a row may have several events, some in the next stripe (one of a writer that was aborted, then one that
        counts), and a streaming writer's events ascend only inside each transaction.
        """
        if self.first is None and self.last is None:
            return True
        bounds = stripe_bounds(tail, stripe)
        if bounds is None:
            return True
        low, high = (RowKey(bounds.write_id[end], bounds.bucket[end], bounds.row_id[end]) for end in (0, 1))
        return (self.first is None or high >= self.first) and (self.last is None or low <= self.last)

    def of(self, keys: KeyColumns) -> KeyColumns:
        """Those of some events that belong to it."""
        chosen = np.ones(len(keys), np.bool_)
        if self.bucket is not None:
            chosen &= decode_buckets(keys.bucket) == self.bucket
        if self.first is not None:
            chosen &= _from(keys, self.first)
        if self.last is not None:
            chosen &= ~_from(keys, RowKey(self.last.write_id, self.last.bucket, self.last.row_id + 1))
        return keys if chosen.all() else keys.select(chosen)


EVERYTHING = Share()


def _from(keys: KeyColumns, bound: RowKey) -> npt.NDArray[np.bool_]:
    """Which keys aren't below a bound."""
    same_write = keys.write_id == bound.write_id
    same_both = same_write & (keys.bucket == bound.bucket)
    reached: npt.NDArray[np.bool_] = (
        (keys.write_id > bound.write_id) | (same_write & (keys.bucket > bound.bucket)) | (same_both & (keys.row_id >= bound.row_id))
    )
    return reached
