"""Time-outs and purges: what goes, and what must not."""

import pytest
from sqlalchemy import delete, insert, update

from compactor.errors import UnreachableError
from compactor.metastore import housekeeping as module
from compactor.metastore.candidates import Initiating
from compactor.metastore.clean.aborts import Aborts
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.compaction_queue.retention import Retention
from compactor.metastore.db.generation import HIVE_3
from compactor.metastore.housekeeping import MUTEXES, Duty, Housekeeping
from compactor.metastore.txn.snapshots import snapshots_for
from compactor.metastore.txn.transactions import Transactions, TxnState
from tests.metastore.actor import T
from tests.metastore.databases import SERVERS_3, kinds
from tests.metastore.proofs import LATE_MS, clear

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def test_silent_transactions_are_aborted(database, hive):
    """
    Transactions silent for longer than the time-out are aborted; heartbeated ones and replication's, which has days,
    aren't.
    """
    silent, alive = hive.begin(silent=400_000), hive.begin(age=400_000, silent=1000)
    replicating = hive.begin(kind=1, silent=400_000)
    assert Housekeeping(database).time_outs(300_000) == 1
    transactions = Transactions(database)
    assert [transactions.state(txn_id) for txn_id in (silent, alive, replicating)] == [
        TxnState.ABORTED,
        TxnState.OPEN,
        TxnState.OPEN,
    ]


def test_silent_locks_are_dropped(database, hive):
    """Locks without transaction go when silent; a transaction's locks, which never heartbeat, stay with it."""
    hive.lock(silent=400_000)
    alive = hive.lock(silent=1000)
    bound = hive.lock(txn_id=hive.begin())
    assert Housekeeping(database).time_outs(300_000) == 1
    assert hive.rows(database.schema.hive_locks, "hl_lock_ext_id") == [(alive,), (bound,)]


def test_a_heartbeat_in_the_meantime_saves(database, hive, monkeypatch):
    """A transaction that was found silent and heartbeated before it was aborted lives on."""
    txn_id = hive.begin(silent=400_000)
    housekeeping = Housekeeping(database)
    abort = housekeeping._abort_silent

    def late(numbers, condition):
        Transactions(database).heartbeat(txn_id)
        return abort(numbers, condition)

    monkeypatch.setattr(housekeeping, "_abort_silent", late)
    assert housekeeping.time_outs(300_000) == 0
    assert Transactions(database).state(txn_id) is TxnState.OPEN


def test_empty_transactions_are_forgotten(database, hive):
    """
    Aborted ones without components go, and on 4.x committed ones; those with components, open ones and whatever lies
    above the first open one stay.
    """
    hive.write()
    empty = hive.begin()
    hive.abort(empty)
    kept, _ = hive.fail_write()
    opened = hive.begin()
    above = hive.begin()
    hive.abort(above)
    hive.begin()
    Housekeeping(database).purge_empty_transactions()
    left = [txn_id for (txn_id,) in hive.rows(database.schema.txns, "txn_id")]
    assert empty not in left
    assert {kept, opened, above} <= set(left)


def test_the_newest_row_always_stays(database_4, hive_4):
    """
    On 4.x the newest transaction's row is where the high watermark is read: it survives every purge, and so the
    watermark.
    """
    for _ in range(3):
        hive_4.write()
    before = Transactions(database_4).valid_txns().high_watermark
    Housekeeping(database_4).purge_empty_transactions()
    assert Transactions(database_4).valid_txns().high_watermark == before


def test_forgetting_changes_no_snapshot_of_a_clock_that_goes_back(database_4, hive_4):
    """
    The clock of a metastore that fails over may go back some seconds, and a reader's may have begun before the purge:
    no finished transaction becomes a gap that counts as open.
    """
    hive_4.fail_write(age=100_000)
    for age in range(90, 0, -1):
        hive_4.write(age=1000 * age)
    Housekeeping(database_4).purge_empty_transactions()
    take = snapshots_for(database_4).take  # one look, as Hive's: ours would look again
    before = database_4.read(take)
    txns = database_4.schema.txns
    hive_4.change(update(txns).values(txn_started=txns.c.txn_started + 20_000))
    assert database_4.read(take) == before
    assert before.open == ()


def test_forgetting_changes_no_snapshot(database, hive):
    """After all purges every reader's lists say the same about every id as before."""
    hive.write()
    hive.fail_write()
    opened = hive.begin()
    hive.touch(opened)
    hive.write()
    late = hive.begin()
    hive.touch(late)
    hive.write()
    hive.commit(late)
    transactions = Transactions(database)

    def validity():
        txns = transactions.valid_txns()
        ids = transactions.valid_write_ids("db.t", txns)
        return (
            [txns.is_valid(number) for number in range(1, 12)],
            [ids.is_valid(number) for number in range(1, 12)],
            ids.aborted,
        )

    before = validity()
    housekeeping = Housekeeping(database)
    for duty in (Duty.WRITE_SET, Duty.WRITE_ID_MAPPINGS, Duty.EMPTY_TRANSACTIONS, Duty.DUPLICATE_COMPONENTS):
        housekeeping.run(duty)
    assert validity() == before


