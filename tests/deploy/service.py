"""
`compactor run` as a service: a process of its own over an embedded metastore, and a service manager's socket that hears
it.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import yaml

from compactor.metastore.db.database import Database

PROJECT = Path(__file__).resolve().parents[2]
DEPLOY = PROJECT / "deploy"
PATIENCE = 300.0
SECTIONS = {
    "initiator": {"interval_seconds": 0.5, "thresholds": {"delta_count": 2}},
    "worker": {"threads": 1, "poll_seconds": 0.2},
    "cleaner": {"interval_seconds": 0.3},
    "housekeeper": {"enabled": "always", "interval_seconds": 0.5},
    "http": {"host": "127.0.0.1", "port": 0},
    "spark": {"master": "local[1]"},
    "log": {"format": "json"},
    "drain": {"timeout_seconds": 7},
}


def until(what, wanted, still=lambda: True, said=lambda: ""):
    """Wait until `what()` fulfils `wanted`; returns it."""
    deadline = time.monotonic() + PATIENCE
    while not wanted(found := what()):
        assert still(), said()
        assert time.monotonic() < deadline, (found, said())
        time.sleep(0.05)
    return found


class ManagerSocket:
    """What systemd listens at: keeps each datagram as a mapping of its lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.messages: list[dict[str, str]] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(0.2)

    def heard(self) -> list[dict[str, str]]:
        """Everything so far."""
        with contextlib.suppress(TimeoutError):
            while True:
                self.messages.append(dict(line.split("=", 1) for line in self._socket.recv(65536).decode().split("\n")))
        return self.messages

    def close(self) -> None:
        self._socket.close()


class Service:
    """The running process."""

    def __init__(self, process: subprocess.Popen, folder: Path) -> None:
        self.process = process
        self.folder = folder
        self.url = f"sqlite:///{folder}/metastore.db"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8")

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def until(self, what, wanted):
        return until(what, wanted, lambda: self.alive, lambda: self.log[-4000:])

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def prepare(folder: Path, **sections) -> Path:
    """An embedded metastore and the settings for it; returns the settings file."""
    config = folder / "compactor.yaml"
    url = f"sqlite:///{folder}/metastore.db"
    if not (folder / "metastore.db").exists():
        Database(url, create=True).connect().close()
    config.write_text(yaml.safe_dump(SECTIONS | {"database": {"url": url}} | sections), encoding="utf-8")
    return config


@contextmanager
def running(folder: Path, environment: dict[str, str] | None = None, **sections):
    """`compactor run` for as long as the block runs."""
    config = prepare(folder, **sections)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("COMPACTOR_")}
    command = [sys.executable, "-m", "compactor.cli", "--config", str(config), "run"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            env=inherited | {"TMPDIR": str(folder)} | (environment or {}),
            cwd=PROJECT,
            start_new_session=True,
        )
    try:
        yield Service(process, folder)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()
