"""
May this compaction begin now, and why not: pauses, drained hosts, maintenance windows, blackouts, budgets.

`scope`, `times`, `windows`, `spending` and `judge` decide and do no I/O; `records` is what is stored, `configured` what the settings say; `control` reads and
writes through the coordinator, and asks the clock. Nothing here is about data: who is told "no" waits, and that is all that ever comes of it.
Source: docs/control.md.
"""

from compactor.control.control import Control
from compactor.control.judge import Denial, Judge
from compactor.control.records import Drain, Pause
from compactor.control.scope import Scope, Subject

__all__ = ["Control", "Denial", "Drain", "Judge", "Pause", "Scope", "Subject"]
