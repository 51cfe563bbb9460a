"""The tool that changes the code at random (`make mutants`)."""

import ast
import sys

import pytest

from tests.mutants.__main__ import SLOWER, SUITES, in_order
from tests.mutants.changes import ROOT, every, modules, mutant, places
from tests.mutants.reach import Lines, Map, Reach


def _changed(source):
    found = []
    for number in range(len(list(places(ast.parse(source))))):
        tree = ast.parse(source)
        list(places(tree))[number].change()
        found.append(ast.unparse(tree))
    return found


@pytest.mark.parametrize(
    ("source", "changed"),
    [
        ("a = b < c", ["a = b <= c"]),
        ("a = b is c and d", ["a = b is c or d", "a = b is not c and d"]),
        ("a = b + 1", ["a = b - 1", "a = b + 2"]),
        ("a = True", ["a = False"]),
        ("a = not b", ["a = b"]),
        ("a = b if c else d", ["a = d if c else b"]),
        ("a = [b for b in c if d]", ["a = [b for b in c]"]),
        ("if a:\n    b()", ["if not a:\n    b()", "if a:\n    pass"]),
        ("raise a", ["pass"]),
        ("def a():\n    return b", ["def a():\n    return None"]),
        ("def a():\n    return False", ["def a():\n    return True"]),
        ("@a(1)\ndef b(c: d[1]) -> e[1]:\n    'A text.'", []),
        ("a = f'{b + 1}'", []),
        ("and_(a, *b)", ["pass", "or_(a, *b)", "and_(*b)", "and_(a)"]),
        ("not_(a)", ["pass", "a"]),
        ("a.where(b).where(c, d)", ["pass", "a.where(b).where(d)", "a.where(b).where(c)", "a.where(c, d)"]),
        ("np.where(a, b, c)", ["pass"]),
        ("a = b.is_(None)", ["a = b.is_not(None)"]),
        ("a = [b == c, d]", ["a = [b != c, d]", "a = [d]", "a = [b == c]"]),
    ],
)
def test_each_change_is_one_place(source, changed):
    """Each mutant differs in one place; decorators, annotations and texts stay as they are."""
    assert _changed(source) == changed


def test_numbers_of_changes_hold():
    """A mutant's number names the same change each time, and what is compiled stands where the file says."""
    path, number = next(one for one in every("acid") if one[0].name == "row_id.py")
    one = mutant(path, number)
    assert one.after == mutant(path, number).after != one.before
    assert one.name == f"compactor/acid/row_id.py#{number}"
    assert one.code.co_filename == str(path)


def test_lines_that_ran_are_noted():
    """Of the files that are watched the lines that ran are noted, and no others."""
    source = "def double(value):\n    if value:\n        return 2 * value\n    return 0\n"
    path = ROOT / "tests" / "double.py"
    names = {}
    exec(compile(source, str(path), "exec"), names)
    watching, before = Lines([path]), sys.gettrace()
    watching.start()
    try:
        names["double"](1)
    finally:
        noted = watching.stop()
        sys.settrace(before)
    assert noted == {"tests/double.py": 1 << 1 | 1 << 2 | 1 << 3}


def test_what_was_recorded_holds_for_the_same_tests(tmp_path, monkeypatch):
    """What was recorded of a file of tests is found again until it is recorded otherwise."""
    monkeypatch.setattr("tests.mutants.reach.KEPT", tmp_path)
    file, reaches = ROOT / "tests" / "unit" / "test_mutants.py", [Reach("a", 0.5, {"b.py": 6})]
    assert Map(25).known(file) is None
    Map(25).keep(file, reaches)
    assert Map(25).known(file) == reaches
    assert Map(26).known(file) is None


@pytest.mark.parametrize("suites", [SUITES, SLOWER])
def test_each_package_has_its_suites(suites):
    """Every name is that of a package, of a folder with tests, or of files that are there."""
    assert all(modules(package) for package in suites)
    assert all(in_order((name,)) for names in suites.values() for name in names)
