"""What a TAB offers: tables, partitions and ids of a real embedded metastore; nothing where it can't be asked."""

import itertools
import os
import shlex
import stat
import subprocess
import sys
import time

import pytest
from click.shell_completion import ShellComplete, get_completion_class
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from compactor.cli import completing
from compactor.cli.root import cli
from compactor.cli.session import Session
from compactor.metastore.catalog import Catalog
from compactor.metastore.compaction_queue.queue import Queue
from compactor.roles.identity import Identity


class AnyContext:
    """A run whose metastore isn't asked."""

    def find_root(self):
        return self

    obj = type("Anything", (Session,), {"database": lambda *_, **__: None})()


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache directory of the test's own, which isn't there yet; and as much time as a busy machine needs."""
    monkeypatch.setattr(completing, "_SECONDS", 60.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "compactor"


def offered(config, *words, shell=ShellComplete):
    *before, typed = words
    found = shell(cli, {}, "compactor", "_COMPACTOR_COMPLETE").get_completions(
        ["--config", str(config), *before], typed
    )
    return [item.value for item in found]


def remembered(config, *words):
    """As a shell gets them: from the cache, where it has them."""
    return offered(config, *words, shell=get_completion_class("bash"))


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        ("sh", ["shop."]),
        ("SHOP.O", ["shop.orders"]),
        ("shop.", ["shop.events", "shop.orders"]),
        ("shop.events/day=2024-01-01", ["shop.events/day=2024-01-01/path=a%2Fb"]),
        ("shop.events/day=2024-01-02", []),
        ("shop.none/", []),
        ("nobody.", []),
    ],
)
def test_tables_and_partitions(shop, typed, names):
    """As far as is typed, whatever the case of letters."""
    assert offered(shop.config, "explain", typed) == offered(shop.config, "why", typed) == names
    assert offered(shop.config, "pause", "--table", typed) == offered(shop.config, "resume", "--table", typed) == names


@given(st.text("ab$(`;&|<>\"' \\\n*?!~#{}[]=/%:", min_size=1))
def test_what_a_shell_would_run_is_not_offered(value):
    """It would stand on the command line as it is, in double quotes too."""
    offered_names = completing._quietly(lambda *_: [value])(AnyContext(), None, "")
    assert [item.value for item in offered_names] in ([], [value])
    if offered_names:
        assert shlex.quote(value) == value or set(value) <= set("ab=/%:")


def test_a_statement_that_waits_is_given_up(shop, monkeypatch):
    """Somebody may have locked the table: a TAB waits two seconds."""
    monkeypatch.setattr(completing, "_SECONDS", 0.2)
    monkeypatch.setattr(Catalog, "databases", lambda _: time.sleep(60))
    assert offered(shop.config, "explain", "sh") == []


def test_ids(shop):
    """Of the queue for what may be cancelled, of the history for what may be asked for again."""
    number = str(shop.json("enqueue", "shop.orders")["id"])
    assert offered(shop.config, "cancel", "") == [number]
    assert offered(shop.config, "retry", "") == []
    shop.json("cancel", number)
    assert offered(shop.config, "cancel", "") == []
    assert offered(shop.config, "retry", "") == [number]


def test_pools_and_hosts(shop):
    """Pools of the settings and of what is queued; this host, and those whose workers the queue or the history name."""
    with shop.config.open("a", encoding="utf-8") as config:
        config.write("worker: {pools: {night: 2}}\n")
    shop.json("enqueue", "shop.orders", "--pool", "etl")
    for command in (["queue"], ["history"], ["pause"]):
        assert offered(shop.config, *command, "--pool", "") == ["default", "etl", "night"]
    assert offered(shop.config, "enqueue", "shop.orders", "--pool", "") == ["etl", "night"]
    assert offered(shop.config, "drain", "") == ["edge1"]
    with shop.open() as database:
        assert Queue(database).claim(Identity("edge2", "ann").worker_id(1), "1", pool="etl") is not None
    assert offered(shop.config, "drain", "e") == ["edge1", "edge2"]


def test_databases_and_workers(shop):
    """Of the catalog; and those that the queue and the history name, Hive's own among them."""
    for command in ("pause", "resume"):
        assert offered(shop.config, command, "--database", "") == ["shop"]
        assert offered(shop.config, command, "--database", "shop.") == []
    ours, theirs = Identity("edge2", "ann").worker_id(1), "hms1-42"
    shop.json("enqueue", "shop.orders")
    shop.json("enqueue", "shop.events/day=2024-01-01/path=a/b")
    with shop.open() as database:
        queue = Queue(database)
        queue.mark_failed(queue.claim(theirs, "1"), "x")
        assert queue.claim(ours, "1") is not None
    for command in ("queue", "history"):
        assert offered(shop.config, command, "--worker", "") == [ours, theirs]
        assert offered(shop.config, command, "--worker", "h") == [theirs]


