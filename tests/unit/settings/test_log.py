"""Log: one line an event, libraries included, secrets out."""

import io
import json
import logging
import os

import pytest
import structlog

from compactor import log


@pytest.fixture
def stream():
    """Log lines as JSON in memory; the process's own set-up comes back afterwards."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    text = io.StringIO()
    log.configure("info", "json", text)
    yield text
    root.handlers[:] = before
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


def lines(stream: io.StringIO) -> list[dict]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_carries_what_it_is_about(stream):
    """db, table, partition and id stand on every line inside `about`, and on none after it."""
    logger = log.get_logger("compactor.x")
    with log.about(database="d", table="t", partition="p=1", entry_id=7):
        logger.info("claimed", kind="major")
    logger.info("idle")
    first, second = lines(stream)
    assert {key: first[key] for key in ("event", "level", "logger", "db", "table", "partition", "id", "kind")} == {
        "event": "claimed",
        "level": "info",
        "logger": "compactor.x",
        "db": "d",
        "table": "t",
        "partition": "p=1",
        "id": 7,
        "kind": "major",
    }
    assert "db" not in second


def test_parts_that_do_not_apply_are_left_out(stream):
    """An unpartitioned table's lines have no partition key."""
    with log.about(database="d", table="t"):
        log.get_logger("compactor.x").info("x")
    assert set(lines(stream)[0]) == {"db", "table", "event", "level", "logger", "timestamp"}


def test_libraries_take_the_same_way(stream):
    """A stdlib warning of a library is a JSON line too, with our context; its info lines are not wanted."""
    with log.about(table="t"):
        logging.getLogger("kazoo.client").warning("lost %s", "zk1")
        logging.getLogger("kazoo.client").info("chatter")
    (line,) = lines(stream)
    assert (line["event"], line["level"], line["logger"], line["table"]) == ("lost zk1", "warning", "kazoo.client", "t")


@pytest.mark.parametrize(
    ("event", "facts"),
    [
        ("x", {"password": "geheim"}),
        ("x", {"db_password_file_content": "geheim"}),
        ("x", {"url": "postgresql://u:geheim@h/db"}),
        ("x", {"nested": {"token": "geheim", "list": ["password=geheim"]}}),
        ("connect failed: password='geheim' host=h", {}),
        ("url postgresql://u:geheim@h/db", {}),
        ("x", {"error": ValueError("postgresql://u:geheim@h/db")}),
    ],
)
def test_a_secret_never_reaches_a_line(stream, event, facts):
    """By key, by shape, nested, in a message or in an exception."""
    log.get_logger("compactor.x").warning(event, **facts)
    assert "geheim" not in stream.getvalue()
    assert log.HIDDEN in stream.getvalue()


def test_a_known_secret_is_hidden_wherever_it_stands(stream):
    """What `keep_secret` was told is replaced in any text, a library's too, and in tracebacks."""
    log.keep_secret("Zebra!7")
    logging.getLogger("psycopg").error("auth Zebra!7 failed")
    try:
        raise ValueError("with Zebra!7 inside")
    except ValueError:
        log.get_logger("compactor.x").exception("broke")
    assert "Zebra!7" not in stream.getvalue()
    assert "ValueError" in stream.getvalue()


def test_below_the_level_nothing_is_said(stream):
    """Debug lines are silent at info."""
    log.get_logger("compactor.x").debug("quiet")
    assert stream.getvalue() == ""


def test_a_console_gets_readable_lines():
    """`console` writes text, not JSON, and no colours where there is no terminal."""
    text = io.StringIO()
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        log.configure("info", "console", text)
        log.get_logger("compactor.x").info("claimed", table="t")
    finally:
        root.handlers[:] = before
        root.setLevel(level)
        logging.captureWarnings(capture=False)
        structlog.reset_defaults()
    assert "claimed" in text.getvalue()
    assert "\x1b" not in text.getvalue()
    assert not text.getvalue().startswith("{")


@pytest.mark.parametrize("named", [True, False])
def test_the_journal_is_told_how_grave_a_line_is(tmp_path, monkeypatch, stream, named):
    """
    Where the stream is the one that JOURNAL_STREAM names, each line begins with its syslog priority, so that
    `journalctl -p warning` finds it; else none does.
    """
    with (tmp_path / "journal").open("w+", encoding="utf-8") as journal:
        there = os.fstat(journal.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{there.st_dev}:{there.st_ino + (not named)}")
        log.configure("debug", "json", journal)
        logger = log.get_logger("compactor.x")
        for level in ("debug", "info", "warning", "error"):
            getattr(logger, level)("said")
        journal.seek(0)
        said = journal.read().splitlines()
    log.configure("info", "json", stream)
    assert [line.partition("{")[0] for line in said] == (["<7>", "<6>", "<4>", "<3>"] if named else [""] * 4)
    assert [json.loads(line[line.index("{") :])["event"] for line in said] == ["said"] * 4
