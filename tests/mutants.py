"""
How strong are the tests? Draws small changes of the code at random, and runs the tests of its package on each.

`make mutants ARGS="acid --count 20 --seed 1"`: one changed copy of the tree, one process, one mutant after another. A
mutant is killed when a test fails; each survivor is printed as a diff, to be judged by a reader: either a test is
missing, or the change makes no difference. One whose tests took too long is told apart, for it may be either.
"""

import argparse
import ast
import difflib
import importlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
SUITES: Final[dict[str, tuple[str, ...]]] = {
    "acid": ("tests/unit/acid/test_*.py", "tests/unit/engine/test_columns.py"),
    "planning": ("tests/unit/planning/test_*.py",),
    "metastore/clean": ("tests/metastore/test_cleaning_*.py",),
    "metastore/compaction_queue": ("tests/metastore/test_queue_*.py",),
    "engine/publish": ("tests/unit/engine/test_publish*.py",),
    "engine/verify": ("tests/unit/engine/test_verify.py",),
    "orc/writing": tuple(f"tests/unit/orc/test_{name}.py" for name in ("splice", "merge", "statistics", "zones")),
    "parquet": ("tests/unit/parquet/test_*.py",),
}
"""The tests that judge each package."""
LIBRARIES: Final = ("botocore.client", "fsspec", "numpy", "psycopg", "pyarrow.parquet", "pydantic_settings", "pymysql")
"""What most tests import, loaded once; not what pytest itself loads."""
_OTHERS: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
}
_KILLED, _SURVIVED, _TOO_LONG, _BROKEN = "killed", "survived", "too long", "broken"
_ENDS: Final = {0: _SURVIVED, 1: _KILLED, 2: _KILLED}
"""By pytest's exit code; 2 where a module can't be imported any more."""


def places(tree: ast.AST) -> Iterator[Callable[[], object]]:
    """Calls of which each makes one change of the tree, always in the same order; annotations stay as they are."""
    for name, value in ast.iter_fields(tree):
        if name in {"annotation", "returns"}:
            continue
        for place, node in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(node, ast.AST):
                continue
            for other in _replacements(node):

                def change(value: Any = value, place: int = place, name: str = name, other: ast.AST = other) -> None:
                    if isinstance(value, list):
                        value[place] = other
                    else:
                        setattr(tree, name, other)

                yield change
            yield from places(node)


def _replacements(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in the place of a node."""
    match node:
        case _ if type(node) in _OTHERS:
            yield _OTHERS[type(node)]()
        case ast.Expr(value=ast.Constant()):  # a docstring
            pass
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.Return(value=ast.expr()):
            yield ast.Return(ast.Constant(None))
        case ast.Expr() | ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break():
            yield ast.Pass()
        case ast.If() | ast.While():
            yield type(node)(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
        case ast.IfExp():
            yield ast.IfExp(node.test, node.orelse, node.body)
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.comprehension(ifs=[_, *_]):
            yield ast.comprehension(node.target, node.iter, [], node.is_async)


def mutant(path: Path, number: int) -> tuple[str, str]:
    """A module's source and that of one of its mutants, printed alike."""
    tree = ast.parse(path.read_text())
    before = ast.unparse(tree)
    list(places(tree))[number]()
    return before, ast.unparse(ast.fix_missing_locations(tree))


def drawn(package: str, count: int, seed: int) -> list[tuple[Path, int]]:
    """Some of all mutants of a package: the module and the number of its change."""
    files = sorted((ROOT / "compactor" / package).rglob("*.py"))
    every = [(file, number) for file in files for number in range(len(list(places(ast.parse(file.read_text())))))]
    return random.Random(f"{package} {seed}").sample(every, min(count, len(every)))


def judged(tree: Path, tests: list[str], seconds: float) -> str:
    """Run the tests on a tree, in a child that has the libraries loaded already."""
    child = os.fork()
    if not child:
        try:
            os.setsid()
            os.chdir(tree)
            sys.path[0] = str(tree)
            out = os.open(tree / "pytest.out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(out, 1)
            os.dup2(out, 2)
            os._exit(pytest.main(["-q", "-x", "-p", "no:randomly", "-p", "no:cacheprovider", *tests]))
        except BaseException:
            traceback.print_exc()
            os._exit(99)
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return _ENDS.get(os.waitstatus_to_exitcode(status), _BROKEN)
            time.sleep(0.05)
        return _TOO_LONG
    finally:
        try:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("packages", nargs="*", choices=[*SUITES, []], help="all, if none is named")
    asked.add_argument("--count", type=int, default=20, help="mutants of each package")
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--seconds", type=float, default=120, help="most time for the tests of a mutant")
    options = asked.parse_args()
    for library in LIBRARIES:
        importlib.import_module(library)
    counts: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as directory:
        tree = Path(directory)
        for name in ("compactor", "tests", "config", "docs", "pyproject.toml"):
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, tree / name)
        for package in options.packages or SUITES:
            suite = sorted(file for pattern in SUITES[package] for file in ROOT.glob(pattern))
            for file, number in drawn(package, options.count, options.seed):
                stem, target = file.stem.rstrip("s"), tree / file.relative_to(ROOT)
                own_first = sorted(suite, key=lambda test: stem not in test.stem)
                before, after = mutant(file, number)
                target.write_text(after)
                started = time.monotonic()
                end = judged(tree, [str(test.relative_to(ROOT)) for test in own_first], options.seconds)
                shutil.copy(file, target)
                counts[package, end] += 1
                print(f"{end}: {file.relative_to(ROOT)} #{number}, {time.monotonic() - started:.0f} s", flush=True)
                if end == _BROKEN:
                    sys.exit((tree / "pytest.out").read_text())
                if end != _KILLED:
                    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=4, lineterm="")
                    print("\n".join(list(lines)[2:]), flush=True)
    for (package, end), number in sorted(counts.items()):
        print(f"{package}: {number} {end}")


if __name__ == "__main__":
    main()
