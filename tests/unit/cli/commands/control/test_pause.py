"""pause, resume, pauses, drain, and what queue, enqueue and explain say of them, on a real embedded metastore."""

import fcntl
import json
from datetime import datetime, timedelta

import pytest
import yaml
from sqlalchemy import update

from compactor.cli.control_records import length_ms
from compactor.control.records import HOLDS, Pause, with_pause
from compactor.control.scope import Scope
from compactor.coordination import Member
from compactor.coordination.sql.coordinator import DatabaseCoordinator
from compactor.coordination.sql.table import StateTable
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.db.database import Database


def told(result):
    """What was said on stderr, in one line."""
    return " ".join(result.stderr.split())


def test_a_pause_is_shown_to_those_who_wait(shop):
    """
    pauses, queue, enqueue and explain say who paused what, until when, and why; resume ends it; a second time there is
    nothing to do.
    """
    paused = shop.json("pause", "--table", "Shop.Ord*", "--reason", "loading  history", "--for", "1h30min")
    assert (paused["scope"], paused["reason"], paused["cancel"], paused["cleaner"]) == (
        "table:shop.ord*",
        "loading history",
        False,
        False,
    )
    length = datetime.fromisoformat(paused["until"]) - datetime.fromisoformat(paused["since"])
    assert length == timedelta(minutes=90)
    assert [one["scope"] for one in shop.json("pauses")] == ["table:shop.ord*"]
    asked = shop.run("-o", "json", "enqueue", "shop.orders")
    assert asked.exit_code == 0
    assert json.loads(asked.stdout)["waits"] == "paused"
    assert "it waits (paused): tables shop.ord* are paused by" in told(asked)
    (entry,) = shop.json("queue")
    assert entry["waits"] == "paused"
    assert entry["waits_because"].endswith(": loading history")
    assert shop.json("explain", "shop.orders")["waits"]["reason"] == "paused"
    assert "none may begin now (paused)" in shop.run("explain", "shop.orders").stdout
    assert shop.json("explain", "shop.events/day=2024-01-01/path=a%2Fb")["waits"]["reason"] == "no-worker"
    assert [one["scope"] for one in shop.json("resume", "--table", "shop.ord*")] == ["table:shop.ord*"]
    again = shop.run("resume", "--table", "shop.ord*")
    assert (again.exit_code, told(again)) == (3, "nothing is paused")
    assert shop.json("queue")[0]["waits"] == "no-worker"


def test_explain_says_that_cleaning_is_paused(shop):
    """As it says what else holds back cleaning; a pause without --cleaner leaves the Cleaner alone."""
    assert shop.run("enqueue", "shop.orders").exit_code == 0
    with shop.open() as database:
        queue = database.schema.compaction_queue
        ready = {"cq_state": "r", "cq_highest_write_id": 1}
        database.write(lambda connection: connection.execute(update(queue).values(ready)))

    def reasons():
        (cleaning,) = shop.json("explain", "shop.orders")["cleaning"]
        return [blocker["reason"] for blocker in cleaning["blockers"]]

    before = reasons()
    assert shop.run("pause", "--all", "--reason", "x").exit_code == 0
    assert reasons() == before
    assert shop.run("pause", "--all", "--reason", "x", "--cleaner").exit_code == 0
    assert reasons() == [*before, "paused"]


def test_scopes_stand_side_by_side(shop):
    """Each is paused and resumed by itself; the same one again goes over the first; --every ends them all."""
    for scope in (["--all"], ["--pool", "etl"], ["--database", "shop"], ["--table", "shop.orders"]):
        assert shop.run("pause", *scope, "--reason", "x").exit_code == 0
    second = shop.run("pause", "--all", "--reason", "y", "--cleaner", "--cancel")
    assert "goes over the pause by" in told(second)
    assert [(one["scope"], one["reason"]) for one in shop.json("pauses")] == [
        ("all", "y"),
        ("database:shop", "x"),
        ("pool:etl", "x"),
        ("table:shop.orders", "x"),
    ]
    ended = shop.run("resume", "--all")
    assert (ended.exit_code, told(ended)) == (0, "still paused: database:shop, pool:etl, table:shop.orders")
    assert shop.run("resume", "--every").exit_code == 0
    assert shop.json("pauses") == []
    assert shop.run("resume", "--every").exit_code == 3


