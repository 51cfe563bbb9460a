"""
The dashboard: made by its generator, and every query of it finds data in a real Prometheus that scrapes a real daemon
at work.
"""

import json
import math
import re
import shutil
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator

import pytest

from compactor.metastore.db.database import Database
from tests.demo.rows import CatalogRows, MetastoreLedger
from tests.demo.warehouse import Warehouse
from tests.deploy.monitoring import concrete, prometheus
from tests.deploy.service import DEPLOY, fetch, prepare, running
from tests.needs import missing
from tests.ports import free_port

pytestmark = [pytest.mark.deploy, pytest.mark.spark, pytest.mark.timeout(600)]
FOLDER = DEPLOY / "grafana"
DASHBOARD = json.loads((FOLDER / "compactor.json").read_text())
TABLES = 60
"""Compacted one after the other: rates and quantiles need events in more than one scrape."""


def targets(panels) -> Iterator[tuple[str, str]]:
    for panel in panels:
        yield from targets(panel.get("panels", ()))
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


QUERIES = list(targets(DASHBOARD["panels"]))


def test_the_file_is_what_the_generator_makes():
    """Nobody changed one without the other."""
    made = subprocess.run(
        [sys.executable, "-c", "import generate; print(generate.text(), end='')"],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert made.stdout == (FOLDER / "compactor.json").read_text()


def test_every_panel_asks_the_chosen_source_and_job():
    """Nothing is bound to one Grafana's data source or one Prometheus' job."""
    assert len(QUERIES) > 20
    for title, query in QUERIES:
        assert 'job=~"$job"' in query, title
    text = json.dumps(DASHBOARD["panels"])
    assert set(re.findall(r'"uid": "([^"]+)"', text)) == {"${datasource}"}
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in DASHBOARD["panels"]]
    assert len(set(places)) == len(places)


def fill(folder) -> None:
    """Tables that are due, one that isn't, and an aborted write."""
    with Database(f"sqlite:///{folder}/metastore.db") as database:
        warehouse = Warehouse(folder / "warehouse", MetastoreLedger(database), CatalogRows(database))
        for number in range(TABLES + 1):
            table = warehouse.create_table("db", f"t{number}", [("id", "int"), ("v", "string")])
            for row in range(4 if number < TABLES else 1):
                with warehouse.begin() as txn:
                    txn.insert(table, [(row, "v")])
        txn = warehouse.begin()
        txn.insert(table, [(9, "never")])
        txn.abort()


def ask(address: str, query: str) -> list[float]:
    """The values that a query finds now."""
    answer = json.loads(fetch(f"{address}/api/v1/query?{urllib.parse.urlencode({'query': concrete(query)})}"))
    assert answer["status"] == "success", answer
    return [float(sample["value"][1]) for sample in answer["data"]["result"]]


def test_every_query_finds_data(tmp_path):
    """
    While the daemon compacts and cleans a small warehouse, each query of the dashboard gives numbers at least once, and
    no alert that pages fires.
    """
    if shutil.which("java") is None:
        missing("Spark needs Java, which isn't installed")
    if shutil.which("prometheus") is None:
        missing("Prometheus isn't installed (Debian: apt-get install prometheus)")
    port = free_port()
    prepare(tmp_path)
    fill(tmp_path)
    found: dict[str, list[float]] = {}
    with (
        prometheus(tmp_path, f"127.0.0.1:{port}", seconds=1) as address,
        running(tmp_path, http={"host": "127.0.0.1", "port": port}, drain={"timeout_seconds": 30}) as service,
    ):

        def unanswered() -> list[str]:
            for _, query in QUERIES:
                if query not in found and (values := [value for value in ask(address, query) if not math.isnan(value)]):
                    found[query] = values
            return [f"{title}: {query}" for title, query in QUERIES if query not in found]

        service.until(unanswered, lambda missing_ones: not missing_ones)
        service.until(
            lambda: ask(address, 'sum(compactor_jobs_total{outcome="compacted"})'),
            lambda values: values == [float(TABLES)],
        )
        service.until(lambda: ask(address, "sum(up)"), lambda values: values == [1.0])
        assert ask(address, 'ALERTS{severity="critical", alertstate="firing"}') == []
        assert service.stop() == 0
