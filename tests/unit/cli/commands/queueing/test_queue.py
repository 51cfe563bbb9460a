"""enqueue, queue and history on a real embedded metastore."""

import json
import re
import threading
from pathlib import Path

import pytest
from sqlalchemy import update

from compactor.acid.compaction import CompactionKind
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.model import Entity, QueueState
from tests.metastore.actor import Hive

NOBODY = "it waits (no-worker): no daemon has workers"


def test_enqueue_puts_the_entry_where_hive_would(shop):
    """The row says initiated, which kind, which properties, which pool, and that a person on this host asked."""
    said = shop.json(
        "enqueue", "Shop.ORDERS", "--type", "minor", "--property", "orc.compress=ZSTD", "--pool", "nightly"
    )
    assert said["accepted"] is True
    with shop.open() as database:
        (entry,) = Queue(database).entries()
    assert (entry.id, entry.entity, entry.kind, entry.state) == (
        said["id"],
        Entity("shop", "orders"),
        CompactionKind.MINOR,
        QueueState.INITIATED,
    )
    assert (dict(entry.properties), entry.pool, entry.initiator_id) == (
        {"orc.compress": "ZSTD"},
        "nightly",
        "edge1-manual",
    )


def test_enqueue_says_which_properties_it_drops(shop):
    """One line, also for programs; what may be asked for is queued."""
    asked = [
        word for one in ("location=file:/w/x", "ifPurge=true", "orc.compress=ZSTD") for word in ("--property", one)
    ]
    result = shop.run("-o", "json", "enqueue", "shop.orders", *asked)
    warning = "dropped ifPurge, location: such properties are set by Hive or the daemon only"
    assert result.stderr == f"warning: {warning}\n{NOBODY}\n"
    assert json.loads(result.stdout)["warnings"] == [warning]
    assert shop.json("queue")[0]["properties"] == {"orc.compress": "ZSTD"}


@pytest.mark.parametrize("of", ["table", "partition"])
def test_enqueue_plan_and_explain_warn_that_what_is_replaced_stays(shop, of):
    """`no_cleanup` of the table or the partition: said, not refused."""
    name, target = ("orders", "shop.orders") if of == "table" else ("events", "shop.events/day=2024-01-01/path=a%2Fb")
    with shop.open() as database:
        hive, schema = Hive(database), database.schema
        if of == "table":
            ((number,),) = hive.rows(schema.tbls, "tbl_id", where=schema.tbls.c.tbl_name == name)
            hive.change(schema.table_params.insert().values(tbl_id=number, param_key="no_cleanup", param_value="true"))
        else:
            ((number,),) = hive.rows(
                schema.partitions, "part_id", where=schema.partitions.c.part_name == target.partition("/")[2]
            )
            hive.change(
                schema.partition_params.insert().values(part_id=number, param_key="no_cleanup", param_value="true")
            )
    warning = f"no_cleanup is set for {target}: replaced files stay"
    for command in (
        ("plan", "explain") if of == "table" else ("explain",)
    ):  # the partition holds a single delta: nothing to plan
        told = shop.json(command, target)
        assert told.get("compaction", told)["warnings"] == [warning]
        assert f"warning: {warning}" in " ".join(shop.run(command, target).stdout.split())
    result = shop.run("-o", "json", "enqueue", target)
    assert (result.exit_code, result.stderr) == (0, f"warning: {warning}\n{NOBODY}\n")
    assert json.loads(result.stdout)["warnings"] == [warning]


def test_enqueue_twice_is_nothing_to_do(shop):
    """What is queued already isn't queued again: exit 3, and the entry in the way is shown."""
    first = shop.json("enqueue", "shop.orders")
    again = shop.run("-o", "json", "enqueue", "shop.orders", "--type", "minor")
    assert again.exit_code == 3
    shown = json.loads(again.stdout)
    assert (shown["id"], shown["kind"]) == (first["id"], "major")


def test_the_type_may_be_written_as_in_sql(shop):
    """COMPACT 'MAJOR' is what Hive's manual says."""
    assert shop.json("enqueue", "shop.orders", "--type", "MAJOR")["kind"] == "major"


