"""When a finished compaction may be cleaned: who holds it back, and for how long."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner
from sqlalchemy import delete, update

from compactor.cli.root import cli
from compactor.metastore.clean.readers import MayBeListedError
from compactor.metastore.clean.ready import Cleaning
from compactor.metastore.compaction_queue.properties import encode_properties
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.model import Entity
from compactor.metastore.txn.snapshots import COMPACTION, READ_ONLY
from compactor.reasons import Reason
from tests.metastore.databases import SERVERS_3, kinds
from tests.metastore.ready import compacted, judged, reasons

NEVER_MS = 10**12


def test_with_nobody_reading_it_is_cleaned(database, hive):
    """A finished compaction without open transactions and locks is free; its lists see its own output."""
    hive.write()
    number, txn_id = compacted(database, hive)
    cleaning = Cleaning(database)
    ready = judged(cleaning, number)
    assert ready.blockers == ()
    assert cleaning.write_ids(ready).high_watermark == 1
    if database.schema.generation.layout == "hive-4":
        assert ready.txns.is_valid(txn_id)


def test_directories_that_cannot_be_listed_keep_no_other_from_its_turn(database_3, hive_3):
    """A look reaches two directories in a cycle, and those can't be listed: the next one begins with the others."""
    numbers = [compacted(database_3, hive_3, f"db.t/p={value}")[0] for value in range(3)]
    turns = []

    def look(entries):
        turns.append([entry.id for entry in entries][:2])
        return dict.fromkeys(turns[-1])

    cleaning = Cleaning(database_3, look=look)
    for _ in range(3):
        cleaning.ready_for_cleaning()
    first, second, third = numbers
    assert turns == [[first, second], [third, first], [second, third]]


def test_an_entry_whose_directory_was_not_reached_waits(database_3, hive_3):
    """
    It isn't handed out as one that may be cleaned, and fails there. What can't be listed is: its cleaning says what is
    wrong.
    """
    hive_3.write()
    number, _ = compacted(database_3, hive_3)
    answers = [{}, {}, {number: None}, {number: b"mark"}]
    cleaning = Cleaning(database_3, look=lambda _: answers.pop(0))
    assert reasons(cleaning, number) == reasons(cleaning, number) == [Reason.NOT_OBSERVED]
    assert (reasons(cleaning, number), judged(Cleaning(database_3), number).seen) == ([], None)
    assert judged(cleaning, number).seen == b"mark"


def test_a_reader_from_before_the_commit_holds_it_back(database_4, hive_4):
    """
    A transaction that was open at the commit may read the old files: named with user, host and age. One that began
    later doesn't.
    """
    reader = hive_4.begin(user="carl", kind=READ_ONLY)
    number, _ = compacted(database_4, hive_4)
    cleaning = Cleaning(database_4)
    (blocker,) = judged(cleaning, number).blockers
    assert blocker.reason is Reason.OPEN_TRANSACTION
    assert blocker.sentence.startswith(f"transaction {reader} of carl@client, open for")
    hive_4.commit(reader)
    hive_4.begin()
    assert reasons(cleaning, number) == []


def test_the_newest_transaction_at_the_commit_counts(database_4, hive_4):
    """
    CQ_NEXT_TXN_ID is the highest id at the commit: if just that one is the smallest open, it may still read the old
    files.
    """
    txn_id = hive_4.begin(kind=COMPACTION)
    reader = hive_4.begin()
    hive_4.commit(txn_id)
    number = hive_4.queued(state="r", highest_write_id=1, txn_id=txn_id, next_txn_id=reader, commit_time=1)
    hive_4.change(delete(database_4.schema.min_history_level))
    assert reasons(Cleaning(database_4), number) == [Reason.OPEN_TRANSACTION]


