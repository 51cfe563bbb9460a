"""
systemd, as far as the guide needs it: `systemctl.py ROOT VERB …` does with the one unit what it says, in a folder that
stands for a file system.

Knows the keys that decide how the daemon is started and ended; what shuts it in (ProtectSystem and the like) is judged
by systemd itself in test_systemd.
"""

import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

UNIT = "compactor.service"
PATHS = ("/etc/compactor", "/opt/compactor", "/var/lib/compactor")
START_SECONDS = 120


class Unit:
    """What the unit and its drop-ins say, under a root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        folder = root / "etc" / "systemd" / "system"
        self._lines = [
            line
            for file in (folder / UNIT, *sorted((folder / f"{UNIT}.d").glob("*.conf")))
            for line in file.read_text().splitlines()
        ]

    def all(self, key: str) -> Iterator[str]:
        for line in self._lines:
            name, equals, value = line.partition("=")
            if equals and name == key:
                yield self._here(value)

    def _here(self, value: str) -> str:
        for path in PATHS:
            value = value.replace(path, f"{self.root}{path}")
        return value.replace("%d", str(self.root / "credentials"))

    def environment(self) -> dict[str, str]:
        found = dict(pair.split("=", 1) for line in self.all("Environment") for pair in shlex.split(line))
        for file in self.all("EnvironmentFile"):
            path = Path(file.removeprefix("-"))
            if path.exists() or not file.startswith("-"):
                found |= dict(
                    line.split("=", 1) for line in path.read_text().splitlines() if line and not line.startswith("#")
                )
        return found


def start(root: Path) -> None:
    """Credentials, ExecStart, and the wait for READY=1."""
    if running(root) is not None:
        return
    unit = Unit(root)
    credentials = root / "credentials"
    credentials.mkdir(exist_ok=True)
    for credential in unit.all("LoadCredential"):
        name, _, file = credential.partition(":")
        (credentials / name).write_bytes(Path(file).read_bytes())
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "JAVA_HOME") if name in os.environ}
    environment = kept | unit.environment()
    address = root / "notify"
    address.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, (root / "journal").open("ab") as journal:
        manager.bind(str(address))
        manager.settimeout(START_SECONDS)
        process = subprocess.Popen(
            shlex.split(next(unit.all("ExecStart"))),
            env=environment | {"NOTIFY_SOCKET": str(address)},
            cwd=next(unit.all("WorkingDirectory")),
            stdin=subprocess.DEVNULL,
            stdout=journal,
            stderr=journal,
            start_new_session=True,
        )
        (root / "pid").write_text(str(process.pid))
        while "READY=1" not in manager.recv(65536).decode().split("\n"):
            pass


def running(root: Path) -> int | None:
    """The main process, while it lives."""
    try:
        number = int((root / "pid").read_text())
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, ValueError):
        return None
    return None if state == "Z" else number


def end(root: Path, number: int) -> None:
    """The main process alone, as KillMode=mixed has it; then the rest of its group."""
    process = running(root)
    if process is None:
        return
    watched = os.pidfd_open(process)
    os.kill(process, number)
    if number in {signal.SIGTERM, signal.SIGKILL}:
        import select

        if not select.select([watched], [], [], START_SECONDS)[0]:
            raise SystemExit("it doesn't end")
        try:
            os.killpg(process, signal.SIGKILL)
        except ProcessLookupError:
            return


def main(root: Path, verb: str, words: list[str]) -> int:
    match verb:
        case "daemon-reload":
            Unit(root)
        case "enable" | "start":
            start(root)
        case "stop":
            end(root, signal.SIGTERM)
        case "reload":
            end(root, signal.SIGHUP)
        case "kill":
            (name,) = [word.removeprefix("--signal=") for word in words if word.startswith("--signal=")]
            end(root, signal.Signals[f"SIG{name}"])
        case "status":
            print("active" if running(root) is not None else "inactive")
            return 0 if running(root) is not None else 3
        case _:
            print(f"there is no {verb} here", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