def test_mappings_go_below_everything_unfinished(database, hive):
    """
    Mappings of finished transactions below the first open and the first aborted one go; aborted ones' stay, and
    whatever lies above.
    """
    hive.create_table()
    first, _ = hive.write()
    aborted, _ = hive.fail_write()
    later, _ = hive.write()
    Housekeeping(database).purge_write_id_mappings()
    assert hive.rows(database.schema.txn_to_write_id, "t2w_txnid") == [(aborted,), (later,)]
    assert clear(database) == 1
    hive.begin()
    housekeeping = Housekeeping(database)
    housekeeping.purge_empty_transactions()
    housekeeping.purge_write_id_mappings()
    assert (first,) not in hive.rows(database.schema.txn_to_write_id, "t2w_txnid")
    assert (later,) not in hive.rows(database.schema.txn_to_write_id, "t2w_txnid")


def test_an_open_transaction_keeps_its_mapping_whatever_the_history_tables_say(database_4, hive_4):
    """
    With MIN_HISTORY_LEVEL empty, as an installation that switched it off leaves it, an open transaction's mapping
    stays: forgotten it would count as committed.
    """
    opened = hive_4.begin()
    hive_4.touch(opened)
    hive_4.change(delete(database_4.schema.min_history_level))
    hive_4.write()
    Housekeeping(database_4).purge_write_id_mappings()
    assert (opened,) in hive_4.rows(database_4.schema.txn_to_write_id, "t2w_txnid")


def test_a_larger_write_id_is_not_forgotten_before_a_smaller_one(database, hive):
    """
    A reader takes the largest write id that has a mapping for its high watermark: forgetting a larger one first would
    hide its rows.
    """
    early, hold, late = hive.begin(), hive.begin(), hive.begin()
    hive.touch(late)
    largest = hive.touch(early)
    hive.commit(late)
    hive.commit(early)
    Housekeeping(database).purge_write_id_mappings()
    transactions = Transactions(database)
    assert transactions.valid_write_ids("db.t", transactions.valid_txns()).high_watermark == largest
    hive.commit(hold)


def test_mappings_of_many_tables_go_some_at_a_time(database, hive, monkeypatch):
    """
    A purge that breaks off has forgotten those of the tables before; the next one forgets the rest, and of a table with
    a smaller write id that stays only what lies below it.
    """
    monkeypatch.setattr(module, "_TABLES_AT_ONCE", 2)
    names = ["db.a", "db.b", "db.c", "db.d", "db.mixed"]
    for name in names:
        hive.write(name)
    early, hold, late = hive.begin(), hive.begin(), hive.begin()
    hive.touch(late, "db.mixed")
    hive.touch(early, "db.mixed")
    hive.commit(late)
    hive.commit(early)
    housekeeping, purge, purges = Housekeeping(database), database.repeatable, []

    def once(change, *given):
        purges.append(change)
        if len(purges) == 2:
            raise UnreachableError("the server is away")
        return purge(change, *given)

    with monkeypatch.context() as patch:
        patch.setattr(database, "repeatable", once)
        with pytest.raises(UnreachableError):
            housekeeping.purge_write_id_mappings()
    mappings = database.schema.txn_to_write_id
    assert [table for (table,) in hive.rows(mappings, "t2w_table")] == ["c", "d", "mixed", "mixed", "mixed"]
    assert housekeeping.purge_write_id_mappings() == 3
    assert hive.rows(mappings, "t2w_table", "t2w_writeid") == [("mixed", 2), ("mixed", 3)]
    hive.commit(hold)


def test_conflict_records_go_when_nobody_can_conflict(database, hive):
    """Rows of WRITE_SET below the first open transaction go."""
    write_set = database.schema.write_set
    opened = hive.begin()
    for commit_id in (opened - 1, opened):
        row = {
            "ws_database": "db",
            "ws_table": "t",
            "ws_txnid": commit_id,
            "ws_commit_id": commit_id,
            "ws_operation_type": "u",
        }
        hive.change(insert(write_set).values(row))
    assert Housekeeping(database).purge_write_set() == 1
    assert hive.rows(write_set, "ws_commit_id") == [(opened,)]