def test_a_young_transaction_row_is_no_proof(database_4, hive_4):
    """While ids around the commit are so young that one of them may be about to appear, cleaning waits."""
    txn_id = hive_4.begin(age=0, kind=COMPACTION)
    hive_4.commit(txn_id)
    number = hive_4.queued(state="r", highest_write_id=1, txn_id=txn_id, next_txn_id=txn_id, commit_time=1)
    (blocker,) = judged(Cleaning(database_4), number).blockers
    assert "about to open" in blocker.sentence


def test_a_reader_who_saw_the_compaction_open_caps_what_is_visible(database_4, hive_4):
    """
    By MIN_HISTORY_LEVEL an open transaction saw the compaction open: its output counts for nothing, and the entry
    waits, whatever CQ_NEXT_TXN_ID says.
    """
    number, txn_id = compacted(database_4, hive_4)
    reader = hive_4.begin()
    history = database_4.schema.min_history_level
    hive_4.change(update(history).where(history.c.mhl_txnid == reader).values(mhl_min_open_txnid=txn_id))
    ready = judged(Cleaning(database_4), number)
    assert not ready.txns.is_valid(txn_id)
    (blocker,) = ready.blockers
    assert blocker.sentence.endswith(f"when it began, transaction {txn_id} may still have been open")


def test_what_became_visible_later_is_not_counted(database_4, hive_4):
    """
    A compaction of the same table that was committed after this one isn't visible in this one's lists: a reader in
    between needs this one's output.
    """
    number, own = compacted(database_4, hive_4)
    later, second = compacted(database_4, hive_4)
    ready = judged(Cleaning(database_4), number)
    assert ready.txns.is_valid(own)
    assert not ready.txns.is_valid(second)
    assert reasons(Cleaning(database_4), later) == [Reason.EARLIER_ENTRY]


def test_what_was_open_at_the_commit_is_not_counted_either(database_4, hive_4):
    """The later compaction had begun before this one was committed: its id is below this one's limit, or just there."""
    before = hive_4.begin()
    hive_4.commit(before)
    number, own = compacted(database_4, hive_4, next_txn=before + 2)
    _, second = compacted(database_4, hive_4, next_txn=before + 3)
    ready = judged(Cleaning(database_4), number)
    assert ready.txns.high_watermark == second == before + 2
    assert (ready.txns.is_valid(own), ready.txns.is_valid(second)) == (True, False)


def test_of_two_commits_without_anybody_in_between_neither_is_later(database_4, hive_4):
    """Whoever reads began before both or after both."""
    before = hive_4.begin()
    hive_4.commit(before)
    found = [compacted(database_4, hive_4, next_txn=before + 2) for _ in range(2)]
    for number, _ in found:
        txns = judged(Cleaning(database_4), number).txns
        assert [txns.is_valid(txn_id) for _, txn_id in found] == [True, True]


def test_two_entries_of_one_partition_go_in_order(database, hive):
    """The smaller write id is cleaned first, whatever the ids; another partition's entry isn't affected."""
    second, _ = compacted(database, hive, "db.t/p=1", write_id=9)
    first, _ = compacted(database, hive, "db.t/p=1", write_id=4)
    other, _ = compacted(database, hive, "db.t/p=2", write_id=20)
    cleaning = Cleaning(database)
    assert reasons(cleaning, first) == []
    assert reasons(cleaning, second) == [Reason.EARLIER_ENTRY]
    assert reasons(cleaning, other) == []


def test_an_entry_whose_transaction_is_open_waits(database_4, hive_4):
    """Hive makes an entry ready before its transaction commits; until then it isn't."""
    txn_id = hive_4.begin(kind=COMPACTION)
    number = hive_4.queued(state="r", highest_write_id=1, txn_id=txn_id)
    assert Reason.NOT_YET_COMMITTED in reasons(Cleaning(database_4), number)


