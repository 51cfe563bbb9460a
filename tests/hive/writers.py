"""
Plain Java ORC and old Hives, of several releases, as writers of files: other programs than Hive 3 and 4, in any time
zone.

Built by Maven and javac below `.tools/`, a class path for each release. Apache ORC's own example files come with the
tests of its library.
"""

import subprocess
import zipfile
from pathlib import Path

from tests.hive.java import PROJECT, Served, UnavailableError, built, java

SOURCE = Path(__file__).parent / "writers"
RELEASES = ("1.2.3", "1.3.4", "1.4.4", "1.5.13", "1.6.14", "1.8.5", "2.2.2", "2.3.1")
EXAMPLES = "2.2.2"
OLD_HIVES = {
    "0.11.0": (),
    "0.12.0": ("date", "varchar"),
    "0.13.1": (_NEWER := ("date", "varchar", "char", "decimal")),
    "0.14.0": _NEWER,
    "1.2.2": _NEWER,
    "2.1.1": _NEWER,
}
"""
Releases of Hive whose ORC writer was its own, and the types that came after the first of them (decimals with a
precision).
"""


class OrcError(Exception):
    """ORC's Java library threw it."""


class OrcReader(Served):
    """
    ORC's Java reader of one release, in a JVM of the time zone UTC.

    Raises:
        UnavailableError: it can't be built here.
    """

    def __init__(self, release):
        command = java(":".join(map(str, built(SOURCE, release))), heap="512m")
        super().__init__([*command, "Files", "rows"], OrcError)

    def rows(self, path):
        """
        A file's rows as lines; of a full-ACID file the values of the table's columns.

        Raises:
            OrcError: this release can't read it.
        """
        return self.ask(str(path))


def write(release, *arguments):
    """
    Run `Files` of a release; what it prints.

    Raises:
        UnavailableError: it can't be built here.
    """
    return _run(built(SOURCE, release), "Files", arguments)


def write_as_hive(release, *arguments):
    """The same for `OldHive` of a release of Hive."""
    home, classpath = built(SOURCE.parent / "old_hives", release)
    return _run((SOURCE.parent / "old_hives", f"{home}:{classpath}"), "OldHive", arguments)


def _run(built, program, arguments):
    command = [*java(":".join(map(str, built)), heap="512m"), program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def examples(directory):
    """Unpack Apache ORC's example files into a folder; their paths."""
    jar = PROJECT / ".tools" / f"orc-core-{EXAMPLES}-tests.jar"
    if not jar.exists():
        artifact = f"org.apache.orc:orc-core:{EXAMPLES}:jar:tests"
        command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={jar.parent}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT)
        if done.returncode:
            raise UnavailableError(f"can't get {artifact}: {done.stdout[-500:]}")
    with zipfile.ZipFile(jar) as packed:
        names = [name for name in packed.namelist() if name.endswith(".orc")]
        packed.extractall(directory, names)
    return [directory / name for name in sorted(names)]