@pytest.mark.parametrize("spec", ["day=2024-01-01/path=a%2Fb", "day=2024-01-01/path=a/b", "PATH=a%2fb/day=2024-01-01"])
def test_a_partition_may_be_written_in_several_ways(shop, spec):
    """Escaped, as it is, keys in another order: the entry names the partition as the metastore does."""
    assert shop.json("enqueue", "shop.events", "--partition", spec)["entity"] == "shop.events/day=2024-01-01/path=a%2Fb"


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["shop.order"], 4, "did you mean shop.orders?"),
        (["shap.orders"], 4, "did you mean shop?"),
        (["shop.plain"], 4, "isn't a transactional table"),
        (["shop.events"], 4, "name one partition, such as shop.events/day="),
        (["shop.events/day=2024-01-03/path=x y"], 4, "did you mean day=2024-01-02/path=x y"),
        (["shop.events/day=2024-01-01"], 2, "day=…/path=…"),
        (["shop.orders/day=1"], 2, "has no partitions"),
        (["orders"], 4, "there is no database orders; a table is written DATABASE.TABLE"),
        (["shop.orders", "--property", "novalue"], 2, "KEY=VALUE"),
        (["shop.orders", "--type", "huge"], 2, "major"),
        (["shop.orders", "--timeout", "5"], 2, "--wait"),
        (["shop.orders", "--wait", "--timeout", "nan"], 2, "no number of seconds"),
        (["shop.order\x1b[2J"], 4, r"shop.order\x1b[2j"),
        (["shop.orders", "--property", "k=" + "x" * 3000], 2, "2048"),
        (["shop.orders", "--property", "k=a", "--property", "k=b"], 2, "k is given twice, as 'a' and as 'b'"),
        (["shop.orders", "--property", "compactor.urgency=5"], 2, "compactor.urgency is '5', not 0 to 4"),
        (["shop.orders", "--pool", "x" * 129], 2, "128"),
        (["shop.orders", "--pool", " "], 2, "' ' is no name"),
    ],
)
def test_what_cannot_be_meant_is_one_helpful_line(shop, args, code, said):
    """Wrong names, kinds and options: one line with what to do, the exit code of its kind, and nothing queued."""
    result = shop.run("enqueue", *args)
    assert result.exit_code == code
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert shop.json("queue") == []


def test_wait_gives_up_and_says_so(shop):
    """With nobody to work, --wait ends after its time-out with exit 1 and leaves the entry queued."""
    result = shop.run("enqueue", "shop.orders", "--wait", "--timeout", "0.05")
    assert result.exit_code == 1
    assert "no daemon has workers (compactor run, with worker.threads); entry 1 stays queued" in result.stderr
    assert len(shop.json("queue")) == 1


def test_wait_gives_up_and_says_what_holds_the_entry(shop):
    """A pause, where there is one, and no guess about daemons."""
    assert shop.run("pause", "--table", "shop.orders", "--reason", "load").exit_code == 0
    result = shop.run("enqueue", "shop.orders", "--wait", "--timeout", "0.05")
    assert result.exit_code == 1
    assert "is paused by" in result.stderr.splitlines()[-1]
    assert "daemon" not in result.stderr


def finish(shop, outcome):
    """Do as a worker does, from another thread, once the entry is there."""

    def work():
        done = False
        while not done:
            with shop.open() as database:
                queue = Queue(database)
                entry = queue.claim("compactor-edge1-x-1", "test")
                if entry is not None:
                    outcome(queue, entry)
                    done = True

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("outcome", "code", "state"),
    [
        (lambda queue, entry: queue.mark_failed(entry, "disk full"), 1, "failed"),
        (lambda queue, entry: queue.mark_refused(entry, "sorted-table: no"), 4, "refused"),
    ],
)
def test_wait_ends_with_the_outcome(shop, outcome, code, state):
    """The exit code of --wait is the outcome's, and the entry is shown with its message."""
    thread = finish(shop, outcome)
    result = shop.run("-o", "json", "enqueue", "shop.orders", "--wait", "--timeout", "60")
    thread.join()
    assert (result.exit_code, json.loads(result.stdout)["state"]) == (code, state), result.stderr