def test_an_end_may_be_a_local_time(shop):
    """Without an offset in the zone of the settings; with one as it is."""
    shop.config.write_text(
        shop.config.read_text(encoding="utf-8") + "windows: {time_zone: Europe/Berlin}\n", encoding="utf-8"
    )
    assert (
        shop.json("pause", "--all", "--reason", "x", "--until", "2099-07-01T08:00")["until"]
        == "2099-07-01T06:00:00.000Z"
    )
    assert (
        shop.json("pause", "--all", "--reason", "x", "--until", "2099-07-01T08:00Z")["until"]
        == "2099-07-01T08:00:00.000Z"
    )


def test_a_pause_that_is_over_is_none(shop):
    """It isn't shown, holds nothing, and is no longer there to be resumed."""
    with Database(f"sqlite:///{shop.root}/metastore.db") as database:
        over = Pause(Scope.parse("all"), "x", "ann", 1, 2)
        DatabaseCoordinator(database, 1).update(HOLDS, lambda data: with_pause(data, over, 1))
    assert shop.json("pauses") == []
    shop.json("enqueue", "shop.orders")
    assert shop.json("queue")[0]["waits"] == "no-worker"
    assert shop.run("resume", "--all").exit_code == 3


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["pause", "--reason", "x"], 2, "--pool, --database, --table or --all"),
        (["pause", "--all", "--pool", "etl", "--reason", "x"], 2, "only one"),
        (["pause", "--all"], 2, "--reason"),
        (["pause", "--all", "--reason", "  "], 2, "--reason is empty"),
        (["pause", "--table", "orders", "--reason", "x"], 2, "DATABASE.TABLE"),
        (["pause", "--table", "shop.order", "--reason", "x"], 4, "did you mean shop.orders?"),
        (["pause", "--database", "shap", "--reason", "x"], 4, "did you mean shop?"),
        (["pause", "--pool", "", "--reason", "x"], 2, "no name"),
        (["pause", "--all", "--reason", "x", "--for", "2 weeks"], 2, "1d12h"),
        (["pause", "--all", "--reason", "x", "--for", "0s"], 2, "1d12h"),
        (["pause", "--all", "--reason", "x", "--for", "99999999999999999999h"], 2, "ten years at most"),
        (["pause", "--all", "--reason", "x", "--until", "tomorrow"], 2, "2026-01-31T18:00"),
        (["pause", "--all", "--reason", "x", "--until", "9999-12-31T23:59:59-14:00"], 2, "1970 to 9000"),
        (["pause", "--all", "--reason", "x", "--until", "0001-01-01T00:00"], 2, "1970 to 9000"),
        (["pause", "--all", "--reason", "x", "--until", "2020-01-01T00:00"], 2, "is over"),
        (["pause", "--all", "--reason", "x", "--until", "2099-01-01T00:00", "--for", "1h"], 2, "not both"),
        (["resume"], 2, "--pool, --database, --table or --all"),
        (["resume", "--every", "--all"], 2, "name none"),
        (["drain", "two words"], 2, "daemon's name"),
        (["drain", "edge1", "--undo"], 3, "isn't drained"),
    ],
)
def test_what_cannot_be_meant_is_one_helpful_line(shop, args, code, said):
    """Exit code of its kind, what to do instead, and nothing paused."""
    result = shop.run(*args)
    assert result.exit_code == code, result.output
    assert said in told(result)
    assert shop.json("pauses") == []


def test_a_pattern_that_fits_nothing_is_said(shop):
    """It is paused all the same: tables may come."""
    result = shop.run("pause", "--table", "shop.stage_*", "--reason", "x")
    assert result.exit_code == 0
    assert "nothing fits shop.stage_* now" in told(result)


def test_a_pool_that_nothing_has_is_said(shop):
    """With near names; it is paused all the same, and queued for: its worker may come."""
    shop.config.write_text(shop.config.read_text(encoding="utf-8") + "worker: {pools: {night: 1}}\n", encoding="utf-8")
    unknown = "--pool: nigth, which no worker and no table has (did you mean night?)"
    assert told(shop.run("pause", "--pool", "nigth", "--reason", "x")) == unknown
    assert [one["scope"] for one in shop.json("pauses")] == ["pool:nigth"]
    asked = shop.run("-o", "json", "enqueue", "shop.orders", "--pool", "nigth")
    assert json.loads(asked.stdout)["warnings"] == [unknown]
    assert told(shop.run("pause", "--pool", "NIGHT", "--reason", "x")) == ""
    assert f"warning: {unknown}" in told(shop.run("enqueue", "shop.ev*", "--pool", "nigth"))


