"""
What is stored and read: trusted for a while when nobody answers, looked at again after claims, budgets counted by all
daemons.
"""

import pytest

from compactor.control import Control, Judge, Pause, Scope, Subject
from compactor.control.records import HOLDS, SPENT, Drain, Holds, with_drain, with_pause, without_drain, without_pauses
from compactor.coordination import Alone
from compactor.errors import UnreachableError
from compactor.reasons import Reason
from compactor.settings import Settings

T = Subject("db", "t")
HOUR = 3_600_000


class Store(Alone):
    """Answers until it doesn't."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.reads = 0

    def read(self, key):
        self.reads += 1
        if self.away:
            raise UnreachableError("nobody answers")
        return super().read(key)

    def pause(self, scope="all", until=None, **options):
        pause = Pause(Scope.parse(scope), "why", "ann", 0, until, **options)
        return self.update(HOLDS, lambda data: with_pause(data, pause, 0))


class Site:
    """A store, daemons that look at it, and clocks that are moved by hand."""

    def __init__(self, **sections) -> None:
        self.store = Store()
        self.settings = Settings(database={"url": "sqlite:////unused.db"}, **sections)
        self.seconds = 0.0
        self.now = 1_000_000 * HOUR

    def daemon(self, host="edge1"):
        return Control(lambda: self.store, lambda: self.settings, lambda: self.now, host, lambda: self.seconds)


@pytest.fixture
def site():
    return Site()


def reason(decision, subject=T):
    denial = decision.may_begin(subject) if isinstance(decision, Judge) else decision
    return None if denial is None else denial.reason


def test_what_was_read_is_used_until_it_is_old(site):
    """One read in `refresh_seconds`, unless one is told of a change or makes sure."""
    control = site.daemon()
    assert control.judge().free
    site.store.pause()
    assert reason(control.judge()) is None
    assert reason(control.judge(fresh=True)) is Reason.PAUSED
    site.store.update(HOLDS, lambda data: without_pauses(data, frozenset({"all"}), 0))
    site.seconds += 4.9
    assert reason(control.judge()) is Reason.PAUSED
    site.seconds += 0.1
    assert reason(control.judge()) is None
    told = []
    control.tell(lambda: told.append(True))
    site.store.pause()
    assert told
    assert reason(control.judge()) is Reason.PAUSED


def test_the_look_after_a_claim_sees_a_pause_that_came_between(site):
    """However short ago the look before was."""
    control = site.daemon()
    control.judge()
    site.store.pause("table:db.*")
    assert reason(control.last_look(T)) is Reason.PAUSED
    assert control.last_look(Subject("other", "t")) is None


def test_never_read_nothing_begins(site):
    """A store that can't be read at the start: closed, and says so."""
    site.store.away = True
    denial = site.daemon().judge().closed()
    assert denial is not None
    assert (denial.reason, denial.sentence) == (
        Reason.CONTROL_UNKNOWN,
        "it can't be told what is paused: nobody answers",
    )


def test_what_was_read_once_is_trusted_for_a_while(site):
    """
    A minute unless set: what was paused stays paused, the others go on; then nothing begins, and with the first answer
    all is as stored.
    """
    control = site.daemon()
    site.store.pause("table:db.t")
    assert reason(control.judge(fresh=True)) is Reason.PAUSED
    site.store.away = True
    site.seconds += 60
    assert reason(control.judge()) is Reason.PAUSED
    assert reason(control.judge(), Subject("db", "other")) is None
    assert control.judge().uncertain() is None
    site.seconds += 5
    assert reason(control.judge(), Subject("db", "other")) is Reason.CONTROL_UNKNOWN
    assert control.judge().cleaning(T).reason is Reason.CONTROL_UNKNOWN
    site.store.away = False
    site.seconds += 5
    assert reason(control.judge(), Subject("db", "other")) is None