def test_duplicates_go_and_the_newest_of_each_kind_stay(database, hive, monkeypatch):
    """
    Per partition the newest commit, and the newest that updated, are kept; the Initiator still finds the same
    partitions and write ids. A partition of which only these are left costs the next cycle no statement.
    """
    for operation in "iuiuii":
        hive.write("db.t", "p=1", operation=operation)
    hive.write("db.t", "p=2")
    hive.write("db.t", None)
    before = {candidate.entity: candidate.newest_write_id for candidate in Initiating(database).candidates()}
    hive.begin()
    Housekeeping(database).remove_duplicate_components()
    completed = database.schema.completed_txn_components
    assert hive.rows(completed, "ctc_writeid", "ctc_update_delete", where=completed.c.ctc_partition == "p=1") == [
        (4, "Y"),
        (6, "N"),
    ]
    assert {candidate.entity: candidate.newest_write_id for candidate in Initiating(database).candidates()} == before
    monkeypatch.setattr(Housekeeping, "_drop_earlier", lambda _, latest: len(latest))
    assert Housekeeping(database).remove_duplicate_components() == 0


def test_history_keeps_the_newest_of_each_state(database, hive):
    """Per entity and state the newest few stay; other entities don't count against each other."""
    now = database.read(database.now_ms)
    for entity in ("db.t", "db.t/p=1"):
        for state in "sssssfffffaaaa":
            hive.finished(entity, state=state, start=now)
    assert Housekeeping(database).purge_history(Retention()) == 2 * (2 + 2 + 2)
    states = [entry.state.code for entry in Queue(database).history(entity=T)]
    assert states == list("aafffsss")


def test_history_forgets_failures_that_were_made_up_for(database, hive):
    """
    An old failure goes when a major compaction succeeded later; a minor one makes up for minor ones only; young
    failures stay.
    """
    now = database.read(database.now_ms)
    old = now - 8 * DAY_MS
    gone = hive.finished("db.a", state="f", start=old)
    hive.finished("db.a", state="s", start=now)
    young = hive.finished("db.b", state="f", start=now)
    hive.finished("db.b", state="s", start=now)
    major = hive.finished("db.c", state="f", kind="a", start=old)
    minor = hive.finished("db.c", state="f", kind="i", start=old)
    hive.finished("db.c", state="s", kind="i", start=now)
    unsettled = hive.finished("db.d", state="f", start=old)
    Housekeeping(database).purge_history(Retention())
    left = {entry.id for entry in Queue(database).history()}
    assert {young, major, unsettled} <= left
    assert not {gone, minor} & left


def test_aborted_by_hand_is_never_purged(database_4, hive_4):
    """Rows in state aborted are kept, as Hive keeps them."""
    for _ in range(10):
        hive_4.finished(state="x")
    assert Housekeeping(database_4).purge_history(Retention()) == 0


def test_a_generation_names_duties_that_there_are():
    """What it says of a duty under another name would be said of none."""
    assert {*HIVE_3.mutexes, *HIVE_3.initiators_duties} <= set(Duty)


@pytest.mark.parametrize("duty", Duty)
def test_a_duty_stands_back_while_hive_does_it(database, duty):
    """While somebody else holds the duty's mutex nothing is done, and nothing is raised."""
    names = set(MUTEXES.values()) | {"WriteSetCleaner", "CompactionHistory"}
    held = [database.mutex(name) for name in names]
    for mutex in held:
        mutex.__enter__()
    try:
        assert Housekeeping(database).run(duty) == 0
    finally:
        for mutex in held:
            mutex.__exit__(None, None, None)


def test_every_duty_runs_on_an_empty_metastore(database):
    """On a new metastore every duty finds nothing to do."""
    assert [Housekeeping(database).run(duty) for duty in Duty] == [0] * len(Duty)


def test_the_embedded_database_has_only_us(tmp_path, request):
    """Nobody else can do the housekeeping of an embedded database: every duty is ours."""
    from compactor.metastore.db.database import Database

    with Database(f"sqlite:///{tmp_path}/x.db", create=True) as database:
        assert all(finding.ours for finding in Housekeeping(database).who_does_it().values())


def test_duties_that_are_done_are_not_ours(shared_database_4, shared_hive_4):
    """With nothing overdue, the duties of a shared Hive 4 metastore are left to Hive."""
    shared_hive_4.write()
    shared_hive_4.begin(silent=HOUR_MS)
    assert not any(finding.ours for finding in Housekeeping(shared_database_4).who_does_it().values())


