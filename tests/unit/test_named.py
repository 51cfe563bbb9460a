"""The files, classes and functions of ours that the pages name are there."""

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

from tests.casebook import BOOKS

PROJECT = Path(__file__).resolve().parents[2]
OURS = ("benchmarks", "changelog.d", "compactor", "config", "deploy", "docs", "tests")
"""The folders in which a named file must lie."""
PAGES = (*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md"), PROJECT / "changelog.d" / "README.md")
NAMED = re.compile(r"`([^`\n]+)`")
FILE = re.compile(rf"(?:{'|'.join(map(re.escape, OURS))})/[\w./*-]*|[\w./*-]*[\w*]\.(?:py|java)")
"""A folder or file below one of ours, or a program's name; `*` stands for any letters."""
PLACEHOLDER = re.compile(r"[A-Z]{3,}")
"""What the reader is to choose, as in `test_storage_NAME.py`."""
HIVES = {"Cleaner.clean"}
"""Methods of Hive's classes that have the name of one of ours."""


@cache
def files() -> dict[str, list[Path]]:
    """Our files and folders, by each end of their paths."""
    by_end: dict[str, list[Path]] = {}
    for folder in OURS:
        for path in (PROJECT / folder, *(PROJECT / folder).rglob("*")):
            parts = path.relative_to(PROJECT).parts
            if "__pycache__" not in parts:
                for start in range(len(parts)):
                    by_end.setdefault("/".join(parts[start:]), []).append(path)
    return by_end


@cache
def programs_with_classes() -> dict[str, str]:
    """The text of each program of ours that defines a class, by the names of its classes."""
    texts: dict[str, str] = {}
    for path in sorted((PROJECT / "compactor").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"^class (\w+)", text, re.MULTILINE):
            texts[name] = texts.get(name, "") + text
    return texts


def named(page: Path) -> Iterator[tuple[str, str]]:
    """Where and what: each name between backquotes."""
    text = page.read_text(encoding="utf-8")
    for match in NAMED.finditer(text):
        yield f"{page.relative_to(PROJECT)}:{text.count(chr(10), 0, match.start()) + 1}", match[1]


def has(text: str, word: str) -> bool:
    return re.search(rf"\b{word}\b", text) is not None


def test_the_files_that_pages_name_are_there():
    """Each file or folder of ours on a page exists; its path may begin anywhere below the project."""
    gone = [
        (where, name)
        for page in PAGES
        for where, name in named(page)
        if FILE.fullmatch(name)
        and not PLACEHOLDER.search(name)
        and name.rstrip("/") not in files()
        and not ("*" in name and any(fnmatch(path, name) for path in files()))
    ]
    assert gone == []


def test_the_methods_that_pages_name_are_there():
    """Where a page says `Class.name` of a class of ours, the program that defines it knows the name."""
    programs = programs_with_classes()
    gone = [
        (where, name)
        for page in PAGES
        for where, name in named(page)
        if (parts := re.fullmatch(r"([A-Z]\w+)\.([a-z_]\w*)", name))
        and name not in HIVES
        and parts[1] in programs
        and not FILE.fullmatch(name)
        and not has(programs[parts[1]], parts[2])
    ]
    assert gone == []


def test_the_names_behind_a_file_are_in_it():
    """What a page names in brackets behind a program's name stands in that file, settings and commands excepted."""
    gone = []
    for page in PAGES:
        for file, behind in re.findall(r"`([\w./-]+\.(?:py|java))`\s+\(([^)]*)\)", page.read_text(encoding="utf-8")):
            code = "\n".join(path.read_text(encoding="utf-8") for path in files().get(file, ()))
            names = [name for name in NAMED.findall(behind) if re.fullmatch(r"_?[A-Z][\w.]*|_?[a-z]\w*", name)]
            words = {word for name in names for word in name.split(".")}
            gone += [(page.name, file, word) for word in sorted(words) if not has(code, word)]
    assert gone == []


@pytest.mark.parametrize("package", ["orc", "parquet"])
def test_every_module_is_told(package):
    """The page on a format has each module of its package, or the folder that it lies in, in its table, and no other."""
    text = (PROJECT / "docs" / f"{package}.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.+?`) \|", text.partition("## Modules")[2].partition("\n## ")[0], re.MULTILINE)
    told = {name.rstrip("/") for row in rows for name in NAMED.findall(row)}
    top = PROJECT / "compactor" / package
    paths = [file for file in top.rglob("*.py") if file.stem != "__init__" and "_pb2" not in file.name]
    assert [file.stem for file in paths if not told & {file.stem, *file.relative_to(top).parts[:-1]}] == []
    assert told - {file.stem for file in paths} - {folder.name for folder in top.rglob("*")} == set()


@pytest.mark.parametrize("book", sorted(BOOKS.iterdir()), ids=lambda book: book.name)
def test_every_case_book_is_explained(book):
    """CONTRIBUTING.md says of each case book what it decides, and its second line which test plays it."""
    assert f"`{book.name}`" in (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    _, second, *_ = book.read_text(encoding="utf-8").splitlines()
    player = re.fullmatch(r"# Played by (\S+)\.", second)
    assert player is not None
    assert f'"{book.name}"' in (PROJECT / player[1]).read_text(encoding="utf-8")
