"""
ZooKeeper servers for tests: one node or several, from the jars that PySpark brings along, in a folder of their own.

Ticks are short, so that sessions may end after a second. What can't be had is said by `UnavailableError`.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.metastore.servers import UnavailableError
from tests.ports import free_ports

TICK_MS = 250
PATIENCE = 60.0
_LOG4J = """status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1} %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


def jars() -> str:
    """The class path."""
    import pyspark

    folder = Path(pyspark.__file__).parent / "jars"
    wanted = ("zookeeper-", "netty-", "slf4j-api-", "log4j-", "metrics-core-", "snappy-java-", "jcl-over-slf4j-")
    found = [path for path in sorted(folder.glob("*.jar")) if path.name.startswith(wanted)]
    if not any(path.name.startswith("zookeeper-") for path in found):
        raise UnavailableError("PySpark's jars hold no ZooKeeper")
    return ":".join(map(str, found))


class Ensemble:
    """
    Servers that know each other.

    Args:
        folder: theirs.
        nodes: 1 or 3.
        extra: more lines of zoo.cfg.
        java: more options of the JVM.
        places: the address of each, and the network namespace it lives in; None: all here.
    """

    def __init__(
        self,
        folder: Path,
        nodes: int = 1,
        *,
        extra: Mapping[str, str] | None = None,
        java: tuple[str, ...] = (),
        secure: bool = False,
        places: Sequence[tuple[str, Path | None]] | None = None,
    ) -> None:
        if shutil.which("java") is None:
            raise UnavailableError("Java isn't installed")
        self.folder, self.nodes, self._extra, self._java = folder, nodes, dict(extra or {}), java
        ports = free_ports(4 * nodes)
        self.ports, self._quorum, self._election, self.secure_ports = (
            ports[i * nodes : (i + 1) * nodes] for i in range(4)
        )
        self._secure = secure
        self._places = places or [("127.0.0.1", None)] * nodes
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "log4j2.properties").write_text(_LOG4J, encoding="utf-8")

    @property
    def hosts(self) -> str:
        return ",".join(map(self.address, range(self.nodes)))

    def address(self, number: int) -> str:
        """Host and port of one."""
        return f"{self._places[number][0]}:{self.ports[number]}"

    def start(self) -> None:
        for number in range(self.nodes):
            self.start_one(number)
        self.wait()

    def start_one(self, number: int) -> None:
        home = self.folder / f"node{number}"
        data = home / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(str(number + 1), encoding="utf-8")
        lines = {
            "tickTime": TICK_MS,
            "initLimit": 40,
            "syncLimit": 8,
            "dataDir": data,
            "clientPort": self.ports[number],
            "clientPortAddress": self._places[number][0],
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            "minSessionTimeout": 2 * TICK_MS,
            "maxSessionTimeout": 60_000,
            "maxClientCnxns": 0,
            **self._extra,
        }
        if self._secure:
            lines["secureClientPort"] = self.secure_ports[number]
        if self.nodes > 1:
            for other in range(self.nodes):
                lines[f"server.{other + 1}"] = f"{self._places[other][0]}:{self._quorum[other]}:{self._election[other]}"
        config = home / "zoo.cfg"
        config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()), encoding="utf-8")
        options = [
            "-Xmx96m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dzookeeper.jmx.log4j.disable=true",
            "-Dzookeeper.forceSync=no",
        ]
        options += [f"-Dlog4j2.configurationFile={self.folder}/log4j2.properties", *self._java]
        network = self._places[number][1]
        inside = [] if network is None else ["nsenter", f"--net={network}"]
        log = (home / "log").open("ab")
        with log:
            self.processes[number] = subprocess.Popen(
                [
                    *inside,
                    "java",
                    *options,
                    "-cp",
                    jars(),
                    "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                    str(config),
                ],
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait(self) -> None:
        """Until there is a leader, and every living node follows it."""
        deadline = time.monotonic() + PATIENCE
        while not all(self.mode(number) in {"leader", "follower", "standalone"} for number in self.processes):
            for number, process in self.processes.items():
                if process.poll() is not None:
                    raise RuntimeError(f"ZooKeeper ended: {self.said(number)[-2000:]}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"ZooKeeper doesn't serve: {self.said(0)[-2000:]}")
            time.sleep(0.05)

    def mode(self, number: int) -> str:
        """leader, follower, standalone; empty while it doesn't serve."""
        with (
            contextlib.suppress(OSError),
            socket.create_connection((self._places[number][0], self.ports[number]), timeout=2) as connection,
        ):
            connection.sendall(b"srvr")
            answer = b"".join(iter(lambda: connection.recv(4096), b"")).decode()
            return next((line.removeprefix("Mode: ") for line in answer.splitlines() if line.startswith("Mode: ")), "")
        return ""

    def leader(self) -> int:
        """The server that leads the others; waits while they elect one."""
        deadline = time.monotonic() + PATIENCE
        while True:
            for number in self.processes:
                if self.mode(number) in {"leader", "standalone"}:
                    return number
            if time.monotonic() > deadline:
                raise RuntimeError("no server of ZooKeeper leads")
            time.sleep(0.05)

    def kill(self, number: int) -> None:
        process = self.processes.pop(number)
        process.kill()
        process.wait()

    def pause(self, number: int) -> None:
        self.processes[number].send_signal(signal.SIGSTOP)

    def resume(self, number: int) -> None:
        self.processes[number].send_signal(signal.SIGCONT)

    def said(self, number: int) -> str:
        return (self.folder / f"node{number}" / "log").read_text(encoding="utf-8", errors="replace")

    def stop(self) -> None:
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.processes.clear()


@contextlib.contextmanager
def zookeeper(folder: Path, nodes: int = 1, **more) -> Iterator[Ensemble]:
    """
    Servers for as long as the block runs.

    Raises:
        UnavailableError: there can be none here.
    """
    ensemble = Ensemble(folder, nodes, **more)
    try:
        ensemble.start()
        yield ensemble
    finally:
        ensemble.stop()
