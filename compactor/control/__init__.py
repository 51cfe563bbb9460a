"""
Decides whether a compaction may begin now, and why not: pauses, drained hosts, maintenance windows, blackouts, budgets.

`scope`, `times`, `windows`, `spending` and `judge` decide and do no I/O; `records` defines the stored records,
`configured` converts the settings; `control` reads and writes through the coordinator, and asks the clock. Nothing here
touches data: a denied compaction waits, and a denial has no other effect.
Source: docs/control.md.
"""

from compactor.control.control import Control
from compactor.control.judge import Denial, Judge
from compactor.control.records import Drain, Pause
from compactor.control.scope import Scope, Subject

__all__ = ["Control", "Denial", "Drain", "Judge", "Pause", "Scope", "Subject"]