@pytest.mark.parametrize("vanished", [False, True])
def test_an_entry_whose_transaction_was_rolled_back_is_to_be_failed(database_4, hive_4, vanished):
    """
    Its transaction aborted, or gone without ever setting CQ_NEXT_TXN_ID: nothing may be deleted for it, and it must not
    block others for ever.
    """
    txn_id = hive_4.begin(kind=COMPACTION)
    hive_4.abort(txn_id)
    if vanished:
        hive_4.change(delete(database_4.schema.txns).where(database_4.schema.txns.c.txn_id == txn_id))
    number = hive_4.queued(state="r", highest_write_id=1, txn_id=txn_id)
    ready = judged(Cleaning(database_4), number)
    assert ready.failed
    Queue(database_4).mark_failed(ready.entry, "its transaction was rolled back")
    assert Cleaning(database_4).ready_for_cleaning() == []


def test_a_rebalance_is_taken_as_committed(database_4, hive_4):
    """Its commit never sets CQ_NEXT_TXN_ID: whoever was open when it was first seen done must end."""
    reader = hive_4.begin()
    txn_id = hive_4.begin(kind=6)
    number = hive_4.queued(state="r", type="r", highest_write_id=1, txn_id=txn_id)
    cleaning = Cleaning(database_4)
    assert Reason.NOT_YET_COMMITTED in reasons(cleaning, number)
    hive_4.commit(txn_id)
    assert reasons(cleaning, number) == [Reason.OPEN_TRANSACTION]
    hive_4.commit(reader)
    assert reasons(cleaning, number) == []


@pytest.mark.parametrize("kind", ["rebalance", "a directory to remove"])
def test_who_came_while_its_own_transaction_was_open_is_waited_for(database_4, hive_4, kind):
    """
    Neither entry has CQ_NEXT_TXN_ID: who counts is who is there at the first look after the end of its transaction, not
    at the last one before it.
    """
    txn_id = hive_4.begin(kind=6)
    if kind == "rebalance":
        number = hive_4.queued(state="r", type="r", highest_write_id=1, txn_id=txn_id)
    else:
        number = hive_4.queued(
            state="r", txn_id=txn_id, tblproperties=encode_properties({"location": "file:/w/db.db/t"})
        )
    cleaning = Cleaning(database_4)
    assert Reason.NOT_YET_COMMITTED in reasons(cleaning, number)
    reader = hive_4.begin()
    lock = hive_4.lock("db.t", txn_id=reader)
    other = hive_4.lock("db.t")
    (hive_4.commit if kind == "rebalance" else hive_4.abort)(txn_id)
    assert f"transaction {reader} " in "".join(blocker.sentence for blocker in judged(cleaning, number).blockers)
    hive_4.commit(reader)
    (blocker,) = judged(cleaning, number).blockers
    assert f"lock {other} " in blocker.sentence
    assert lock < other
    hive_4.unlock(other)
    hive_4.lock("db.t")
    assert reasons(cleaning, number) == []


def test_an_entry_of_an_older_hive_waits_for_all_who_are_there(database_4, hive_4):
    """Without any transaction noted, transactions and locks that are there at first sight must end."""
    number = hive_4.queued(state="r", highest_write_id=1)
    reader = hive_4.begin()
    cleaning = Cleaning(database_4)
    assert reasons(cleaning, number) == [Reason.OPEN_TRANSACTION]
    hive_4.commit(reader)
    hive_4.begin()
    assert reasons(cleaning, number) == []


def test_retention_keeps_files_after_the_commit(database, hive):
    """
    For readers without transaction files stay for a while after the commit; on 3.1, which notes no time, after the
    entry was first seen.
    """
    number, _ = compacted(database, hive)
    cleaning = Cleaning(database)
    assert reasons(cleaning, number, retention_ms=NEVER_MS) == [Reason.RETENTION]
    assert reasons(cleaning, number) == []


def test_a_failed_cleaning_is_put_off(database_4, hive_4):
    """After an error the entry rests until so long after its commit, with the message in the queue."""
    number, _ = compacted(database_4, hive_4)
    cleaning = Cleaning(database_4)
    entry = judged(cleaning, number).entry
    cleaning.mark_cleaner_start(entry)
    cleaning.retry_later(entry, NEVER_MS, "disk\0 gone")
    assert reasons(cleaning, number) == [Reason.RETENTION]
    found = Queue(database_4).entry(number)
    assert (found.error_message, found.retry_retention_ms, found.cleaner_start_ms) == ("disk gone", NEVER_MS, -1)


