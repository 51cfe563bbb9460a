"""`compactor why`: each cause once, with what it holds back and what ends it."""

import json
import shlex

import pytest
from sqlalchemy import insert, select, update

from compactor.acid.compaction import CompactionKind
from compactor.control import Denial, Scope
from compactor.control.waits import Workers
from compactor.coordination import Member, Role, SeenMember
from compactor.coordination.model import POOLS
from compactor.coordination.sql.coordinator import DatabaseCoordinator
from compactor.metastore.clean.may_clean import Blocker
from compactor.metastore.model import Entity, HeldLock, OpenTransaction, QueueEntry, QueueState
from compactor.planning.picker import Skip
from compactor.reasons import Reason
from compactor.roles.pauses import workers_of
from compactor.status.causes import Alike, Cause, Hindrance, record
from compactor.status.daemons import Daemons
from tests.demo.rows import CatalogRows, MetastoreLedger
from tests.demo.warehouse import Warehouse
from tests.metastore.actor import Hive

TXN = OpenTransaction(17, "ann", "edge", 0, 0, 3 * 3_600_000)
LOCK = HeldLock(5, 1, 0, "shop", "orders", None, "a", "r", "bob", "hue", 0)

LATE = "1 aborted transaction can't be forgotten yet: tasks may still write (cleaner.late_writer_hours)"


def daemon(*roles, pools=None):
    extra = {} if pools is None else {POOLS: pools}
    return SeenMember(Member("i", "h", 1, "1", roles, extra=extra), (), 0)


@pytest.mark.parametrize(
    ("blockers", "denial", "kept", "daemons", "expected"),
    [
        (
            [Blocker(Reason.OPEN_TRANSACTION, "…", TXN)],
            None,
            None,
            [],
            [("transaction 17 of ann@edge, open for 3 h", "ABORT TRANSACTIONS 17 (in Hive), if its client is gone")],
        ),
        (
            [Blocker(Reason.HELD_LOCK, "…", LOCK), Blocker(Reason.RETENTION, "kept for another 3 s")],
            None,
            None,
            [],
            [
                (
                    "lock 5 (shared read) on shop.orders by bob@hue",
                    "the end of the query of bob@hue, or hive.txn.timeout without a heartbeat",
                ),
                ("files are kept for a while after the commit", "time: cleaner.retention_seconds"),
            ],
        ),
        (
            [],
            Denial(Reason.PAUSED, "paused by ann", scope=Scope.parse("rack:7")),
            "no_cleanup is set for shop.orders",
            [daemon("cleaner")],
            [
                ("paused by ann", "compactor resume --every, which ends all pauses"),
                ("no_cleanup is set for shop.orders", "ALTER TABLE … UNSET TBLPROPERTIES ('no_cleanup')"),
            ],
        ),
        ([], None, None, [daemon("worker")], [("no daemon is the Cleaner", "compactor run, with cleaner.enabled")]),
        *[
            ([], None, None, daemons, [("nothing: the Cleaner's next cycle removes what was replaced", "time")])
            for daemons in ([daemon("cleaner")], None)
        ],
    ],
)
def test_what_holds_back_cleaning(blockers, denial, kept, daemons, expected):
    """A transaction or a lock is named with what ends it; what is the same for all entries is said once."""
    stays = None if kept is None else Skip(Reason.NO_CLEANUP, kept)
    unattended = Daemons(members=daemons).lack(Role.CLEANER)
    causes = Hindrance(tuple(blockers), denial, stays, unattended).causes()
    assert [(cause.sentence, cause.remedy) for cause in causes] == expected


def test_a_daemon_tells_its_pools():
    """As `describe` writes them; anything else means that it doesn't say. One without workers is left out."""
    alive = [daemon("worker", pools=["a", "b"]), daemon("worker", pools="a"), daemon("cleaner", pools=["c"])]
    assert workers_of(alive) == (Workers("h", frozenset("ab")), Workers("h", None))


def made_ready(shop, *names):
    """Compactions of these tables are committed, as far as the queue knows, while the shop's writer is open."""
    for name in names:
        assert shop.run("enqueue", name).exit_code == 0
    with shop.open() as database:
        queue = database.schema.compaction_queue
        hive = Hive(database)
        (highest,) = max(hive.rows(database.schema.txns, "txn_id"))
        values = {"cq_state": "r", "cq_highest_write_id": 1, "cq_next_txn_id": highest, "cq_commit_time": 1}
        database.write(lambda connection: connection.execute(update(queue).values(values)))


