"""
What Hive's clients and threads ask of its TxnHandler, each call with what is known after it.

A step makes what it needs and doesn't find (`World`); None: it can't be had in this life.
"""

from compactor.metastore.model import QueueState
from compactor.metastore.txn.transactions import TxnState
from tests.metastore.model import HIVES, OURS
from tests.metastore.steps import Step

_SILENT_MS = -60_000
"""Every claim is older."""


def _request(world):
    return {"num_txns": 1, "user": "bob", "hostname": "client"}


# Clients


def _open(world):
    return Step(("openTxns", _request(world)), lambda answer: world.opened(answer["txn_ids"]))


def _commit(world):
    if (number := world.writer()) is None:
        return None
    return Step(("commitTxn", {"txnid": number}), lambda _: world.committed.add(number))


def _abort(world):
    number = world.writer()
    return number and Step(("abortTxn", {"txnid": number}))


def _abort_several(world):
    world.writer("unnamed")
    return Step(("abortTxns", {"txn_ids": world.open()}))


def _heartbeat(world):
    if (number := world.writer()) is None:
        return None
    world.silence(number)
    return Step(("heartbeat", {"txnid": number}), lambda _: world.alive.add(number))


def _heartbeat_range(world):
    first, last = world.begin(), world.begin()
    world.silence(last)

    def then(answer):
        world.alive |= {first, last} - set(answer["aborted"]) - set(answer["nosuch"])

    return Step(("heartbeatTxnRange", {"min": first, "max": last}), then)


def _allocate(world):
    number, (place, partition) = world.begin(), world.place()
    database, table = place.name.split(".")

    def then(answer):
        (found,) = answer["txnToWriteIds"]
        world.allocated(number, place, found["writeId"], {partition})

    return Step(("allocateTableWriteIds", {"dbName": database, "tableName": table, "txnIds": [number]}), then)


def _lock(world, *components, txn_id=0):
    return {"component": list(components), "user": "bob", "hostname": "client", "agentInfo": "test"} | (
        {"txnid": txn_id} if txn_id else {}
    )


def _lock_to_write(world):
    number, (place, partition) = world.begin(), world.place()
    write = world.allocated(number, place, world.hive.allocate(number, place.name), {partition})
    component = world.hive.component(place.name, partition, "w", "u")
    return Step(("lock", _lock(world, component, txn_id=number)), lambda _: write.noted.add(partition))


def _lock_exclusive(world):
    number, place = world.begin(), world.place()[0]

    def then(answer):
        if answer["state"] == "ACQUIRED":
            world.locked_out = place
        if world.drawn % 4:
            world.abort_later.append(number)

    return Step(("lock", _lock(world, world.hive.component(place.name, None, "e", "n"), txn_id=number)), then)


def _lock_to_read(world):
    place, partition = world.place()
    return Step(("lock", _lock(world, world.hive.component(place.name, partition))))


def _check_lock(world):
    """A reader waits for an exclusive lock."""
    holder, reader, (place, partition) = world.begin(), world.begin(), world.place()
    if not world.hive.ask(holder, world.hive.component(place.name, None, "e", "n"))[1]:
        world.abort(holder)
        return None
    number, _ = world.hive.ask(reader, world.hive.component(place.name, partition))
    world.abort(holder)
    return Step(("checkLock", {"lockid": number, "txnid": reader}))


def _unlock(world):
    place, partition = world.place()
    number, _ = world.hive.ask(0, world.hive.component(place.name, partition))
    return Step(("unlock", {"lockid": number}))


def _heartbeat_lock(world):
    place, partition = world.place()
    number = world.hive.lock(place.name, partition, silent=10**9)

    def then(_):
        assert number in {lock.lock_id for lock in world.locks.all()}, f"lock {number} was heartbeated, and is gone"

    return Step(("heartbeat", {"lockid": number}), then)


def _add_partitions(world):
    number = world.write(world.u, None, "dynamic")
    if number is None:
        return None
    (write,) = world.txns[number].writes
    request = {
        "txnid": number,
        "writeid": write.write_id,
        "dbname": "db",
        "tablename": "u",
        "partitionnames": list(world.u.partitions),
    }
    return Step(
        ("addDynamicPartitions", request | {"operationType": "INSERT"}),
        lambda _: write.noted.update(world.u.partitions),
    )


