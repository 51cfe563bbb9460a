"""
Keeps what an attempt predicted, how far it is, and what it achieved, for `compactor queue` and `compactor history`.

Nothing waits for this: while the attempt works, its monitor's thread writes; the attempt itself writes once, after the
commit. A failure is one line in the log.
"""

import threading
import time
from dataclasses import replace
from typing import Final

from compactor.acid.names import DirKind
from compactor.engine.results import Staged
from compactor.errors import CompactorError, OutcomeUnknownError, RetryableError, UnreachableError
from compactor.log import get_logger
from compactor.metastore.compaction_queue.work import SHARE_STEP, Work, WorkTable
from compactor.metastore.model import QueueEntry
from compactor.planning.document import CompactionPlan
from compactor.roles import steps
from compactor.roles.cycle import Clock

_log = get_logger(__name__)
_AGAIN_SECONDS: Final = 10.0
"""How long a stored share stays at least."""


class WorkRecords:
    """The table of one process' metastore, written as far as it can be."""

    def __init__(self, table: WorkTable) -> None:
        self._table = table
        self._refused = False
        self._told = ""

    def keep(self, entry_id: int, start_ms: int, work: Work) -> None:
        """Store the work of an attempt; raises nothing."""
        try:
            if self._refused and not self._table.exists():
                return
            self._table.put(entry_id, start_ms, work)
            self._refused, self._told = False, ""
        except (UnreachableError, RetryableError, OutcomeUnknownError) as error:
            _log.debug("work_record.not_kept", error=str(error))
        except Exception as error:
            self._refuse(str(error) if isinstance(error, CompactorError) else repr(error))

    def _refuse(self, why: str) -> None:
        """Say once that nothing is kept; a table that can't be created is only looked for from now on."""
        self._refused = True
        (_log.debug if self._told else _log.warning)(
            "work_record.not_kept", error=why, detail="compactor history doesn't tell what compactions achieve"
        )
        self._told = why


class WorkRecord:
    """
    The work of one attempt.

    Args:
        entry: claimed by `worker_id` just now.
    """

    def __init__(self, records: WorkRecords, entry: QueueEntry, worker_id: str, clock: Clock = time.monotonic) -> None:
        self._records = records
        self._entry = entry
        self._worker_id = worker_id
        self._clock = clock
        self._passed = {steps.WORKER_CLAIMED: clock()}
        self._lock = threading.Lock()
        self._work: Work | None = None
        self._kept: tuple[float, float] | None = None
        self._ended = False

    def passed(self, step: str) -> None:
        """Note when a step is done."""
        self._passed.setdefault(step, self._clock())

    def planned(self, plan: CompactionPlan) -> None:
        """Note what the plan predicts; from now on there is something to keep."""
        entry, predicted = self._entry, plan.prediction
        waited = None if entry.enqueue_ms is None or entry.start_ms is None else entry.start_ms - entry.enqueue_ms
        self._work = Work(
            worker=self._worker_id,
            predicted_read=predicted.read,
            predicted_written=predicted.written,
            predicted_files=predicted.files_after,
            waiting_seconds=None if waited is None else max(0, waited) / 1000,
            planning_seconds=self._seconds(steps.WORKER_CLAIMED, steps.WORKER_PLANNED),
        )

    def keep(self, share: float) -> None:
        """
        Store the share of the writing that is done (0..1), unless one that is hardly smaller was stored just now.

        Called by the monitor, every few seconds.
        """
        with self._lock:
            work, kept, now = self._work, self._kept, self._clock()
            if work is None or self._ended:
                return
            if kept is not None and (now - kept[1] < _AGAIN_SECONDS or share - kept[0] < SHARE_STEP - 1e-9):
                return
            self._kept = share, now
            self._records.keep(self._entry.id, self._entry.start_ms or 0, replace(work, share=round(share, 3)))

    def ended(self, staged: Staged) -> None:
        """Store what the committed compaction achieved; no share is stored after that."""
        with self._lock:
            self._ended = True
            if self._work is None:
                return
            plan, rows = staged.plan, _rows(staged)
            work = replace(
                self._work,
                compacted_as=plan.kind.value,
                share=1.0,
                writing_seconds=self._seconds(steps.WORKER_PLANNED, steps.WORKER_RAN),
                checking_seconds=self._seconds(steps.WORKER_RAN, steps.WORKER_VERIFIED),
                publishing_seconds=self._seconds(steps.WORKER_VERIFIED, steps.WORKER_COMMITTED),
                files_before=len(plan.inputs),
                files_after=len(staged.files),
                bytes_before=sum(file.length for file in plan.inputs),
                bytes_after=staged.bytes,
                copied_bytes=staged.copied_bytes,
                recoded_bytes=staged.recoded_bytes,
                rows_before=None if rows is None else rows[0],
                rows_after=None if rows is None else rows[1],
            )
            self._records.keep(self._entry.id, self._entry.start_ms or 0, work)

    def _seconds(self, earlier: str, later: str) -> float | None:
        passed = self._passed
        return round(passed[later] - passed[earlier], 3) if earlier in passed and later in passed else None


def _rows(staged: Staged) -> tuple[int, int] | None:
    """Rows of the data files before and after; None where files were taken without counting their rows."""
    data = [file for file in staged.files + staged.empty if file.kind is not DirKind.DELETE_DELTA]
    if any(file.length and not file.rows.read for file in data):
        return None
    return sum(file.rows.read for file in data), sum(file.rows.written for file in data)
