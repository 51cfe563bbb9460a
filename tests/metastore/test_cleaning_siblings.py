"""Hive 3.1: observations of entries of one partition, whose results names don't tell apart."""

from sqlalchemy import update

from compactor.metastore.clean.ready import Cleaning
from compactor.metastore.model import Entity
from compactor.metastore.txn.locks import AGENT
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
    """Whoever begins in between counts; what was listed first stays with the entry. Of no other entry it is listed."""
    number, _ = compacted(database_3, hive_3, P1)
    for state in ("i", "w"):
        hive_3.queued("db.t/p=2", state=state)
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


def test_who_may_list_under_an_older_snapshot_than_a_compaction(database_3, hive_3):
    """
    Of the transactions up to its limit those with a lock on the table, and those without any lock that may still
    compile; of locks without a transaction those that are older than its own. What a dead compaction left reads
    nothing.
    """
    table, locks = Entity("db", "t"), database_3.schema.hive_locks
    begun = {
        name: hive_3.begin(age=age)
        for name, age in (
            ("reader", 10_000_000),
            ("partition's reader", 0),
            ("reader elsewhere", 0),
            ("compiling", 100_000),
            ("idle", 130_000),
            ("dead compaction's", 10_000_000),
            ("late reader", 0),
        )
    }
    held = {
        "reader": hive_3.lock(txn_id=begun["reader"]),
        "partition's reader": hive_3.lock("db.t", "p=1", txn_id=begun["partition's reader"]),
        "reader elsewhere": hive_3.lock("db.u", txn_id=begun["reader elsewhere"]),
        "dead compaction's": hive_3.lock(txn_id=begun["dead compaction's"]),
        "late reader": hive_3.lock(txn_id=begun["late reader"]),
        "older": hive_3.lock(),
        "own": hive_3.lock(),
        "younger": hive_3.lock(),
    }
    agents = {"reader": "a query", "dead compaction's": AGENT, "own": AGENT}
    for name, agent in agents.items():
        named = update(locks).where(locks.c.hl_lock_ext_id == held[name])
        hive_3.change(named.values(hl_agent_info=agent))
    cleaning, limit = Cleaning(database_3), begun["late reader"] - 1

    def found(lock_id):
        return [blocker.holder for blocker in cleaning.older(table, limit, lock_id)]

    transactions = [begun[name] for name in ("reader", "partition's reader", "compiling")]
    *opened, lock = found(held["own"])
    assert [txn.txn_id for txn in opened] == transactions
    assert (lock.lock_id, lock.txn_id) == (held["older"], 0)
    assert [txn.txn_id for txn in found(None)] == transactions
