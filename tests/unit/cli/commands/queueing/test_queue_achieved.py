"""What queue and history tell of the work on entries."""

import pytest

from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.compaction_queue.work import StoredWork, Work, WorkTable
from compactor.metastore.db.own_tables import WORK
from compactor.status.records import achieved, progress

BEGUN = Work(
    worker="compactor-edge1-x-1",
    share=0.0,
    predicted_read=3 << 30,
    predicted_written=2 << 30,
    predicted_files=1,
    waiting_seconds=30.0,
    planning_seconds=10.0,
)
DONE = Work(
    **BEGUN.record()
    | {
        "compacted_as": "major",
        "share": 1.0,
        "writing_seconds": 65.0,
        "checking_seconds": 2.0,
        "publishing_seconds": 0.25,
        "files_before": 1024,
        "files_after": 1,
        "bytes_before": 3 << 30,
        "bytes_after": 1 << 30,
        "copied_bytes": 512 << 20,
        "recoded_bytes": 100 << 20,
        "rows_before": 12_000,
        "rows_after": 11_000,
    }
)


@pytest.fixture
def claimed(shop):
    """An entry that a worker has."""
    shop.json("enqueue", "shop.orders")
    with shop.open() as database:
        return Queue(database).claim("compactor-edge1-x-1", "test")


def put(shop, entry, work):
    with shop.open() as database:
        WorkTable(database).put(entry.id, entry.start_ms, work)


def end(shop, entry):
    with shop.open() as database:
        Queue(database).mark_failed(entry, "ended")


def test_history_shows_what_a_compaction_achieved(shop, claimed):
    """Before and after, copied, recoded, seconds by step and predicted against actual, for people and for programs."""
    put(shop, claimed, DONE)
    end(shop, claimed)
    (told,) = shop.json("history")
    assert {key: told[key] for key in DONE.record() if key != "share"} == {
        key: value for key, value in DONE.record().items() if key != "share"
    }
    heading, line = shop.run("-o", "tsv", "history").stdout.splitlines()
    cells = dict(zip(heading.split("\t"), line.split("\t"), strict=True))
    assert (cells["files_before"], cells["bytes_after"], cells["predicted_written"]) == (
        "1024",
        str(1 << 30),
        str(2 << 30),
    )
    heading, _, line = shop.run("-o", "wide", "history").stdout.splitlines()
    for title, cell in {
        "FILES": "1,024 → 1",
        "SIZE": "3.0 GiB → 1.0 GiB",
        "ROWS": "12,000 → 11,000",
        "COPIED": "512.0 MiB",
        "RECODED": "100.0 MiB",
        "OF PREDICTED": "50 %",
        "WAITED": "30 s",
        "PLANNED": "10 s",
        "WROTE": "1 min 5 s",
        "CHECKED": "2.0 s",
        "PUBLISHED": "0.2 s",
        "WORKER": "compactor-edge1-x-1",
    }.items():
        assert title in heading
        assert cell in line


def test_entries_without_a_row_show_nothing_there(shop, claimed):
    """Hive's own compactions, and those before the table was there."""
    end(shop, claimed)
    (told,) = shop.json("history")
    assert {told[key] for key in DONE.record() if key not in {"share", "worker"}} == {None}
    assert "SIZE" not in shop.run("history").stdout


def test_the_row_of_an_earlier_attempt_tells_nothing_of_a_later_one(shop, claimed):
    """Another worker may have claimed the entry again, one of Hive's too."""
    earlier = StoredWork(claimed.start_ms - 1, claimed.start_ms, DONE)
    assert set(progress(claimed, earlier, claimed.start_ms).values()) == {None}
    assert {value for key, value in achieved(claimed, earlier).items() if key != "worker"} == {None}


def test_queue_shows_how_far_a_compaction_is(shop, claimed):
    """In percent, with what is left; nothing of it for an entry whose work hasn't begun."""
    assert shop.json("queue")[0]["done"] is None
    put(shop, claimed, Work(**BEGUN.record() | {"share": 0.4, "planning_seconds": 0.0}))
    with shop.open() as database, database.transaction() as connection:
        connection.execute(WORK.update().values(start=claimed.start_ms, updated=claimed.start_ms + 40_000_000))
    (told,) = shop.json("queue")
    assert told["done"] == 0.4
    assert 0 < told["left_ms"] <= 100_000_000
    assert told["expected_end"].endswith("Z")
    table = shop.run("queue").stdout
    assert "40 %" in table
    assert "about 1 d 3 h" in table


def test_a_table_that_can_not_be_read_hides_no_entry(shop, claimed, monkeypatch):
    """One line says so."""
    from compactor.errors import CompactorError

    def denied(*_):
        raise CompactorError("permission denied")

    monkeypatch.setattr(WorkTable, "find", denied)
    result = shop.run("-o", "json", "queue")
    assert '"state": "working"' in result.stdout
    assert result.stderr == "what compactions achieve can't be read: permission denied\n"


def test_a_narrow_terminal_shows_files_and_sizes_first(shop, claimed, monkeypatch):
    """Seconds by step are left out before what became smaller."""
    put(shop, claimed, DONE)
    end(shop, claimed)
    for key, value in {"FORCE_COLOR": "1", "TERM": "dumb", "COLUMNS": "125", "LINES": "20"}.items():
        monkeypatch.setenv(key, value)
    result = shop.run("history")
    assert "1,024 → 1" in result.stdout
    assert "3.0 GiB → 1.0 GiB" in result.stdout
    assert "WROTE" not in result.stdout
    assert "-o wide shows all" in result.stderr