def test_what_is_no_record_of_ours_holds_everything(site):
    """Something else in our place is as bad as no answer."""
    site.store.write(HOLDS, {"pauses": ["all"]}, None)
    assert site.daemon().judge().closed().reason is Reason.CONTROL_UNKNOWN


def test_a_pause_ends_by_the_database_clock(site):
    """Whatever the host's own clock says."""
    site.store.pause(until=site.now + 1000)
    control = site.daemon()
    assert reason(control.judge()) is Reason.PAUSED
    site.now += 1000
    assert control.judge().free


def test_a_drained_host_is_closed_and_others_are_not(site):
    """Until it is undone."""
    site.store.update(HOLDS, lambda data: with_drain(data, Drain("edge1", "disks", "ann", 0)))
    assert site.daemon().judge().closed().reason is Reason.DRAINED
    assert site.daemon("edge2").judge().free
    site.store.update(HOLDS, lambda data: without_drain(data, "edge1"))
    assert site.daemon().judge().free


def test_old_and_new_versions_change_one_record(site):
    """Fields of a newer version survive a change by this one, in the record and in its parts."""
    site.store.write(
        HOLDS,
        {"pauses": {"all": {"reason": "x", "ticket": 7}, "pool:a": {"ticket": 8}}, "drains": {}, "schema": 2},
        None,
    )
    site.store.pause()
    site.store.update(HOLDS, lambda data: with_drain(data, Drain("edge1", "", "ann", 0)))
    site.store.update(HOLDS, lambda data: without_pauses(data, frozenset({"pool:b"}), 0))
    data = site.store.read(HOLDS).data
    assert data["schema"] == 2
    assert data["pauses"]["all"]["ticket"] == 7
    assert data["pauses"]["pool:a"] == {"ticket": 8}
    assert [str(pause.scope) for pause in Holds.of(data).pauses] == ["all", "pool:a"]


def test_bytes_are_counted_over_all_daemons():
    """
    A charge when a compaction has its plan, corrected to what it wrote; used up for all, room again when an hour is
    over.
    """
    site = Site(control={"budgets": [{"name": "etl", "tables": ["db.*"], "bytes_per_hour": 1000}]})
    one, other = site.daemon(), site.daemon("edge2")
    assert one.charge(Subject("elsewhere", "t"), 5000) is None
    charge = one.charge(T, 1500)
    assert reason(other.judge(fresh=True)) is Reason.BYTES_BUDGET
    assert reason(one.judge()) is Reason.BYTES_BUDGET
    one.correct(charge, 600)
    other.charge(T, 300)
    assert reason(one.judge(fresh=True)) is None
    other.charge(T, 100)
    assert reason(one.judge(fresh=True)) is Reason.BYTES_BUDGET
    assert reason(one.judge(), Subject("elsewhere", "t")) is None
    site.now += HOUR + 300_000
    assert reason(one.judge(fresh=True)) is None
    other.charge(T, 1)
    assert list(site.store.read(SPENT).data["budgets"]["etl"].values()) == [1]


def test_what_could_not_be_counted_is_counted_later():
    """Nobody answers: this daemon reckons with it all the same, and stores it with the next."""
    site = Site(control={"budgets": [{"name": "all", "bytes_per_hour": 1000}]})
    control, other = site.daemon(), site.daemon("edge2")
    control.judge()
    site.store.away = True
    control.charge(T, 700)
    site.store.away = False
    assert reason(other.judge(fresh=True)) is None
    control.charge(T, 300)
    assert reason(control.judge()) is Reason.BYTES_BUDGET
    assert reason(other.judge(fresh=True)) is Reason.BYTES_BUDGET


def test_settings_may_be_replaced(site):
    """A reload's windows and budgets hold from the next look on."""
    control = site.daemon()
    assert control.judge().free
    times = [{"name": "long ago", "begin": "2020-01-01T00:00", "until": "2020-01-02T00:00"}]
    site.settings = Settings(database={"url": "sqlite:////unused.db"}, windows={"maintenance": times})
    assert reason(control.judge()) is Reason.OUTSIDE_WINDOW
