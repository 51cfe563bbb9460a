"""
Urgency: the order in which workers claim the entries of the compaction queue.

An entry has an urgency of 0 to `MOST`, which gives it a head start. Its rank is the moment when it was queued, less the
head start, cut to a whole minute. The earliest rank comes first; of one minute, the lowest id. The longest head start is a
day, so no entry is overtaken by another that is queued more than a day later. The order of two entries stays the same
for as long as they wait.

Hive 3.1's queue doesn't hold when an entry was queued: there the rank is the id, less `STEP_ENTRIES` for each step.

The row itself tells the urgency, so the order is the same for all workers of all daemons:

    CQ_TBLPROPERTIES  compactor.urgency = 0 … 4     what the Initiator found, or a request names
    CQ_INITIATOR_ID   …-manual                      without the property: a person's request, 4; on Hive 4
    anything else                                   0

Source: docs/operations.md, "Order of claims"; Hive's StringableMap.
"""

import math
from typing import Any, Final

from sqlalchemy import BigInteger, ColumnElement, Table, case, func, literal

from compactor.durations import HOUR_MS
from compactor.metastore.compaction_queue.properties import encode_properties
from compactor.metastore.model import QueueEntry

URGENCY: Final = "compactor.urgency"
"""The property of a queue entry that holds its urgency."""
MOST: Final = 4
URGENCIES: Final = {str(urgency): urgency for urgency in range(MOST + 1)}
"""What the property's values mean; every other means nothing."""
STEP_MS: Final = 6 * HOUR_MS
"""Head start for each step of urgency."""
STEP_ENTRIES: Final = 50
"""Head start for each step of urgency where the queue doesn't hold times, in ids."""
_MINUTE_MS: Final = 60_000
_PERSONS: Final = "-manual"
"""How the initiator's id of a person's request ends, that of Hive's ALTER TABLE … COMPACT included."""


def urgency_for(excess: float) -> int:
    """
    The urgency of what the Initiator queues: a step for each doubling of the excess.

    Args:
        excess: by which factor the threshold that is passed farthest is passed; at most 1: none is.
    """
    return int(min(MOST, math.log2(excess))) if excess > 1 else 0


def is_persons(initiator_id: str | None) -> bool:
    """Whether a person asked for an entry with this CQ_INITIATOR_ID."""
    return (initiator_id or "").endswith(_PERSONS)


def urgency_of(entry: QueueEntry) -> int:
    """The urgency that an entry's row tells, 0 to `MOST`."""
    named = URGENCIES.get(entry.properties.get(URGENCY, ""))
    if named is not None:
        return named
    return MOST if is_persons(entry.initiator_id) else 0


def reason_of(entry: QueueEntry) -> str | None:
    """A sentence about an entry's urgency and its effect, for people; None for an entry without a head start."""
    urgency = urgency_of(entry)
    if not urgency:
        return None
    if entry.properties.get(URGENCY) not in URGENCIES:
        why = "a person asked for it"
    elif entry.initiator_id is None or is_persons(entry.initiator_id):
        why = "its request says so"
    else:
        why = f"a threshold was passed {2**urgency}-fold{' or more' if urgency == MOST else ''} when it was queued"
    ahead = f"{urgency * STEP_ENTRIES} entries" if entry.enqueue_ms is None else f"{urgency * STEP_MS // HOUR_MS} h"
    return f"urgency {urgency}: workers claim it before what was queued up to {ahead} earlier, because {why}"


def rank_of(entry: QueueEntry, *, timed: bool) -> int:
    """
    The rank of an entry, as `rank_column` has it in SQL; entries of one rank are claimed by id.

    Args:
        timed: whether the queue holds when an entry was queued (`is_timed`).
    """
    urgency = urgency_of(entry)
    if not timed:
        return entry.id - urgency * STEP_ENTRIES
    moment = (entry.enqueue_ms or 0) - urgency * STEP_MS
    return moment - moment % _MINUTE_MS


def is_timed(queue: Table) -> bool:
    """Whether COMPACTION_QUEUE holds when an entry was queued."""
    return "cq_enqueue_time" in queue.c


def rank_column(queue: Table) -> ColumnElement[int]:
    """The rank of a row of COMPACTION_QUEUE; times that Hive didn't note count as the earliest."""
    if not is_timed(queue):
        return queue.c.cq_id - _urgency(queue, STEP_ENTRIES)
    # Divided, as some products do it with four decimals, the last three milliseconds of a minute would be of the next.
    # Nothing here is negative but whole minutes: of other negative numbers the remainder in SQL isn't Python's.
    moment = func.coalesce(queue.c.cq_enqueue_time, 0, type_=BigInteger) - _urgency(queue, STEP_MS)
    return moment - moment % literal(_MINUTE_MS, BigInteger)


def _urgency(queue: Table, step: int) -> ColumnElement[Any]:
    """The head start of a row, in the unit of `step`."""
    named = [(queue.c.cq_tblproperties.like(f"%{text}%"), urgency * step) for text, urgency in _ENCODED.items()]
    if "cq_initiator_id" in queue.c:
        named.append((queue.c.cq_initiator_id.like(f"%{_PERSONS}"), MOST * step))
    return case(*named, else_=0)


_ENCODED: Final = {
    (encode_properties({URGENCY: text}) or "").partition(":")[2]: urgency for text, urgency in URGENCIES.items()
}
"""By how the property stands in CQ_TBLPROPERTIES."""
