"""`compactor orphans`: shows by default, and removes with --remove --yes."""

import os
import shutil
from pathlib import Path

import pytest

from compactor.cli.session import Code
from compactor.metastore.catalog import Catalog
from compactor.metastore.txn.transactions import Transactions
from compactor.roles.cleaner.quarantine.orphans import Leftovers


@pytest.fixture
def staging(shop):
    """An old staging directory in a table of the shop, whose catalog points to a copy of the warehouse of its own."""
    from tests.demo.rows import CatalogRows, MetastoreLedger
    from tests.demo.warehouse import Warehouse

    with shop.open() as database:
        for txn in Transactions(database).open_transactions():
            Transactions(database).abort(txn.txn_id, "in the way")
        warehouse = Warehouse(shop.root / "warehouse", MetastoreLedger(database), CatalogRows(database))
        table = warehouse.create_table("mart", "facts", [("id", "int")])
        assert Catalog(database).find_table("mart", "facts")
    path = Path(table.location) / ".compactor-99-a"
    path.mkdir()
    (path / "x").write_bytes(b"123")
    for one in (path / "x", path):
        os.utime(one, (1_000_000_000, 1_000_000_000))
    return path


def test_it_shows_and_changes_nothing(shop, staging):
    """Path, bytes and proof."""
    (one,) = shop.json("orphans", "mart.facts")
    assert (one["path"], one["bytes"], one["proven"], one["removed"]) == (f"file:{staging}", 3, True, False)
    assert "--remove --yes removes them" in shop.run("orphans", "mart", "--remove").stderr
    assert staging.exists()


def test_it_removes_what_is_proven(shop, staging):
    """Exit code 0; then nothing is left."""
    assert shop.run("orphans", "mart", "--remove", "--yes", "--older-than", "90000d").exit_code != Code.DONE
    assert staging.exists()
    result = shop.run("orphans", "mart", "--remove", "--yes")
    assert result.exit_code == Code.DONE, result.output
    assert not staging.exists()
    assert shop.run("orphans", "mart").exit_code == Code.NOTHING_TO_DO
    assert shop.run("orphans", "--yes").exit_code == Code.USAGE


def test_what_control_only_leaves_out_stays(shop, staging):
    """It isn't even looked into, and the command says so, also of a table that is named."""
    shop.config.write_text(shop.config.read_text(encoding="utf-8") + "control: {only: [shop.*]}\n", encoding="utf-8")
    result = shop.run("orphans", "mart", "--remove", "--yes")
    assert result.exit_code == Code.NOTHING_TO_DO
    assert "1 directory not looked into: control.only leaves it out" in result.stderr
    assert staging.exists()


def test_only_quarantine_is_looked_at(shop, staging):
    """With --quarantine; staging, of which there is some, is left alone."""
    assert shop.run("orphans", "mart", "--quarantine", "--remove", "--yes").exit_code == Code.NOTHING_TO_DO
    assert staging.exists()


def test_it_says_how_far_it_is(shop, staging, monkeypatch):
    """While it looks and removes; the Cleaner waits for the latter."""
    monkeypatch.setattr("compactor.cli.commands.leftovers.orphans._EVERY", 1)
    shutil.copytree(staging, staging.with_name(".compactor-98-a"))
    result = shop.run("orphans", "mart.facts", "--remove", "--yes")
    assert result.exit_code == Code.DONE
    looked, began, done, _ = result.stderr.splitlines()
    assert looked == "looking into 1 directory"
    assert (began.startswith("removing 2 directories"), done.startswith("1 of 2 directories")) == (True, True)


def test_what_was_removed_is_told_when_interrupted(shop, staging, monkeypatch):
    """The next call goes on with the rest."""
    other = staging.with_name(".compactor-98-a")
    shutil.copytree(staging, other)
    remove, left = Leftovers.remove, [1]

    def interrupted(*args):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return remove(*args)

    monkeypatch.setattr(Leftovers, "remove", interrupted)
    result = shop.run("orphans", "mart", "--remove", "--yes")
    assert (result.exit_code, "1 of 2 directories" in result.stderr) == (130, True), result.stderr
    assert staging.exists() != other.exists()
    monkeypatch.undo()
    assert shop.run("orphans", "mart", "--remove", "--yes").exit_code == Code.DONE
    assert not staging.exists()
    assert not other.exists()
