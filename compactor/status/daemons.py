"""
All daemons together: what they were told (pauses, windows, budgets), what they noted of entries, which are there.

Tells by that why an entry waits. What the coordinator doesn't answer is unknown, and no error.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from compactor.control.judge import Judge
from compactor.control.waits import Surroundings, Wait
from compactor.coordination import Coordinator, Role, SeenMember
from compactor.errors import CompactorError
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.model import QueueEntry, QueueState
from compactor.roles.pauses import subject_of, workers_of
from compactor.roles.worker.failures import KEY, StoredFailure, told

UNTOLD: Final = "it can't be told what is paused"


def _nothing_denied() -> Surroundings:
    return Surroundings(Judge(now_ms=0))


@dataclass(frozen=True, slots=True)
class Daemons:
    """
    One look at all of them; without arguments: they weren't asked.

    Args:
        surroundings: all that it depends on whether an entry is claimed.
        failures: what they stored of entries, by id.
        members: sorted by host, those that are gone included; None: they aren't known.
        unknown: what the coordinator didn't answer, a sentence each.
    """

    surroundings: Surroundings = field(default_factory=_nothing_denied)
    failures: Mapping[int, StoredFailure] = field(default_factory=dict)
    members: Sequence[SeenMember] | None = None
    unknown: tuple[str, ...] = ()

    @classmethod
    def read(cls, coordinator: Coordinator, judge: Judge, queue: Queue) -> Self:
        """
        Ask the coordinator once.

        Raises:
            CompactorError: the metastore can't be asked.
        """
        if (denial := judge.uncertain()) is not None:
            return cls.untold(denial.sentence)
        failures, members, unknown = dict[int, StoredFailure](), None, []
        try:
            value = coordinator.read(KEY)
            failures = told({} if value is None else value.data)
        except CompactorError as error:
            unknown.append(f"it can't be told what broke down: {error}")
        try:
            members = coordinator.members()
        except CompactorError as error:
            unknown.append(f"it can't be told which daemons are there: {error}")
        at = Surroundings(
            judge,
            [subject_of(entry) for entry in queue.working()] if judge.counts else [],
            {number: (noted.reason, noted.because) for number, noted in failures.items() if noted.reason},
            None if members is None else workers_of(seen for seen in members if seen.alive),
        )
        return cls(at, failures, members, tuple(unknown))

    @classmethod
    def untold(cls, why: str) -> Self:
        """The control state can't be read: nothing may begin, and nothing is known of the daemons."""
        return cls(Surroundings(Judge(now_ms=0, unknown=UNTOLD)), unknown=(why,))

    @property
    def judge(self) -> Judge:
        return self.surroundings.judge

    @property
    def alive(self) -> list[SeenMember] | None:
        """None: they aren't known."""
        return None if self.members is None else [seen for seen in self.members if seen.alive]

    @property
    def pools(self) -> set[str]:
        """Those that workers serve, as far as they are known."""
        return {pool for one in self.surroundings.workers or () for pool in one.pools or ()}

    def lack(self, role: Role) -> bool:
        """Whether the role is switched on on no daemon that is alive; False where they aren't known."""
        return self.alive is not None and not any(role.value in seen.member.roles for seen in self.alive)

    def wait(self, entry: QueueEntry) -> Wait | None:
        """Why an entry that waits isn't claimed now; None: the next free worker claims it, or it doesn't wait."""
        if entry.state is not QueueState.INITIATED:
            return None
        return self.surroundings.wait(subject_of(entry), entry.kind, entry.id)

    def waits(self, entries: Iterable[QueueEntry]) -> dict[int, Wait]:
        """`wait` of each entry by its id, where there is one."""
        return {entry.id: wait for entry in entries if (wait := self.wait(entry)) is not None}

    def failure(self, entry: QueueEntry) -> StoredFailure:
        """What is stored of an entry that waits or is worked on; of others nothing."""
        if entry.state not in {QueueState.INITIATED, QueueState.WORKING}:
            return StoredFailure()
        return self.failures.get(entry.id, StoredFailure())