def test_a_host_is_drained_and_comes_back(shop):
    """Entries wait for no drained host: others may claim them."""
    assert shop.json("drain", "edge1", "--reason", "new disks")["drained"] is True
    assert [(one["what"], one["scope"], one["reason"]) for one in shop.json("pauses")] == [
        ("drain", "host:edge1", "new disks")
    ]
    shop.json("enqueue", "shop.orders")
    assert shop.json("queue")[0]["waits"] == "no-worker"
    slip = shop.run("drain", "egde1", "--undo")
    assert (slip.exit_code, told(slip)) == (3, "host egde1 isn't drained (did you mean edge1?)")
    assert shop.json("drain", "edge1", "--undo")["drained"] is False
    assert shop.json("pauses") == []


def test_an_unknown_host_is_not_drained(shop):
    """A slip of the pen is no host: refused with near names, as an unknown table is."""
    result = shop.run("drain", "edge7")
    assert result.exit_code == 4, result.output
    assert (
        told(result)
        == "error: no daemon of a host edge7 is known (did you mean edge1?); `compactor members` shows them"
    )
    assert shop.json("pauses") == []


def test_a_host_that_worked_here_may_be_drained_while_its_daemon_is_down(shop):
    """The history tells of it, so that it claims nothing when it comes back."""
    entry = shop.json("enqueue", "shop.orders")["id"]
    with Database(f"sqlite:///{shop.root}/metastore.db") as database:
        claimed = Queue(database).claim(f"compactor-edge7-{'0' * 32}-1", "1")
        assert claimed.id == entry
        Queue(database).mark_failed(claimed, "x")
    assert shop.json("drain", "edge7")["drained"] is True


def test_what_the_settings_hold_back_is_said_too(shop):
    """A window and budgets: outside-window, jobs-budget."""
    closed = {"name": "long ago", "begin": "2020-01-01T00:00", "until": "2020-01-02T00:00", "tables": ["shop.orders"]}
    sections = yaml.safe_load(shop.config.read_text(encoding="utf-8")) | {
        "windows": {"maintenance": [closed]},
        "control": {"budgets": [{"name": "b", "jobs": 1}]},
    }
    shop.config.write_text(yaml.safe_dump(sections), encoding="utf-8")
    shop.json("enqueue", "shop.orders")
    shop.json("enqueue", "shop.events/day=2024-01-01/path=a%2Fb")
    assert [entry["waits"] for entry in shop.json("queue")] == ["outside-window", "no-worker"]
    assert "which doesn't open within a year" in shop.run("queue").stdout
    assert shop.run("config", "show").exit_code == 0
    assert shop.json("config", "check")["valid"] is True


def test_tables_that_control_only_leaves_out_say_so(shop):
    """`enqueue` at once; queue, why and explain, also of what isn't cleaned, of which nothing else counts then."""
    only = {"control": {"only": ["shop.ev*"]}}
    shop.config.write_text(yaml.safe_dump(yaml.safe_load(shop.config.read_text(encoding="utf-8")) | only))
    said = "control.only leaves it out, and names shop.ev*"
    result = shop.run("enqueue", "shop.orders")
    assert (result.exit_code, f"it waits (not-included): {said}" in result.stderr) == (0, True)
    shop.json("enqueue", "shop.events/day=2024-01-01/path=a%2Fb")
    assert [entry["waits"] for entry in shop.json("queue")] == ["not-included", "no-worker"]
    assert shop.json("queue")[0]["waits_because"] == said
    assert [one["waits"] for one in shop.json("explain", "shop.orders")["queue"]] == ["not-included"]
    (cause,) = [one for one in shop.json("why") if one["reason"] == "not-included"]
    assert (cause["cause"], cause["remedy"]) == (
        said,
        "a pattern for it in control.only, and HUP; or Hive's own compactor",
    )
    with shop.open() as database:
        queue = database.schema.compaction_queue
        ready = {"cq_state": "r", "cq_highest_write_id": 1}
        database.write(lambda connection: connection.execute(update(queue).values(ready)))
    (cleaning,) = shop.json("explain", "shop.orders")["cleaning"]
    assert [blocker["reason"] for blocker in cleaning["blockers"]] == ["not-included"]
    assert {one["reason"] for one in shop.json("why", "shop.orders")} == {"not-included"}


