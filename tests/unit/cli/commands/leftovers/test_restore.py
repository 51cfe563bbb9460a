"""`compactor restore`: what is in quarantine, and what is undone with --yes."""

import getpass
import re

import pytest

from compactor.cli.commands.leftovers.restore import _names
from compactor.cli.session import Code
from compactor.settings import load_settings
from tests.unit.cli.conftest import Shop
from tests.unit.roles.cleaner.quarantine.test_restore import visible
from tests.unit.roles.world import World


@pytest.fixture
def kept(shop: Shop):
    """A compacted table of the shop's metastore, with what was replaced in quarantine."""
    with shop.open() as database:
        world = World(database, shop.root)
        for txn in world.services.transactions.open_transactions():
            world.services.transactions.abort(txn.txn_id, "in the way of the Cleaner")
        world.configure(cleaner={"quarantine_hours": 2})
        table = world.table("facts", rows=3, database="mart")
        world.compact(table)
        world.clean()
    return table


def test_what_is_in_quarantine_is_shown_and_nothing_is_changed(shop, kept):
    """Compaction, age, until when, directories, bytes, and whether it can be undone."""
    before = visible(kept)
    (one,) = shop.json("restore", "mart.facts")
    assert (one["restorable"], one["why_not"], len(one["directories"])) == (True, None, 3)
    assert one["bytes"] > 0
    assert 0 <= one["left_ms"] <= 2 * 3_600_000
    assert visible(kept) == before
    result = shop.run("restore", "mart.facts")
    assert "RESTORABLE" in result.stdout


def test_with_yes_the_newest_is_undone(shop, kept):
    """The answer names what is read again, and says that the Initiator may queue it anew."""
    number = shop.json("restore", "mart.facts")[0]["entry"]
    result = shop.run("restore", "mart.facts", "--entry", str(number), "--yes")
    assert result.exit_code == Code.DONE, result.output
    assert len(visible(kept)) == 3
    assert "compactor pause --table mart.facts" in result.stderr
    assert re.search(r" +delta_0000001_\w+, delta_0000002_\w+ and delta_0000003_\w+\n", result.stdout)
    (ended,) = (one for one in shop.json("history", "mart.facts") if one["id"] == number)
    assert (ended["state"], ended["undone_by"]) == (
        "succeeded",
        f"{getpass.getuser()}@{load_settings(shop.config).host_name}",
    )
    assert ended["undone"] >= ended["ended"]
    assert ended["bytes_before"] > 0  # what it had achieved stays
    assert f" by {ended['undone_by']}" in shop.run("history", "mart.facts", "-o", "wide").stdout
    assert shop.json("explain", "mart.facts")["history"][0]["undone"] == ended["undone"]
    assert f"{number} succeeded " in (drawn := shop.run("explain", "mart.facts").stdout)
    assert re.search(rf"; undone 2.* by {ended['undone_by']}", drawn)
    again = shop.run("restore", "mart.facts", "--yes")
    assert again.exit_code == Code.REFUSED
    assert "it holds what a restore took away" in again.stderr


def test_what_cannot_be_undone_is_refused_with_the_reason(shop, kept):
    """Exit code 4; of another entry, or with none in quarantine, too."""
    for yes in ([], ["--yes"]):
        other = shop.run("restore", "mart.facts", "--entry", "999", *yes)
        assert other.exit_code == (Code.REFUSED if yes else Code.NOTHING_TO_DO)
        assert "nothing of compaction 999 of mart.facts is in quarantine" in other.stderr
    assert shop.run("restore", "shop.orders", "--yes").exit_code == Code.REFUSED
    assert shop.run("restore", "shop.orders").exit_code == Code.NOTHING_TO_DO
    assert shop.run("restore", "mart.nothing").exit_code == Code.REFUSED


@pytest.mark.parametrize(
    ("names", "said"),
    [([], ""), (["a"], "a"), (["a", "b", "c"], "a, b and c"), ([*"abcdefg"], "a, b, c and 4 more"), (None, "")],
)
def test_directories_are_named_in_words(names, said):
    """Programs get the list."""
    assert _names(names) == said
