"""explain and plan on a real warehouse: what is drawn, what is said, what is refused; nothing is changed."""

import json
import shutil

import pytest

from compactor.acid.compaction import CompactionKind
from compactor.metastore.catalog import Catalog
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.model import Entity
from compactor.metastore.txn.snapshots import READ_ONLY
from compactor.metastore.txn.transactions import Transactions
from compactor.settings import ReaderSettings
from compactor.status.judging import look
from tests.demo.rows import CatalogRows, MetastoreLedger
from tests.demo.warehouse import Warehouse
from tests.metastore.actor import Hive


def test_explain_draws_every_directory(shop):
    """
    Each directory has a standing: 12 inserts and a delete are read, one is aborted, one waits for a writer that is
    named.
    """
    told = shop.json("explain", "shop.orders")
    standings = {}
    for item in told["items"]:
        standings.setdefault(item["standing"], []).append(item["name"])
    assert {standing: len(names) for standing, names in standings.items()} == {
        "delta": 12,
        "delete delta": 1,
        "aborted": 1,
        "not visible": 1,
    }
    assert told["read"]["directories"] == 13
    assert [sentence.partition(", open for")[0] for sentence in told["open_writers"]] == [
        "write id 15 is open: transaction 17 of hive@demo"
    ]
    (waiting,) = [item for item in told["items"] if item["standing"] == "not visible"]
    assert "hive@demo" in waiting["note"]
    assert all(item["input"] == (item["standing"] in ("delta", "delete delta")) for item in told["items"])


def test_explain_says_why_it_is_due(shop):
    """13 deltas without a base are more than 10: due for a major compaction, with what it would make."""
    told = shop.json("explain", "shop.orders")
    assert (told["verdict"]["due"], told["verdict"]["kind"], told["verdict"]["reason"]) == (
        True,
        "major",
        "delta-count",
    )
    assert told["compaction"]["possible"] is True
    assert told["compaction"]["directories"] == ["base_0000013"]


def test_explain_says_what_an_entry_comes_before(shop):
    """A person's request while it waits: how far ahead it is, and why; programs get the number."""
    shop.run("enqueue", "shop.orders")
    shown = shop.run("explain", "shop.orders").stdout
    words = "urgency 4: workers claim it before what was queued up to 24 h earlier, because a person asked for it"
    assert words in " ".join(shown.split())
    assert shop.json("explain", "shop.orders")["queue"][0]["urgency"] == 4
    with shop.open() as database:
        Queue(database).claim("w", "1")
    assert "urgency" not in shop.run("explain", "shop.orders").stdout


def test_explain_says_why_it_is_not_due(shop):
    """A partition with one delta is below the thresholds; a compaction of it would be refused."""
    told = shop.json("explain", "shop.events/day=2024-01-01/path=a/b")
    assert told["verdict"]["due"] is False
    assert told["partition"] == "day=2024-01-01/path=a%2Fb"


@pytest.mark.parametrize("target", ["shop.orders", "shop.events/day=2024-01-01/path=a/b"])
def test_explain_draws_what_has_a_threshold_that_is_no_number(shop, target):
    """The property is named as the reason why the Initiator doesn't queue it; everything else is still told."""
    with shop.open() as database:
        hive = Hive(database)
        ((number,),) = hive.rows(database.schema.dbs, "db_id", where=database.schema.dbs.c.name == "shop")
        key = "compactorthreshold.hive.compactor.delta.num.threshold"
        hive.change(database.schema.database_params.insert().values(db_id=number, param_key=key, param_value="many"))
    told = shop.json("explain", target)
    assert (told["verdict"]["due"], told["verdict"]["reason"]) == (False, "bad-property")
    assert key in told["verdict"]["explanation"]
    assert told["items"]
    assert shop.run("explain", target.partition("/")[0]).exit_code == 0


