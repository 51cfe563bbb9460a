"""
The words of coordination: roles that lead, members and what they are doing, terms of leadership, versioned values.

Pure. Records are JSON objects that older and newer versions read side by side: what isn't known is ignored, and kept.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from compactor.errors import CompactorError


class Role(StrEnum):
    """What only one daemon at a time does."""

    INITIATOR = "initiator"
    CLEANER = "cleaner"
    HOUSEKEEPER = "housekeeper"


class Connection(StrEnum):
    """
    How we stand with the others: CONNECTED; SUSPENDED, nothing new is started; LOST, whoever led lets go.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class ConflictError(CompactorError):
    """The value has another version by now: read it again."""


@dataclass(frozen=True, slots=True)
class Activity:
    """
    What one thread of a daemon does.

    Args:
        name: `initiator`, `worker-1`.
        busy: in a cycle.
        what: the entry or table it is busy with, or the sentence that ended its latest cycle.
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
        return cls(str(record.get("name", "")), bool(record.get("busy")), str(record.get("what", "")), None if step is None else str(step))


@dataclass(frozen=True, slots=True)
class Member:
    """
    One daemon, as it describes itself.

    Args:
        instance: the id of its process, as in its worker ids.
        roles: what it may do: those of `Role` that are enabled, and `worker`.
        extra: fields of its record that this version doesn't know.
    """

    instance: str
    host: str
    pid: int
    version: str
    roles: tuple[str, ...] = ()
    doing: tuple[Activity, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """The JSON object the others read."""
        known = {"instance": self.instance, "host": self.host, "pid": self.pid, "version": self.version, "roles": list(self.roles)}
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
            doing=tuple(Activity.of(item) for item in doing if isinstance(item, Mapping)) if isinstance(doing, list) else (),
            extra={name: value for name, value in record.items() if name not in known},
        )

    def now_doing(self, doing: Iterable[Activity]) -> Self:
        return replace(self, doing=tuple(doing))


@dataclass(frozen=True, slots=True)
class SeenMember:
    """
    A member as others see it.

    Args:
        leads: the roles it leads.
        heartbeat_age_ms: since it last said something, by the clock of ZooKeeper or of the database; never by a host's.
        alive: False: silent for too long.
    """

    member: Member
    leads: tuple[Role, ...]
    heartbeat_age_ms: int
    alive: bool = True


@dataclass(frozen=True, slots=True)
class Term:
    """
    One term of leadership.

    Args:
        epoch: grows with every leader of the role; 0 where only the database's mutex elects.
    """

    role: Role
    epoch: int
    _check: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)

    def check(self) -> None:
        """
        Whether the term may be acted upon. Says nothing about the next moment: what follows must be fenced by itself.

        Raises:
            OwnershipLostError: it is over, or nobody can tell.
        """
        self._check()


@dataclass(frozen=True, slots=True)
class Value:
    """
    A JSON object of the shared control state.

    Args:
        version: changes with every write; compare-and-set goes by it.
    """

    data: Mapping[str, Any]
    version: int