def test_members_name_the_roles_that_nobody_leads(shop):
    """Below the table with the reason, once; for programs in each record. Without any daemon there is nothing to add."""
    assert told(shop.run("members")) == "no daemon is there"
    member = Member("i" * 32, "edge1", 7, "1.0", ("housekeeper", "cleaner", "worker"))
    with shop.open() as database:
        table = StateTable(database)
        table.make()
        table.put(
            f"members/{member.instance}",
            {**member.record(), "heartbeat_seconds": 60, "acted_ms_ago": {"housekeeper": 0}},
        )
    off, idle = "it is switched off on every daemon", "it is switched on on 1 daemon, and none has begun to lead it"
    result = shop.run("members")
    assert "housekeeper" in result.stdout
    assert result.stderr.splitlines() == [
        f"no daemon leads the initiator: {off}",
        f"no daemon leads the cleaner: {idle}",
    ]
    assert [one["not_led"] for one in shop.json("members")] == [{"initiator": off, "cleaner": idle}]


def test_every_format(shop):
    """Table, JSON, YAML and TSV hold the same."""
    shop.json("pause", "--all", "--reason", "x")
    assert "everything" not in shop.run("pauses").stdout
    assert shop.run("pauses").stdout.split()[:3] == ["WHAT", "SCOPE", "REASON"]
    assert yaml.safe_load(shop.run("-o", "yaml", "pauses").stdout) == shop.json("pauses")
    assert shop.run("-o", "tsv", "pauses").stdout.splitlines()[0].split("\t")[:3] == ["what", "scope", "reason"]


def test_while_a_daemon_holds_an_embedded_metastore(shop):
    """Looking works; pausing is unreachable, and says what to do instead."""
    with (shop.root / "metastore.db.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = shop.run("pause", "--all", "--reason", "x")
        assert result.exit_code == 5
        assert "SQLite serves one at a time: stop that one first, or use PostgreSQL for several" in told(result)
        assert shop.json("pauses") == []


def test_a_time_is_a_time():
    """Lengths are whole numbers of days, hours, minutes and seconds, in this order."""
    assert [length_ms(text) for text in ("90s", "30min", "2h", "1d12h", "1d 1s")] == [
        90_000,
        1_800_000,
        7_200_000,
        129_600_000,
        86_401_000,
    ]


@pytest.mark.parametrize("command", [["queue"], ["explain", "shop.orders"], ["enqueue", "shop.orders"]])
def test_without_zookeeper_the_database_answers(shop, command):
    """
    What is queued, and what a table looks like, doesn't need ZooKeeper: it is shown, and one line says why pauses can't
    be told.
    """
    assert shop.run("enqueue", "shop.orders").exit_code == 0
    shop.config.write_text(
        shop.config.read_text(encoding="utf-8") + "zookeeper: {hosts: '127.0.0.1:1', session_timeout_seconds: 1}\n",
        encoding="utf-8",
    )
    found = shop.run("-o", "json", *command)
    assert found.exit_code in {0, 3}, found.stderr
    why = "it can't be told what is paused: ZooKeeper 127.0.0.1:1 can't be reached: Connection refused"
    assert found.stderr.splitlines() == [why]
    assert "control-unknown" in found.stdout
    assert "Connection refused" not in found.stdout


def test_without_zookeeper_one_line_is_enough_for_what_is_worked_on(shop):
    """
    As of entries that wait: neither what is paused is known then, nor what broke down.
    """
    assert shop.run("enqueue", "shop.orders").exit_code == 0
    with shop.open() as database:
        Queue(database).claim("compactor-edge1-x-1", "test")
    shop.config.write_text(
        shop.config.read_text(encoding="utf-8") + "zookeeper: {hosts: '127.0.0.1:1', session_timeout_seconds: 1}\n",
        encoding="utf-8",
    )
    found = shop.run("-o", "json", "queue")
    assert [entry["state"] for entry in json.loads(found.stdout)] == ["working"]
    assert found.stderr.splitlines() == [
        "it can't be told what is paused: ZooKeeper 127.0.0.1:1 can't be reached: Connection refused"
    ]


@pytest.mark.parametrize(
    "command",
    [["members"], ["pauses"], ["pause", "--all", "--reason", "x"], ["resume", "--every"], ["drain", "edge1"]],
    ids=lambda command: command[0],
)
def test_without_zookeeper_one_line_says_so(shop, command):
    """What lies in ZooKeeper can neither be shown nor changed: exit 5, and nothing else is said."""
    shop.config.write_text(
        shop.config.read_text(encoding="utf-8") + "zookeeper: {hosts: '127.0.0.1:1', session_timeout_seconds: 1}\n",
        encoding="utf-8",
    )
    found = shop.run(*command)
    assert (found.exit_code, found.stdout) == (5, "")
    assert found.stderr.splitlines() == ["error: ZooKeeper 127.0.0.1:1 can't be reached: Connection refused"]
