"""
Waits, on Hive 3.1, until no query that may have an older snapshot is left, before the first base of a directory appears.

The rename shows a base to every query there. A query whose snapshot ends below it, and that lists the directory then, fails ("Not enough history available") unless
an older base is there, although all that it reads is. Hive 3.1 lists when a query begins, and again to number the rows of a file from before the table was transactional.
The wait ends after five minutes: a worker's slot is dear, streaming writers hold locks for hours, and Hive's own compactor doesn't wait at all.
Source: docs/compaction.md; Hive 3.1's AcidUtils.getAcidState, OrcRawRecordMerger, VectorizedOrcAcidRowBatchReader.computeOffsetAndBucket.
"""

import time
from collections.abc import Callable
from typing import Final

from compactor.acid.names import DirKind
from compactor.acid.snapshot import AcidState
from compactor.log import get_logger
from compactor.metastore.readers import Blocker
from compactor.planning.document import CompactionPlan
from compactor.roles.cancellation import Cancellation

_log = get_logger(__name__)
WAIT_SECONDS: Final = 300.0
LOOK_SECONDS: Final = 2.0
_NAMED: Final = 5


def is_first_base(state: AcidState, plan: CompactionPlan) -> bool:
    """Whether the plan makes a base where none is that older snapshots accept."""
    return state.base is None and any(output.kind is DirKind.BASE for output in plan.outputs)


def wait_for_older_snapshots(older: Callable[[], list[Blocker]], cancellation: Cancellation) -> str:
    """
    Look every two seconds who has an older snapshot; returns who still had one at the end, empty: nobody.

    Raises:
        CompactorError: why the work is over.
    """
    began, told = time.monotonic(), False
    while found := older():
        more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        who = "; ".join(blocker.sentence for blocker in found[:_NAMED]) + more
        if time.monotonic() - began >= WAIT_SECONDS:
            _log.warning("publishes a first base beside older snapshots", waited_seconds=WAIT_SECONDS, older=who)
            return who
        if not told:
            _log.info("waits for older snapshots before a first base is published", at_most_seconds=WAIT_SECONDS, older=who)
        told = True
        time.sleep(LOOK_SECONDS)
        cancellation.check()
    return ""
