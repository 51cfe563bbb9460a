"""
What must be so of a `World` after each step, by Hive's answers and ours; and at the end of a life.

Each judges what was committed, opened and rolled back by what the world knows of it, not by what either side says.
"""

from sqlalchemy import update

from compactor.acid.compaction import CompactionKind
from compactor.acid.write_ids import ValidTxnList, ValidWriteIdList
from compactor.metastore.clean.ready import Cleaning
from compactor.metastore.housekeeping import Duty
from compactor.metastore.model import QueueState
from compactor.metastore.txn.transactions import TxnState
from compactor.reasons import Reason
from tests.metastore.actor import OUTLIVED_MS
from tests.metastore.proofs import LATE_MS

_IN_TURN = {Reason.EARLIER_ENTRY, Reason.COMPACTION_ABORTED, Reason.RETENTION}
_ACTIVE = {QueueState.INITIATED, QueueState.WORKING}


def check(world):
    """Hive's answers, and ours, are true."""
    txns = world.hive.schema.txns
    world.hive.change(update(txns).values(txn_started=txns.c.txn_started - 10_000))
    text, lists = world.hive.snapshot(world.t.name, world.u.name)
    theirs, ours = ValidTxnList.parse(text), world.transactions.valid_txns()
    assert ours == theirs
    assert ours.high_watermark >= world.mark, "the watermark fell"
    world.mark = ours.high_watermark
    for number, txn in world.txns.items():
        if txn.state is TxnState.OPEN:
            assert not theirs.is_valid(number), f"transaction {number} is open"
        elif txn.state is TxnState.COMMITTED:
            assert theirs.is_valid(number), f"transaction {number} was committed"
    for attempt in world.attempts:
        if attempt.files and attempt.txn_id is not None and world.txns[attempt.txn_id].state is TxnState.ABORTED:
            assert not theirs.is_valid(attempt.txn_id), (
                f"what compaction {attempt.number} wrote under transaction {attempt.txn_id} came to life"
            )
    for place, written in zip((world.t, world.u), lists, strict=True):
        _check_writes(
            world, place, ValidWriteIdList.parse(written), world.transactions.valid_write_ids(place.name, ours)
        )
    _check_locks(world)
    _check_queue(world)
    _check_ready(world)
    _check_candidates(world)


def _check_writes(world, place, theirs, ours):
    owners = {
        write.write_id: (txn, write) for txn in world.txns.values() for write in txn.writes if write.place is place
    }
    for write_id in range(1, max(theirs.high_watermark, ours.high_watermark) + 2):
        assert ours.is_valid(write_id) == theirs.is_valid(write_id), (write_id, ours, theirs)
        if write_id <= theirs.high_watermark:
            assert ours.is_aborted(write_id) == theirs.is_aborted(write_id), (write_id, ours, theirs)
        elif ours.is_aborted(write_id):  # Hive may let its list end where no write that follows committed
            assert owners[write_id][0].state is TxnState.ABORTED, (write_id, ours, theirs)
    for write_id, (txn, write) in owners.items():
        valid = theirs.is_valid(write_id)
        if txn.state is TxnState.COMMITTED:
            assert valid, f"committed write {write_id} of {place.name} isn't valid: {theirs}"
        elif txn.state is TxnState.OPEN or (write.files and not write.lost):
            assert not valid, f"{txn.state} write {write_id} of {place.name} is valid: {theirs}"


def _check_locks(world):
    opened = set(world.open_txns())
    locks = world.locks.all()
    left = [lock for lock in locks if lock.txn_id and lock.txn_id not in opened]
    assert not left, f"locks of ended transactions: {left}"
    held = [lock for lock in locks if lock.state == "a"]
    for alone in (lock for lock in held if lock.kind == "e"):
        beside = [
            lock
            for lock in held
            if lock.lock_id != alone.lock_id and lock.txn_id != alone.txn_id and _meet(alone, lock)
        ]
        assert not beside, f"{alone} and {beside} are held together"
    level = world.hive.schema.min_history_level
    if level is not None:
        assert {number for (number,) in world.hive.rows(level, "mhl_txnid")} == opened


def _check_queue(world):
    shown = [one["id"] for one in world.hive.party.call("showCompact", {})["compacts"]]
    assert len(shown) == len(set(shown)), f"entries are in two places: {shown}"
    assert world.known <= set(shown), f"entries are nowhere: {world.known - set(shown)}"
    entries = world.queue.entries()
    assert all((entry.state is QueueState.WORKING) <= (entry.worker_id is not None) for entry in entries), entries
    done = [
        entry
        for entry in entries
        if entry.state is QueueState.READY_FOR_CLEANING and entry.kind is not CompactionKind.ABORT_CLEANUP
    ]
    unclaimed = [entry for entry in done if entry.start_ms is None and entry.id not in world.spoilt]
    assert not unclaimed, f"committed after it was taken from its worker: {unclaimed}"
    active = [entry.entity for entry in entries if entry.state in _ACTIVE]
    assert len(active) == len(set(active)), f"asked for twice: {entries}"
    if not world.hive_4:
        return
    for entry in [*entries, *world.queue.history()]:
        if entry.txn_id is None or entry.id in world.spoilt or entry.txn_id not in world.txns:
            continue
        committed = world.txns[entry.txn_id].state is TxnState.COMMITTED
        assert committed == (entry.next_txn_id is not None), (
            f"{entry} and its transaction, {world.txns[entry.txn_id].state}"
        )