def test_duties_left_undone_are_found(shared_database_4, shared_hive_4):
    """
    What has been due for long and is still there shows that no service does it: each duty is told by its own evidence.
    """
    hive, schema = shared_hive_4, shared_database_4.schema
    for _ in range(3):
        hive.write(age=5 * HOUR_MS)
    hive.abort(hive.begin(age=5 * HOUR_MS))
    row = {"ws_database": "db", "ws_table": "t", "ws_txnid": 1, "ws_commit_id": 1, "ws_operation_type": "u"}
    hive.change(insert(schema.write_set).values(row))
    hive.write(age=4 * HOUR_MS)
    for _ in range(8):
        hive.finished(start=1)
    housekeeping = Housekeeping(shared_database_4)
    ours = {duty for duty, finding in housekeeping.who_does_it().items() if finding.ours}
    assert {Duty.WRITE_SET, Duty.EMPTY_TRANSACTIONS, Duty.HISTORY} <= ours
    assert Duty.TIME_OUTS not in ours
    housekeeping.run(Duty.WRITE_SET)
    hive.change(delete(schema.txns).where(schema.txns.c.txn_state == "a"))
    assert housekeeping.who_does_it()[Duty.WRITE_ID_MAPPINGS].ours
    hive.begin(silent=2 * DAY_MS)
    finding = housekeeping.who_does_it()[Duty.TIME_OUTS]
    assert finding.ours
    assert "silent" in finding.sentence


@pytest.mark.parametrize("database_3", kinds(SERVERS_3), indirect=True)
def test_hive_3_leaves_two_duties_to_its_initiator(database_3):
    """Whoever replaces 3.1's Initiator must do the two purges that it did."""
    ours = {duty for duty, finding in Housekeeping(database_3).who_does_it().items() if finding.ours}
    assert ours == {Duty.WRITE_ID_MAPPINGS, Duty.EMPTY_TRANSACTIONS}


def test_an_aborted_transaction_with_files_is_never_forgotten(database, hive):
    """However old, an aborted transaction with components stays: absent it would count as committed."""
    aborted, _ = hive.fail_write(age=100 * DAY_MS)
    for _ in range(3):
        hive.write(age=99 * DAY_MS)
    hive.change(
        update(database.schema.txns).where(database.schema.txns.c.txn_id == aborted).values(txn_last_heartbeat=1)
    )
    for duty in Duty:
        Housekeeping(database).run(duty)
    assert aborted in Transactions(database).valid_txns().aborted


def test_mappings_stay_for_whoever_saw_their_transaction_open(database, hive):
    """
    A reader that began while a writer was open may ask for its lists only now: what the writer wrote isn't committed
    for it. When the reader ends, the mapping goes.
    """
    writer = hive.begin()
    write_id = hive.touch(writer)
    reader = hive.begin()
    hive.commit(writer)
    hive.begin()
    housekeeping, mappings = Housekeeping(database), database.schema.txn_to_write_id
    housekeeping.run(Duty.WRITE_ID_MAPPINGS)
    assert hive.rows(mappings, "t2w_writeid") == [(write_id,)]
    hive.commit(reader)
    housekeeping.run(Duty.WRITE_ID_MAPPINGS)
    assert hive.rows(mappings, "t2w_writeid") == []


def test_a_mapping_stays_above_a_smaller_one_that_stays(database, hive):
    """
    Write ids needn't ascend with transactions: the largest mapping found is the high watermark, and one that is
    committed mustn't fall above it.
    """
    early, late = hive.begin(), hive.begin()
    of_late, of_early = hive.touch(late), hive.touch(early)
    hive.commit(early)
    hive.abort(late)
    transactions = Transactions(database)
    before = transactions.valid_write_ids("db.t", transactions.valid_txns())
    assert (before.high_watermark, before.aborted) == (of_early, (of_late,))
    Housekeeping(database).run(Duty.WRITE_ID_MAPPINGS)
    assert transactions.valid_write_ids("db.t", transactions.valid_txns()) == before


def test_an_aborted_transaction_is_kept_while_its_tasks_may_write(database, hive):
    """
    Hive's Cleaner deletes components as soon as it finds no file, and we don't follow: the transaction stays for a day
    after its last heartbeat, and its write id counts as aborted.
    """
    txn_id, _ = hive.fail_write(silent=LATE_MS - 60_000)
    note = Aborts(database)
    note.note_unnamed()
    components = database.schema.txn_components
    hive.change(delete(components).where(components.c.tc_txnid == txn_id))
    hive.write()
    housekeeping, txns = Housekeeping(database), database.schema.txns

    def is_there():
        housekeeping.run(Duty.EMPTY_TRANSACTIONS)
        return hive.rows(txns, "txn_state", where=txns.c.txn_id == txn_id) == [("a",)]

    hive.change(update(txns).values(txn_started=txns.c.txn_started - 120_000))
    assert is_there()
    hive.fall_silent(txn_id)
    assert not is_there()
