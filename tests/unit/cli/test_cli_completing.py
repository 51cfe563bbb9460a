"""What a TAB offers: tables, partitions and ids of a real embedded metastore; nothing where it can't be asked."""

import pytest
from click.shell_completion import ShellComplete

from compactor.cli.root import cli


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
        ("shop.events/day=2024-01-02", ["shop.events/day=2024-01-02/path=x y"]),
        ("shop.none/", []),
        ("nobody.", []),
    ],
)
def test_tables_and_partitions(shop, typed, names):
    """As far as is typed, whatever the case of letters."""
    assert offered(shop.config, "explain", typed) == offered(shop.config, "why", typed) == names


def test_ids(shop):
    """Of the queue for what may be cancelled, of the history for what may be asked for again."""
    number = str(shop.json("enqueue", "shop.orders")["id"])
    assert offered(shop.config, "cancel", "") == [number]
    assert offered(shop.config, "retry", "") == []
    shop.json("cancel", number)
    assert offered(shop.config, "cancel", "") == []
    assert offered(shop.config, "retry", "") == [number]


@pytest.mark.parametrize("settings", ["database:\n  url: postgresql://hive@127.0.0.1:1/none\n", "databse: {}\n", None])
def test_nothing_is_offered_where_nothing_can_be_asked(shop, settings, capfd):
    """No metastore, wrong settings, no settings: no completion, and no word on the terminal."""
    if settings is None:
        shop.config.unlink()
    else:
        shop.config.write_text(settings, encoding="utf-8")
    assert offered(shop.config, "explain", "sh") == []
    assert capfd.readouterr() == ("", "")