def test_a_retry_can_be_waited_for(shop):
    """As `enqueue --wait`: the exit code is the outcome's."""
    shop.run("enqueue", "shop.orders")
    shop.run("cancel", "1")
    thread = finish(shop, lambda queue, entry: queue.mark_refused(entry, "sorted-table: no"))
    result = shop.run("-o", "json", "retry", "1", "--wait", "--timeout", "60")
    thread.join()
    told = json.loads(result.stdout)
    assert (result.exit_code, told["id"], told["state"]) == (4, 2, "refused"), result.stderr


def test_a_retry_says_what_its_entry_waits_for(shop):
    """As `enqueue` does; also when asked for again while it waits, with the entry's own id or that of the one before."""
    waits, because = "paused", "is paused by"
    shop.run("enqueue", "shop.orders")
    shop.run("cancel", "1")
    shop.run("pause", "--table", "shop.orders", "--reason", "load")
    for state, code in (("accepted", 0), ("refused", 3)):
        result = shop.run("-o", "json", "retry", "1")
        told = json.loads(result.stdout)
        assert (result.exit_code, told["accepted"], told["waits"]) == (code, state == "accepted", waits)
        assert because in told["waits_because"]
        assert result.stderr.startswith(f"it waits ({waits}): ")
    result = shop.run("retry", "2")
    assert result.exit_code == 3
    assert result.stderr.startswith(f"compaction 2 hasn't ended: it is initiated\nit waits ({waits}): ")


def test_queue_narrows_down(shop):
    """By table, by partition however written, and by state."""
    for target in ("shop.orders", "shop.events/day=2024-01-01/path=a/b", "shop.events/day=2024-01-02/path=x y"):
        shop.json("enqueue", target)
    assert [entry["table"] for entry in shop.json("queue")] == ["orders", "events", "events"]
    assert len(shop.json("queue", "shop.events")) == 2
    assert [entry["partition"] for entry in shop.json("queue", "shop.events/day=2024-01-01/path=a/b")] == [
        "day=2024-01-01/path=a%2Fb"
    ]
    assert shop.json("queue", "--state", "working") == []
    assert len(shop.json("queue", "--state", "initiated", "--state", "working")) == 3


def test_history_is_newest_first_and_limited(shop):
    """What ended stands in the history with its message; --limit keeps the newest."""
    for number in range(3):
        shop.json("enqueue", "shop.orders")
        with shop.open() as database:
            queue = Queue(database)
            queue.mark_failed(queue.claim("w", "test"), f"reason {number}")
    assert [entry["message"] for entry in shop.json("history")] == ["reason 2", "reason 1", "reason 0"]
    assert [entry["message"] for entry in shop.json("history", "shop.orders", "--limit", "1")] == ["reason 2"]
    assert shop.json("history", "--state", "succeeded") == []
    table = shop.run("history")
    assert "reason 2" in table.stdout


def test_nothing_queued_is_said_on_stderr(shop):
    """An empty queue is no error: stdout stays empty, stderr says so."""
    result = shop.run("queue")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "nothing is queued\n")


@pytest.mark.parametrize("command", [["queue"], ["history"], ["status"], ["enqueue", "shop.orders"]])
def test_no_metastore_is_unreachable(shop, command):
    """Where the database isn't, one line names it: exit 5."""
    shop.config.write_text(f"database:\n  url: sqlite:///{shop.root}/nothing.db\n", encoding="utf-8")
    result = shop.run(*command)
    assert result.exit_code == 5
    assert "nothing.db" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_metastore_of_unknown_schema_is_refused(shop, tmp_path):
    """A database without Hive's tables is refused with what is missing."""
    import sqlite3

    sqlite3.connect(tmp_path / "other.db").execute("create table x (a int)").connection.close()
    shop.config.write_text(f"database:\n  url: sqlite:///{tmp_path}/other.db\n", encoding="utf-8")
    result = shop.run("queue")
    assert result.exit_code == 4
    assert len(result.stderr.splitlines()) == 1