@pytest.mark.parametrize("partition", ["p=1", None])
def test_a_lock_from_the_beginning_holds_it_back_on_hive_3(database_3, hive_3, partition):
    """
    On 3.1 whoever held a lock on the partition, or on its table as a whole, when the entry was first seen must let go;
    later ones don't matter.
    """
    number, _ = compacted(database_3, hive_3, "db.t/p=1")
    held = hive_3.lock("db.t", partition)
    hive_3.lock("db.t", "p=2")
    cleaning = Cleaning(database_3)
    (blocker,) = judged(cleaning, number).blockers
    assert blocker.reason is Reason.HELD_LOCK
    assert f"lock {held} (shared read)" in blocker.sentence
    hive_3.lock("db.t", "p=1")
    hive_3.unlock(held)
    assert reasons(cleaning, number) == []


def test_a_transaction_from_the_beginning_holds_it_back_on_hive_3(database_3, hive_3):
    """
    On 3.1 a query has its snapshot before any lock tells of it: whoever was open when the entry was first seen must
    end; there may always be later ones.
    """
    number, _ = compacted(database_3, hive_3)
    reader = hive_3.begin(user="ann")
    cleaning = Cleaning(database_3)
    (blocker,) = judged(cleaning, number).blockers
    assert blocker.reason is Reason.OPEN_TRANSACTION
    assert f"transaction {reader} of ann" in blocker.sentence
    later = hive_3.begin()
    hive_3.commit(reader)
    assert reasons(cleaning, number) == []
    assert reasons(Cleaning(database_3), number) == [Reason.OPEN_TRANSACTION]
    hive_3.abort(later)
    assert reasons(Cleaning(database_3), number) == []


def test_a_restart_forgets_and_waits_again(database_3, hive_3):
    """
    Another Cleaner knows nothing of the first's memory: it waits for whoever is there when it looks, which is only
    slower.
    """
    number, _ = compacted(database_3, hive_3)
    cleaning = Cleaning(database_3)
    assert reasons(cleaning, number) == []
    hive_3.lock("db.t")
    assert reasons(cleaning, number) == []
    assert reasons(Cleaning(database_3), number) == [Reason.HELD_LOCK]


@pytest.fixture
def why(database_3, tmp_path):
    """`compactor why` on the metastore: the transactions that hold cleaning back, by id, each with what is said."""
    config = tmp_path / "compactor.yaml"
    url = database_3.engine.url.render_as_string(hide_password=False)
    config.write_text(f"database:\n  url: {url}\n", encoding="utf-8")

    def run(*target):
        result = CliRunner().invoke(cli, ["--config", str(config), "-o", "json", "why", *target])
        assert result.exit_code == 0, result.stderr
        causes = [found["cause"] for found in json.loads(result.stdout) if found["reason"] == "open-transaction"]
        return {int(cause.split()[1]): cause.partition("; ")[2] for cause in causes}

    return run


ELSEWHERE = "its locks are all elsewhere, on {}; a query of Hive asks for all its locks at once"


