"""A real Prometheus beside a daemon, and the dashboard's queries as Grafana would send them."""

import contextlib
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import yaml

from tests.ports import free_port

RULES = Path(__file__).resolve().parents[2] / "deploy" / "prometheus" / "rules.yaml"
JOB = "compactor"


@contextlib.contextmanager
def prometheus(folder: Path, target: str, instance: str | None = None, seconds: int = 2) -> Iterator[str]:
    """
    A Prometheus that scrapes one daemon and evaluates our rules; gives its address once it answers.

    Args:
        target: host and port of the daemon.
        instance: the label of that name; None: the target.
        seconds: time between two scrapes.
    """
    config, port = folder / "prometheus.yaml", free_port()
    static = {"targets": [target], "labels": {"instance": instance or target}}
    interval = f"{seconds}s"
    config.write_text(
        yaml.safe_dump(
            {
                "global": {"scrape_interval": interval, "evaluation_interval": interval},
                "scrape_configs": [{"job_name": JOB, "static_configs": [static]}],
                "rule_files": [str(RULES)],
            }
        ),
        encoding="utf-8",
    )
    command = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={folder}/tsdb",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        address = f"http://127.0.0.1:{port}"
        _await(process, f"{address}/-/ready")
        yield address
    finally:
        process.terminate()
        process.wait(30)


def _await(process: "subprocess.Popen[bytes]", url: str) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10):
                return
        except OSError:
            assert process.poll() is None, "Prometheus has ended; its log says why"
            assert time.monotonic() < deadline, "Prometheus doesn't answer"
            time.sleep(0.1)


def concrete(query: str) -> str:
    """
    A query with the dashboard's variables replaced.

    Grafana makes a minute of $__rate_interval where a data source's scrape interval is left at its default, 15 s.
    """
    return query.replace("$job", JOB).replace("$__rate_interval", "1m")