def test_an_unreachable_server_and_its_password(shop, tmp_path):
    """A server that doesn't answer: exit 5, one line with the address and without the password."""
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n", encoding="utf-8")
    shop.config.write_text(
        f"database:\n  url: postgresql://hive@127.0.0.1:1/metastore\n  password_file: {secret}\n  connect_timeout_seconds: 2\n",
        encoding="utf-8",
    )
    result = shop.run("queue")
    assert result.exit_code == 5
    assert "127.0.0.1" in result.stderr
    assert "hunter2" not in result.output
    assert len(result.stderr.splitlines()) == 1


def test_a_database_in_use_may_still_be_looked_at(shop):
    """While a daemon has an embedded database, queue works and enqueue says who has it."""
    import fcntl

    with (shop.root / "metastore.db.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert shop.run("queue").exit_code == 0
        result = shop.run("enqueue", "shop.orders")
    assert result.exit_code == 5
    assert "in use" in result.stderr


@pytest.mark.parametrize("command", ["queue", "history"])
@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("shop.order", "did you mean shop.orders?"),
        ("shap.orders", "did you mean shop?"),
        ("shop.events/day=2024-01-03/path=x y", "did you mean day=2024-01-02/path=x y"),
    ],
)
def test_a_name_that_does_not_exist_is_answered_with_near_ones(shop, command, target, said):
    """A misspelt table isn't one for which nothing is queued: refused, as plan and explain do."""
    result = shop.run(command, target)
    assert (result.exit_code, said in result.stderr, result.stdout) == (4, True, "")


def test_what_was_dropped_is_shown_while_a_row_tells_of_it(shop):
    """A table, and a partition, that the catalog doesn't know any more: their rows in queue and history are."""
    with shop.open() as database:
        queue = Queue(database)
        queue.enqueue(Entity("shop", "gone"), CompactionKind.MAJOR)
        queue.mark_failed(queue.claim("w", "test"), "dropped")
        queue.enqueue(Entity("shop", "events", "day=2023-01-01/path=x"), CompactionKind.MAJOR)
    assert [row["message"] for row in shop.json("history", "shop.gone")] == ["dropped"]
    assert shop.json("queue", "shop.gone") == []
    assert [row["entity"] for row in shop.json("queue", "shop.events/day=2023-01-01/path=x")] == [
        "shop.events/day=2023-01-01/path=x"
    ]


def test_what_was_aborted_before_it_began_took_no_time(shop):
    """Hive's ABORT COMPACTIONS leaves a start of 0 in the history: that isn't 1970."""
    entry = shop.json("enqueue", "shop.orders")["id"]
    with shop.open() as database:
        assert Queue(database).cancel(entry, "aborted")
        history = database.schema.completed_compactions
        with database.transaction() as connection:
            connection.execute(update(history).values(cc_start=0, cc_commit_time=0))
    (ended,) = shop.json("history")
    assert (ended["state"], ended["duration_ms"], ended["started"], ended["committed"]) == ("aborted", None, None, None)


def test_what_is_left_to_hive_is_shown(shop):
    """A type that a later Hive wrote, and a rebalance: for Hive's own workers."""
    shop.json("enqueue", "shop.orders")
    with shop.open() as database:
        hive = Hive(database)
        hive.queued("shop.b", type="*")
        hive.queued("shop.c", type="r")
    shown = shop.json("queue")
    assert [(entry["kind"], entry["waits"]) for entry in shown] == [
        ("major", "no-worker"),
        ("unknown (*)", "unsupported-kind"),
        ("rebalance", "unsupported-kind"),
    ]
    assert [entry["table"] for entry in shop.json("queue", "--state", "working")] == []
    people = shop.run("queue").stdout
    assert "unknown (*)" in people
    assert "left to Hive" in " ".join(people.split())


def test_each_key_for_programs_is_told_of(shop):
    """docs/cli.md names every key of `queue` and `history` in their section."""
    shop.json("enqueue", "shop.orders")
    keys = set(shop.json("queue")[0])
    shop.run("cancel", "1")
    keys |= set(shop.json("history")[0])
    page = Path(__file__).resolve().parents[5] / "docs" / "cli.md"
    section = page.read_text(encoding="utf-8").split("### `compactor queue")[1].split("\n### ")[0]
    assert keys - set(re.findall(r"`(\w+)`", section)) == set()
