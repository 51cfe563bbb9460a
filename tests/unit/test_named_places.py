"""What the pages name is there: files, classes with their methods, and what is said to stand in a file."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), *sorted(ROOT.glob("*.md"))]
FOLDERS = ("", "compactor", "tests", "docs", "deploy", "compactor/metastore", "compactor/roles", "tests/hive")
"""From where pages name files; a file may also be named without any folder."""
CODE = r"[\w.-]+(?:/[\w.-]+)*\.(?:py|java|txt|toml|yaml|sh)"
PLACE = re.compile(rf"`({CODE})`(?:\s+\((`[^()]*`)\))?")
METHOD = re.compile(r"(?<!its )`([A-Z][a-z]\w*)\.([a-z]\w*)(?:\(\))?`")
"""Of ours; `its` stands before one of Hive's that has a class of the same name."""
MADE = re.compile(r"^build/|^<|[A-Z]{3,}[./_]|^compactor\.yaml$")
"""What isn't in the project: what it makes, and names that stand for others."""


@cache
def by_name() -> dict[str, list[Path]]:
    """Every file of the project's folders, by its name."""
    found: dict[str, list[Path]] = {}
    for folder in ("compactor", "tests", "docs", "deploy", "config", "benchmarks"):
        for path in (ROOT / folder).rglob("*.*"):
            found.setdefault(path.name, []).append(path)
    for path in ROOT.iterdir():
        found.setdefault(path.name, []).append(path)
    return found


def files_of(name: str) -> list[Path]:
    """The files that a page may mean."""
    if "/" not in name:
        return by_name().get(name, [])
    return [path for folder in FOLDERS if (path := ROOT / folder / name).exists()]


@cache
def classes(name: str) -> list[ast.ClassDef]:
    """Every class of that name in the package and the tests."""
    return [
        node
        for text in modules()
        if f"class {name}" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef) and node.name == name
    ]


@cache
def modules() -> list[str]:
    """The text of each module."""
    return [
        path.read_text(encoding="utf-8") for folder in ("compactor", "tests") for path in (ROOT / folder).rglob("*.py")
    ]


def names_in(tree: ast.AST) -> set[str]:
    """What a module or class defines, on whichever level, and what it sets on itself."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
    return found


def has(name: str, method: str) -> bool:
    """Whether a class of that name has it, or one of its bases."""
    return any(
        method in names_in(node) or any(has(base.id, method) for base in node.bases if isinstance(base, ast.Name))
        for node in classes(name)
    )


def stands_in(path: Path, words: str) -> bool:
    """Whether a file has what is said to be in it: `name`, `Class.method`."""
    text = path.read_text(encoding="utf-8")
    return all(re.search(rf"\b{re.escape(part)}\b", text) for part in words.split("."))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_places_are_there(page):
    """Each file that a page names exists; what it names in brackets behind a file stands there, and methods exist."""
    text = page.read_text(encoding="utf-8")
    wrong = []
    for found in PLACE.finditer(text):
        if MADE.search(found[1]):
            continue
        files = files_of(found[1])
        if not files:
            wrong.append(f"no file {found[1]}")
        for said in re.findall(r"`([A-Za-z_]\w*|[A-Z]\w*\.\w+)`", found[2] or ""):
            wrong += [f"{said} doesn't stand in {found[1]}"] * (not any(stands_in(path, said) for path in files))
    for name, method in METHOD.findall(text):
        if (classes(name) or "_" in method) and not re.fullmatch(CODE, f"{name}.{method}") and not has(name, method):
            wrong.append(f"no {name}.{method}")
    assert wrong == []
