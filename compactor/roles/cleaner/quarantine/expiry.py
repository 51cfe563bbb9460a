"""
Visits places whose quarantine may be over: a partition that isn't compacted again is never swept again.

The metastore's history of succeeded entries tells where the Cleaner put something into quarantine, and about when; each
entry is visited once after its time, and again while something is left. What the history has forgotten, and what was
rolled back, goes with the next sweep of its partition. Knows places and times; `quarantine` proves what may go.
Source: docs/operations.md, Quarantine.
"""

from collections.abc import Callable, Iterable
from typing import Final

from compactor.durations import HOUR_MS
from compactor.errors import CompactorError, OwnershipLostError, RefusedError
from compactor.metastore.catalog import Facts
from compactor.metastore.model import CatalogPlace, Entity, HistoryEntry, QueueState, TableFacts
from compactor.roles.cleaner.quarantine.kept import hours_for, remove_overdue
from compactor.roles.cleaner.tally import CleanerTally
from compactor.roles.cycle import Clock
from compactor.roles.leadership import HeldLeadership
from compactor.roles.pauses import subject_of
from compactor.roles.services import Services

INTERVAL_SECONDS: Final = 600.0
"""Time between two looks into the history."""


class Expiry:
    """Remembers which entries of the history one Cleaner has visited."""

    def __init__(self, services: Services, clock: Clock) -> None:
        self._services = services
        self._clock = clock
        self._next = clock()
        self._visited: set[int] = set()

    def run(self, held: HeldLeadership, tally: CleanerTally, time_is_up: Callable[[], bool]) -> None:
        """
        Remove what is over, where the history tells; at most once in `INTERVAL_SECONDS`.

        Raises:
            OwnershipLostError: another daemon is the Cleaner by now.
            CompactorError: the metastore can't be asked.
        """
        if self._clock() < self._next:
            return
        services = self._services
        history = services.queue.history(QueueState.SUCCEEDED)
        self._visited &= {entry.id for entry in history}
        due = self._due(entry for entry in history if entry.id not in self._visited)
        facts = services.catalog.facts_for(due)
        tables = services.catalog.tables_for(due)
        for entity, entries in due.items():
            if time_is_up() or services.stopping.is_set():
                return
            if services.control.judge().cleaning(subject_of(entries[0])) is not None:
                continue
            held.check()
            try:
                location = self._location(entity, facts.get(entity), tables.get(entity.whole_table()))
                if location is None or not self._visit(location):
                    self._visited.update(entry.id for entry in entries)
            except OwnershipLostError:
                raise
            except CompactorError as error:
                tally.error(entity, error)
        self._next = self._clock() + INTERVAL_SECONDS

    def _due(self, history: Iterable[HistoryEntry]) -> dict[Entity, list[HistoryEntry]]:
        """Entries of the history whose quarantine, if there is one, may be over."""
        entries = list(history)
        tables = self._services.catalog.tables_for(entry.entity for entry in entries)
        hours = {
            entity: self._hours(tables.get(entity)) for entity in {entry.entity.whole_table() for entry in entries}
        }
        now_ms = self._services.now_ms() if any(hours.values()) else 0
        due: dict[Entity, list[HistoryEntry]] = {}
        for entry in entries:
            kept = hours[entry.entity.whole_table()]
            if kept and entry.end_ms is not None and entry.end_ms + kept * HOUR_MS <= now_ms:
                due.setdefault(entry.entity, []).append(entry)
        return due

    def _hours(self, table: TableFacts | None) -> float:
        try:
            return hours_for(self._services, table)
        except RefusedError:  # the next cleaning of the table says so
            return 0.0

    def _visit(self, location: str) -> int:
        storage = self._services.storage(location)
        return remove_overdue(storage, location, storage.directories(location), self._services.now_ms())

    def _location(self, entity: Entity, facts: Facts | None, table: TableFacts | None) -> str | None:
        """The directory of a table or partition; of a dropped one, the directory that held it."""
        if facts is not None:
            return CatalogPlace.of(*facts).location
        if table is not None:
            return table.location
        return next(
            (owner.location for owner in self._services.places.databases() if owner.name.lower() == entity.database),
            None,
        )
