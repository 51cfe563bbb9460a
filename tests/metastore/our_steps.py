"""
What our roles ask of the metastore, each call with what is known after it, as `hives_steps`.

Every one of them asks whose an entry is: what it answers is so, whatever Hive did meanwhile, but for what Hive does
without asking.
"""

from sqlalchemy import select

from compactor.acid.compaction import CompactionKind
from compactor.acid.write_ids import CleanerWriteIdList
from compactor.errors import OwnershipLostError, RefusedError, RetryableError
from compactor.metastore.housekeeping import Duty
from compactor.metastore.model import QueueState
from compactor.metastore.txn.transactions import TxnState
from tests.metastore.model import HIVES, OURS
from tests.metastore.steps import Step

_ENDED = {QueueState.SUCCEEDED, QueueState.FAILED, QueueState.REFUSED, QueueState.ABORTED}


def _only(*kinds):
    """Told what was raised: it is one of these."""

    def failed(error):
        if not isinstance(error, kinds):
            raise error

    return failed


_LOST = _only(OwnershipLostError)
_SLOW = _only(RetryableError)


# Transactions and locks


def _open(world):
    return Step(
        lambda: world.transactions.open_compaction("ann", "edge"),
        lambda number: world.opened([number], compaction=True),
        _SLOW,
    )


def _attempt(world):
    """One of ours, with its transaction."""
    attempt = world.working(by=OURS)
    return attempt if attempt is not None and attempt.txn_id is not None else None


def _abort(world):
    attempt = _attempt(world)
    return attempt and Step(lambda: world.transactions.abort(attempt.txn_id, "test"))


def _heartbeat(world):
    attempt = _attempt(world)
    if attempt is None:
        return None
    world.silence(attempt.txn_id)
    return Step(lambda: world.transactions.heartbeat(attempt.txn_id), lambda _: world.alive.add(attempt.txn_id), _LOST)


def _end_empty(world):
    prepared = world.prepared(by=OURS)
    if prepared is None or not world.hive_4:
        return None
    attempt, _ = prepared
    world.attempts.remove(attempt)
    return Step(
        lambda: world.transactions.end_empty(attempt.txn_id),
        lambda done: world.committed.add(attempt.txn_id) if done else None,
    )


def _snapshot(world):
    committed = {number for number, txn in world.txns.items() if txn.state is TxnState.COMMITTED}

    def then(found):
        assert all(found.is_valid(number) for number in committed), (committed, found)
        wrong = {number for number in world.before[0] - world.committed if found.is_valid(number)}
        assert not wrong, f"{wrong} didn't commit: {found}"

    return Step(world.transactions.valid_txns, then)


def _lock(world):
    place, partition = world.place()

    def then(number):
        assert world.locked_out is not place, "an exclusive lock of Hive's and ours are held together"
        world.locks.release(number)

    return Step(
        lambda: world.locks.acquire_shared(place.entity(partition), 0, "ann", "edge"), then, _only(RefusedError)
    )


def _lock_in_transaction(world):
    attempt = _attempt(world)
    return attempt and Step(
        lambda: world.locks.acquire_shared(attempt.place.entity(attempt.partition), attempt.txn_id, "ann", "edge"),
        failed=_only(RefusedError, OwnershipLostError),
    )


def _heartbeat_lock(world):
    place, partition = world.place()
    number = world.hive.lock(place.name, partition, silent=10**9)

    def then(_):
        assert number in {lock.lock_id for lock in world.locks.all()}, f"lock {number} was heartbeated, and is gone"
        world.locks.release(number)

    return Step(lambda: world.locks.heartbeat(number), then, _LOST)


# The queue


def _enqueue(world):
    place, partition = world.place()

    def then(answer):
        dropped = world.dropping and world.queue.entry(answer.id) is None  # with its table, in the same step
        if answer.accepted and not dropped:
            world.known.add(answer.id)

    return Step(lambda: world.queue.enqueue(place.entity(partition), CompactionKind.MAJOR), then)


def _is(world, number, *states):
    """Where the entry is, unless Hive's call may have changed that."""
    now = world.queue.entry(number)
    assert number in world.touched or (now is not None and now.state in states), f"{now} should be {states}"
    return now


def _claim(world):
    if world.asked() is None:
        return None

    def then(entry):
        attempt = world.took(entry, by=OURS)
        if attempt is None:
            return
        assert world.taken.count(attempt.number) == 1, f"{entry} was claimed twice"
        now = _is(world, entry.id, QueueState.WORKING)
        assert entry.id in world.touched or now.worker_id == OURS

    return Step(lambda: world.queue.claim(OURS, "1"), then)


