"""`compactor status`: for programs, and while what it asks can't be reached. What people see: tests/cases/status.txt."""

import json

from tests.metastore.actor import Hive

AGED = "silent-transaction"
"""What is told, too, of the shop's open transaction, once that is old enough."""


def whats(troubles):
    """The codes of what isn't well, but for what depends on the shop's age."""
    return [what for what in troubles if what != AGED]


def test_programs_get_all_of_it(shop):
    """One document, whose keys are stable; TSV has the troubles."""
    shop.run("enqueue", "shop.orders")
    result = shop.run("-o", "json", "status")
    assert result.exit_code == 1, result.stderr
    told = json.loads(result.stdout)
    assert list(told) == [
        *("taken", "well", "troubles", "daemons", "not_led", "queue", "left_to_hive", "causes", "broke_down"),
        *("failing", "last_day", "only", "pauses", "open_transactions", "oldest_open_ms", "hive"),
    ]
    assert (told["well"], whats(one["what"] for one in told["troubles"])) == (False, ["no-daemon", "no-worker"])
    assert told["queue"][0] | {"since_ms": 0} == {
        "state": "initiated",
        "entries": 1,
        "since_ms": 0,
        "oldest": "shop.orders",
    }
    assert [(one["reason"], one["ids"]) for one in told["causes"]] == [("no-worker", [1])]
    heading, *rows = shop.run("-o", "tsv", "status").stdout.splitlines()
    assert heading.split("\t") == ["what", "sentence", "since_ms", "remedy"]
    assert whats(row.split("\t")[0] for row in rows) == ["no-daemon", "no-worker"]


def test_what_control_only_leaves_out_is_no_trouble(shop):
    """It is named; what waits, fails or isn't cleaned there is Hive's business."""
    shop.run("enqueue", "shop.orders")
    with shop.open() as database:
        hive, now = Hive(database), database.read(database.now_ms)
        for _ in range(2):
            hive.finished("shop.orders", state="f", start=now, enqueue_time=now)
        hive.queued(
            "shop.events/day=2024-01-02/path=x y", state="r", retry_retention=1, error_message="away", commit_time=1
        )

    def troubles():
        told = json.loads(shop.run("-o", "json", "status").stdout)
        return whats(one["what"] for one in told["troubles"]), told["only"]

    assert {"no-worker", "failed-too-often", "broke-down"} < set(troubles()[0])
    shop.config.write_text(shop.config.read_text(encoding="utf-8") + "control: {only: [hr.*]}\n", encoding="utf-8")
    assert troubles() == (["no-daemon"], ["hr.*"])
    assert "control.only names hr.*; other tables are left alone" in shop.run("status").stdout


def test_it_is_shown_again(shop, two_looks):
    """Until it is interrupted, each picture with the time of its look."""
    result = shop.run("status", "--watch", "5")
    assert (two_looks, result.exit_code) == ([5, 5], 130)
    assert result.stdout.count("not well, 2") == 2


def test_without_zookeeper_that_is_what_is_not_well(shop):
    """The rest is shown, and nothing is said of daemons that can't be asked for."""
    shop.config.write_text(
        shop.config.read_text(encoding="utf-8") + "zookeeper: {hosts: '127.0.0.1:1', session_timeout_seconds: 1}\n",
        encoding="utf-8",
    )
    result = shop.run("-o", "json", "status")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert whats(one["what"] for one in told["troubles"]) == ["control-unknown"]
    assert (told["daemons"], told["not_led"]) == (None, None)