def test_explain_says_that_it_is_queued(shop):
    """What waits in the queue isn't due again, and the entry is told."""
    shop.json("enqueue", "shop.orders")
    told = shop.json("explain", "shop.orders")
    assert told["verdict"]["reason"] == "already-queued"
    assert [entry["state"] for entry in told["queue"]] == ["initiated"]


def test_explain_names_what_holds_back_cleaning(shop):
    """An open transaction that began before the compaction ended is named with user and host."""
    shop.json("enqueue", "shop.orders")
    with shop.open() as database:
        queue, transactions = Queue(database), Transactions(database)
        txn = transactions.open_compaction("hive", "edge1")
        entry = queue.claim("compactor-edge1-x-1", "test")
        queue.set_compactor_state(entry, txn, 13, "hive")
        queue.mark_compacted_and_commit(entry, "compactor-edge1-x-1", txn)
    told = shop.json("explain", "shop.orders")
    (cleaning,) = told["cleaning"]
    assert {blocker["reason"] for blocker in cleaning["blockers"]} >= {"open-transaction"}
    assert any("hive@demo" in blocker["sentence"] for blocker in cleaning["blockers"])
    assert "waits" in shop.run("explain", "shop.orders").stdout


def test_explain_for_people(shop):
    """The drawing has the directories, the verdict, and the cost; --all draws every directory."""
    drawn = shop.run("explain", "shop.orders")
    assert drawn.exit_code == 0, drawn.stderr
    for said in (
        "shop.orders",
        "● delta_0000001_0000001_0000",
        "due for a major compaction",
        "hive@demo",
        "base_0000013",
    ):
        assert said in drawn.stdout


def test_explain_lists_the_partitions_of_a_table(shop):
    """A partitioned table is a list of its partitions with what each needs."""
    told = shop.json("explain", "shop.events")
    assert sorted(row["partition"] for row in told) == ["day=2024-01-01/path=a%2Fb", "day=2024-01-02/path=x y"]
    assert all(row["due"] is None and row["directories"] == 1 for row in told)


@pytest.mark.parametrize("command", ["explain", "plan"])
@pytest.mark.parametrize(
    ("target", "code", "said"),
    [
        ("shop.ordrs", 4, "did you mean"),
        ("shop.plain", 4, "isn't a transactional table"),
        ("nothing", 2, "DATABASE.TABLE"),
    ],
)
def test_wrong_names_are_answered_with_the_right_ones(shop, command, target, code, said):
    """The same refusals as for enqueue."""
    result = shop.run(command, target)
    assert result.exit_code == code
    assert said in result.stderr


def test_plan_shows_what_would_be_done(shop):
    """
    The plan covers what a compaction may take: write ids up to 13, one output file, the delete applied; JSON is the
    plan itself.
    """
    plan = shop.json("plan", "shop.orders")
    assert plan["compaction-plan"] == 1
    assert (plan["name_write_id"], plan["kind"], [output["name"] for output in plan["outputs"]]) == (
        13,
        "major",
        ["base_0000013"],
    )
    table = shop.run("plan", "shop.orders")
    assert "cost: reads" in table.stdout
    tsv = shop.run("-o", "tsv", "plan", "shop.orders").stdout.splitlines()
    assert len(tsv) == 2


def test_plan_of_too_little_is_nothing_to_do(shop):
    """One delta is nothing to merge: exit 3 with a sentence."""
    result = shop.run("plan", "shop.events/day=2024-01-02/path=x y", "--type", "minor")
    assert result.exit_code == 3
    assert result.stdout == ""
    assert result.stderr.startswith("nothing to do: ")


def test_looking_changes_nothing(shop, built):
    """After explain and plan, queue and history are empty, no transaction was opened, and no file was made."""

    def state():
        files = sorted(str(path) for path in (built / "warehouse").rglob("*"))
        with shop.open() as database:
            return files, Transactions(database).snapshot(), Queue(database).entries(), Queue(database).history()

    before = state()
    for command in ("explain", "plan"):
        assert shop.run(command, "shop.orders").exit_code == 0
    assert state() == before