def _store(world):
    prepared = world.prepared(by=OURS)
    if prepared is None:
        return None
    attempt, highest = prepared
    held = world.holds(attempt)

    def then(_):
        assert held, f"compaction {attempt.number} got its state from a worker that had lost it"
        attempt.stored = attempt.files = True

    def failed(error):
        _LOST(error)
        attempt.over = True

    return Step(lambda: world.queue.set_compactor_state(attempt.entry, attempt.txn_id, highest, "ann"), then, failed)


def _commit(world):
    attempt = world.working(by=OURS)
    if attempt is None:
        return None
    held = world.holds(attempt)

    def then(_):
        assert held, f"compaction {attempt.number} was committed by a worker that had lost it"
        world.ended(attempt)
        now = _is(world, attempt.number, QueueState.READY_FOR_CLEANING, QueueState.SUCCEEDED)
        assert (
            attempt.number in world.touched
            or not world.hive_4
            or (now.txn_id == attempt.txn_id and now.next_txn_id is not None)
        ), now

    def failed(error):
        _LOST(error)
        assert attempt.txn_id is None or world.transactions.state(attempt.txn_id) is not TxnState.COMMITTED, (
            f"{error}, and it was committed"
        )

    return Step(lambda: world.queue.mark_compacted_and_commit(attempt.entry, OURS, attempt.txn_id), then, failed)


def _undo(world):
    """As a worker that gives up: what it wrote goes, then the claim; the note of it stays."""
    attempt = world.working(by=OURS)
    if attempt is None:
        return None

    def undo():
        if attempt.lock_id is not None and attempt.txn_id is None:
            world.locks.release(attempt.lock_id)
        if attempt.txn_id is not None and world.transactions.abort(attempt.txn_id, "test") is TxnState.ABORTED:
            attempt.files = False
        world.queue.give_back(attempt.entry)

    def over(_):
        attempt.over = True

    def failed(error):
        _LOST(error)
        over(error)

    return Step(undo, over, failed)


def _withdraw(world):
    """Its component goes, of an attempt that has put nothing into the store."""
    attempt = _attempt(world)
    if attempt is None:
        return None
    attempt.files = False
    attempt.over = True

    def withdraw():
        world.queue.withdraw_attempt(attempt.txn_id)
        world.transactions.abort(attempt.txn_id, "test")

    return Step(withdraw)


def _end_otherwise(how, *states):
    def end(world):
        attempt = world.claimed(by=OURS)
        if attempt is None:
            return None
        held = world.holds(attempt)

        def then(_):
            given_back = QueueState.INITIATED in states  # twice is once
            assert held or given_back, f"compaction {attempt.number} was ended by a worker that had lost it"
            attempt.over = True
            _is(world, attempt.number, *states)

        def failed(error):
            _LOST(error)
            attempt.over = True

        return Step(lambda: how(world.queue, attempt.entry), then, failed)

    return end


def _give_back_hives(world):
    """As our recovery, of a worker of Hive's that is late."""
    (world.working if world.drawn % 2 else world.claimed)(by=HIVES)
    entries = [entry for entry in world.queue.working() if entry.worker_id != OURS]
    if not entries:
        return None
    entry = world.choose(entries)

    def then(_):
        if entry.id in world.touched:  # in the same step, by a worker that doesn't ask whether it still has it
            world.spoilt.add(entry.id)

    return Step(lambda: world.queue.give_back(entry), then, _LOST)


def _cancel(world):
    if (entry := world.asked()) is None:
        return None

    def then(done):
        if done:
            _is(world, entry.id, *_ENDED)

    return Step(lambda: world.queue.cancel(entry.id, "test"), then)


def _ask_to_stop(world):
    if world.claimed(by=OURS) is None or not (entries := world.queue.working()):
        return None
    entry = world.choose(entries)
    return Step(lambda: world.queue.ask_to_stop(entry, "ann"))


# Cleaning


def _ready(world):
    return Step(world.cleaning.ready_for_cleaning)


def _judged(world, item):
    """The lists under which the Cleaner decides; as `roles.cleaner.cleaner`."""
    if item.txns is not None:
        return item.txns, world.cleaning.write_ids(item)
    txns = world.transactions.valid_txns()
    reader = world.transactions.valid_write_ids(item.entry.entity.full_name, txns)
    return txns, CleanerWriteIdList.from_reader(reader, item.entry.highest_write_id or 0)


