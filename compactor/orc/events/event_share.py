"""
Which part of a partition's delete events a task needs: those of one bucket, those between two keys.

Events outside that part are skipped by stripe where the statistics tell, else row by row, so a task that recodes some
stripes holds only the events of those stripes.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compactor.acid.row_id import RowKey, decode_buckets
from compactor.orc.events.keys import stripe_bounds
from compactor.orc.format.key_columns import KeyColumns
from compactor.orc.format.tail import Tail


@dataclass(frozen=True, slots=True)
class Share:
    """
    A part of a partition's delete events.

    Args:
        bucket: events of rows whose bucket field decodes to it; None: of all buckets.
        first, last: events whose keys lie between these, both included; None: no bound.
    """

    bucket: int | None = None
    first: RowKey | None = None
    last: RowKey | None = None

    def may_be_in(self, tail: Tail, stripe: int) -> bool:
        """
        Whether a stripe can hold events of this share; True where the stripe's statistics don't tell.

        Only the ranges of the statistics count, not the key index: a row may have several events, some in the next
        stripe (one of an aborted write, then one that counts), and a streaming writer's events ascend only inside each
        transaction.
        """
        if self.first is None and self.last is None:
            return True
        bounds = stripe_bounds(tail, stripe)
        if bounds is None:
            return True
        low, high = (RowKey(bounds.write_id[end], bounds.bucket[end], bounds.row_id[end]) for end in (0, 1))
        return (self.first is None or high >= self.first) and (self.last is None or low <= self.last)

    def of(self, keys: KeyColumns) -> KeyColumns:
        """The given events that belong to this share."""
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
    """Which keys are at or above a bound."""
    same_write = keys.write_id == bound.write_id
    same_both = same_write & (keys.bucket == bound.bucket)
    reached: npt.NDArray[np.bool_] = (
        (keys.write_id > bound.write_id)
        | (same_write & (keys.bucket > bound.bucket))
        | (same_both & (keys.row_id >= bound.row_id))
    )
    return reached