@pytest.mark.parametrize("database_3", kinds(SERVERS_3), indirect=True)
def test_why_tells_on_hive_3_by_what_a_transaction_sees_the_table(database_3, hive_3, why):
    """
    Asked for one table, it tells a lock there or a write id of the table from no lock yet, and from locks elsewhere.
    The Cleaner waits for all of them; over all tables nothing is told of one.
    """
    hive_3.add_partitions(hive_3.create_table(keys=(("p", "string"),)), ["p=1", "p=2"])
    number, _ = compacted(database_3, hive_3, "db.t/p=1")
    begun = {
        name: hive_3.begin()
        for name in ("reader", "other partition", "writer", "keeper", "compiling", "other table", "many")
    }
    hive_3.lock("db.t", txn_id=begun["reader"])
    hive_3.lock("db.t", "p=2", txn_id=begun["other partition"])
    hive_3.touch(begun["writer"], partition="p=1")
    hive_3.allocate(begun["keeper"])
    hive_3.allocate(begun["compiling"], "db.another")
    hive_3.touch(begun["other table"], "db.another")
    places = ("db.a", "db.b", "db.c", "db.d", "db.")
    hive_3.ask(begun["many"], *(hive_3.component(name, "p=1" if name == "db.a" else None) for name in places))
    may = "it has no lock yet: it may come to read db.t/p=1"
    expected = {
        "reader": "it has a lock on db.t",
        "other partition": ELSEWHERE.format("db.t/p=2"),
        "writer": "it has a lock on db.t/p=1 and a write id of db.t",
        "keeper": "it has a write id of db.t",
        "compiling": may,
        "other table": ELSEWHERE.format("db.another"),
        "many": ELSEWHERE.format("db, db.a/p=1, db.b, …"),
    }
    told = {begun[name]: words for name, words in expected.items()}
    assert why("db.t/p=1") == why("db.t") == why("db") == told
    held = {blocker.holder.txn_id for blocker in judged(Cleaning(database_3), number).blockers if blocker.holder}
    assert held >= told.keys()
    assert set(why().values()) == {""}
    compacted(database_3, hive_3, "db.t/p=2")
    both = why("db.t")
    assert both[begun["other partition"]] == "it has a lock on db.t/p=2"
    assert both[begun["compiling"]] == "it has no lock yet: it may come to read db.t"
    compacted(database_3, hive_3, "db.another")
    assert set(why("db").values()) == {""}


def test_a_transaction_that_has_ended_is_tied_to_nothing(database_3, hive_3):
    """Its locks went with it: it isn't taken for one that compiles."""
    reader = hive_3.begin()
    hive_3.lock("db.t", txn_id=reader)
    cleaning = Cleaning(database_3)
    assert cleaning.ties(Entity("db", "t"), [reader]) == {reader: "it has a lock on db.t"}
    assert cleaning.ties(Entity("db", "u"), [reader]) == {reader: ELSEWHERE.format("db.t")}
    compiling, keeper = hive_3.begin(), hive_3.begin()
    hive_3.allocate(keeper)
    assert cleaning.ties(Entity("db", "t", "p=1"), [compiling, keeper]) == {
        compiling: "it has no lock yet: it may come to read db.t/p=1",
        keeper: "it has a write id of db.t",
    }
    hive_3.commit(reader)
    assert cleaning.ties(Entity("db", "t"), [reader]) == {}


def test_a_lock_without_transaction_counts_on_hive_4_too(database_4, hive_4):
    """A lock that belongs to no transaction was there: the transaction rule doesn't see it, so it must end as well."""
    number, _ = compacted(database_4, hive_4)
    held = hive_4.lock("db.t")
    cleaning = Cleaning(database_4)
    assert reasons(cleaning, number) == [Reason.HELD_LOCK]
    hive_4.unlock(held)
    assert reasons(cleaning, number) == []


def test_who_registered_other_tables_does_not_hold_this_one_back(database_4, hive_4):
    """
    Where clients register what they read (MIN_HISTORY_WRITE_ID), a long reader of another table doesn't matter; one
    that registered this one, or nothing, does.
    """
    elsewhere, here, unknown = (hive_4.begin(kind=READ_ONLY) for _ in range(3))
    hive_4.register(elsewhere, "db.other", 99)
    hive_4.register(here, "db.t", 99)
    number, txn_id = compacted(database_4, hive_4)
    cleaning = Cleaning(database_4)
    assert len(judged(cleaning, number).blockers) == 2
    hive_4.commit(unknown)
    assert [f"transaction {here} " in blocker.sentence for blocker in judged(cleaning, number).blockers] == [True]
    hive_4.commit(here)
    ready = judged(cleaning, number)
    assert ready.blockers == ()
    assert ready.txns.is_valid(txn_id)