def _mark_cleaned(world):
    if (item := world.ready()) is None:
        return None
    entry = item.entry
    place = world.place_of(entry.entity.whole_table())
    txns, write_ids = _judged(world, item)

    def clean():
        proof = world.sweep(place, txns, write_ids, partition=entry.entity.partition)
        world.cleaning.mark_cleaned(entry, proof)

    def failed(error):
        _only(OwnershipLostError, RefusedError)(error)
        _is(world, entry.id, QueueState.READY_FOR_CLEANING, *_ENDED)

    return Step(clean, lambda _: _is(world, entry.id, QueueState.SUCCEEDED), failed)


def _of_ready(how):
    def call(world):
        item = world.ready()
        return item and Step(lambda: how(world.cleaning, item.entry))

    return call


def _note_unnamed(world):
    number = world.writer("unnamed")
    if number is not None:
        world.abort(number)
    return Step(world.aborts.note_unnamed)


def _clean_aborts(world):
    """A visit of the abort cleaner to every table; as `roles.cleaner.aborts`."""
    number = world.writer(world.choose(["unnamed", "static", "dynamic"]))
    if number is not None:
        world.abort(number)

    def clean():
        world.aborts.note_unnamed()
        groups = {}
        for group in world.aborts.groups(0, -1):
            groups.setdefault(group.entity.whole_table(), []).append(group)
        for table, of_table in groups.items():
            place = _in_catalog(world, table)
            if place is None:
                world.aborts.forget_vanished(of_table, table)
                continue
            txns, write_ids = world.aborts.lists(table)
            proof = world.sweep(place, txns, write_ids)
            if _in_catalog(world, table) is place:
                world.aborts.forget(of_table, proof)

    return Step(clean, failed=_only(RefusedError))


def _in_catalog(world, table):
    tbls = world.database.schema.tbls.c
    found = world.database.read(
        lambda connection: connection.scalar(select(tbls.tbl_id).where(tbls.tbl_name == table.table))
    )
    return next((place for place in (world.t, world.u) if place.tbl_id == found), None)


def _forget(world):
    """By an earlier proof, if there is one."""
    proof = world.choose(world.proofs) if world.proofs else world.prove(world.place()[0])
    groups = [group for group in world.aborts.groups(0, -1) if group.entity.whole_table() == proof.table]
    return Step(lambda: world.aborts.forget(groups, proof), failed=_only(RefusedError))


def _put_off(world):
    groups = world.aborts.groups(0, -1)
    groups = [group for group in groups if group.entity.whole_table() == groups[0].entity.whole_table()]
    return Step(lambda: world.aborts.retry_later(groups, "test"))


def _time_outs(world):
    number = world.choose(world.open() + [one.txn_id for one in world.attempts if one.txn_id] or [0])
    if number:
        world.silence(number)
    return Step(lambda: world.housekeeping.run(Duty.TIME_OUTS))


def _duty(duty):
    def run(world):
        if duty is Duty.HISTORY:
            world.known -= {entry.id for entry in world.queue.history()}
        return Step(lambda: world.housekeeping.run(duty))

    return run


STEPS_3 = {
    "snapshot": _snapshot,
    "lock": _lock,
    "heartbeat lock": _heartbeat_lock,
    "enqueue": _enqueue,
    "claim": _claim,
    "store state": _store,
    "commit": _commit,
    "undo": _undo,
    "mark failed": _end_otherwise(lambda queue, entry: queue.mark_failed(entry, "test"), QueueState.FAILED),
    "mark refused": _end_otherwise(
        lambda queue, entry: queue.mark_refused(entry, "test"), QueueState.REFUSED, QueueState.FAILED
    ),
    "give back": _end_otherwise(lambda queue, entry: queue.give_back(entry), QueueState.INITIATED, QueueState.WORKING),
    "give back Hive's": _give_back_hives,
    "cancel": _cancel,
    "ask to stop": _ask_to_stop,
    "look for ready": _ready,
    "mark cleaned": _mark_cleaned,
    "note unnamed": _note_unnamed,
    "clean aborts": _clean_aborts,
    "forget": _forget,
    "put off aborts": _put_off,
    Duty.TIME_OUTS.value: _time_outs,
    **{duty.value: _duty(duty) for duty in Duty if duty is not Duty.TIME_OUTS},
}
STEPS_4 = STEPS_3 | {
    "open": _open,
    "abort": _abort,
    "heartbeat": _heartbeat,
    "end empty": _end_empty,
    "lock in transaction": _lock_in_transaction,
    "withdraw": _withdraw,
    "mark cleaner start": _of_ready(lambda cleaning, entry: cleaning.mark_cleaner_start(entry)),
    "put off cleaning": _of_ready(lambda cleaning, entry: cleaning.retry_later(entry, 1_000, "test")),
}
"""By what they are called in a life."""
