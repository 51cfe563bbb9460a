"""`compactor report` and `compactor simulate`: what is late, and what other thresholds would queue."""

import os
import xml.etree.ElementTree as ET

import pytest

from compactor.cli.commands.looking.report import as_page, sentences
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.compaction_queue.work import Work, WorkTable
from tests.demo.rows import CatalogRows, MetastoreLedger
from tests.demo.warehouse import Warehouse
from tests.unit.cli.conftest import Shop, build


def test_the_shop(shop):
    """One table that is due, two partitions that aren't; its plan says what a compaction leaves."""
    told = shop.json("report")
    assert (told["tables"], told["partitions"], told["unreadable"]) == (2, 3, 0)
    assert (told["due_major"], told["due_minor"]) == (1, 0)
    assert told["files"] == told["small_files"] == 15
    assert told["open_transactions"] == 1
    assert told["aborted"] == 1
    (worst,) = told["worst"]
    assert (worst["entity"], worst["kind"], worst["files"], worst["files_after"]) == ("shop.orders", "major", 13, 1)
    assert worst["refused"] is None
    assert shop.json("queue") == []
    shown = shop.run("report", "shop.events").stdout
    assert "1 table, 2 directories: queries open 2 files" in shown
    assert "0 compactions due" in shown


def test_tables_that_control_only_leaves_out_are_counted(shop):
    """They are surveyed as the others: an operator sees by it what a wider list would bring."""
    assert shop.json("report")["left_alone"] == 0
    shop.config.write_text(shop.config.read_text(encoding="utf-8") + "control: {only: [shop.ev*]}\n", encoding="utf-8")
    told = shop.json("report")
    assert (told["left_alone"], told["due_major"]) == (1, 1)
    assert "1 table left alone by the daemon: control.only names others" in shop.run("report").stdout


def test_files_that_no_query_reads_are_named(shop, tmp_path):
    """Files of an insert-only table in no base and no delta: `report` and `explain` say where they are, and that they stay."""
    with shop.open() as database:
        warehouse = Warehouse(tmp_path / "own", MetastoreLedger(database), CatalogRows(database))
        table = warehouse.create_table("side", "logs", [("line", "string")], insert_only=True, file_format="text")
        with warehouse.begin() as txn:
            txn.insert(table, [("a",)])
    (table.location / "stray.txt").write_text("b\n")
    assert shop.json("report", "side.logs")["left_files"] == ["side.logs: stray.txt"]
    assert "1 file that no query reads, in no base and no delta: side.logs: stray.txt" in shop.run("report").stdout
    (stray,) = [item for item in shop.json("explain", "side.logs")["items"] if item["name"] == "stray.txt"]
    assert stray["note"] == "not read, for it lies in no base and no delta: stays"
    shop.config.write_text(f"{shop.config.read_text()}readers:\n  insert_only_originals: true\n")
    assert shop.json("report", "side.logs")["left_files"] == []


def test_a_table_whose_name_has_letters_of_patterns(shop, tmp_path):
    """In backquotes it is that table, which explain shows and enqueue queues; without them the name is a pattern."""
    with shop.open() as database:
        warehouse = Warehouse(tmp_path / "own", MetastoreLedger(database), CatalogRows(database))
        for name in ("t?5", "t05"):
            table = warehouse.create_table("side", name, [("id", "int")])
            for number in range(2):
                with warehouse.begin() as txn:
                    txn.insert(table, [(number,)])
    assert shop.json("explain", "side.`t?5`")["table"] == "t?5"
    assert shop.run("explain", "side.t?5").exit_code == 2
    assert shop.run("enqueue", "side.`t?5`").exit_code == 0
    assert [row["table"] for row in shop.json("queue")] == ["t?5"]
    assert [row["table"] for row in shop.json("queue", "side.`t?5`")] == ["t?5"]


def test_a_page_to_show(shop):
    """Whole HTML with the figures; names are escaped; a place that can't be written is said."""
    page = shop.root / "report.html"
    result = shop.run("report", "--html", str(page))
    assert result.exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert "shop.orders" in text
    assert "http" not in text.replace("http-equiv", "")
    assert shop.run("report", "--html", str(page)).exit_code == 0
    wrong = shop.run("report", "--html", str(shop.root / "none" / "x.html"))
    assert wrong.exit_code == 2
    assert "--html" in wrong.stderr
    assert "listing" not in wrong.stderr


@pytest.mark.parametrize("name", ["metastore.db", "pipe", "link"])
def test_no_other_file_is_replaced(shop, name):
    """A page replaces nothing but a page: no file of other content, no pipe or device, nor what a link leads to."""
    os.mkfifo(shop.root / "pipe")
    (shop.root / "link").symlink_to(shop.config)
    before = shop.config.read_bytes()
    wrong = shop.run("report", "--html", str(shop.root / name))
    assert wrong.exit_code == 2
    assert "is there already, and no earlier run made it: name another file" in wrong.stderr
    assert shop.config.read_bytes() == before
    assert (shop.root / "pipe").is_fifo()
    assert shop.run("report").exit_code == 0


