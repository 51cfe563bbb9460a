"""
Several daemons on one metastore, as processes that can be stopped at a named step and continued.

Each has a host name, a temporary directory and a log of its own: what one knows of another it knows by the database,
the warehouse and ZooKeeper.
"""

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

import yaml

from compactor.coordination import SeenMember, open_coordinator
from compactor.daemon import Daemon
from compactor.errors import CompactorError
from compactor.metastore.db.database import Database
from compactor.settings import Settings, load_settings
from tests import forked
from tests.cluster.network import enter
from tests.compacting import InProcess
from tests.crash.scene import PATIENCE, SETTINGS, UNHURRIED, Scene

SESSION_SECONDS = 1.0
"""Of a daemon whose end is waited for."""
WATCHING_SECONDS = 10.0
"""
Of those who only look or give orders: the observer and the command line. However busy the machine is, ZooKeeper answers
them in time.
"""
TIMES = {
    "txn": {"timeout_seconds": 2},
    "members": {"heartbeat_seconds": 0.3},
    "worker": {"threads": 1, "poll_seconds": 0.2, "heartbeat_seconds": 0.5},
}
PATIENT_TIMES = TIMES | UNHURRIED
"""
Where no transaction's time-out is waited for: with two seconds, all work beside us that takes the machine for so long
would be one.
"""
IDLE_SECONDS = 2.0


@dataclass
class Running:
    """One daemon."""

    name: str
    process: BaseProcess
    log: Path

    def stopped(self) -> bool:
        """Whether it is stopped by SIGSTOP."""
        with contextlib.suppress(OSError):
            return (
                Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "T"
            )
        return False

    def send(self, number: int) -> None:
        assert self.process.pid is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, number)

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def trouble(self) -> str:
        """The last warnings and errors of its log: what is at the log's end may be long after what went wrong."""
        return "\n".join(str(event) for event in self.events() if event.get("level") in {"warning", "error"})[-3000:]

    def events(self) -> list[dict]:
        return [json.loads(line) for line in self.said().rpartition("\n")[0].splitlines() if line.startswith("{")]


def run(config: Path, stop_at: str | None, skew: float, network: Path | None) -> None:
    """A daemon, to its end."""
    if network is not None:
        enter(network)
    if skew:
        right, right_ns = time.time, time.time_ns
        time.time, time.time_ns = lambda: right() + skew, lambda: right_ns() + round(skew * 1e9)
    waiting = [stop_at]

    def observe(step: str, _: object) -> None:
        if step == waiting[0]:
            waiting[0] = None
            signal.pthread_kill(
                threading.get_ident(), signal.SIGSTOP
            )  # sent to the process another thread may take it, and this one go on until that one runs

    def read() -> Settings:
        return load_settings(config)

    sys.exit(Daemon(read(), reload=read, observers=[observe], submitter=InProcess()).run())


class Fleet(Scene):
    """
    A warehouse with a table that is due, and daemons.

    Args:
        zookeeper: that section of the settings; None: the database alone coordinates.

    `body` is what a daemon's process runs, `times` what hurries it.
    """

    body = staticmethod(run)
    times = TIMES

    def __init__(self, url: str, folder: Path, zookeeper: dict | None) -> None:
        super().__init__(url, folder)
        self.settings = SETTINGS | self.times | {"database": {"url": url, "idle_transaction_seconds": IDLE_SECONDS}}
        if zookeeper is not None:
            self.settings["zookeeper"] = {"session_timeout_seconds": SESSION_SECONDS, **zookeeper}
        self.daemons: list[Running] = []
        self.database = Database(url)
        self.coordinator = open_coordinator(Settings(**self.watching), lambda: self.database)
        self.coordinator.connect()

    @property
    def watching(self) -> dict:
        """Settings of those who only look or give orders."""
        section = self.settings.get("zookeeper")
        return (
            self.settings
            if section is None
            else self.settings | {"zookeeper": section | {"session_timeout_seconds": WATCHING_SECONDS}}
        )

    def daemon(
        self,
        name: str,
        *,
        stop_at: str | None = None,
        skew: float = 0.0,
        network: Path | None = None,
        **settings: object,
    ) -> Running:
        """
        Start one.

        Args:
            stop_at: the step at which it stops itself, the first time.
            skew: seconds by which its host's clock is wrong.
            network: the namespace it lives in; None: ours.
        """
        home = self.folder / name
        home.mkdir(exist_ok=True)
        config = home / "compactor.yaml"
        config.write_text(yaml.safe_dump(self.settings | {"host": name} | settings), encoding="utf-8")
        environment = {key: value for key, value in os.environ.items() if not key.startswith("COMPACTOR_")} | {
            "TMPDIR": str(home)
        }
        log = home / "log"
        process = forked.start(
            self.body, config, stop_at, skew, network, environment=environment, folder=home, out=log, err=log
        )
        self.processes.append(process)
        running = Running(name, process, log)
        self.daemons.append(running)
        return running

    def wait(self, done: Callable[[], bool], what: str) -> None:
        """Wait for a state of the world; no daemon must end before."""
        deadline = time.monotonic() + PATIENCE
        while not done():
            for running in self.daemons:
                assert running.process.exitcode is None or running.process.exitcode == -signal.SIGKILL, (
                    f"{running.name} ended before {what}: {running.said()[-4000:]}"
                )
            assert time.monotonic() < deadline, f"not {what}:\n" + "\n\n".join(
                f"{running.name}:\n{running.trouble()}\n{running.said()[-3000:]}" for running in self.daemons
            )
            time.sleep(0.05)

    def seen(self, name: str) -> SeenMember | None:
        """How the others see a daemon; None also before the first has made the place where they are found."""
        with contextlib.suppress(CompactorError):
            return next((seen for seen in self.coordinator.members() if seen.member.host == name and seen.alive), None)
        return None

    def end(self) -> None:
        for running in self.daemons:
            running.send(signal.SIGCONT)
        self.coordinator.close()
        self.database.close()
        super().end()
