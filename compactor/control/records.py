"""
Pauses and drained hosts, as values and as the stored JSON.

Pure. Older and newer versions read and change the same record: unknown fields are kept, and a pause of an unknown scope
pauses everything.

    holds   {"pauses": {"table:sales.*": {reason, by, since_ms, until_ms, cancel, cleaner}}, "drains": {"edge1":
    {reason, by, since_ms}}}
    spent   {"budgets": {"nightly": {"5889712": 1048576}}}          see `spending`
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from compactor.control.scope import Scope

HOLDS = "holds"
SPENT = "spent"


@dataclass(frozen=True, slots=True)
class Pause:
    """
    A pause: no compaction in its scope begins until it ends.

    Args:
        until_ms: when the pause ends by itself, by the database clock; None: when an operator resumes.
        cancel: running compactions in the scope are cancelled, too.
        cleaner: the Cleaner cleans nothing in the scope, too.
    """

    scope: Scope
    reason: str
    by: str
    since_ms: int
    until_ms: int | None = None
    cancel: bool = False
    cleaner: bool = False

    def active(self, now_ms: int) -> bool:
        return self.until_ms is None or now_ms < self.until_ms

    def record(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "scope"}

    @classmethod
    def of(cls, scope: str, record: object) -> Self:
        """Read a record of any version; where its end can't be read, the pause has no end."""
        facts = record if isinstance(record, Mapping) else {}
        until = _whole(facts.get("until_ms"))
        return cls(
            Scope.parse(scope),
            str(facts.get("reason") or "no reason is given"),
            str(facts.get("by") or "an operator"),
            _whole(facts.get("since_ms")) or 0,
            until,
            cancel=facts.get("cancel") is True,
            cleaner=facts.get("cleaner") is True,
        )


@dataclass(frozen=True, slots=True)
class Drain:
    """A host whose workers claim nothing more."""

    host: str
    reason: str
    by: str
    since_ms: int

    def record(self) -> dict[str, Any]:
        return {"reason": self.reason, "by": self.by, "since_ms": self.since_ms}

    @classmethod
    def of(cls, host: str, record: object) -> Self:
        facts = record if isinstance(record, Mapping) else {}
        return cls(
            host,
            str(facts.get("reason") or ""),
            str(facts.get("by") or "an operator"),
            _whole(facts.get("since_ms")) or 0,
        )


@dataclass(frozen=True, slots=True)
class Holds:
    """All pauses and drains."""

    pauses: tuple[Pause, ...] = ()
    drains: tuple[Drain, ...] = ()

    @classmethod
    def of(cls, data: Mapping[str, Any] | None) -> Self:
        """
        Read the stored record; None: no record was ever stored.

        Raises:
            ValueError: the value isn't a record of pauses and drains.
        """
        if data is None:
            return cls()
        pauses, drains = data.get("pauses"), data.get("drains", {})
        if not isinstance(pauses, Mapping) or not isinstance(drains, Mapping):
            raise ValueError("what is stored isn't a record of pauses")  # noqa: TRY004 - a stored value
        return cls(
            tuple(Pause.of(str(scope), record) for scope, record in sorted(pauses.items())),
            tuple(Drain.of(str(host), record) for host, record in sorted(drains.items())),
        )

    def drain_of(self, host: str) -> Drain | None:
        return next((drain for drain in self.drains if drain.host == host), None)


def with_pause(data: Mapping[str, Any], pause: Pause, now_ms: int) -> dict[str, Any]:
    """The record with this pause; it keeps fields of a newer version in an earlier pause of the same scope."""
    pauses = _current(data, now_ms)
    earlier = pauses.get(str(pause.scope))
    pauses[str(pause.scope)] = {**(earlier if isinstance(earlier, Mapping) else {}), **pause.record()}
    return {**data, "pauses": pauses, "drains": dict(data.get("drains") or {})}


def without_pauses(data: Mapping[str, Any], scopes: frozenset[str], now_ms: int) -> dict[str, Any]:
    """The record without the pauses of these scopes (by their stored names)."""
    pauses = {scope: record for scope, record in _current(data, now_ms).items() if scope not in scopes}
    return {**data, "pauses": pauses, "drains": dict(data.get("drains") or {})}


def with_drain(data: Mapping[str, Any], drain: Drain) -> dict[str, Any]:
    """The record with this host drained."""
    return {
        **data,
        "pauses": dict(data.get("pauses") or {}),
        "drains": {**(data.get("drains") or {}), drain.host: drain.record()},
    }


def without_drain(data: Mapping[str, Any], host: str) -> dict[str, Any]:
    """The record without the drain of this host: its workers claim again."""
    drains = {name: record for name, record in (data.get("drains") or {}).items() if name != host}
    return {**data, "pauses": dict(data.get("pauses") or {}), "drains": drains}


def _current(data: Mapping[str, Any], now_ms: int) -> dict[str, Any]:
    """The stored pauses that have not ended."""
    pauses = data.get("pauses")
    return {
        scope: record
        for scope, record in (pauses if isinstance(pauses, Mapping) else {}).items()
        if Pause.of(scope, record).active(now_ms)
    }


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