def _check_ready(world):
    """Nothing is cleaned from under a reader, known by its transaction or its lock, that was there at the commit."""
    if not world.queue.entries(QueueState.READY_FOR_CLEANING):
        return
    opened, locks = set(world.open_txns()), {lock.lock_id: lock for lock in world.locks.all()}
    reading = {number: then & opened for number, (then, _) in world.readers.items()}
    for cleaning in (world.cleaning, Cleaning(world.database)):
        for item in cleaning.ready_for_cleaning():
            entry = item.entry
            if entry.id in world.spoilt or item.blockers:
                continue
            assert not reading.get(entry.id), f"{entry} would be cleaned beside transactions {reading[entry.id]}"
            _, held = world.readers.get(entry.id, (set(), set()))
            beside = [locks[number] for number in held & set(locks) if _reads(locks[number], entry.entity)]
            assert not beside, f"{entry} would be cleaned beside {beside}"
    if not world.hive_4:
        return
    for info in world.hive.party.call("findReadyToClean", world.hive.party.call("findMinOpenTxnIdForCleaner"), 0):
        beside = reading.get(info["id"], set()) - {info["nextTxnId"]}  # Hive lets equality pass (docs/metastore.md)
        assert not beside, f"Hive would clean {info} beside transactions {beside}"


def _check_candidates(world):
    """What was committed and not compacted is looked at again."""
    for entry in world.queue.history(QueueState.SUCCEEDED):
        place = world.place_of(entry.entity.whole_table())
        key = (place, entry.entity.partition)
        world.covered[key] = max(world.covered.get(key, 0), entry.highest_write_id or 0)
    found = (
        world.hive.party.call("findPotentialCompactions", 10_000, 1 << 40)
        if world.hive_4
        else world.hive.party.call("findPotentialCompactions", 10_000)
    )
    stored = {(f"{one['dbname']}.{one['tableName']}", (one["partName"] or "").lower()) for one in found}
    for txn in world.txns.values():
        for write in txn.writes if txn.state is TxnState.COMMITTED else ():
            for partition in write.noted:
                if write.write_id > world.covered.get((write.place, partition), 0):
                    assert (write.place.name, (partition or "").lower()) in stored, (
                        f"write {write.write_id} of {write.place.name} {partition} is forgotten"
                    )


def end(world):
    """
    All have gone home: nothing of what was rolled back is left over, nothing waits that nobody comes for, and what was
    committed is valid.
    """
    for number in world.open_txns():
        world.abort(number)
    for number in world.plain_locks():
        world.hive.unlock(number)
    world.commit(world.begin())  # the newest row stays
    txns = world.hive.schema.txns
    world.hive.change(update(txns).values(txn_started=txns.c.txn_started - 120_000))
    aborted = update(txns).where(txns.c.txn_state == "a")  # a compaction's, too, by which nothing is heartbeated now
    world.hive.change(aborted.values(txn_last_heartbeat=txns.c.txn_last_heartbeat - OUTLIVED_MS))
    world.aborts.note_unnamed()
    for _ in range(2):  # a component that names a renamed table is given the new name first
        _forget_all(world)
    assert world.aborts.totals(1, LATE_MS).count == 0, f"never forgotten: {world.aborts.groups(0, -1)}"
    for duty in (Duty.EMPTY_TRANSACTIONS, Duty.WRITE_ID_MAPPINGS):
        world.housekeeping.run(duty)
    assert not world.hive.rows(txns, "txn_id", where=txns.c.txn_state == "a"), "an aborted transaction is never purged"
    check(world)
    waits = [
        item
        for item in Cleaning(world.database).ready_for_cleaning()
        if {blocker.reason for blocker in item.blockers} - _IN_TURN
    ]
    assert not waits, f"nobody is there, and it waits: {waits}"


def _reads(lock, entity):
    if (lock.database, lock.table) != (entity.database, entity.table):
        return False
    return lock.partition is None or entity.partition is None or lock.partition.lower() == entity.partition.lower()


def _forget_all(world):
    """As a cycle of the abort cleaner."""
    for place in (world.t, world.u):
        groups = [group for group in world.aborts.groups(0, -1) if group.entity.whole_table() == place.entity()]
        world.aborts.forget(groups, world.prove(place))
    for group in world.aborts.groups(0, -1):
        world.aborts.forget_vanished([group], group.entity.whole_table())


def _meet(one, other):
    if one.database != other.database or other.table is None:
        return False  # a lock on the database hinders no exclusive one below it
    return one.table == other.table and (
        one.partition is None or other.partition is None or one.partition == other.partition
    )
