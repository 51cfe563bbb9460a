"""What a daemon may ask of those who coordinate, whoever that is."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from compactor.coordination.model import Activity, ConflictError, Connection, Member, Role, SeenMember, Term, Value
from compactor.errors import CompactorError

_ATTEMPTS = 20
NOTHING_NEW = "nothing new is begun"
Changed = Callable[[], None]


class Coordinator(ABC):
    """
    Leadership, membership, control state. Safe in any number of threads.

    `connect` is enough for looking and for control state; `join` makes this process a member and a candidate.
    """

    by: str
    """Who coordinates: `zookeeper` or `database`."""

    # Coming and going

    @abstractmethod
    def connect(self) -> None:
        """
        Reach those who coordinate.

        Raises:
            SettingsError, UnreachableError: they can't be reached.
        """

    @abstractmethod
    def join(self, me: Member, candidate_for: Iterable[Role], changed: Changed = lambda: None) -> None:
        """
        Become a member, and stand for these roles; goes on trying when nobody answers.

        Args:
            changed: called from another thread when leadership or the connection changed; must not block.
        """

    @abstractmethod
    def close(self) -> None:
        """Leave; what we led is free for others."""

    @property
    @abstractmethod
    def connection(self) -> Connection: ...

    @property
    def reached(self) -> bool:
        """Whether we were connected at any time since we joined."""
        return True

    def why_not_start(self) -> str | None:
        """Why no new work may be begun now, one sentence that begins with NOTHING_NEW; None: it may."""
        if (connection := self.connection) is Connection.CONNECTED:
            return None
        return f"{NOTHING_NEW}: the connection to {self.by} is {connection.value}"

    # Leadership

    @abstractmethod
    def lead(self, role: Role) -> Term | None:
        """The term of leadership that holds now; None: somebody else leads, or nobody can tell."""

    def leading(self) -> frozenset[Role]:
        """What we lead, for show."""
        return frozenset(role for role in Role if self.lead(role) is not None)

    @abstractmethod
    def resign(self, role: Role) -> None:
        """Don't stand for a role any longer."""

    def step_back(self, role: Role) -> None:  # noqa: B027 - where nobody is elected there is no line to go to the end of
        """Let others lead who may be able to do what we can't now; we stand again, behind them."""

    def acted(self, role: Role) -> None:  # noqa: B027 - only some want to know
        """A cycle of the role was begun, with the database's mutex held."""

    # Members

    @abstractmethod
    def report(self, doing: Iterable[Activity]) -> None:
        """What our threads are doing; told to the others soon."""

    @abstractmethod
    def members(self) -> list[SeenMember]:
        """
        Everybody, by host and process.

        Raises:
            UnreachableError, CompactorError: nobody answers.
        """

    def present(self) -> frozenset[str] | None:
        """The instances that are there; None when nobody can tell."""
        try:
            return frozenset(seen.member.instance for seen in self.members() if seen.alive)
        except CompactorError:
            return None

    # Control state

    @abstractmethod
    def read(self, key: str) -> Value | None:
        """
        The value of a key (words separated by slashes); None: never written.

        Raises:
            UnreachableError, CompactorError: nobody answers.
        """

    @abstractmethod
    def write(self, key: str, data: Mapping[str, Any], version: int | None) -> Value:
        """
        Write if the version is still this one.

        Args:
            version: as read; None: the key must not have been written yet.

        Raises:
            ConflictError: it has another version by now.
            OutcomeUnknownError: sent, not answered: read before writing again.
            UnreachableError, CompactorError: nobody answers.
        """

    @abstractmethod
    def watch(self, key: str, changed: Changed) -> None:
        """Have `changed` called, from another thread, soon after the key was written by anybody; sometimes also when it wasn't. For members."""

    def update(self, key: str, change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> Value:
        """
        Read, change, write, again while others come in between.

        Args:
            change: gets the data as it is, fields of other versions included, and returns what it shall be; may be called several times.
        """
        for _ in range(_ATTEMPTS):
            now = self.read(key)
            data = change(dict(now.data) if now else {})
            try:
                return self.write(key, data, now.version if now else None)
            except ConflictError:
                continue
        raise ConflictError(f"{key} was changed by others {_ATTEMPTS} times in a row")


class Alone(Coordinator):
    """For one process by itself, as tests and tools are: leads everything, and knows nobody else."""

    by = "nobody"

    def __init__(self) -> None:
        self._values: dict[str, Value] = {}
        self._watched: dict[str, list[Changed]] = {}
        self._me: Member | None = None

    def connect(self) -> None:
        """There is nobody to reach."""

    def join(self, me: Member, candidate_for: Iterable[Role], changed: Changed = lambda: None) -> None:  # noqa: ARG002 - nothing ever changes
        self._me = me

    def close(self) -> None:
        self._me = None

    @property
    def connection(self) -> Connection:
        return Connection.CONNECTED

    def lead(self, role: Role) -> Term | None:
        return Term(role, 0)

    def resign(self, role: Role) -> None:
        """There is nobody else."""

    def report(self, doing: Iterable[Activity]) -> None:
        self._me = self._me.now_doing(doing) if self._me else None

    def members(self) -> list[SeenMember]:
        return [SeenMember(self._me, tuple(Role), 0)] if self._me else []

    def present(self) -> None:
        """There may be others, of whom we know nothing."""

    def read(self, key: str) -> Value | None:
        return self._values.get(key)

    def write(self, key: str, data: Mapping[str, Any], version: int | None) -> Value:
        now = self._values.get(key)
        if (now.version if now else None) != version:
            raise ConflictError(f"{key} was changed meanwhile")
        self._values[key] = value = Value(dict(data), (version or 0) + 1)
        for changed in self._watched.get(key, ()):
            changed()
        return value

    def watch(self, key: str, changed: Changed) -> None:
        self._watched.setdefault(key, []).append(changed)