def test_an_unknown_directory_is_shown_and_refused(shop, built, tmp_path):
    """A directory that no rule explains is drawn as unknown, and the plan is refused for it."""
    stray = built / "warehouse" / "shop.db" / "orders" / "backup"
    stray.mkdir()
    try:
        told = shop.json("explain", "shop.orders")
        assert [item["name"] for item in told["items"] if item["standing"] == "unknown"] == ["backup"]
        assert told["verdict"]["reason"] == "unknown-name"
        assert told["compaction"]["possible"] is False
        assert shop.run("plan", "shop.orders").exit_code == 4
    finally:
        stray.rmdir()


def test_no_cleanup_is_told_of_what_would_be_refused_too(shop, built):
    """
    An operator who mends what the plan is refused for knows that replaced files will stay; in the drawing and for
    programs.
    """
    with shop.open() as database:
        hive = Hive(database)
        ((number,),) = hive.rows(database.schema.tbls, "tbl_id", where=database.schema.tbls.c.tbl_name == "orders")
        hive.change(
            database.schema.table_params.insert().values(tbl_id=number, param_key="no_cleanup", param_value="true")
        )
    warning = "no_cleanup is set for shop.orders: replaced files stay"
    for possible in (True, False):
        if not possible:
            stray = built / "warehouse" / "shop.db" / "orders" / "backup"
            stray.mkdir()
        try:
            told = shop.json("explain", "shop.orders")["compaction"]
            assert (told["possible"], told["warnings"]) == (possible, [warning])
            assert f"warning: {warning}" in " ".join(shop.run("explain", "shop.orders").stdout.split())
        finally:
            if not possible:
                stray.rmdir()


def test_partitions_whose_compactions_fail_are_not_due_in_the_list_either(shop):
    """As of one partition, and as the Initiator."""
    partition = "day=2024-01-01/path=a%2Fb"
    with shop.open() as database:
        queue, entity = Queue(database), Entity("shop", "events", partition)
        for _ in range(2):
            queue.enqueue(entity, CompactionKind.MAJOR)
            queue.mark_failed(queue.claim("compactor-edge1-x-1", "test"), "broke")
    reasons = {row["partition"]: row["reason"] for row in shop.json("explain", "shop.events")}
    assert (
        reasons[partition]
        == shop.json("explain", f"shop.events/{partition}")["verdict"]["reason"]
        == "failed-too-often"
    )


def test_a_missing_directory_is_one_line(shop, built):
    """A partition whose directory is gone: refused, with the place."""
    place = built / "warehouse" / "shop.db" / "events" / "day=2024-01-02" / "path=x y"
    hidden = built / "hidden"
    shutil.move(place, hidden)
    try:
        result = shop.run("explain", "shop.events/day=2024-01-02/path=x y")
        assert result.exit_code == 4
        assert "path=x y" in result.stderr
        assert len(result.stderr.splitlines()) == 1
        rows = {
            row["partition"]: row["reason"]
            for row in json.loads(shop.run("-o", "json", "explain", "shop.events").stdout)
        }
        assert rows["day=2024-01-02/path=x y"] == "location-missing"
    finally:
        shutil.move(hidden, place)


def test_a_truncated_file_is_told_by_name(shop, built):
    """
    A bucket file that ends too early: explain says that a compaction would be refused, plan refuses with the file's
    name.
    """
    path = next((built / "warehouse" / "shop.db" / "orders" / "delta_0000003_0000003_0000").glob("bucket_*"))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    try:
        result = shop.run("plan", "shop.orders")
        assert result.exit_code == 4
        assert "delta_0000003_0000003_0000" in result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert shop.json("explain", "shop.orders")["compaction"]["possible"] is False
    finally:
        path.write_bytes(whole)


def test_the_writer_of_an_open_write_id_is_found(shop):
    """An unread directory's write id leads to its open transaction."""
    with shop.open() as database:
        table = Catalog(database).find_table("shop", "orders")
        moment = look(database, table, ReaderSettings())
    assert table.entity == Entity("shop", "orders")
    assert set(moment.writers.values()) <= set(moment.open)
    assert moment.writers


