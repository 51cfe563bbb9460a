"""A restore beside a living Hive: killed twice, then ended. Hive reads the rows and ROW__IDs that it read before."""

import signal

import pytest

from tests.crash.restoring import restore
from tests.daemon.lab import until
from tests.hive.live.test_regressions import ACID, directories

pytestmark = [pytest.mark.live, pytest.mark.timeout(0), pytest.mark.xdist_group("hive-4")]
NOTHING_IS_DUE = {"thresholds": {"delta_count": 1000, "delta_ratio": 1000.0, "aborted_count": 0}}
UNTIL_ALL_IS_BACK = 2 + 4
"""Changes: the place for the result and its manifest, four moves back."""
UNTIL_THE_RESULT_IS_AWAY = 2 + 2 + 1
"""Changes of the next: the first one's place goes, its own and its manifest, the result."""


@pytest.fixture
def living(pair):
    """Hive 4 with our daemon beside it, and an empty database `r`."""
    found = pair("4")
    found.hive.sql("create database r")
    yield found
    found.hive.sql("drop database r cascade")


def test_hive_reads_on_after_restores_that_were_killed(living):
    """
    With everything back beside the result, with the result away, and at the end; locks of the dead end with ABORT
    TRANSACTIONS. While Hive reads, no restore begins.
    """
    select = "select row__id, id from r.u"

    def killed(changes, left):
        code, said = restore(living.daemon.config, "r.u", changes=changes)
        assert code == -signal.SIGKILL, said
        living.hive.sql(*(f"abort transactions {txn}" for txn in living.daemon.own_transactions()))
        assert len(visible(living)) == left
        assert sorted(living.hive.rows(select)) == before

    with living.daemon.told(initiator=NOTHING_IS_DUE, cleaner={"quarantine_hours": 1}):
        living.hive.sql(f"create table r.u (id int) {ACID}")
        living.hive.sql(*(f"insert into r.u values ({number}), ({number + 10})" for number in range(3)))
        living.hive.sql("delete from r.u where id in (0, 11)")
        before, inputs = sorted(living.hive.rows(select)), directories(living, "u")
        living.hive.sql("alter table r.u compact 'major'")
        until(lambda: [name[:5] for name in visible(living)] == ["base_"], "compacted and cleaned")
        hold = living.readers.hold("open", r"/r\.db/u/base.*bucket_")
        reading = living.readers.begin(select, "held reader")
        until(lambda: reading.done() or hold.met(), "reading")
        code, said = restore(living.daemon.config, "r.u")
        assert (code, "is locked" in said) == (4, True), said
        hold.release()
        assert sorted(tuple(row) for row in reading.result()["rows"]) == before
        killed(UNTIL_ALL_IS_BACK, left=5)
        killed(UNTIL_THE_RESULT_IS_AWAY, left=4)
        code, said = restore(living.daemon.config, "r.u")
        assert code == 0, said
        assert sorted(visible(living)) == sorted(inputs)
        assert sorted(living.hive.rows(select)) == before
        living.hive.sql("insert into r.u values (99)")
        assert len(living.hive.rows(select)) == len(before) + 1


def visible(living):
    return [name for name in directories(living, "u") if not name.startswith(".")]