def test_what_may_be_restored(shop):
    """Compactions that succeeded, of the table or partition that is named."""
    numbers = {}
    with shop.open() as database:
        for name in ("shop.orders", "shop.events/day=2024-01-01/path=a/b"):
            numbers[name] = str(shop.json("enqueue", name)["id"])
            database.write(
                lambda connection: (
                    connection.execute(
                        text(
                            "INSERT INTO COMPLETED_COMPACTIONS (CC_ID, CC_DATABASE, CC_TABLE, CC_PARTITION, CC_STATE, CC_TYPE)"
                            " SELECT CQ_ID, CQ_DATABASE, CQ_TABLE, CQ_PARTITION, 's', CQ_TYPE FROM COMPACTION_QUEUE"
                        )
                    ).rowcount
                )
            )
            database.write(lambda connection: connection.execute(text("DELETE FROM COMPACTION_QUEUE")).rowcount)
    for name, number in numbers.items():
        assert offered(shop.config, "restore", name, "--entry", "") == [number]
    assert offered(shop.config, "restore", "shop.events", "--partition", "day=2024-01-02/path=x y", "--entry", "") == []
    assert offered(shop.config, "restore", "shop.none", "--entry", "") == []
    assert offered(shop.config, "restore", "--entry", "") == sorted(numbers.values())


WORDS = (
    "",
    "s",
    "SH",
    "shop",
    "shop.",
    "shop.o",
    "shop.e",
    "shop.events/",
    "shop.events/day=2024-01-01",
    "shop.x",
    "x",
)


def test_the_cache_answers_as_the_metastore_does(shop):
    """Whatever was asked a moment before, in any command."""
    fresh = {word: offered(shop.config, "explain", word) for word in WORDS}
    for before, word in itertools.product(WORDS, WORDS):
        assert remembered(shop.config, "explain", before) == fresh[before]
        assert remembered(shop.config, "explain", word) == fresh[word]
    assert remembered(shop.config, "pause", "--pool", "") == ["default"]


def test_a_settings_file_in_the_home_directory(shop, monkeypatch):
    """A shell hands the tilde over as it was typed."""
    monkeypatch.setenv("HOME", str(shop.config.parent))
    for _ in range(2):
        assert remembered(f"~/{shop.config.name}", "explain", "sh") == ["shop."]


def test_of_many_names_only_the_first_are_kept(shop, monkeypatch):
    """A longer word may fit one that wasn't among them."""
    monkeypatch.setattr(completing, "_MOST", 2)
    monkeypatch.setattr(Catalog, "databases", lambda _: ["s1", "s2", "s31"])
    assert remembered(shop.config, "explain", "s") == ["s1.", "s2."]
    assert remembered(shop.config, "explain", "s3") == ["s31."]