def test_one_transaction_that_holds_back_two_tables_is_shown_once(shop):
    """With both entries, their bytes, and the statement that ends it; what only waits comes after."""
    with shop.open() as database:
        warehouse = Warehouse(shop.root / "warehouse", MetastoreLedger(database), CatalogRows(database))
        more = warehouse.create_table("other", "more", [("id", "int")])
        with warehouse.begin() as txn:
            txn.insert(more, [(1,)])
    made_ready(shop, "shop.orders", "other.more")
    shop.run("enqueue", "shop.events", "--partition", "day=2024-01-01/path=a%2Fb", "--pool", "night")
    first, second = shop.json("why")
    assert (first["holds"], first["reason"], first["entries"], first["tables"]) == (
        "cleaning",
        "open-transaction",
        2,
        2,
    )
    assert first["cause"].startswith("transaction ")
    assert first["remedy"].startswith("ABORT TRANSACTIONS ")
    assert first["since_ms"] > 0
    assert (second["holds"], second["reason"], second["cause"]) == ("compaction", "no-worker", "no daemon has workers")
    assert [len(found) for found in map(shop.json, ["why"] * 2)] == [2, 2]
    narrowed = {
        target: [(found["entries"], found["holds"]) for found in shop.json("why", target)]
        for target in ("other", "SHOP.Orders", "shop.events", "shop.events/day=2024-01-01/path=a%2Fb")
    }
    assert narrowed == {
        "other": [(1, "cleaning")],
        "SHOP.Orders": [(1, "cleaning")],
        "shop.events": [(1, "compaction")],
        "shop.events/day=2024-01-01/path=a%2Fb": [(1, "compaction")],
    }


@pytest.mark.parametrize("held", ["cleaning", "compaction"])
@pytest.mark.parametrize(
    "scope",
    [
        "--all",
        "--pool night",
        '--pool "a\'b"',
        "--database SHOP",
        "--database 's*'",
        "--table shop.orders",
        "--table 's*.o?ders'",
    ],
)
def test_the_command_for_a_pause_ends_it(shop, held, scope):
    """As it is printed, a shell may run it: with the pause's own scope, quoted."""
    words = shlex.split(scope)
    pool = words if words[0] == "--pool" else []
    shop.run("enqueue", "shop.orders", *pool)
    if held == "cleaning":
        with shop.open() as database:
            queue = database.schema.compaction_queue
            ready = {"cq_state": "r", "cq_highest_write_id": 1, "cq_next_txn_id": 1, "cq_commit_time": 1}
            database.write(lambda connection: connection.execute(update(queue).values(ready)))
    assert shop.run("pause", *words, "--reason", "month end", "--cleaner").exit_code == 0
    (remedy,) = [found["remedy"] for found in shop.json("why") if (found["holds"], found["reason"]) == (held, "paused")]
    program, *command = shlex.split(remedy)
    assert (program, command[:2]) == ("compactor", ["resume", words[0]])
    assert shop.run(*command).exit_code == 0
    assert shop.json("pauses") == []


def test_bytes_are_those_that_no_query_reads(shop):
    """Of the shop's orders an aborted insert lies there; with --measure 0 nothing is listed, and that is said."""
    made_ready(shop, "shop.orders")
    (found,) = shop.json("why")
    assert found["bytes"] > 100
    result = shop.run("-o", "json", "why", "--measure", "0")
    assert json.loads(result.stdout)[0]["bytes"] is None
    shown = shop.run("why", "--measure", "0")
    assert shown.stderr == f"of 1 directory it isn't known how many bytes; {LATE}\n"
    assert "ABORT TRANSACTIONS" in " ".join(shown.stdout.split())


def test_aborted_writes_that_cannot_be_cleaned_are_listed(shop):
    """By what the Cleaner noted of them, once for all that wait for the same; and a pause of cleaning beside it."""
    why_not = "rows of 5 aborted writes lie among committed ones until a major compaction is cleaned"
    with shop.open() as database:
        hive = Hive(database)
        for entity in ("shop.orders", "shop.events"):
            hive.queued(entity, state="r", type="c", error_message=why_not)
        hive.queued("mart.other", state="r", type="c")
    causes = {one["cause"]: (one["entries"], one["holds"], one["ids"]) for one in shop.json("why")}
    assert causes == {
        why_not: (2, "cleaning", [1, 2]),
        "what aborted writes left couldn't be removed": (1, "cleaning", [3]),
    }
    shop.run("pause", "--table", "shop.orders", "--reason", "x", "--cleaner")
    assert [one["reason"] for one in shop.json("why", "shop.orders")] == ["retention", "paused"]


