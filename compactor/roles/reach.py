"""
How far one Initiator has looked, and what it still has to look at.

A look asks the metastore for candidates; what was found is judged in a cycle that may end before all were. So that none is lost, what a look found is either judged or
`left`, and who is left is asked for again, and is first in the next cycle; only then is the next look's `first` moved on. A cycle that fails changes nothing here.
Nothing depends on another daemon's reach: each begins with everything, and knows of its own looks alone, however long others led in between.

Pure. Source: docs/operations.md, Initiator.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from compactor.metastore.initiating import HandedOut, Look
from compactor.metastore.model import Candidate, Entity


@dataclass(frozen=True, slots=True)
class Plan:
    """
    What one cycle asks for.

    Args:
        start_ms: of the cycle, by the database's clock.
        first: only what was committed from this transaction on; None: everything.
        also: look at these too.
        before: those of them that an earlier cycle didn't come to, each with its place.
        paused: scopes in which nothing is judged now.
        handed_out: write ids as an earlier look found them; None: this is the first.
    """

    start_ms: int
    first: int | None
    also: AbstractSet[Entity]
    before: Mapping[Entity, int]
    paused: frozenset[str]
    handed_out: HandedOut | None

    @property
    def full(self) -> bool:
        return self.first is None

    def in_order(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Those that were left before come first, in the order in which they were left: however little a cycle comes to, all get their turn."""
        if not self.before:
            return list(candidates)
        return sorted(candidates, key=lambda candidate: self.before.get(candidate.entity, len(self.before)))


class Reach:
    """The memory of one Initiator."""

    def __init__(self) -> None:
        self._reached: int | None = None
        self._last_full_ms: int | None = None
        self._again: AbstractSet[Entity] = frozenset()
        self._left: dict[Entity, int] = {}
        self._waited_for: frozenset[str] = frozenset()
        self._handed_out: HandedOut | None = None

    def plan(self, start_ms: int, paused: frozenset[str], full_scan_seconds: float) -> Plan:
        """Everything: first of all, when it is time, and when a pause is over under which something was passed over."""
        resumed = bool(self._waited_for - paused)
        full = resumed or self._last_full_ms is None or start_ms - self._last_full_ms >= full_scan_seconds * 1000
        return Plan(start_ms, None if full else self._reached, self._again | self._left.keys(), self._left, paused, self._handed_out)

    def came(
        self, plan: Plan, look: Look, *, again: AbstractSet[Entity], left: Iterable[Entity], unnamed: AbstractSet[Entity] = frozenset(), passed_over: bool
    ) -> None:
        """
        A cycle has ended.

        Args:
            again: judged, or skipped for something that passes by itself: look at them in the next cycle.
            left: found, and not come to, in this order.
            unnamed: those of its look that no listing settled.
            passed_over: whether something wasn't judged for a pause.
        """
        self._reached, self._again, self._left = look.reached, again, {entity: place for place, entity in enumerate(left)}
        # Nothing but the difference tells of an unnamed write: what isn't settled keeps it.
        known = plan.handed_out or {}
        kept = {table: known[table] for table in unnamed if table in known}
        self._handed_out = {table: ids for table, ids in look.handed_out.items() if table not in unnamed} | kept if unnamed else look.handed_out
        missed = plan.paused if passed_over else frozenset[str]()
        if plan.full:
            self._last_full_ms, self._waited_for = plan.start_ms, missed
        else:
            self._waited_for |= missed
