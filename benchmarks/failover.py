"""
From SIGKILL of the leading daemon to the end of the other daemon's first cycle as Cleaner; three ZooKeeper servers,
PostgreSQL, session time-out as delivered.

Each daemon is a process of its own and logs what its cycles did. Spark plays no part, so there is nothing to compact.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import harness
from compactor.coordination import Role
from compactor.coordination.zk.coordinator import ZooKeeperCoordinator
from compactor.settings import ZooKeeper
from tests.cluster.zookeeper_servers import Ensemble, zookeeper
from tests.metastore.servers import postgres_server

ROUNDS = 3


def run() -> list[harness.Result]:
    """Measure the seconds beyond the session time-out."""
    with postgres_server() as server, harness.scratch() as folder, zookeeper(folder / "zookeeper", 3) as servers:
        url = server.create("4.0.0")
        waits = [_kill_and_wait(url, servers, folder / f"round{number}", f"/round{number}") for number in range(ROUNDS)]
    timeout = ZooKeeper().session_timeout_seconds
    detail = f"session time-out {timeout:g} s; median of {ROUNDS}, longest {max(waits):.2f} s"
    return [harness.at_most("failover", statistics.median(waits), timeout + 2, "s", detail)]


def _kill_and_wait(url: str, servers: Ensemble, folder: Path, root: str) -> float:
    folder.mkdir()
    watching = ZooKeeperCoordinator(ZooKeeper(hosts=servers.hosts, root=root), 1)
    watching.connect()
    daemons: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name in ("first", "second"):
            config = folder / f"{name}.json"
            settings = {
                "database": {"url": url},
                "zookeeper": {"hosts": servers.hosts, "root": root},
                "host": name,
                "worker": {"threads": 0},
                "http": {"enabled": False},
            }
            config.write_text(json.dumps(settings | {"log": {"format": "json"}}), encoding="utf-8")
            with (folder / f"{name}.log").open("wb") as log:
                daemons[name] = subprocess.Popen(
                    [sys.executable, "-m", "compactor.cli", "--config", config, "run"],
                    stdout=log,
                    stderr=log,
                    env=dict(os.environ),
                )
            _until(
                lambda name=name: (
                    daemons[name].poll() is not None or any(seen.member.host == name for seen in watching.members())
                )
            )
            if daemons[name].poll() is not None:
                raise RuntimeError(f"the daemon ended: {(folder / f'{name}.log').read_text(encoding='utf-8')[-2000:]}")
        _until(lambda: any(seen.member.host == "first" and Role.CLEANER in seen.leads for seen in watching.members()))
        _until(lambda: _last(folder / "second.log", "cleaner") is not None)  # the second daemon stands by
        before = _last(folder / "second.log", "cleaner")
        begin = time.perf_counter()
        daemons["first"].send_signal(signal.SIGKILL)
        _until(lambda: _last(folder / "second.log", "cleaner") != before)
        return time.perf_counter() - begin
    finally:
        watching.close()
        for process in daemons.values():
            process.kill()
            process.wait()


def _last(log: Path, role: str) -> str | None:
    """The latest sentence of a role; a loop logs a sentence only when it is new, so each line has another one."""
    events = [
        json.loads(line)
        for line in log.read_text(encoding="utf-8").rpartition("\n")[0].splitlines()
        if line.startswith("{")
    ]
    return next(
        (event["sentence"] for event in reversed(events) if event.get("role") == role and "sentence" in event), None
    )


def _until(done: object) -> None:
    deadline = time.monotonic() + 120
    while not done():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise RuntimeError("nothing happened within two minutes")
        time.sleep(0.02)
