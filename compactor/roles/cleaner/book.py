"""
What the Cleaner remembers of each entry, for as long as it is ready for cleaning.

Source: docs/operations.md, Cleaner.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from compactor.metastore.model import Entity


@dataclass(slots=True)
class Page:
    """
    What is remembered of one entry.

    Args:
        turn: the number of its latest turn; 0: it had none.
        said: what of the entry was told in the log last.
        failures: how many of its cleanings failed in a row.
        unanswered: whether the outcome of its latest cleaning is unknown.
        missing: its name, and since when that isn't in the catalog; in seconds of the Cleaner's clock.
    """

    turn: int = 0
    said: Hashable = None
    failures: int = 0
    unanswered: bool = False
    missing: tuple[Entity, float] | None = None


class Book:
    """A page for each entry, by its id. Threads may use it that are at different entries."""

    def __init__(self) -> None:
        self._pages: dict[int, Page] = {}

    def __getitem__(self, entry_id: int) -> Page:
        return self._pages.setdefault(entry_id, Page())

    def keep(self, entry_ids: Iterable[int]) -> None:
        """Forget all entries but these."""
        self._pages = {entry_id: page for entry_id in entry_ids if (page := self._pages.get(entry_id)) is not None}
