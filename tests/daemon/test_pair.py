"""
Two daemons on one metastore: what each of them tells Prometheus, by which a leader that gets nowhere is told from a
standby that has nothing to do.
"""

import contextlib

import pytest

from compactor.acid.compaction import CompactionKind
from compactor.coordination import Alone, Role, Term
from compactor.daemon import Daemon
from compactor.metastore.clean.may_clean import Blocker, ReadyEntry
from compactor.metastore.db.database import Database
from compactor.metastore.model import Entity, QueueEntry, QueueState
from compactor.reasons import Reason
from compactor.settings import Settings
from tests.compacting import InProcess
from tests.daemon.lab import pass_cycles, until

pytestmark = pytest.mark.postgres
SECTIONS = {
    "initiator": {"interval_seconds": 0.2},
    "worker": {"threads": 1, "poll_seconds": 0.1},
    "cleaner": {"interval_seconds": 0.2},
    "housekeeper": {"enabled": "never", "interval_seconds": 0.2},
    "members": {"heartbeat_seconds": 0.2},
    "http": {"enabled": False},
    "user": "compactor",
}
_ENTRY = QueueEntry(1, Entity("db", "t"), CompactionKind.MAJOR, QueueState.READY_FOR_CLEANING, commit_ms=1)
_BLOCKED = ReadyEntry(_ENTRY, None, (Blocker(Reason.OPEN_TRANSACTION, "transaction 9 of ann@edge2, open for 3 d"),))
LED = tuple(role.value for role in Role)


class Elected(Alone):
    """As where ZooKeeper elects; a test says whom."""

    by = "zookeeper"

    def __init__(self) -> None:
        super().__init__()
        self.leads = frozenset[Role]()

    def lead(self, role):
        return Term(role, 0) if role in self.leads else None


class Pair:
    """Two daemons; the first leads everything."""

    def __init__(self, url: str, stack: contextlib.ExitStack, monkeypatch) -> None:
        self.elected = [Elected(), Elected()]
        self.elected[0].leads = frozenset(Role)
        monkeypatch.setattr(
            "compactor.roles.services.open_coordinator", lambda settings, _: self.elected[int(settings.host[-1]) - 1]
        )
        self.daemons = []
        for number in (1, 2):
            settings = Settings(database={"url": url}, host=f"edge{number}", **SECTIONS)
            daemon = Daemon(settings, submitter=InProcess(), configure_log=False)
            daemon.start()
            stack.callback(daemon.stop)
            self.daemons.append(daemon)

    def value(self, number: int, name: str, **labels: str) -> float | None:
        return self.daemons[number].metrics.registry.get_sample_value(f"compactor_{name}", labels)

    def last_cycle(self, number: int, role: str) -> float | None:
        return self.value(number, "last_cycle_timestamp_seconds", role=role)

    def pass_cycles(self) -> None:
        for daemon in self.daemons:
            for role in LED:
                pass_cycles(daemon, role)


@pytest.fixture
def url(postgres):
    return postgres.create("4.0.0")


@pytest.fixture
def pair(url, monkeypatch):
    with contextlib.ExitStack() as stack:
        yield Pair(url, stack, monkeypatch)


def test_standing_by_is_no_progress(pair):
    """
    The standby is alive and ready, and shows 0 for the roles it never led; what both do both show. When it leads it
    gets on, and the other one doesn't.
    """
    pair.pass_cycles()
    for role in LED:
        assert (pair.last_cycle(0, role) or 0) > 0
        assert pair.last_cycle(1, role) == 0
        assert (pair.value(1, "cycles_total", role=role, outcome="no-turn") or 0) > 0
        assert pair.value(1, "cycles_total", role=role, outcome="ok") == 0
    for number, daemon in enumerate(pair.daemons):
        until(lambda number=number: (pair.last_cycle(number, "watch") or 0) > 0, "watched")
        assert daemon.troubles() == daemon.unready() == []
        assert pair.value(number, "ready") == 1
        assert 300 < (pair.value(number, "thread_slack_seconds") or 0) <= 900
    pair.elected[0].leads, pair.elected[1].leads = frozenset(), frozenset(Role)
    pair.pass_cycles()
    before = {role: pair.last_cycle(0, role) for role in LED}
    pair.pass_cycles()
    for role in LED:
        assert pair.last_cycle(0, role) == before[role]
        assert (pair.last_cycle(1, role) or 0) > (before[role] or 0)


def test_a_leader_whose_cycles_fail_is_not_hidden_by_the_standby(pair):
    """The time of the last cycle stands still on both, though the standby has nothing to complain of."""
    pair.pass_cycles()
    with pytest.MonkeyPatch.context() as patched:
        for daemon in pair.daemons:
            services = daemon._services
            patched.setattr(services.cleaning, "ready_for_cleaning", _broken)
        until(lambda: (pair.value(0, "cycles_total", role="cleaner", outcome="error") or 0) > 0, "failed")
        before = pair.last_cycle(0, "cleaner")
        pass_cycles(pair.daemons[1], "cleaner")
        assert pair.last_cycle(0, "cleaner") == before
        assert pair.last_cycle(1, "cleaner") == 0
        assert pair.daemons[1].unready() == []


def test_waiting_for_the_mutex_is_no_progress(pair, url):
    """Somebody else holds the Cleaner's mutex for ever: nobody cleans, and that shows, though no cycle fails."""
    with Database(url) as other, other.mutex("Cleaner"):
        pair.pass_cycles()
        before = pair.last_cycle(0, "cleaner")
        pair.pass_cycles()
        assert pair.last_cycle(0, "cleaner") == before
        assert (pair.value(0, "cycles_total", role="cleaner", outcome="no-turn") or 0) > 0
        assert pair.daemons[0].troubles() == pair.daemons[0].unready() == []
    until(lambda: (pair.last_cycle(0, "cleaner") or 0) > (before or 0), "cleaned again")


def test_who_was_the_cleaner_no_longer_tells_who_is_in_the_way(pair):
    """
    The figures of a daemon that leads no more would stand for ever, though what they told of was cleaned by another
    long ago.
    """
    blocked = "cleaner_blocked_entries"
    pair.pass_cycles()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pair.daemons[0]._services.cleaning, "ready_for_cleaning", lambda *_: [_BLOCKED])
        until(lambda: pair.value(0, blocked, reason="open-transaction") == 1, "blocked")
        assert (pair.value(0, "cleaner_blocked_age_seconds") or 0) > 86400
        pair.elected[0].leads, pair.elected[1].leads = frozenset(), frozenset(Role)
        until(lambda: pair.value(0, blocked, reason="open-transaction") is None, "forgotten")
        assert pair.value(0, "cleaner_blocked_age_seconds") == 0


def _broken(*_: object) -> None:
    raise ValueError("a bug")
