"""Hive 3.1: other compactions of the same partition, whose results names don't tell apart."""

import pytest
from sqlalchemy import update

from compactor.errors import RetryableError
from compactor.metastore.clean.ready import Cleaning
from compactor.reasons import Reason
from tests.metastore.ready import compacted, judged, reasons

P1, P2 = "db.t/p=1", "db.t/p=2"


def test_a_later_compaction_of_an_idle_partition_reaches_no_higher(database_3, hive_3):
    """
    Its entry covers what the whole table had reached, but it could only join what lies there: whoever began before it
    ended still reads its inputs.
    """
    for _ in range(3):
        hive_3.write("db.t", "p=1")
    earlier, _ = compacted(database_3, hive_3, P1, write_id=3)
    cleaning = Cleaning(database_3)
    assert reasons(cleaning, earlier) == []
    hive_3.write("db.t", "p=2")
    reader = hive_3.begin(age=0)
    later, _ = compacted(database_3, hive_3, P1, write_id=4)
    assert reasons(cleaning, earlier) == [Reason.OPEN_TRANSACTION]
    hive_3.commit(reader)
    assert reasons(cleaning, earlier) == []
    assert reasons(cleaning, later) == [Reason.EARLIER_ENTRY]


def test_who_began_before_a_compaction_that_reaches_higher_holds_back_that_one_alone(database_3, hive_3):
    """
    Its result isn't seen under what the earlier one covers: where compactions never stop, the earlier ones are cleaned
    all the same.
    """
    hive_3.write("db.t", "p=1")
    earlier, _ = compacted(database_3, hive_3, P1, write_id=1)
    cleaning = Cleaning(database_3)
    assert reasons(cleaning, earlier) == []
    hive_3.write("db.t", "p=1")
    hive_3.begin(age=0)
    later, _ = compacted(database_3, hive_3, P1, write_id=2)
    assert reasons(cleaning, earlier) == []
    assert reasons(cleaning, later) == [Reason.EARLIER_ENTRY, Reason.OPEN_TRANSACTION]


def test_nothing_is_cleaned_beside_a_compaction_at_work(database, hive):
    """
    On 3.1 its result may be there at any moment; on 4.x nobody sees it before it commits. Another partition's is no
    matter.
    """
    number, _ = compacted(database, hive, P1)
    hive.queued(P2, state="w")
    assert reasons(Cleaning(database), number) == []
    hive.queued(P1, state="w")
    assert reasons(Cleaning(database), number) == ([] if database.schema.hive_4 else [Reason.AT_WORK])


@pytest.mark.parametrize("state", ["w", "r"])
def test_one_that_began_since_is_found(database_3, hive_3, state):
    """Whatever has become of it; those that were judged together don't count, nor do entries that only wait."""
    number, _ = compacted(database_3, hive_3, P1, write_id=1)
    compacted(database_3, hive_3, P1, write_id=2)
    cleaning = Cleaning(database_3)
    item = judged(cleaning, number)
    waiting = hive_3.queued(P1)
    hive_3.queued(P2, state=state)
    cleaning.check_alone(item)
    queue = database_3.schema.compaction_queue
    hive_3.change(update(queue).where(queue.c.cq_id == waiting).values(cq_state=state))
    with pytest.raises(RetryableError, match=f"compaction {waiting} of {P1} began while it was cleaned"):
        cleaning.check_alone(item)
