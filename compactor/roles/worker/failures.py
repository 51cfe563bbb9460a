"""
Counts how often the work on an entry failed, or took its worker's process with it. The counts are stored, so that
neither a restart nor another daemon forgets them.

The value of `failures` in the control state (docs/control.md):

    {
        "entries":  {"17": {"<worker id>@<start of the claim>": {"died": true, "why": "…"}}},
        "waits":    {"18": {"reason": "disk-full", "why": "…"}},
        "suspects": {"19": "…"}
    }

A claim is counted once, however many processes count it and however often. Without counting, a compaction that kills
its daemon each time would be tried for ever: after `ATTEMPTS` its entry fails.

A process dies with all that its workers do, so the entries of a process that died are suspects. A process works on one
suspect at a time, so that the next death shows which entry it was. A Spark session that ends with several entries in it
makes them suspects without counting. A session that ends with only one suspect in it is counted against that one. What
can't be stored now is stored later; when nothing can be read, the entry is tried.

`waits` holds what an entry waits for that is no fault of its own and is told nowhere else: room, a lock, the end of a
rename. It is for display only, and not counted.
Source: docs/operations.md.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from compactor.coordination import Coordinator
from compactor.errors import CompactorError
from compactor.log import get_logger
from compactor.metastore.model import QueueEntry
from compactor.roles.worker.cancellation import DrainedError
from compactor.spark.submitter import BrokenDownError, SessionEndedError
from compactor.words import one_line

_log = get_logger(__name__)
KEY = "failures"
ATTEMPTS = 3
"""How often the work on an entry may fail, or its worker end with it, before the entry fails."""
_KEPT = 200
"""The most entries that are stored; the oldest are forgotten. A value in ZooKeeper must stay small."""
_WHY_LENGTH = 200
_BECAUSE_LENGTH = 400
Claims = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class StoredFailure:
    """
    What is stored of one entry, for display.

    Args:
        times: how many claims of it failed.
        latest: why the latest of them did.
        reason, because: what the entry waits for, by its code and in a sentence; empty when it doesn't wait.
    """

    times: int = 0
    latest: str = ""
    reason: str = ""
    because: str = ""

    @property
    def sentence(self) -> str:
        """How often the work on the entry failed; empty when it didn't."""
        return f"broke down {self.times} of {ATTEMPTS} times, last: {self.latest}" if self.times else ""


class GivenUpError(CompactorError):
    """The work on the entry failed too often: the entry fails, and isn't tried."""


class SuspectWaitsError(DrainedError):
    """This process is working on another suspect: the entry goes back into the queue."""


class Failures:
    """
    The stored failures of all entries. Thread-safe.

    Args:
        coordinator: called at each use.
        waits: whether an entry is still in the queue, by its id; others are forgotten.
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
        Count the failure of this claim. Never raises: what can't be stored now is stored before the next entry is asked
        about.

        Args:
            died: whether the claim ended with its process, or so that nothing was heard of it any more.
        """
        claim = {"died": died, "why": one_line(why)[:_WHY_LENGTH]}
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
            gone = {
                name
                for name in _entries(self._read())
                if name not in mine and not (name.isdecimal() and self._waits(int(name)))
            }

            def noted(data: dict[str, Any]) -> dict[str, Any]:
                entries = {name: claims for name, claims in _entries(data).items() if name not in gone}
                for name, claim, facts in due:
                    entries[name] = {**entries.pop(name, {}), claim: facts}
                return {**data, "entries": dict(list(entries.items())[-_KEPT:])}

            self._coordinator().update(KEY, noted)
        except CompactorError as error:
            _log.debug("failures.not_stored", entries=sorted(mine), error=str(error))
            return
        with self._lock:
            self._due = [one for one in self._due if one not in due]

    def suspect(self, entry: QueueEntry, why: str) -> None:
        """
        Make this entry a suspect: the session that it ran in ended, because of this entry or of another. Not counted.
        Never raises: at least this process remembers it.
        """
        with self._lock:
            self._suspected = (*self._suspected, entry.id)[-_KEPT:]

        self._note(entry, "suspects", one_line(why)[:_WHY_LENGTH])

    def waits(self, entry: QueueEntry, reason: str, why: str) -> None:
        """Store what this entry waits for. Never raises, and doesn't store it later: the next try does."""
        self._note(entry, "waits", {"reason": reason, "why": one_line(why)[:_BECAUSE_LENGTH]})

    def waits_no_more(self, entry: QueueEntry) -> None:
        """Remove what this entry waited for: it was tried and ended otherwise. Never raises."""
        try:
            if str(entry.id) not in _mapping(self._read(), "waits"):
                return
        except CompactorError:
            return
        self._note(entry, "waits", None)

    def _note(self, entry: QueueEntry, key: str, facts: object | None) -> None:
        """Store the facts as the newest of this key, without those of entries that have left the queue; None: no facts."""
        own = str(entry.id)

        def noted(data: dict[str, Any]) -> dict[str, Any]:
            others = {name: theirs for name, theirs in _mapping(data, key).items() if name != own}
            if facts is None:
                return {**data, key: others}
            waiting = [one for one in others.items() if one[0].isdecimal() and self._waits(int(one[0]))]
            return {**data, key: dict([*waiting, (own, facts)][-_KEPT:])}

        try:
            self._coordinator().update(KEY, noted)
        except CompactorError as error:
            _log.debug("failures.not_stored", id=entry.id, error=str(error))

    def times(self, entry: QueueEntry) -> int:
        """How many claims of this entry failed; 0 if that can't be read."""
        return len(self._claims(entry))

    @contextmanager
    def watched(self, entry: QueueEntry) -> Iterator[None]:
        """
        Surrounds the work on an entry.

        Raises:
            GivenUpError: the work on the entry failed too often.
            SuspectWaitsError: the entry is a suspect (its worker or its Spark session ended before), and so is another
                entry that this process is working on.
            BrokenDownError: instead of `SessionEndedError`, for a suspect: no other suspect was in that session.
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
                raise SuspectWaitsError(
                    f"its worker or Spark's session ended before, as that of compaction {self._suspect} did, which is tried first"
                )
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
            _log.debug("failures.not_read", id=entry.id, error=str(error))
            return {}

    def _read(self) -> Mapping[str, Any]:
        value = self._coordinator().read(KEY)
        return {} if value is None else value.data


def told(data: Mapping[str, Any]) -> dict[int, StoredFailure]:
    """What the value of `KEY` says, by entry; for values of any version."""
    entries, waits = _entries(data), _mapping(data, "waits")
    found: dict[int, StoredFailure] = {}
    for name in filter(str.isdecimal, {**entries, **waits}):
        claims = entries.get(name, {})
        latest = str(list(claims.values())[-1].get("why", "")) if claims else ""
        facts = waits.get(name)
        facts = facts if isinstance(facts, Mapping) else {}
        found[int(name)] = StoredFailure(len(claims), latest, str(facts.get("reason", "")), str(facts.get("why", "")))
    return found


def _mapping(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key)
    return value if isinstance(value, Mapping) else {}


def _entries(data: Mapping[str, Any]) -> dict[str, Claims]:
    """The claims of each entry, from a value of any version; what isn't a claim is left out."""
    found: dict[str, Claims] = {}
    for name, claims in _mapping(data, "entries").items():
        if isinstance(claims, Mapping):
            found[str(name)] = {str(claim): facts for claim, facts in claims.items() if isinstance(facts, Mapping)}
    return found
