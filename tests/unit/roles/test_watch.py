"""The watch: what the metrics tell of the metastore."""

import pytest

from compactor.errors import UnreachableError
from compactor.roles.watch import Watch


def test_aborted_writes_are_counted(world):
    """Rows, age and crowded tables are those of aborted writes that nobody cleaned; committed and open writes don't count."""
    table = world.table(rows=2)
    for number in range(3):
        world.aborted_insert(table, [(number, "never")])
    world.settle_time()
    Watch(world.services).run_once()
    value = world.services.metrics.registry.get_sample_value
    assert value("compactor_aborted_writes") == 3
    assert 10 <= (value("compactor_aborted_writes_oldest_age_seconds") or 0) < 100
    assert value("compactor_tables_with_many_aborted_writes") == 0
    assert world.services.aborts.totals(3).crowded == 1


def test_a_database_that_does_not_answer(world, monkeypatch):
    """`compactor_database_up` is 0 while it can't be asked, and 1 again afterwards."""
    watch = Watch(world.services)

    def up():
        return world.services.metrics.registry.get_sample_value("compactor_database_up")

    watch.run_once()
    assert up() == 1

    def away():
        raise UnreachableError("the database is away")

    with monkeypatch.context() as patched:
        patched.setattr(world.services.queue, "entries", away)
        with pytest.raises(UnreachableError):
            watch.run_once()
        assert up() == 0
    watch.run_once()
    assert up() == 1


def test_the_oldest_open_transaction_is_told_whoever_leads(world):
    """Its age while it is open and 0 afterwards; a transaction of replication, which stays open for as long as its source's, is none."""
    value = world.services.metrics.registry.get_sample_value
    watch = Watch(world.services)
    forgotten = world.hive.begin(age=7_200_000)
    world.hive.begin(age=1_000_000_000, kind=1)
    watch.run_once()
    assert 7200 <= (value("compactor_oldest_open_writer_age_seconds") or 0) < 8000
    world.hive.commit(forgotten)
    watch.run_once()
    assert value("compactor_oldest_open_writer_age_seconds") == 0
