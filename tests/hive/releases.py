"""
Releases of Hive as they describe themselves: the defaults of their settings, and the files that each reads in the
directory of an insert-only table.

One JVM for each release, started when the release is first asked.
"""

import base64
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from compactor.cli.hive_settings import hive_settings
from tests.hive.java import Served, built, java

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


class Release(Served):
    """
    The JVM of one release.

    Raises:
        UnavailableError: it can't be built here.
    """

    def __init__(self, version):
        home, classpath = built(SOURCE, f"hive{version}")
        super().__init__([*java(str(home), heap="256m"), "Release", classpath], ReleaseError)

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
        return self.ask("\t".join(quote(field, safe="") for field in fields))
