"""
How strong are the tests? Draws small changes of the code at random, and runs the quick tests that reach each.

`make mutants ARGS="acid --count 20 --seed 1"`. The tests of `SUITES` are recorded once: which lines each reaches, and how
long it takes. A mutant is judged by the tests that reach its line, the quickest first, until one fails, in a child of a
process that has everything imported. With `--slower` those of `SLOWER` judge what survived. Each survivor is printed as
a diff, to be judged by a reader: either a test is missing, or the change makes no difference.
"""

import argparse
import ast
import difflib
import importlib
import json
import math
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.mutants.changes import ROOT, Mutant, drawn, every, modules, mutant
from tests.mutants.reach import Map, Reach
from tests.mutants.session import (
    ENDLESS,
    FAILED,
    KILLED,
    RUN,
    SURVIVED,
    UNREACHED,
    Imported,
    Session,
    forked,
)
from tests.mutants.slower import Slower

SUITES: Final[dict[str, tuple[str, ...]]] = {
    "acid": ("unit/acid", "unit/planning", "unit/engine/test_columns.py"),
    "planning": ("unit/planning", "unit/roles/test_eligibility.py"),
    "metastore/clean": (
        "metastore/test_cleaning_*.py",
        "metastore/test_partition_names.py",
        "metastore/test_writers.py",
        "unit/metastore/test_may_clean_book.py",
    ),
    "metastore/compaction_queue": (
        *(
            f"metastore/test_{name}.py"
            for name in ("queue_*", "announcements", "follow_ups", "gate", "housekeeping", "rivals", "urgency", "work")
        ),
        "unit/metastore/compaction_queue",
    ),
    "engine/publish": ("unit/engine/test_publish*.py",),
    "engine/verify": ("unit/engine/test_verify*.py", "unit/engine/test_judged.py"),
    "orc/writing": ("unit/orc",),
    "parquet": ("unit/parquet", "unit/engine/test_foreign_files.py"),
}
"""The tests that judge each package: folders, and patterns of files."""
SLOWER: Final[dict[str, tuple[str, ...]]] = {
    "acid": ("model/test_histories.py", "unit/roles/cleaner", "hive/test_layouts.py"),
    "planning": (
        "unit/roles/initiator",
        "unit/cli/commands/looking",
        "unit/engine/test_cut_plans.py",
        "unit/engine/test_divided.py",
        "unit/engine/test_full_acid.py",
        "unit/engine/test_insert_only.py",
        "model/test_histories.py",
    ),
    "metastore/clean": ("unit/roles/cleaner", "metastore/test_purge.py", "metastore/test_waiting_deletes.py"),
    "metastore/compaction_queue": (
        "unit/roles/worker",
        "unit/cli/commands/queueing",
        "unit/daemon/test_queue_metrics.py",
        "metastore/test_real_hive.py",
    ),
    "engine/publish": ("unit/roles/worker", "unit/roles/test_roles_s3.py"),
    "engine/verify": ("unit/engine", "spark/test_compaction.py"),
    "orc/writing": ("unit/engine/test_full_acid.py", "hive/test_orc_rows.py", "spark/test_orc_pushdown.py"),
    "parquet": ("unit/engine/test_insert_only.py", "hive/test_parquet_writers.py", "spark/test_parquet_joining.py"),
}
"""Suites below a minute each that judge what survived those, the likeliest first."""
QUICK: Final = "not (long or cluster or deploy or live or trino or spark or hive or crash or postgres or mariadb)"
LIBRARIES: Final = ("botocore.client", "fsspec", "numpy", "psycopg", "pyarrow.parquet", "pydantic_settings", "pymysql")
"""What most tests import, loaded once; not what pytest itself loads."""
LEAST: Final = 30
"""Mutants of the smallest package."""
_DEAD: Final = {KILLED, ENDLESS}