def test_a_query_that_has_been_open_for_days_is_no_writer(shop):
    """How long the oldest writer has been open is told by those that may write."""
    with shop.open() as database:
        Hive(database).begin(age=3 * 86_400_000, kind=READ_ONLY)
        moment = look(database, Catalog(database).find_table("shop", "orders"), ReaderSettings())
    assert moment.oldest_open_ms < 86_400_000 <= max(txn.age_ms for txn in moment.open.values())


def test_a_compaction_in_parts_says_why(shop, monkeypatch):
    """What would be done now is drawn, with the limit that divided it; the plan's document has it for programs."""
    monkeypatch.setenv("COMPACTOR_LIMITS__DELTAS", "5")
    why = "planned in 4 parts because 13 deltas are more than limits.deltas = 5; now a minor of 5 deltas, write ids 1 to 5"
    told = shop.json("explain", "shop.orders")["compaction"]
    assert (told["kind"], told["directories"], told["warnings"]) == ("minor", ["delta_0000001_0000005"], [why])
    assert why in " ".join(shop.run("explain", "shop.orders").stdout.split())
    assert shop.json("plan", "shop.orders", "--type", "major")["parts"] == {"total": 4, "reason": why, "wait": False}


def test_a_compaction_that_can_not_be_made_small_enough_says_so(shop, monkeypatch):
    """With the figures, before anybody asks for it."""
    monkeypatch.setenv("COMPACTOR_LIMITS__SCRATCH_BYTES", "10")
    told = shop.json("explain", "shop.orders")["compaction"]
    assert (told["possible"], told["reason"]) == (False, "limit-exceeded")
    assert "limits.scratch_bytes" in told["message"]


def test_explain_tells_of_a_stranded_stream(shop):
    """Why nothing is compacted, what can't be read, and that a compaction now would be refused."""
    with shop.open() as database:
        warehouse = Warehouse(shop.root / "stranded", MetastoreLedger(database), CatalogRows(database))
        table = warehouse.create_table("stream", "t", [("id", "int")])
        with warehouse.begin() as txn:
            txn.overwrite(table, [(1,)])
        batch = warehouse.stream(table, [[(2,)], [(3,)]])
        batch.finish(0, commit=True)
        batch.finish(1, commit=False)
        batch.close()
        (base,) = table.location.glob("base_*")
        base.rename(base.with_name("base_0000002_v0000001"))
    told = shop.json("explain", "stream.t")
    assert told["verdict"]["reason"] == told["compaction"]["reason"] == "stranded-stream"
    (finding,) = told["verdict"]["findings"]
    assert finding.startswith(
        "delta_0000002_0000003 lies across base_0000002_v0000001, and all of it above was rolled back"
    )
    assert finding in shop.run("explain", "stream.t").stdout
    result = shop.run("plan", "stream.t")
    assert (result.exit_code, finding in result.stderr) == (4, True)


def test_a_source_of_replication_without_a_root_is_said_and_never_queued(shop):
    """explain, plan and enqueue tell the same, and what to set."""
    with shop.open() as database:
        hive = Hive(database)
        ((number,),) = hive.rows(database.schema.dbs, "db_id", where=database.schema.dbs.c.name == "shop")
        hive.change(
            database.schema.database_params.insert().values(
                db_id=number, param_key="repl.source.for", param_value="policy"
            )
        )
    told = shop.json("explain", "shop.orders")
    assert (told["verdict"]["due"], told["verdict"]["reason"]) == (False, "replication-source")
    assert (told["compaction"]["possible"], told["compaction"]["reason"]) == (False, "replication-source")
    for command in ("enqueue", "plan"):
        refused = shop.run(command, "shop.orders")
        assert refused.exit_code == 4
        assert "hdfs.change_management_root isn't set" in refused.stderr
    assert shop.json("queue") == []
