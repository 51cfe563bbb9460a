"""
`make pictures`: records ten minutes of a daemon's life in build/pictures, and draws them into docs/images. With the
argument `draw` it draws again what was recorded last.
"""

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from compactor.metastore.db.database import Database
from docs.pictures import beside_hive, chart, dashboard, terminal
from docs.pictures.live import COMMANDS, SECONDS, Life
from tests.demo.process import DaemonProcess, run_command
from tests.demo.sample import build_sample
from tests.deploy.monitoring import prometheus
from tests.metastore.servers import postgres_server
from tests.ports import free_port

PROJECT = Path(__file__).resolve().parents[2]
RECORDED = PROJECT / "build" / "pictures"
IMAGES = PROJECT / "docs" / "images"
HOST = "edge-1"
"""The daemon's host in the pictures."""
SCRAPE_SECONDS = 2
ROWS = 40_000
SETTLING_SECONDS = 130
"""In this time Spark starts, and what the tables begin with is compacted and has left the rates."""


def record() -> None:
    """
    Let a daemon live, and keep what Prometheus and the command line say of it.

    Raises:
        RuntimeError: the daemon ended before its time.
    """
    shutil.rmtree(RECORDED, ignore_errors=True)
    RECORDED.mkdir(parents=True)
    port = free_port()
    with _folder() as root, postgres_server() as server:
        url = server.create("4.0.0")
        config = root / "compactor.yaml"
        config.write_text(yaml.safe_dump(_settings(url, port)), encoding="utf-8")
        with (
            Database(url) as database,
            prometheus(root, f"127.0.0.1:{port}", f"{HOST}:9700", SCRAPE_SECONDS) as address,
            DaemonProcess(run_command(config), RECORDED / "daemon.log") as daemon,
        ):
            warehouse = build_sample(root / "warehouse", database, rows=ROWS)
            time.sleep(SETTLING_SECONDS)
            begin = time.time()
            Life(warehouse, config, RECORDED).live()
            if daemon.exit_code is not None:
                raise RuntimeError(f"the daemon ended with exit code {daemon.exit_code}: see {RECORDED}/daemon.log")
            asked = dashboard.answers(address, begin, begin + SECONDS)
    _file("answers").write_text(json.dumps({"begin": begin, "asked": asked}), encoding="utf-8")


def draw() -> None:
    """Draw what was recorded last."""
    recorded = _read("answers")
    for title, panels in dashboard.rows():
        shown = [(panel, dashboard.series_of(panel, recorded["asked"], recorded["begin"])) for panel in panels]
        text = chart.picture(title, shown, SECONDS)
        dashboard.image(IMAGES, title).write_text(text, encoding="utf-8")
    for name in COMMANDS:
        terminal.draw(IMAGES / f"{name}.svg", **_read(name))
    beside_hive.draw()


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder whose name tells nothing of the machine: names of files stand in pictures."""
    root = Path(tempfile.gettempdir()) / "compactor-pictures"
    root.mkdir()
    try:
        yield root
    finally:
        shutil.rmtree(root)


def _settings(url: str, port: int) -> dict[str, Any]:
    """Short intervals, and thresholds that suit small tables."""
    return {
        "database": {"url": url},
        "host": HOST,
        "initiator": {"interval_seconds": 10, "thresholds": {"delta_count": 6, "aborted_count": 3}},
        "worker": {"threads": 1},
        "cleaner": {"interval_seconds": 3},
        "housekeeper": {"enabled": "always", "interval_seconds": 10},
        "spark": {"master": "local[1]", "conf": {"spark.driver.host": "127.0.0.1", "spark.driver.memory": "1g"}},
        "splice": {"min_stripe_bytes": 65536},
        "http": {"host": "127.0.0.1", "port": port},
        "log": {"format": "json"},
    }


def _file(name: str) -> Path:
    return RECORDED / f"{name}.json"


def _read(name: str) -> Any:
    return json.loads(_file(name).read_text(encoding="utf-8"))


if __name__ == "__main__":
    if sys.argv[1:] != ["draw"]:
        record()
    draw()