class Judge:
    """Judges mutants, and tells of each."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._map = Map(options.examples)
        self._reaches: list[Reach] = []
        self._users: dict[str, list[tuple[str, int]]] = {}
        self.ends = RUN / "ends"

    def session(self, drawn_ones: list[Mutant], files: list[Path], packages: Iterable[str]) -> None:
        """Everything that one collection of the tests can do: in a child, for the parent must not import them."""
        self.ends.write_text("")

        def then(session: Session) -> None:
            by_file: dict[Path, list[pytest.Item]] = {}
            for item in session.items.values():
                by_file.setdefault(item.path, []).append(item)
            unknown = [item for file, items in by_file.items() if self._map.known(file) is None for item in items]
            print(f"{len(session.items)} tests, {len(unknown)} to be recorded", file=console, flush=True)
            if unknown:
                watched = [file for package in SUITES for file in modules(package)]
                session.record(unknown, watched, self._map)
                print(FAILED.read_text(), end="", file=console, flush=True)
            self.read(by_file)
            session.allow(self._reaches)
            for one in drawn_ones:
                started = time.monotonic()
                tests, cut = self.tests(one)
                end = UNREACHED if not tests else None
                if one.place.in_function and tests:
                    end = session.judged(one, tests)
                with self.ends.open("a") as ends:
                    ends.write(json.dumps([one.name, end]) + "\n")
                took = time.monotonic() - started
                print(f"{end}: {one.name}, {len(tests)} tests{cut}, {took:.1f} s", file=console, flush=True)

        console = os.fdopen(os.dup(1), "w")
        end = forked(lambda _: self._pytest(files, Session(self._options.examples, then)), "session", math.inf)
        if end != SURVIVED:
            raise SystemExit((RUN / "session.out").read_text())

    def _pytest(self, files: Iterable[Path], session: Session) -> None:
        code = pytest.main(
            ["-q", "-p", "no:randomly", "-p", "no:cacheprovider", "--timeout=0", "-m", QUICK, *map(str, files)],
            plugins=[session],
        )
        if code != pytest.ExitCode.OK:
            sys.stdout.flush()
            os._exit(code)

    def read(self, files: Iterable[Path]) -> None:
        """What is known of the tests, the quickest first."""
        self._reaches = sorted(
            (reach for file in files for reach in self._map.known(file) or ()), key=lambda reach: reach.seconds
        )

    def tests(self, one: Mutant) -> tuple[list[str], str]:
        """The tests that judge a mutant, in order, as many as there is time for; and a word if that isn't all."""
        chosen: dict[str, Reach] = {}
        for wanted in self._wanted(one):
            for reach in self._reaches:
                if reach.test not in chosen and any(reach.lines.get(file, 0) & bits for file, bits in wanted.items()):
                    chosen[reach.test] = reach
        inside: list[str] = []
        seconds = 0.0
        for reach in chosen.values():
            seconds += reach.seconds
            if seconds > self._options.seconds:
                return inside, f" of {len(chosen)}"
            inside.append(reach.test)
        return inside, ""

    def _wanted(self, one: Mutant) -> Iterator[dict[str, int]]:
        """Lines that a test must reach, by file; in the order of what they promise."""
        own = str(one.path.relative_to(ROOT))
        if one.place.in_function:
            yield {own: (1 << one.place.last + 1) - (1 << one.place.first)}
            return
        if not self._users:
            for package in SUITES:
                for file in modules(package):
                    for node in ast.walk(ast.parse(file.read_text())):
                        name = getattr(node, "id", None) or getattr(node, "attr", None)
                        if isinstance(name, str):
                            self._users.setdefault(name, []).append((str(file.relative_to(ROOT)), node.lineno))
        for name in reversed(one.place.names):
            lines: dict[str, int] = {}
            for file, line in self._users.get(name, ()):
                lines[file] = lines.get(file, 0) | 1 << line
            yield lines
        yield {own: -1}

    def imported(self, one: Mutant) -> str:
        """Judge a mutant in a process that imports it."""
        tests, _ = self.tests(one)
        if not tests:
            return UNREACHED

        def then(session: Session) -> None:
            session.allow(self._reaches)
            known = [session.items[test] for test in tests if test in session.items]
            session.run(known if len(known) == len(tests) else list(session.items.values()), directory)

        def work(place: Path) -> None:
            nonlocal directory
            directory = place
            sys.meta_path.insert(0, Imported(one))
            self._pytest(sorted({ROOT / test.partition("::")[0] for test in tests}), Session(100, then))

        directory = ROOT
        return forked(work)


