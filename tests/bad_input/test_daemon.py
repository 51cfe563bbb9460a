"""
`compactor run` as a process, with real Spark, over a warehouse in which one table is broken: it says so once, and goes
on with the others.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import yaml

from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.db.database import Database
from tests import forked
from tests.bad_input import damage
from tests.demo.rows import CatalogRows, MetastoreLedger
from tests.demo.warehouse import Warehouse
from tests.needs import missing
from tests.reference.compare import assert_as_expected

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]
PATIENCE = 180.0
BROKEN = {"cut": "corrupt-file", "linked": "unknown-name", "odd": "unknown-name"}


def break_tables(tables, folder):
    cut, linked, odd = (
        next((tables[name].location / "delta_0000002_0000002_0000").glob("bucket_*")) for name in BROKEN
    )
    damage.truncate(cut, 40)
    linked.rename(folder / "elsewhere")
    linked.symlink_to(folder / "elsewhere")
    (odd.parent / "part-0").write_text("x")


def ended(url):
    with Database(url, read_only=True) as database:
        return {(entry.entity.table, entry.state.value): entry.error_message for entry in Queue(database).history()}


def test_broken_tables_stop_nobody(tmp_path):
    """
    More broken tables than workers, all asked for first: each has one refused entry, the good table is compacted and
    cleaned, TERM ends with 0.
    """
    if shutil.which("java") is None:
        missing("Spark needs Java, which isn't installed")
    url = f"sqlite:///{tmp_path}/metastore.db"
    config = tmp_path / "compactor.yaml"
    sections = {
        "database": {"url": url},
        "initiator": {"interval_seconds": 0.5, "thresholds": {"delta_count": 2}},
        "worker": {"threads": 2, "poll_seconds": 0.2},
        "cleaner": {"interval_seconds": 0.3},
        "housekeeper": {"enabled": "always", "interval_seconds": 0.5},
        "http": {"host": "127.0.0.1", "port": 0},
        "txn": {"timeout_seconds": 3},
        "spark": {"master": "local[1]"},
        "log": {"format": "json"},
    }
    config.write_text(yaml.safe_dump(sections), encoding="utf-8")
    with Database(url, create=True) as database:
        warehouse = Warehouse(tmp_path / "warehouse", MetastoreLedger(database), CatalogRows(database))
        tables = {}
        for name in (*BROKEN, "good"):
            tables[name] = warehouse.create_table("db", name, [("id", "int"), ("v", "string")])
            for number in range(4):
                with warehouse.begin() as txn:
                    txn.insert(tables[name], [(number, "v")])
        break_tables(tables, tmp_path)
    before = {name: sorted(path.name for path in tables[name].location.rglob("*")) for name in BROKEN}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COMPACTOR_")} | {
        "TMPDIR": str(tmp_path)
    }
    for name in BROKEN:
        asked = forked.command(
            ["--config", str(config), "enqueue", f"db.{name}"], environment=environment, folder=tmp_path
        )
        assert asked.returncode == 0, asked.stderr
    log = (tmp_path / "log").open("wb")
    with log:
        process = subprocess.Popen(
            [sys.executable, "-m", "compactor.cli", "--config", str(config), "run"],
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    try:
        wanted = {(name, "refused") for name in BROKEN} | {("good", "succeeded")}
        deadline = time.monotonic() + PATIENCE
        while not wanted <= ended(url).keys():
            assert process.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline, (ended(url), (tmp_path / "log").read_text()[-4000:])
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for name, reason in BROKEN.items():
        assert ended(url)[name, "refused"].startswith(f"{reason}: ")
        assert sorted(path.name for path in tables[name].location.rglob("*")) == before[name]
    said = (tmp_path / "log").read_text(encoding="utf-8")
    assert "Traceback" not in said
    assert all(isinstance(json.loads(line), dict) for line in said.splitlines() if line.startswith("{"))
    with Database(url) as database:
        warehouse.ledger = MetastoreLedger(database)
        assert_as_expected(warehouse, tables["good"])
