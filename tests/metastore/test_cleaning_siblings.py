"""Hive 3.1: observations of entries of one partition, whose results names don't tell apart."""

from compactor.metastore.clean.ready import Cleaning
from compactor.reasons import Reason
from tests.metastore.ready import compacted, judged, reasons

P1 = "db.t/p=1"


def test_who_began_before_a_later_compaction_holds_back_that_one_alone(database_3, hive_3):
    """
    What the later one replaces isn't removed for the earlier one: where compactions never stop, the earlier ones are
    cleaned all the same.
    """
    hive_3.write("db.t", "p=1")
    earlier, _ = compacted(database_3, hive_3, P1, write_id=1)
    cleaning = Cleaning(database_3)
    assert reasons(cleaning, earlier) == []
    hive_3.begin(age=0)
    later, _ = compacted(database_3, hive_3, P1, write_id=1)
    assert reasons(cleaning, earlier) == []
    assert reasons(cleaning, later) == [Reason.EARLIER_ENTRY, Reason.OPEN_TRANSACTION]


def test_a_compaction_at_work_holds_nothing_back(database, hive):
    """Its result may be there at any moment: it wasn't there when the entry was observed, or isn't committed."""
    number, _ = compacted(database, hive, P1)
    hive.queued(P1, state="w")
    assert reasons(Cleaning(database), number) == []


def test_the_directory_is_listed_before_its_readers_are_read(database_3, hive_3):
    """Whoever begins in between counts; and what was listed first stays with the entry."""
    number, _ = compacted(database_3, hive_3, P1)
    asked = []

    def look(entries):
        asked.append([entry.id for entry in entries])
        hive_3.begin(age=0)
        return {entry.id: {"base_0000001": len(asked)} for entry in entries}

    cleaning = Cleaning(database_3, look)
    for _ in range(2):
        item = judged(cleaning, number)
        assert [blocker.reason for blocker in item.blockers] == [Reason.OPEN_TRANSACTION]
        assert item.seen == {"base_0000001": 1}
    assert asked == [[number]]


def test_an_entry_whose_directory_was_not_listed_is_observed_anew(database_3, hive_3):
    """An observation without a listing says nothing of what replaces what."""
    number, _ = compacted(database_3, hive_3, P1)
    there = []
    cleaning = Cleaning(database_3, lambda entries: {entry.id: {} if there else None for entry in entries})
    assert judged(cleaning, number).seen is None
    hive_3.begin(age=0)
    assert reasons(cleaning, number) == []
    there.append(True)
    item = judged(cleaning, number)
    assert (item.seen, [blocker.reason for blocker in item.blockers]) == ({}, [Reason.OPEN_TRANSACTION])


def test_no_directory_is_listed_on_hive_4(database_4, hive_4):
    """There the names tell whose result a directory is, and the lists who sees it."""
    number, _ = compacted(database_4, hive_4, P1)
    assert judged(Cleaning(database_4, lambda _: 1 / 0), number).seen is None