def _difference(one: Mutant) -> str:
    lines = difflib.unified_diff(one.before.splitlines(), one.after.splitlines(), n=4, lineterm="")
    return "\n".join(list(lines)[2:])


def _shares(packages: Iterable[str], count: int) -> dict[str, int]:
    """How many mutants of each: in proportion to its changes."""
    sizes = {package: len(every(package)) for package in packages}
    return {package: max(LEAST, round(count * size / sum(sizes.values()))) for package, size in sizes.items()}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("packages", nargs="*", choices=[*SUITES, []], help="all, if none is named")
    asked.add_argument("--count", type=int, default=100, help="mutants of the packages together")
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--seconds", type=float, default=60, help="most time for the tests of a mutant, as recorded")
    asked.add_argument("--examples", type=int, default=25, help="most examples of a property, as long as it is quick")
    asked.add_argument("--slower", action="store_true", help="let the suites of SLOWER judge what survived")
    asked.add_argument("--these", nargs="*", default=[], help="these mutants alone, by name: MODULE#NUMBER")
    options = asked.parse_args()
    RUN.mkdir(parents=True, exist_ok=True)
    for library in LIBRARIES:
        importlib.import_module(library)
    packages = list(dict.fromkeys(options.packages or SUITES))
    if options.these:
        names = [(ROOT / name.partition("#")[0], int(name.partition("#")[2])) for name in options.these]
        of = {path: next(p for p in SUITES if path in modules(p)) for path, _ in names}
        packages = list(dict.fromkeys(of.values()))
        chosen = [(of[path], mutant(path, number)) for path, number in names]
    else:
        shares = _shares(packages, options.count)
        chosen = [
            (package, mutant(*one)) for package in packages for one in drawn(package, shares[package], options.seed)
        ]
    files = sorted({path for package in packages for path in in_order(SUITES[package])})
    judge = Judge(options)
    judge.session([one for _, one in chosen], files, packages)
    judge.read(files)
    ends = dict(json.loads(line) for line in judge.ends.read_text().splitlines())
    counts: Counter[tuple[str, str]] = Counter()
    slower = Slower() if options.slower else None
    quick = 0
    for package, one in chosen:
        end = ends[one.name]
        if end is None or end == SURVIVED:
            end = judge.imported(one)
            print(f"{end}: {one.name}, imported", flush=True)
        quick += end in _DEAD
        if slower is not None and end not in _DEAD:
            started = time.monotonic()
            end = slower.judged(one, in_order(SLOWER[package]))
            print(f"{end}: {one.name}, by slower suites, {time.monotonic() - started:.0f} s", flush=True)
        counts[package, end] += 1
        if end not in _DEAD:
            print(f"{end}: {one.name}\n{_difference(one)}", flush=True)
    for package in packages:
        print(f"{package}: " + ", ".join(f"{counts[key]} {key[1]}" for key in sorted(counts) if key[0] == package))
    dead = sum(number for (_, end), number in counts.items() if end in _DEAD)
    print(f"{dead} of {len(chosen)} killed, {quick} by the quick tests")
    shutil.rmtree(RUN)


def in_order(names: Iterable[str]) -> list[Path]:
    """The files of tests that folders and patterns name, in their order."""
    return [
        file
        for name in names
        for file in sorted((ROOT / "tests").glob(name if name.endswith(".py") else f"{name}/**/test_*.py"))
    ]


if __name__ == "__main__":
    main()
