"""
How much of Hive do the tests reach? Runs suites with JaCoCo in every JVM that they start, and prints which branches of
Hive's and ORC's own readers, of Hive's transactions and of its compactor were taken.

`make breadth`: the fast suites (`SUITES`). Figures of each class go to the terminal; each method with branches that
were never taken, and their source lines, go to `build/breadth.txt`. `make breadth ARGS="-m live tests/hive/live"`: what
else pytest is to run. `--more` adds to what earlier runs reached, `--report` runs nothing.

A JVM that is killed, or that calls `Runtime.halt`, tells nothing. No line says whether its branches were taken with all
values that matter: what was reached is not what was judged.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.metastore.servers import COPY_PLUGIN

ROOT: Final = Path(__file__).resolve().parents[1]
HOME: Final = ROOT / ".tools" / "breadth"
DATA: Final = ROOT / "build" / "breadth.exec"
LIST: Final = DATA.with_suffix(".txt")
JACOCO: Final = "0.8.13"
AGENT: Final = f"org.jacoco:org.jacoco.agent:{JACOCO}:jar:runtime"
REPORTER: Final = f"org.jacoco:org.jacoco.cli:{JACOCO}:jar:nodeps"
SUITES: Final = (
    "tests/hive/test_columns.py",
    "tests/hive/test_empty_files.py",
    "tests/hive/test_interleavings.py",
    "tests/hive/test_judge.py",
    "tests/hive/test_lane_3.py",
    "tests/hive/test_lane_4.py",
    "tests/hive/test_layouts.py",
    "tests/hive/test_orc_rows.py",
    "tests/hive/test_preemption.py",
    "tests/hive/test_queries.py",
    "tests/metastore/test_interleaved.py",
    "tests/metastore/test_partition_names.py",
    "tests/metastore/test_purge.py",
    "tests/metastore/test_real_hive.py",
    "tests/metastore/test_waiting_deletes.py",
    "tests/unit/engine/test_judged.py",
    "tests/unit/roles/test_beside_hive.py",
)
"""Those in which Hive's own classes run, but for live servers and files by other writers."""
READERS: Final = (
    "org/apache/hadoop/hive/ql/io/AcidUtils",
    "org/apache/hadoop/hive/ql/io/orc/OrcInputFormat",
    "org/apache/hadoop/hive/ql/io/orc/OrcRawRecordMerger",
    "org/apache/hadoop/hive/ql/io/orc/OrcSplit",
    "org/apache/hadoop/hive/ql/io/orc/VectorizedOrcAcidRowBatchReader",
    "org/apache/orc/impl/SchemaEvolution",
)
_COMPACTOR, _TXN = "org/apache/hadoop/hive/ql/txn/compactor", "org/apache/hadoop/hive/metastore/txn"
PARTIES: Final = (
    *(f"{_COMPACTOR}/{name}" for name in ("Cleaner", "Initiator", "InitiatorBase")),
    *(f"{_TXN}/{name}" for name in ("TxnHandler", "CompactionTxnHandler")),
)


@dataclass(frozen=True, slots=True)
class Release:
    """
    Where a release's classes lie, and which are looked at.

    Args:
        jars: of class files: group, artifact, version. A class that two of them hold is of the same source.
        sources: of which the text is shown, in the same form.
        watched: of the classes, the beginning of their paths; one that ends with `/` is a package.
    """

    jars: tuple[str, ...]
    sources: tuple[str, ...]
    watched: tuple[str, ...]


RELEASES: Final = {
    "3.1.3": Release(
        ("org.apache.hive:hive-exec:3.1.3",),
        (
            "org.apache.hive:hive-exec:3.1.3",
            "org.apache.hive:hive-standalone-metastore:3.1.3",
            "org.apache.orc:orc-core:1.5.8",
        ),
        (*READERS, *PARTIES, f"{_COMPACTOR}/CompactorMR"),
    ),
    "4.0.1": Release(
        ("org.apache.hive:hive-exec:4.0.1", "org.apache.hive:hive-standalone-metastore-server:4.0.1"),
        (
            "org.apache.hive:hive-exec:4.0.1",
            "org.apache.hive:hive-standalone-metastore-server:4.0.1",
            "org.apache.orc:orc-core:1.8.5",
        ),
        (
            *READERS,
            *PARTIES,
            f"{_COMPACTOR}/MRCompactor",
            f"{_COMPACTOR}/handler/",
            f"{_TXN}/jdbc/commands/",
            f"{_TXN}/jdbc/functions/",
            f"{_TXN}/jdbc/queries/",
        ),
    ),
    "4.1.0": Release(
        ("org.apache.hive:hive-exec:4.1.0",),
        ("org.apache.hive:hive-exec:4.1.0", "org.apache.orc:orc-core:2.1.2"),
        READERS,
    ),
}
"""4.1.0 is the judge's (`tests/hive/judge`): its readers alone."""


@dataclass(frozen=True, slots=True)
class Line:
    """How much of a source line was reached."""

    instructions: int
    """Of those that were reached."""
    missed: int
    """Branches."""
    taken: int


@dataclass(frozen=True, slots=True)
class Method:
    """A method with its lines, by number."""

    name: str
    lines: dict[int, Line]

    @property
    def taken(self) -> int:
        return sum(line.taken for line in self.lines.values())

    @property
    def branches(self) -> int:
        return self.taken + sum(line.missed for line in self.lines.values())

    @property
    def unreached(self) -> list[int]:
        """Lines with branches that were not taken, and lines that nothing came to."""
        return [number for number, line in self.lines.items() if line.missed or not line.instructions]