def test_a_page_behind_a_link(shop):
    """The link stays, and its target is written."""
    (shop.root / "link").symlink_to(shop.root / "page.html")
    for _ in range(2):
        assert shop.run("report", "--html", str(shop.root / "link")).exit_code == 0
    assert (shop.root / "link").is_symlink()
    assert (shop.root / "page.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_names_cant_break_the_page():
    """Whatever a partition is called; a plan that was refused shows why."""
    worst = {
        "entity": "a.b/k=<script>alert(1)</script>&",
        "kind": "major",
        "files": 3,
        "files_after": None,
        "bytes": 10,
        "recoded_bytes": None,
        "seconds": None,
        "refused": "sorted-table: <x>",
        "explanation": "",
    }
    zeros = dict.fromkeys(
        ("due_major", "due_minor", "tables", "partitions", "files", "bytes", "directories", "small_files"), 0
    )
    more = dict.fromkeys(("obsolete_bytes", "aborted", "open_transactions", "left_alone", "unreadable"), 2)
    document = {
        "target": "<*>",
        "taken": "2024-01-01T00:00:00.000Z",
        "oldest_open_ms": 5000,
        "worst": [worst],
        "left_files": [],
    }
    page = as_page({**document, **zeros, **more})
    text = "".join(ET.fromstring(page).itertext())  # well-formed
    assert "<script>" not in page
    assert "a.b/k=<script>alert(1)</script>&" in text
    assert "sorted-table: <x>" in text
    assert any("the oldest for 5.0 s" in sentence for sentence in sentences({**document, **zeros, **more}))


@pytest.mark.parametrize(
    ("changes", "due", "more", "fewer"),
    [
        (["initiator.thresholds.delta_count=100", "delta_ratio=1000"], [], 0, 1),
        (["delta_count=0"], ["shop.orders"], 0, 0),
        (["delta_count=5"], ["shop.orders"], 0, 0),
    ],
)
def test_other_thresholds(shop, changes, due, more, fewer):
    """Beside those that apply; nothing is queued."""
    words = [word for change in changes for word in ("--set", change)]
    now, then = shop.json("simulate", *words)
    assert (now["thresholds"], now["due_major"], now["entities"]) == ("as they are", 1, ["shop.orders"])
    assert (then["entities"], then["more"], then["fewer"]) == (due, more, fewer)
    assert shop.json("queue") == []


def did(shop, kind, **work):
    """A compaction of ours in the history."""
    shop.json("enqueue", "shop.events/day=2024-01-02/path=x y", "--type", kind)
    with shop.open() as database:
        entry = Queue(database).claim("compactor-edge1-x-1", "test")
        WorkTable(database).put(entry.id, entry.start_ms, Work(compacted_as=kind, **work))
        Queue(database).mark_failed(entry, "")
        history = database.schema.completed_compactions
        ended = history.update().where(history.c.cc_id == entry.id).values(cc_state="s", cc_error_message=None)
        database.write(lambda connection: connection.execute(ended))


STEPS = {"planning_seconds": 0.0, "publishing_seconds": 0.0, "writing_seconds": 3600.0, "checking_seconds": 0.0}
"""With `bytes_before` 1 an hour for each byte of the inputs."""


def test_hours_are_told_by_what_was_done(shop):
    """Some seconds for each compaction, and some for each byte; other kinds, failures and halves of rows don't count."""
    other = ("simulate", "--set", "delta_count=100", "--set", "delta_ratio=1000")
    did(shop, "minor", **STEPS, bytes_before=1)
    did(shop, "major", **STEPS | {"checking_seconds": None}, bytes_before=1)
    now, then = shop.json(*other)
    assert (now["worker_hours"], then["worker_hours"]) == (None, 0.0)
    assert "isn't known: the history has no major compaction of ours" in shop.run(*other).stderr
    did(shop, "major", **STEPS | {"planning_seconds": 1800.0, "publishing_seconds": 1800.0}, bytes_before=100)
    did(shop, "major", **STEPS | {"checking_seconds": 7200.0}, bytes_before=100)
    now, then = shop.json(*other)
    assert now["worker_hours"] == pytest.approx(0.5 + now["bytes"] * 4 / 200)
    assert then["worker_hours"] == 0
    shown = shop.run("-o", "wide", *other)
    assert "isn't known" not in shown.stderr
    assert " 0 s " in shown.stdout


@pytest.mark.parametrize("kind", ["major", "minor"])
def test_hours_are_those_of_what_the_compaction_takes_in(tmp_path, kind):
    """As its plan has it: a minor one leaves the base."""
    build(tmp_path)
    shop = Shop(tmp_path)
    shop.config.write_text(f"database:\n  url: sqlite:///{tmp_path}/metastore.db\nhost: edge1\n", encoding="utf-8")
    (delta,) = tmp_path.glob("warehouse/**/orders/delta_0000001_0000001*")
    delta.rename(delta.with_name("base_0000001"))
    did(shop, kind, **STEPS, bytes_before=1)
    ratio = "1000" if kind == "minor" else "0.1"
    _, then = shop.json("simulate", "shop.orders", "--set", f"delta_ratio={ratio}", "--set", "delta_count=5")
    assert then[f"due_{kind}"] == 1
    planned = shop.json("plan", "shop.orders", "--type", kind)
    assert then["worker_hours"] == sum(file["length"] for file in planned["inputs"])
    assert (then["worker_hours"] < then["bytes"]) == (kind == "minor")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--set", "delta_count"], "isn't KEY=VALUE with one of initiator.thresholds.delta_count"),
        (["--set", "cleaner.threads=3"], "isn't KEY=VALUE"),
        (["--set", "delta_count=3", "--set", "initiator.thresholds.delta_count=4"], "delta_count is given twice"),
        (["--set", "delta_count=many"], "delta_count=many: not a number, or one that the threshold may not have"),
        (["--set", "delta_count=-1"], "delta_count=-1: not a number, or one"),
        ([], "--set"),
    ],
)
def test_thresholds_that_are_none(shop, words, said):
    """One line."""
    result = shop.run("simulate", *words)
    assert result.exit_code == 2
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1
