"""
Waits, on Hive 3.1, before the first base of a directory appears, until no query that may have an older snapshot is
left.

The rename shows the base to every query of the directory. A query whose snapshot ends below the base, and that lists
the directory after the rename, fails ("Not enough history available") unless an older base is there, although all that
it reads is. Hive 3.1 lists when a query begins, and again to number the rows of a file from before the table was
transactional. The wait ends after five minutes: a worker's slot is dear, streaming writers hold locks for hours, and
Hive's own compactor doesn't wait at all.
Source: docs/compaction.md; Hive 3.1's AcidUtils.getAcidState, OrcRawRecordMerger,
VectorizedOrcAcidRowBatchReader.computeOffsetAndBucket.
"""

import time
from collections.abc import Callable
from typing import Final

from compactor.acid.names import DirKind
from compactor.acid.snapshot import AcidState
from compactor.log import get_logger
from compactor.metastore.clean.may_clean import Blocker
from compactor.planning.document import CompactionPlan
from compactor.roles.worker.cancellation import Cancellation

_log = get_logger(__name__)
WAIT_SECONDS: Final = 300.0
LOOK_SECONDS: Final = 2.0
_NAMED: Final = 5


def is_first_base(state: AcidState, plan: CompactionPlan) -> bool:
    """Whether the plan makes a base in a directory that has no base yet which older snapshots accept."""
    return state.base is None and any(output.kind is DirKind.BASE for output in plan.outputs)


def wait_for_older_snapshots(older: Callable[[], list[Blocker]], cancellation: Cancellation) -> str:
    """
    Ask every two seconds which queries have an older snapshot. Returns those that still have one at the end, in words;
    empty if none has.

    Raises:
        CompactorError: why the work is over.
    """
    began, told = time.monotonic(), False
    while found := older():
        more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        who = "; ".join(blocker.sentence for blocker in found[:_NAMED]) + more
        if time.monotonic() - began >= WAIT_SECONDS:
            _log.warning("snapshot_wait.timed_out", waited_seconds=WAIT_SECONDS, older=who)
            return who
        if not told:
            _log.info("snapshot_wait.started", at_most_seconds=WAIT_SECONDS, older=who)
        told = True
        time.sleep(LOOK_SECONDS)
        cancellation.check()
    return ""
