"""A real embedded metastore with tables in it, and a way to run commands on it."""

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from compactor.cli.naming import filters
from compactor.cli.root import cli
from compactor.metastore.db.database import Database
from tests.demo.rows import CatalogRows, MetastoreLedger
from tests.demo.warehouse import Warehouse


@dataclass
class Shop:
    """A warehouse below `root`, and its metastore; `run` is the command line on it."""

    root: Path

    @property
    def config(self):
        return self.root / "compactor.yaml"

    def open(self):
        return Database(f"sqlite:///{self.root}/metastore.db", create=True)

    def run(self, *args):
        return CliRunner().invoke(cli, ["--config", str(self.config), *args])

    def json(self, *args):
        result = self.run("--output", "json", *args)
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)


def build(root):
    with Database(f"sqlite:///{root}/metastore.db", create=True) as database:
        warehouse = Warehouse(root / "warehouse", MetastoreLedger(database), CatalogRows(database))
        orders = warehouse.create_table("shop", "orders", [("id", "int"), ("state", "string")])
        for start in range(12):
            with warehouse.begin() as txn:
                txn.insert(orders, [(10 * start + n, "new") for n in range(10)])
        with warehouse.begin() as txn:
            txn.delete(orders, lambda row: row[0] < 5)
        lost = warehouse.begin()
        lost.insert(orders, [(999, "lost")])
        lost.abort()
        events = warehouse.create_table(
            "shop", "events", [("kind", "string")], partition_keys=[("day", "string"), ("path", "string")]
        )
        for day, path in (("2024-01-01", "a/b"), ("2024-01-02", "x y")):
            with warehouse.begin() as txn:
                txn.insert(events, [("click",)], [day, path])
        warehouse.create_table("shop", "plain", [("a", "int")], transactional=False)
        writer = warehouse.begin()
        writer.insert(orders, [(1000, "open")])
    return warehouse


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    root = tmp_path_factory.mktemp("shop")
    build(root)
    return root


@pytest.fixture
def shop(built, tmp_path, monkeypatch):
    """A copy of its own: paths in the catalog point to the first one, which no test changes."""
    for name in [name for name in os.environ if name.startswith("COMPACTOR_")]:
        monkeypatch.delenv(name)
    for file in built.glob("metastore.db*"):
        shutil.copy(file, tmp_path / file.name)
    found = Shop(tmp_path)
    found.config.write_text(f"database:\n  url: sqlite:///{tmp_path}/metastore.db\nhost: edge1\n", encoding="utf-8")
    return found


@pytest.fixture
def two_looks(monkeypatch):
    """A `--watch` that is interrupted after its second picture; the seconds that it waits after each."""
    waits = []

    def sleep(seconds):
        waits.append(seconds)
        if len(waits) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(filters.time, "sleep", sleep)
    return waits