def test_what_stays_on_purpose_is_said(shop):
    """A table with `no_cleanup` is a cause of its own, beside the transaction that holds its entry back."""
    made_ready(shop, "shop.orders")
    with shop.open() as database:
        tbls, parameters = database.schema.tbls.c, database.schema.table_params
        orders = select(tbls.tbl_id).where(tbls.tbl_name == "orders").scalar_subquery()
        values = {"tbl_id": orders, "param_key": "no_cleanup", "param_value": "true"}
        database.write(lambda connection: connection.execute(insert(parameters).values(values)))
    causes = {found["reason"]: (found["entries"], found["cause"], found["ids"]) for found in shop.json("why")}
    assert set(causes) == {"open-transaction", "no-cleanup"}
    entries, sentence, ids = causes["no-cleanup"]
    assert (entries, sentence) == (1, "no_cleanup is set for shop.orders: replaced files stay")
    assert ids == causes["open-transaction"][2]


def test_a_cause_of_entries_with_others_counts_all_of_them_once():
    """Entries that share only one of their causes add up; what is counted twice is a table, and no bytes."""
    a, b = Entity("shop", "a", "p=1"), Entity("shop", "a", "p=2")
    entries = [
        QueueEntry(number, entity, CompactionKind.MAJOR, QueueState.READY_FOR_CLEANING, commit_ms=1000 * number)
        for number, entity in ((3, a), (5, b), (4, b))
    ]
    sizes = {a: 7, b: 11}
    cause = Cause("cleaning", "open-transaction", "a transaction", "its end")
    found = record(cause, [Alike.of(entries[:2], sizes), Alike.of(entries[2:], sizes)], sizes, 10_000)
    assert (found["ids"], found["entries"], found["tables"], found["bytes"]) == ([3, 4, 5], 3, 1, 18)
    assert (found["since_ms"], found["example"]) == (7000, "shop.a/p=1")
    unmeasured = record(cause, [Alike.of(entries[2:], {})], {}, 10_000)
    assert (unmeasured["bytes"], unmeasured["since_ms"], unmeasured["example"]) == (None, 6000, "shop.a/p=2")


def test_nothing_waits_and_wrong_names(shop):
    """
    An empty answer says so, and what the metastore can't forget yet; a database or table that isn't there is refused
    with a near name.
    """
    assert sorted(shop.run("why").stderr.splitlines()) == [LATE, "nothing waits"]
    assert shop.run("why", "shop.orders").stderr == "nothing waits\n"
    for wrong, said in (("shpo", "no database shpo (did you mean shop?)"), ("shop.order", "did you mean shop.orders?")):
        result = shop.run("why", wrong)
        assert result.exit_code == 4
        assert said in result.stderr


def test_the_queue_says_that_no_worker_serves_a_pool(shop):
    """Of an entry of another pool nothing is said; without any daemon, that none has workers."""
    shop.run("enqueue", "shop.orders", "--pool", "night")
    shop.run("enqueue", "shop.events", "--partition", "day=2024-01-01/path=a%2Fb")
    assert [one["waits"] for one in shop.json("queue")] == ["no-worker", "no-worker"]
    with shop.open() as database:
        coordinator = DatabaseCoordinator(database, 5)
        coordinator.join(Member("i", "h", 1, "1", ("worker",), extra={POOLS: ["default"]}), ())
        first, second = shop.json("queue")
        (cause,) = shop.json("why", "shop.orders")
        coordinator.close()
    assert (first["waits"], first["waits_because"]) == ("no-worker", "no worker serves pool night")
    assert second["waits"] is None
    assert cause["cause"] == "no worker serves pool night"


def test_a_drain_is_a_cause_once_all_workers_of_the_pool_are_drained(shop):
    """Not while another host serves the pool; the command that is printed undoes it, and then the entry is free."""
    shop.run("enqueue", "shop.orders")
    with shop.open() as database:
        coordinators = [DatabaseCoordinator(database, 5) for _ in range(3)]
        served = {"h1": ["default"], "h2": ["default"], "h3": ["day"]}
        for where, (host, pools) in zip(coordinators, served.items(), strict=True):
            where.join(Member(host, host, 1, "1", ("worker",), extra={POOLS: pools}), ())
        found = []
        for host in ("h2", "h1"):
            assert shop.run("drain", host, "--reason", "new disks").exit_code == 0
            found.append([shop.json("queue")[0]["waits"], shop.json("why")[0]["reason"]])
        (cause,) = shop.json("why")
        assert shop.run(*shlex.split(cause["remedy"])[1:]).exit_code == 0
        assert shop.json("queue")[0]["waits"] is None
        for where in coordinators:
            where.close()
    assert found == [[None, ""], ["drained", "drained"]]
    assert cause["cause"].startswith("host h1 is drained by ")
    assert cause["remedy"] == "compactor drain h1 --undo"