def artifact(name: str, classifier: str = "") -> Path:
    """A jar from Maven."""
    words = (*name.split(":")[1:], classifier)
    file = HOME / f"{'-'.join(word for word in words if word not in {'jar', ''})}.jar"
    if not file.exists():
        asked = f"{name}:jar:{classifier}" if classifier else name
        command = ["mvn", "-q", "-B", COPY_PLUGIN, f"-Dartifact={asked}", f"-DoutputDirectory={HOME}"]
        subprocess.run(command, check=True)
    return file


def run(arguments: list[str]) -> int:
    """Pytest, with JaCoCo in all JVMs that the tests start; its exit code."""
    packages = sorted({path.rpartition("/")[0].replace("/", ".") for one in RELEASES.values() for path in one.watched})
    agent = f"-javaagent:{artifact(AGENT)}=destfile={DATA},includes={':'.join(f'{name}.*' for name in packages)}"
    command = [sys.executable, "-m", "pytest", "-p", "no:randomly", *arguments]
    return subprocess.run(command, cwd=ROOT, env=os.environ | {"JAVA_TOOL_OPTIONS": agent}, check=False).returncode


def reached(release: Release) -> dict[str, list[Method]]:
    """The methods of each source file that is looked at."""
    files: dict[str, tuple[dict[int, str], dict[int, Line]]] = {}
    for jar in release.jars:
        for file, methods, lines in _of_jar(artifact(jar), release.watched):
            names, known = files.setdefault(file, ({}, {}))
            names |= methods
            for number, line in lines.items():
                other = known.get(number, line)
                known[number] = Line(
                    max(line.instructions, other.instructions),
                    min(line.missed, other.missed),
                    max(line.taken, other.taken),
                )
    return {file: _methods(*about) for file, about in sorted(files.items())}


def _of_jar(jar: Path, watched: tuple[str, ...]) -> Iterator[tuple[str, dict[int, str], dict[int, Line]]]:
    """Of each source file: the names of methods by their first lines, and the lines."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(jar) as members:
        whole = tuple(f"{path}{end}" for path in watched if not path.endswith("/") for end in (".class", "$"))
        chosen = (*whole, *(path for path in watched if path.endswith("/")))
        found = [name for name in members.namelist() if name.startswith(chosen) and name.endswith(".class")]
        members.extractall(Path(folder) / "classes", found)
        report = Path(folder) / "report.xml"
        command = ["java", "-jar", artifact(REPORTER), "report", DATA, "--classfiles", Path(folder) / "classes"]
        subprocess.run([*command, "--xml", report, "--quiet"], check=True)
        for package in ET.parse(report).getroot().iter("package"):
            for source in package.iter("sourcefile"):
                name = source.attrib["name"]
                methods = {
                    int(method.attrib["line"]): method.attrib["name"]
                    for each in package.iter("class")
                    if each.attrib.get("sourcefilename") == name
                    for method in each.iter("method")
                    if "line" in method.attrib
                }
                lines = {
                    int(line.attrib["nr"]): Line(*(int(line.attrib[key]) for key in ("ci", "mb", "cb")))
                    for line in source.iter("line")
                }
                yield f"{package.attrib['name']}/{name}", methods, lines


def _methods(names: dict[int, str], lines: dict[int, Line]) -> list[Method]:
    """Each from its first line to the next one's."""
    firsts = sorted(names)
    return [
        Method(names[first], {number: lines[number] for number in sorted(lines) if first <= number < after})
        for first, after in zip(firsts, [*firsts[1:], sys.maxsize], strict=True)
    ]


def texts(release: Release) -> dict[str, list[str]]:
    """The lines of the release's sources."""
    found: dict[str, list[str]] = {}
    for name in release.sources:
        with zipfile.ZipFile(artifact(name, "sources")) as members:
            for member in members.namelist():
                if member.startswith(tuple(path.rpartition("/")[0] for path in release.watched)):
                    found.setdefault(member, members.read(member).decode(errors="replace").splitlines())
    return found


def told() -> None:
    """Print the figures, and write the list."""
    with LIST.open("w") as out:
        for name, release in RELEASES.items():
            text = texts(release)
            for file, methods in reached(release).items():
                taken, branches = sum(one.taken for one in methods), sum(one.branches for one in methods)
                if branches:
                    print(f"{name} {Path(file).stem}: {taken} of {branches} branches ({taken * 100 // branches} %)")
                for method in methods:
                    if method.unreached:
                        print(
                            f"\n{name} {Path(file).stem}.{method.name}: {method.taken} of {method.branches}", file=out
                        )
                    for number in method.unreached:
                        line = method.lines[number]
                        branch = f"{line.missed}/{line.missed + line.taken}" if line.missed + line.taken else ""
                        words = text.get(file, [])[number - 1 : number] or [""]
                        print(f"{number:6} {'' if line.instructions else '-':1} {branch:5} {words[0]}", file=out)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--more", action="store_true", help="add to what earlier runs reached")
    asked.add_argument("--report", action="store_true", help="run nothing, print what earlier runs reached")
    options, arguments = asked.parse_known_args()
    HOME.mkdir(parents=True, exist_ok=True)
    DATA.parent.mkdir(exist_ok=True)
    ended = 0
    if not options.report:
        if not options.more:
            DATA.unlink(missing_ok=True)
        ended = run(arguments or ["-m", "not long", *SUITES])
    told()
    sys.exit(ended)


if __name__ == "__main__":
    main()
