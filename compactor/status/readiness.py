"""
Whether one daemon does its work now, and if not, why: the one answer for `/-/ready`, `compactor_ready`, the service
manager, and for what the daemon tells the others of itself.

Source: docs/operations.md, Watching.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from compactor.coordination.model import HELD, NOT_READY
from compactor.roles.services import Services

_LONGEST: Final = 200
"""Characters of a sentence in a member's record."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """
    What keeps a daemon from its work; nothing does: it is ready.

    Args:
        held: why its workers compact nothing.
        beside: what isn't well, while they go on.
    """

    held: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()

    @classmethod
    def of(cls, services: Services | None, loops: Mapping[str, bool]) -> Self:
        """
        Args:
            services: None: they aren't open yet.
            loops: by name, whether it works; empty: none was started yet.
        """
        if services is None or not loops:
            return cls.starting()
        if services.stopping.is_set():
            return cls(("draining",))
        lost, given_back = services.coordinator.why_not_start(), services.backoff.trouble()
        failed = [
            f"the latest cycle of {name} failed, or there was none yet" for name, works in loops.items() if not works
        ]
        return cls(
            tuple(why for why in (lost, given_back) if why is not None), (*services.backoff.unsettled(), *failed)
        )

    @classmethod
    def starting(cls) -> Self:
        """Of a daemon whose threads don't run yet."""
        return cls(("starting",))

    @property
    def sentences(self) -> list[str]:
        """One for each trouble; empty: the daemon is ready."""
        return [*self.held, *self.beside]

    def record(self) -> dict[str, object]:
        """The fields of the member's record, by which other processes know it."""
        held = self.held[0][:_LONGEST] if self.held else ""
        return {NOT_READY: [said[:_LONGEST] for said in self.sentences], HELD: held}
