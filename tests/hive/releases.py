"""
Releases of Hive as they describe themselves: the defaults of their settings, and the files that each reads in the
directory of an insert-only table.

One JVM for each release, started when the release is first asked.
"""

import base64
import contextlib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from compactor.cli.hive_settings import hive_settings
from tests.hive.java import built, java

SOURCE = Path(__file__).parent / "release_java"
RELEASES = hive_settings().releases


class ReleaseError(Exception):
    """Hive's own code threw it."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a release: which class knows it, its name, an older name (or ""), and its default as text."""

    known_by: str
    name: str
    older: str
    default: str


class Release:
    """
    The JVM of one release. Use as a context manager.

    Raises:
        UnavailableError: it can't be built here.
    """

    def __init__(self, version):
        home, classpath = built(SOURCE, f"hive{version}")
        command = [*java(str(home), heap="256m"), "Release", classpath]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            cwd=home,
            env=os.environ | {"LC_ALL": "C.UTF-8"},
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def settings(self):
        """Every setting that HiveConf, MetastoreConf and OrcConf know."""
        found = []
        for line in self._ask("settings"):
            known_by, name, older, default = line.split("\t")
            found.append(Setting(known_by, name, older, base64.b64decode(default).decode()))
        return found

    def reads(self, directory, allow_originals=""):
        """
        The files of an insert-only table's directory that a query reads when everything is committed; relative, sorted.

        Args:
            allow_originals: the value of `hive.mm.allow.originals`; empty: as the release delivers it.
        """
        return sorted(
            str(Path(line).relative_to(directory)) for line in self._ask("reads", allow_originals, str(directory))
        )

    def _ask(self, *fields):
        self._process.stdin.write("\t".join(quote(field, safe="") for field in fields) + "\n")
        self._process.stdin.flush()
        answers = []
        for line in self._process.stdout:
            if line[0] == "D":
                return answers
            if line[0] == "E":
                raise ReleaseError(line[1:].rstrip())
            answers.append(line[1:].rstrip("\n"))
        raise ReleaseError(f"the JVM died with exit code {self._process.wait()}")