def test_a_transaction_of_several_statements_may_read_any_table(database_4, hive_4):
    """One that isn't read-only may read this table by its next statement, under the snapshot that it has."""
    several = hive_4.begin()
    hive_4.register(several, "db.other", 99)
    number, _ = compacted(database_4, hive_4)
    cleaning = Cleaning(database_4)
    assert reasons(cleaning, number) == [Reason.OPEN_TRANSACTION]
    hive_4.commit(several)
    assert reasons(cleaning, number) == []


def test_who_holds_a_lock_here_counts_whatever_it_registered(database_4, hive_4):
    """A transaction that registered another table only, but holds a lock on this one, holds it back."""
    reader = hive_4.begin()
    hive_4.register(reader, "db.other", 99)
    hive_4.lock("db.t", "p=1", txn_id=reader)
    number, _ = compacted(database_4, hive_4, "db.t/p=1")
    assert Reason.OPEN_TRANSACTION in reasons(Cleaning(database_4), number)


def test_a_young_gap_is_no_reader_of_another_table(database_4, hive_4):
    """
    A transaction whose row is about to appear may turn out to read this table, though all that can be seen have
    registered others.
    """
    elsewhere = hive_4.begin(kind=READ_ONLY)
    hive_4.register(elsewhere, "db.other", 99)
    unseen = hive_4.begin()
    number, _ = compacted(database_4, hive_4)
    txns, level = database_4.schema.txns, database_4.schema.min_history_level
    hive_4.change(delete(txns).where(txns.c.txn_id == unseen))
    hive_4.change(delete(level).where(level.c.mhl_txnid == unseen))
    cleaning = Cleaning(database_4)
    assert reasons(cleaning, number) == []
    hive_4.change(update(txns).where(txns.c.txn_id > unseen).values(txn_started=database_4.read(database_4.now_ms)))
    (blocker,) = judged(cleaning, number).blockers
    assert "about to open" in blocker.sentence


def test_who_may_be_listing_is_waited_for_once(database, hive, monkeypatch):
    """
    From the moment when nothing but an earlier entry of the place holds it back: one after the other the waits would
    add up. What holds it back otherwise meanwhile begins the wait anew. A lock that comes later is told.
    """
    wait, later = 60_000, [0]
    now_ms = database.now_ms
    monkeypatch.setattr(database, "now_ms", lambda connection: now_ms(connection) + later[0])
    first, _ = compacted(database, hive)
    second, _ = compacted(database, hive)
    cleaning = Cleaning(database)
    assert reasons(cleaning, second, listing_wait_ms=wait) == [Reason.EARLIER_ENTRY]
    hive.lock("db.t")
    assert reasons(cleaning, first, listing_wait_ms=wait) == [Reason.MAY_BE_LISTED]
    later[0] = wait
    assert reasons(cleaning, first, listing_wait_ms=wait) == []
    cleaning.mark_cleaned(Queue(database).entry(first))
    assert reasons(cleaning, second, listing_wait_ms=wait) == []
    assert reasons(cleaning, second, listing_wait_ms=wait, retention_ms=10**12) == [Reason.RETENTION]
    assert reasons(cleaning, second, listing_wait_ms=wait) == [Reason.MAY_BE_LISTED]
    item = judged(Cleaning(database), second, listing_wait_ms=0)
    Cleaning(database).check_alone(item)
    with pytest.raises(MayBeListedError):
        Cleaning(database).check_alone(replace(item, unlisted=True))


def test_a_lock_elsewhere_stops_no_removal(database, hive):
    """Of another table, of its database or its name; one of the table itself, or of any of its partitions, does."""
    number, _ = compacted(database, hive)
    item = replace(judged(Cleaning(database), number), unlisted=True)
    for name in ("db.u", "other.t"):
        hive.lock(name)
    Cleaning(database).check_alone(item)
    hive.lock("db.t", "p=1")
    with pytest.raises(MayBeListedError):
        Cleaning(database).check_alone(item)