def test_the_cache_is_used_for_a_while_and_for_its_database_alone(shop, monkeypatch):
    """A new table is offered when the names are too old, or where the settings name another database."""
    assert remembered(shop.config, "explain", "sh") == ["shop."]
    monkeypatch.setattr(Catalog, "databases", lambda _: ["shed"])
    assert remembered(shop.config, "explain", "sh") == ["shop."]
    shop.config.write_text(shop.config.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert remembered(shop.config, "explain", "sh") == ["shed."]
    monkeypatch.setattr(Catalog, "databases", lambda _: ["ship"])
    monkeypatch.setenv("COMPACTOR_DATABASE__URL", f"sqlite:///{shop.root}/../{shop.root.name}/metastore.db")
    assert remembered(shop.config, "explain", "sh") == ["ship."]
    monkeypatch.setattr(Catalog, "databases", lambda _: ["shot"])
    later = time.time() + completing._FRESH_SECONDS
    monkeypatch.setattr(completing.time, "time", lambda: later)
    assert remembered(shop.config, "explain", "sh") == ["shot."]


def test_the_cache_is_private(shop, cache, monkeypatch):
    """One file, for its owner alone; none where the address has a password in it, and none without a name to keep."""
    assert remembered(shop.config, "explain", "nobody") == []
    assert not cache.exists()
    assert remembered(shop.config, "explain", "sh") == ["shop."]
    (file,) = cache.iterdir()
    assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(cache.stat().st_mode)) == (0o600, 0o700)
    monkeypatch.setenv("COMPACTOR_DATABASE__PASSWORD", "secret")
    assert completing._cache_file(["--config", str(shop.config)]) == file
    for address in ("postgresql://hive:secret@there/hms", "mysql://there/hms?password=secret"):
        monkeypatch.setenv("COMPACTOR_DATABASE__URL", address)
        assert completing._cache_file(["--config", str(shop.config)]) is None


@pytest.mark.parametrize("content", [b"", b"\xff", b"{}", b"null", b"[1]", b"[[1]]", b'[["x", [], "", []]]'])
def test_trouble_with_the_cache_is_passed_over(shop, cache, monkeypatch, capfd, content):
    """What isn't ours in it, and no place for it."""
    remembered(shop.config, "explain", "sh")
    (file,) = cache.iterdir()
    file.write_bytes(content)
    assert remembered(shop.config, "explain", "sh") == ["shop."]
    of_other_settings, of_another_program = cache / f"{'0' * 64}.json", cache / "state.json"
    for old in (of_other_settings, of_another_program):
        old.write_bytes(b"")
        os.utime(old, (0, 0))
    assert remembered(shop.config, "explain", "shop.") == ["shop.events", "shop.orders"]
    assert set(cache.iterdir()) == {file, of_another_program}
    monkeypatch.setenv("XDG_CACHE_HOME", str(shop.config))
    assert remembered(shop.config, "explain", "sh") == ["shop."]
    assert capfd.readouterr() == ("", "")


def test_a_tab_that_the_cache_answers_loads_little(shop):
    """Neither the database's driver nor the settings: that would be most of its time."""
    words = f"compactor --config {shop.config} enqueue shop."
    tab = {**os.environ, "_COMPACTOR_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "4"}
    loaded = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-m", "compactor.cli"],
            env=tab,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == ["plain,shop.events", "plain,shop.orders"]
        loaded.append({line.rpartition("|")[2].strip() for line in done.stderr.splitlines()})
    heavy = {"sqlalchemy", "pydantic", "structlog"}
    assert heavy <= loaded[0]
    assert not heavy & loaded[1]


@pytest.mark.parametrize("settings", ["database:\n  url: postgresql://hive@127.0.0.1:1/none\n", "databse: {}\n", None])
def test_nothing_is_offered_where_nothing_can_be_asked(shop, settings, capfd):
    """No metastore, wrong settings, no settings: no completion, and no word on the terminal."""
    if settings is None:
        shop.config.unlink()
    else:
        shop.config.write_text(settings, encoding="utf-8")
    assert offered(shop.config, "explain", "sh") == []
    assert capfd.readouterr() == ("", "")
