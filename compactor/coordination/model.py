"""
The values of coordination: roles with a leader, members and their activities, terms of leadership, versioned values.

Pure. Records are JSON objects that older and newer versions read side by side: unknown fields are ignored, and kept.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from compactor.errors import CompactorError
from compactor.words import plural

POOLS = "pools"
"""Name of the field of a member's record that has the pools of its workers."""
SETTINGS = "settings"
"""Name of the field of a member's record that has the fingerprints of the settings that it goes by."""
HELD = "held"
"""Name of the field of a member's record that says why its workers compact nothing now; empty when nothing holds them."""
NOT_READY = "not_ready"
"""Name of the field of a member's record that says why the daemon doesn't do its work now; empty when it does."""


class Role(StrEnum):
    """A role that only one daemon at a time fulfils."""

    INITIATOR = "initiator"
    CLEANER = "cleaner"
    HOUSEKEEPER = "housekeeper"


class Connection(StrEnum):
    """
    The state of the connection to the coordinating service.

    CONNECTED; SUSPENDED: the daemon starts no new work; LOST: the daemon also gives up the roles that it led.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class ConflictError(CompactorError):
    """Another process has changed the value meanwhile: read it again."""


@dataclass(frozen=True, slots=True)
class Activity:
    """
    What one thread of a daemon is doing.

    Args:
        name: the thread: `initiator`, `worker-1`.
        busy: whether a cycle is running.
        what: the entry or table that the thread is busy with, or the sentence that ended its latest cycle.
        step: the latest named step of the running cycle.
    """

    name: str
    busy: bool = False
    what: str = ""
    step: str | None = None

    def record(self) -> dict[str, Any]:
        return {"name": self.name, "busy": self.busy, "what": self.what, "step": self.step}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        step = record.get("step")
        return cls(
            str(record.get("name", "")),
            bool(record.get("busy")),
            str(record.get("what", "")),
            None if step is None else str(step),
        )


@dataclass(frozen=True, slots=True)
class Member:
    """
    One daemon, as it describes itself.

    Args:
        instance: the id of the daemon's process, as in its worker ids.
        roles: the enabled roles: those of `Role`, and `worker`.
        extra: fields of the record that this version doesn't know.
    """

    instance: str
    host: str
    pid: int
    version: str
    roles: tuple[str, ...] = ()
    doing: tuple[Activity, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """The JSON object that other daemons read."""
        known = {
            "instance": self.instance,
            "host": self.host,
            "pid": self.pid,
            "version": self.version,
            "roles": list(self.roles),
        }
        return {**self.extra, **known, "doing": [activity.record() for activity in self.doing]}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """Read a record of any version: a missing field is empty, an unknown one is kept."""
        known = {"instance", "host", "pid", "version", "roles", "doing"}
        doing, roles, pid = record.get("doing"), record.get("roles"), record.get("pid")
        return cls(
            instance=str(record.get("instance", "")),
            host=str(record.get("host", "")),
            pid=pid if isinstance(pid, int) else 0,
            version=str(record.get("version", "unknown")),
            roles=tuple(str(role) for role in roles) if isinstance(roles, list) else (),
            doing=tuple(Activity.of(item) for item in doing if isinstance(item, Mapping))
            if isinstance(doing, list)
            else (),
            extra={name: value for name, value in record.items() if name not in known},
        )

    def now_doing(self, doing: Iterable[Activity], extra: Mapping[str, Any]) -> Self:
        return replace(self, doing=tuple(doing), extra={**self.extra, **extra})


@dataclass(frozen=True, slots=True)
class SeenMember:
    """
    A member as other processes see it.

    Args:
        leads: the roles that the member leads.
        heartbeat_age_ms: time since its latest heartbeat, by the clock of ZooKeeper or of the database, never a host's.
        alive: False: its heartbeat is too old.
    """

    member: Member
    leads: tuple[Role, ...]
    heartbeat_age_ms: int
    alive: bool = True


def not_led(seen: Iterable[SeenMember]) -> dict[Role, str]:
    """
    The roles that no daemon leads, and why, as far as the members tell.

    Args:
        seen: all members, those that are gone included.
    """
    alive = [one for one in seen if one.alive]
    led = {role for one in alive for role in one.leads}
    return {role: _why_not_led(role, alive) for role in Role if role not in led}


def _why_not_led(role: Role, alive: Sequence[SeenMember]) -> str:
    if not alive:
        return "no daemon is among the members"
    candidates = sum(role.value in one.member.roles for one in alive)
    if not candidates:
        return "it is switched off on every daemon"
    return f"it is switched on on {plural(candidates, 'daemon')}, and none has begun to lead it"


@dataclass(frozen=True, slots=True)
class Term:
    """
    One term of leadership.

    Args:
        epoch: grows with every new leader of the role; 0 where only the database's mutex elects.
    """

    role: Role
    epoch: int
    _check: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)

    def check(self) -> None:
        """
        Raise if the term is over. Says nothing about the next moment: the action that follows needs a fence of its own.

        Raises:
            OwnershipLostError: the term is over, or that can't be known.
        """
        self._check()


@dataclass(frozen=True, slots=True)
class Value:
    """
    A JSON object of the shared control state.

    Args:
        version: changes with every write; compare-and-set compares it.
    """

    data: Mapping[str, Any]
    version: int
