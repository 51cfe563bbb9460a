"""
How often the work on an entry broke down, or took its worker's process with it: stored, so that neither a restart nor another daemon forgets.

    breakdowns   {"entries": {"17": {"<worker id>@<start of the claim>": {"died": true, "why": "…"}}},      control state, see docs/control.md
                  "waits": {"18": {"reason": "disk-full", "why": "…"}},
                  "suspects": {"19": "…"}}

A claim is counted once, whoever counts it and however often. A compaction that kills its daemon each time it is tried would be tried for ever otherwise: after
`ATTEMPTS` its entry fails. Since a process dies with all that its workers do, entries that were with one that died are suspects: of them a process works on one at a
time, so that the next death shows which it was. A Spark session that ends with several in it makes them suspects without counting; what ends with only one suspect
in it is counted against that one. What can't be stored now is stored later; where nothing can be read the entry is tried.

Beside them stands what an entry waits for that is no fault of its own and of which nobody else is told: room. It is for showing only, and not counted.
Source: docs/operations.md.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from compactor.coordination import Coordinator
from compactor.engine.submit import BrokenDownError, SessionEndedError
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
_BECAUSE_LENGTH = 400
Claims = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Told:
    """
    What is stored of one entry, for show.

    Args:
        times: how many claims of it broke down.
        latest: why the latest of them did.
        reason, because: what it waits for, by its code and in a sentence; empty when it doesn't.
    """

    times: int = 0
    latest: str = ""
    reason: str = ""
    because: str = ""

    @property
    def sentence(self) -> str:
        """How often it broke down; empty when it didn't."""
        return f"broke down {self.times} of {ATTEMPTS} times, last: {self.latest}" if self.times else ""


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
        self._suspected: tuple[int, ...] = ()
        self._due: list[tuple[str, str, Mapping[str, Any]]] = []

    def count(self, entry: QueueEntry, why: str, *, died: bool) -> None:
        """
        Note how this claim ended; never fails: what can't be stored now is stored before the next is asked about.

        Args:
            died: with its process, or so that nothing was heard of it any more.
        """
        claim = {"died": died, "why": " ".join(why.split())[:_WHY_LENGTH]}
        with self._lock:
            self._due = [*self._due, (str(entry.id), f"{entry.worker_id}@{entry.start_ms}", claim)][-_KEPT:]
        self._store()

    def _store(self) -> None:
        with self._lock:
            due = self._due
        if not due:
            return
        mine = {name for name, _, _ in due}
        try:
            gone = {name for name in _entries(self._read()) if name not in mine and not (name.isdecimal() and self._waits(int(name)))}

            def noted(data: dict[str, Any]) -> dict[str, Any]:
                entries = {name: claims for name, claims in _entries(data).items() if name not in gone}
                for name, claim, facts in due:
                    entries[name] = {**entries.pop(name, {}), claim: facts}
                return {**data, "entries": dict(list(entries.items())[-_KEPT:])}

            self._coordinator().update(KEY, noted)
        except CompactorError as error:
            _log.debug("breakdowns can't be stored now", entries=sorted(mine), error=str(error))
            return
        with self._lock:
            self._due = [one for one in self._due if one not in due]

    def suspect(self, entry: QueueEntry, why: str) -> None:
        """Note that what it ran in ended, and may have ended for it or for another; not counted, and never fails: the process at least knows it."""
        with self._lock:
            self._suspected = (*self._suspected, entry.id)[-_KEPT:]

        def noted(data: dict[str, Any]) -> dict[str, Any]:
            others = {name: said for name, said in _mapping(data, "suspects").items() if name != str(entry.id) and name.isdecimal() and self._waits(int(name))}
            return {**data, "suspects": dict([*others.items(), (str(entry.id), " ".join(why.split())[:_WHY_LENGTH])][-_KEPT:])}

        self._note(entry, noted)

    def waits(self, entry: QueueEntry, reason: str, why: str) -> None:
        """Note what this entry waits for; never fails, and isn't stored later: the next try notes it again."""

        def noted(data: dict[str, Any]) -> dict[str, Any]:
            others = {name: facts for name, facts in _mapping(data, "waits").items() if name != str(entry.id) and name.isdecimal() and self._waits(int(name))}
            return {**data, "waits": dict([*others.items(), (str(entry.id), {"reason": reason, "why": " ".join(why.split())[:_BECAUSE_LENGTH]})][-_KEPT:])}

        self._note(entry, noted)

    def waits_no_more(self, entry: QueueEntry) -> None:
        """It was tried and ended otherwise; never fails."""

        def noted(data: dict[str, Any]) -> dict[str, Any]:
            return {**data, "waits": {name: facts for name, facts in _mapping(data, "waits").items() if name != str(entry.id)}}

        try:
            if str(entry.id) not in _mapping(self._read(), "waits"):
                return
        except CompactorError:
            return
        self._note(entry, noted)

    def _note(self, entry: QueueEntry, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        try:
            self._coordinator().update(KEY, change)
        except CompactorError as error:
            _log.debug("what an entry waits for, or is suspected of, can't be stored now", entry=entry.id, error=str(error))

    def told(self) -> dict[int, Told]:
        """What is stored, by entry; nothing where it can't be read."""
        try:
            return told(self._read())
        except CompactorError:
            return {}

    def times(self, entry: QueueEntry) -> int:
        """How many claims of this entry ended so; 0 where that can't be told."""
        return len(self._claims(entry))

    @contextmanager
    def watched(self, entry: QueueEntry) -> Iterator[None]:
        """
        Around the work on an entry.

        Raises:
            GivenUpError: it broke down too often.
            SuspectWaitsError: its worker ended before, or the Spark session it was in, as that of another did that is being worked on here.
            BrokenDownError: instead of `SessionEndedError`, for a suspect: nothing else in that session was one.
        """
        claims = self._claims(entry)
        if len(claims) >= ATTEMPTS:
            latest = str(list(claims.values())[-1].get("why", ""))
            raise GivenUpError(f"broke down {len(claims)} times, the latest: {latest}; not tried again")
        if not any(claim.get("died") for claim in claims.values()) and not self._is_suspected(entry):
            yield
            return
        with self._lock:
            if self._suspect is not None:
                raise SuspectWaitsError(f"its worker or Spark's session ended before, as that of compaction {self._suspect} did, which is tried first")
            self._suspect = entry.id
        try:
            yield
        except SessionEndedError as error:
            raise BrokenDownError(str(error)) from error
        finally:
            with self._lock:
                self._suspect = None

    def _is_suspected(self, entry: QueueEntry) -> bool:
        if entry.id in self._suspected:
            return True
        try:
            return str(entry.id) in _mapping(self._read(), "suspects")
        except CompactorError:
            return False

    def _claims(self, entry: QueueEntry) -> Claims:
        self._store()
        try:
            return _entries(self._read()).get(str(entry.id), {})
        except CompactorError as error:
            _log.debug("what broke down before can't be read", entry=entry.id, error=str(error))
            return {}

    def _read(self) -> Mapping[str, Any]:
        value = self._coordinator().read(KEY)
        return {} if value is None else value.data


def told(data: Mapping[str, Any]) -> dict[int, Told]:
    """What the value of `KEY` says, by entry; of any version."""
    entries, waits = _entries(data), _mapping(data, "waits")
    found: dict[int, Told] = {}
    for name in filter(str.isdecimal, {**entries, **waits}):
        claims = entries.get(name, {})
        latest = str(list(claims.values())[-1].get("why", "")) if claims else ""
        facts = waits.get(name)
        facts = facts if isinstance(facts, Mapping) else {}
        found[int(name)] = Told(len(claims), latest, str(facts.get("reason", "")), str(facts.get("why", "")))
    return found


def _mapping(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key)
    return value if isinstance(value, Mapping) else {}


def _entries(data: Mapping[str, Any]) -> dict[str, Claims]:
    """Of any version; what isn't a claim is left out."""
    found: dict[str, Claims] = {}
    for name, claims in _mapping(data, "entries").items():
        if isinstance(claims, Mapping):
            found[str(name)] = {str(claim): facts for claim, facts in claims.items() if isinstance(facts, Mapping)}
    return found
