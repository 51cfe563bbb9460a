"""cancel: what waits leaves the queue, what is worked on is asked to stop."""

import pytest

from compactor.metastore.compaction_queue.queue import Queue, asked_to_stop
from compactor.metastore.model import QueueState

WORKER = f"compactor-edge1-{'0a' * 16}-1"


def claimed(shop, worker=WORKER):
    shop.json("enqueue", "shop.orders")
    with shop.open() as database:
        return Queue(database).claim(worker, "1")


def test_what_waits_is_taken_out(shop):
    """It ends aborted, with who wanted it."""
    number = shop.json("enqueue", "shop.orders")["id"]
    said = shop.json("cancel", str(number))
    assert (said["state"], said["message"]) == ("aborted", "taken out of the queue")
    assert shop.json("queue") == []
    (ended,) = shop.json("history")
    assert ended["message"].startswith("cancelled by ")
    assert ended["message"].endswith("@edge1")


def test_what_is_worked_on_is_asked_to_stop(shop):
    """The entry stays its worker's, who undoes and ends it."""
    entry = claimed(shop)
    said = shop.json("cancel", str(entry.id))
    assert (said["state"], said["message"]) == ("working", f"worker {WORKER} was asked to stop")
    with shop.open() as database:
        (now,) = Queue(database).entries()
    assert now.worker_id == WORKER
    assert asked_to_stop(now).endswith("@edge1")


def test_waiting_ends_when_the_worker_has(shop):
    """The exit code tells that it could be stopped; a time-out leaves the wish."""
    entry = claimed(shop)
    result = shop.run("cancel", str(entry.id), "--wait", "--timeout", "0.1")
    assert result.exit_code == 1
    assert "it stays asked to stop" in result.stderr
    with shop.open() as database:
        Queue(database).mark_aborted(Queue(database).entries()[0], "cancelled by ann")
    assert shop.run("cancel", str(entry.id), "--wait").exit_code == 3


def test_hives_worker_cannot_be_asked(shop):
    """It says what to do instead, and leaves the entry as it is."""
    entry = claimed(shop, "hms1-17")
    result = shop.run("cancel", str(entry.id))
    assert result.exit_code == 4
    assert "a worker of Hive's" in result.stderr
    with shop.open() as database:
        assert Queue(database).entries()[0].job_id is None


def test_what_has_ended_is_nothing_to_do(shop):
    """Committed work stays."""
    entry = claimed(shop)
    with shop.open() as database:
        Queue(database).mark_failed(entry, "broke")
    result = shop.run("cancel", str(entry.id))
    assert result.exit_code == 3
    assert "has ended already: it is failed" in result.stdout


@pytest.mark.parametrize(
    ("args", "said"),
    [(["99"], "there is no compaction 99"), (["0"], "0 is no id"), (["1", "--timeout", "3"], "--wait only")],
)
def test_what_cannot_be_meant(shop, args, said):
    """One line, exit 2."""
    result = shop.run("cancel", *args)
    assert result.exit_code == 2
    assert said in result.stderr


def test_queue_and_history_show_where_an_application_can_be_looked_at(shop, tmp_path, monkeypatch):
    """By yarn-site.xml; its id where nobody says where the pages are."""
    entry = claimed(shop)
    with shop.open() as database:
        Queue(database).set_job_id(entry, "application_1700000000000_0042")
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    (shown,) = shop.json("queue")
    assert (shown["job"], shown["tracking_url"]) == ("application_1700000000000_0042", None)
    assert "application_1700000000000_0042" in shop.run("queue").stdout
    (tmp_path / "yarn-site.xml").write_text(
        "<configuration><property><name>yarn.resourcemanager.hostname</name><value>rm1</value></property></configuration>",
        encoding="utf-8",
    )
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    (shown,) = shop.json("queue")
    assert shown["tracking_url"] == "http://rm1:8088/cluster/app/application_1700000000000_0042"
    with shop.open() as database:
        (entry,) = Queue(database).entries(QueueState.WORKING)
        Queue(database).mark_failed(entry, "broke")
    assert shop.json("history")[0]["tracking_url"] == shown["tracking_url"]
