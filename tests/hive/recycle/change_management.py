"""Hive's own `ReplChangeManager` on a test's HDFS, as judge of what is recycled: of release 3.1.3 or 4.0.1."""

import subprocess
from pathlib import Path

from tests.hive.server.jars import built

_OPENED = ("java.lang", "java.util", "java.net", "java.nio")


class HiveChangeManagement:
    """
    One JVM. Use as a context manager.

    Args:
        version: "3" or "4".
        conf: directory of HDFS' client configuration.
        root: the change-management root, made when it isn't there.

    Raises:
        UnavailableError (`tests.hive.server.jars`): Hive's jars can't be had.
    """

    def __init__(self, version, conf, root, log):
        opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
        classpath = ":".join(map(str, [conf, *built(version)]))
        command = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *opens, "-cp", classpath]
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [*command, Path(__file__).with_name("Recycle.java"), root],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                encoding="utf-8",
            )

    def recycle(self, path):
        """Move a file, or what is below a directory, to the root; how many files were moved."""
        return int(self._ask("recycle", path))

    def checksum(self, path):
        """As replication's events have it."""
        return self._ask("checksum", path)

    def find(self, path, checksum):
        """Where a replica reads a file that had this checksum: ("source" or "root", path)."""
        where, _, found = self._ask("find", path, checksum).partition(" ")
        return where, found

    def origin(self, path):
        """Where a file of the root was before."""
        return self._ask("origin", path)

    def _ask(self, *words):
        self._process.stdin.write("\t".join(words) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("ANSWER "):
                return line.removeprefix("ANSWER ").rstrip("\n")
        raise RuntimeError(f"Hive's change management ended: {self._log.read_text(errors='replace')[-2000:]}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