def _list(world):
    committed = {number for number, txn in world.txns.items() if txn.state is TxnState.COMMITTED}

    def then(answer):
        unfinished = set(answer["open_txns"])
        assert not committed & unfinished

        def ask():
            missing = {
                number for number in world.before[0] - unfinished if world.txns[number].state is not TxnState.COMMITTED
            }
            assert not missing, f"Hive takes transactions {missing} for committed"

        world.afterwards.append(ask)

    return Step(("getOpenTxns",), then)


# The queue


def _compact(world):
    place, partition = world.place()
    database, table = place.name.split(".")
    request = {"dbname": database, "tablename": table, "type": "MAJOR"} | (
        {"partitionname": partition} if partition else {}
    )
    return Step(("compact", request), lambda answer: world.known.add(answer["id"]) if answer["accepted"] else None)


def _claim(world):
    if world.asked() is None:
        return None
    request = {"workerId": HIVES, "workerVersion": "4.0.1"} if world.hive_4 else HIVES
    return Step(("findNextToCompact", request), lambda answer: world.took(answer, by=HIVES))


def _store(world):
    prepared = world.prepared(by=HIVES)
    if prepared is None:
        return None
    attempt, highest = prepared

    def then(_):
        attempt.stored = attempt.files = True

    return Step(world.hives_state(attempt, highest), then, touches=_touched(world, attempt))


def _touched(world, attempt):
    """The entry, which Hive's worker names by its id alone; by now it may be another's."""
    now = world.queue.entry(attempt.number)
    if now is None or now.state is not QueueState.WORKING or now.worker_id != HIVES:
        world.spoilt.add(attempt.number)
    return frozenset({attempt.number})


def _mark_compacted(world):
    attempt = world.working(by=HIVES)
    if attempt is None:
        return None

    def then(_):
        attempt.marked, attempt.over = True, not world.hive_4

    return Step(("markCompacted", attempt.info), then, touches=_touched(world, attempt))


def _commit_compaction(world):
    marked = [one for one in world.attempts if one.marked and not one.over and one.txn_id is not None]
    if not marked:
        attempt = world.working(by=HIVES)
        if attempt is None or not world.hive_4:
            return None
        _touched(world, attempt)
        world.hive.party.call("markCompacted", attempt.info)
        attempt.marked = True
        marked = [attempt]
    attempt = world.choose(marked)

    def then(_):
        world.committed.add(attempt.txn_id)
        attempt.over, attempt.files = True, False

    return Step(("commitTxn", {"txnid": attempt.txn_id}), then)


def _end_otherwise(how):
    def end(world):
        attempt = world.claimed(by=HIVES) if world.drawn % 2 else world.working(by=HIVES)
        if attempt is None:
            return None
        touched = _touched(world, attempt)

        def over(_):
            attempt.over = True

        return Step((how, attempt.info | ({"errorMessage": "test"} if world.hive_4 else {})), over, over, touched)

    return end


def _revoke(*call):
    """From a worker that has an entry, or claims it in the same step."""

    def revoke(world):
        (world.working if world.drawn % 2 else world.claimed)(by=OURS)
        return Step(
            call, touches=frozenset(entry.id for entry in world.queue.entries(QueueState.INITIATED, QueueState.WORKING))
        )

    return revoke


def _abort_entry(world):
    entry = world.asked()
    return entry and Step(("abortCompactions", {"compactionIds": [entry.id]}), touches=frozenset({entry.id}))


def _info(item):
    entry = item.entry
    return {
        "id": entry.id,
        "dbname": entry.entity.database,
        "tableName": entry.entity.table,
        "partName": entry.entity.partition,
        "type": "MAJOR",
        "state": "r",
        "highestWriteId": entry.highest_write_id or 0,
    }


def _mark_cleaned(world):
    """Hive's Cleaner has removed what the entry made obsolete, and what was aborted below its end."""
    if (item := world.ready()) is None:
        return None
    world.clean_as_hive(item)
    return Step(("markCleaned", _info(item)), touches=frozenset({item.entry.id}))


def _of_ready(method, **more):
    def call(world):
        item = world.ready()
        return item and Step((method, _info(item) | more))

    return call


def _clean_aborts(world):
    """Hive 4's Cleaner has removed what was aborted in a table without partitions."""
    if world.t not in {
        write.place for txn in world.txns.values() if txn.state is TxnState.ABORTED for write in txn.writes
    }:
        number = world.write(world.t, None, "static")
        if number is None:
            return None
        world.abort(number)
    gone = world.sweep(world.t, *world.aborts.lists(world.t.entity())).search.gone
    database, table = world.t.name.split(".")
    info = {
        "id": 0,
        "dbname": database,
        "tableName": table,
        "type": "ABORT_TXN_CLEANUP",
        "state": "r",
        "writeIds": sorted(gone),
    }
    return Step(("markCleaned", info))


