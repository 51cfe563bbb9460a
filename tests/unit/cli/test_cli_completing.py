"""What a TAB offers: tables, partitions and ids of a real embedded metastore; nothing where it can't be asked."""

import shlex
import time

import pytest
from click.shell_completion import ShellComplete
from hypothesis import given
from hypothesis import strategies as st

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


def offered(config, *words):
    *before, typed = words
    found = ShellComplete(cli, {}, "compactor", "_COMPACTOR_COMPLETE").get_completions(
        ["--config", str(config), *before], typed
    )
    return [item.value for item in found]


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


@pytest.mark.parametrize("settings", ["database:\n  url: postgresql://hive@127.0.0.1:1/none\n", "databse: {}\n", None])
def test_nothing_is_offered_where_nothing_can_be_asked(shop, settings, capfd):
    """No metastore, wrong settings, no settings: no completion, and no word on the terminal."""
    if settings is None:
        shop.config.unlink()
    else:
        shop.config.write_text(settings, encoding="utf-8")
    assert offered(shop.config, "explain", "sh") == []
    assert capfd.readouterr() == ("", "")
