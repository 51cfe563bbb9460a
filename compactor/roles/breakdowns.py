"""
How often the work on an entry broke down, or took its worker's process with it: stored, so that neither a restart nor another daemon forgets.

    breakdowns   {"entries": {"17": {"<worker id>@<start of the claim>": {"died": true, "why": "…"}}}}      control state, see docs/control.md

A claim is counted once, whoever counts it and however often. A compaction that kills its daemon each time it is tried would be tried for ever otherwise: after
`ATTEMPTS` its entry fails. Since a process dies with all that its workers do, entries that were with one that died are suspects: of them a process works on one at a
time, so that the next death shows which it was. What can't be stored or read isn't counted, and the entry is tried again.
Source: docs/operations.md.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from compactor.coordination import Coordinator
from compactor.errors import CompactorError
from compactor.log import get_logger
from compactor.metastore.model import QueueEntry
from compactor.roles.cancellation import DrainedError

_log = get_logger(__name__)
KEY = "breakdowns"
ATTEMPTS = 3
"""So often the work on an entry may break down, or its worker end with it, before the entry fails."""
_KEPT = 200
"""Entries at most; the oldest are forgotten. A value in ZooKeeper must stay small."""
_WHY_LENGTH = 200
Claims = Mapping[str, Mapping[str, Any]]


class GivenUpError(CompactorError):
    """It broke down too often: the entry fails, and isn't tried."""


class SuspectWaitsError(DrainedError):
    """Another suspect is being worked on here: the entry goes back into the queue."""


class Breakdowns:
    """
    Safe in any number of threads.

    Args:
        coordinator: asked for at each use.
        waits: whether an entry is in the queue still, by its id; others are forgotten.
    """

    def __init__(self, coordinator: Callable[[], Coordinator], waits: Callable[[int], bool]) -> None:
        self._coordinator = coordinator
        self._waits = waits
        self._lock = threading.Lock()
        self._suspect: int | None = None

    def count(self, entry: QueueEntry, why: str, *, died: bool) -> None:
        """
        Note how this claim ended; never fails.

        Args:
            died: with its process, or so that nothing was heard of it any more.
        """
        claim = {"died": died, "why": " ".join(why.split())[:_WHY_LENGTH]}
        name = str(entry.id)
        try:
            gone = {other for other in _entries(self._read()) if other != name and not (other.isdecimal() and self._waits(int(other)))}

            def noted(data: dict[str, Any]) -> dict[str, Any]:
                entries = {other: claims for other, claims in _entries(data).items() if other not in gone}
                claims = {**entries.pop(name, {}), f"{entry.worker_id}@{entry.start_ms}": claim}
                kept = list(entries.items())[-(_KEPT - 1) :]
                return {**data, "entries": dict([*kept, (name, claims)])}

            self._coordinator().update(KEY, noted)
        except CompactorError as error:
            _log.warning("a breakdown can't be counted", entry=entry.id, why=claim["why"], error=str(error))

    def times(self, entry: QueueEntry) -> int:
        """How many claims of this entry ended so; 0 where that can't be told."""
        return len(self._claims(entry))

    @contextmanager
    def watched(self, entry: QueueEntry) -> Iterator[None]:
        """
        Around the work on an entry.

        Raises:
            GivenUpError: it broke down too often.
            SuspectWaitsError: its worker ended before, as that of another did that is being worked on here.
        """
        claims = self._claims(entry)
        if len(claims) >= ATTEMPTS:
            latest = str(list(claims.values())[-1].get("why", ""))
            raise GivenUpError(f"broke down {len(claims)} times, the latest: {latest}; not tried again")
        if not any(claim.get("died") for claim in claims.values()):
            yield
            return
        with self._lock:
            if self._suspect is not None:
                raise SuspectWaitsError(f"its worker ended before, as that of compaction {self._suspect} did, which is tried first")
            self._suspect = entry.id
        try:
            yield
        finally:
            with self._lock:
                self._suspect = None

    def _claims(self, entry: QueueEntry) -> Claims:
        try:
            return _entries(self._read()).get(str(entry.id), {})
        except CompactorError as error:
            _log.debug("what broke down before can't be read", entry=entry.id, error=str(error))
            return {}

    def _read(self) -> Mapping[str, Any]:
        value = self._coordinator().read(KEY)
        return {} if value is None else value.data


def _entries(data: Mapping[str, Any]) -> dict[str, Claims]:
    """Of any version; what isn't a claim is left out."""
    entries = data.get("entries")
    found: dict[str, Claims] = {}
    for name, claims in (entries if isinstance(entries, Mapping) else {}).items():
        if isinstance(claims, Mapping):
            found[str(name)] = {str(claim): facts for claim, facts in claims.items() if isinstance(facts, Mapping)}
    return found