def _put_off_aborts(world):
    database, table = world.t.name.split(".")
    info = {
        "id": 0,
        "dbname": database,
        "tableName": table,
        "type": "ABORT_TXN_CLEANUP",
        "state": "r",
        "retryRetention": 300_000,
        "errorMessage": "test",
    }
    return Step(("setCleanerRetryRetentionTimeOnError", info))


# Hive's housekeeping, and the catalog


def _time_outs(world):
    number = world.choose(world.open() + [one.txn_id for one in world.attempts if one.txn_id] or [0])
    if number:
        world.silence(number)
    return Step(("performTimeOuts",))


def _duty(method):
    return lambda world: Step((method,))


def _purge_empty(method):
    def purge(world):
        number = world.writer("unnamed")
        if number is not None:
            world.abort(number)
        world.purging = True
        return Step((method,))

    return purge


def _purge_history(world):
    world.known -= {entry.id for entry in world.queue.history()}
    return Step(("purgeCompactionHistory",))


def _alone(world):
    """A transaction that has the table for itself; None: another has a lock on it."""
    number = world.begin()
    held = world.hive.ask(number, world.hive.component(world.t.name, None, "e", "n"))[1]
    if held:
        world.abort_later.append(number)
        return number
    world.abort(number)
    return None


def _drop(world):
    if _alone(world) is None:
        return None
    gone = frozenset(
        entry.id for entry in [*world.queue.entries(), *world.queue.history()] if entry.entity == world.t.entity()
    )
    world.known -= gone
    database, table = world.t.name.split(".")
    world.hive.drop_table(world.t.tbl_id)
    facts = {
        "catName": "hive",
        "dbName": database,
        "tableName": table,
        "tableType": "MANAGED_TABLE",
        "parameters": {"transactional": "true"},
    }
    world.dropping = True
    return Step(("cleanupRecords", "TABLE", {"name": database, "catalogName": "hive"}, facts, None), touches=gone)


def _rename(world):
    if _alone(world) is None:
        return None
    old = world.t.name
    world.rename("db.s" if old == "db.t" else "db.t")

    def failed(error):  # as the victim of a deadlock: the catalog has the new name, and the write ids the old one
        raise error

    return Step(("onRename", "hive", *old.split("."), None, "hive", *world.t.name.split("."), None), failed=failed)


BOTH = {
    "open": _open,
    "commit": _commit,
    "abort": _abort,
    "abort several": _abort_several,
    "heartbeat": _heartbeat,
    "heartbeat several": _heartbeat_range,
    "allocate": _allocate,
    "lock to write": _lock_to_write,
    "lock exclusive": _lock_exclusive,
    "lock to read": _lock_to_read,
    "check lock": _check_lock,
    "unlock": _unlock,
    "heartbeat lock": _heartbeat_lock,
    "add partitions": _add_partitions,
    "list": _list,
    "compact": _compact,
    "claim": _claim,
    "store state": _store,
    "mark compacted": _mark_compacted,
    "mark failed": _end_otherwise("markFailed"),
    "revoke late workers": _revoke("revokeTimedoutWorkers", _SILENT_MS),
    "revoke local workers": _revoke("revokeFromLocalWorkers", "ann"),
    "mark cleaned": _mark_cleaned,
    "time outs": _time_outs,
    "purge mappings": _duty("cleanTxnToWriteIdTable"),
    "purge write set": _duty("performWriteSetGC"),
    "purge history": _purge_history,
    "drop": _drop,
    "rename": _rename,
}
STEPS_3 = BOTH | {"purge empty": _purge_empty("cleanEmptyAbortedTxns")}
STEPS_4 = BOTH | {
    "purge empty": _purge_empty("cleanEmptyAbortedAndCommittedTxns"),
    "remove duplicates": _duty("removeDuplicateCompletedTxnComponents"),
    "commit compaction": _commit_compaction,
    "mark refused": _end_otherwise("markRefused"),
    "abort entry": _abort_entry,
    "mark cleaner start": _of_ready("markCleanerStart"),
    "clear cleaner start": _of_ready("clearCleanerStart"),
    "put off cleaning": _of_ready("setCleanerRetryRetentionTimeOnError", retryRetention=1_000, errorMessage="test"),
    "clean aborts": _clean_aborts,
    "put off aborts": _put_off_aborts,
}
"""By what they are called in a life."""
