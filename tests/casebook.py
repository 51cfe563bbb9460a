"""
Case books: text files in which a reviewer reads layouts and decisions without reading code.

    # a remark
    case the title of a case
    first line: how to look
      entries of a partition
    ----
    what is expected

A blank line ends a case. `pytest --rewrite` replaces the expected parts by what really came out.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

import pytest

from compactor.acid.listing import FileEntry, Listing

BOOKS = Path(__file__).parent / "cases"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZE = re.compile(r"(\d+)([KMG]?)B?")


@dataclass(frozen=True)
class Case:
    """One case; `first` is the line number of its title."""

    title: str
    look: str
    entries: tuple[str, ...]
    expected: tuple[str, ...]
    first: int

    @property
    def options(self) -> dict[str, str]:
        """`key=value` words of the first line; a bare word is its own value."""
        return {
            key: value if equals else key
            for key, equals, value in (word.partition("=") for word in self.look.split()[1:])
        }

    @property
    def verb(self) -> str:
        return self.look.split()[0]


def read_book(name: str) -> list[Case]:
    """All cases of a book; each has a title of its own, by which `--rewrite` finds it."""
    found = list(_cases(name, (BOOKS / name).read_text().splitlines()))
    titles = [case.title for case in found]
    assert len(titles) == len(set(titles)), f"{name}: twice: {sorted(one for one in titles if titles.count(one) > 1)}"
    return found


def check(name: str, case: Case, run: Callable[[Case], list[str]], *, rewrite: bool) -> None:
    """Run one case and compare, or put the outcome into the book."""
    actual = tuple(run(case))
    if not rewrite:
        apart = "\n".join(unified_diff(case.expected, actual, "expected", "came out", lineterm=""))
        assert actual == case.expected, f"tests/cases/{name}:{case.first}: {case.title}\n{apart}"
    elif actual != case.expected:
        _rewrite(name, case, actual)


def size_of(word: str) -> int:
    """`64M` in bytes."""
    found = _SIZE.fullmatch(word)
    assert found is not None, word
    return int(found[1]) * _UNITS[found[2]]


def cases(name: str) -> pytest.MarkDecorator:
    """One test per case, named after its title."""
    return pytest.mark.parametrize("case", [pytest.param(c, id=c.title.replace(" ", "-")) for c in read_book(name)])


def listing(entries: tuple[str, ...]) -> Listing:
    """
    A listing from lines of words.

    `name/` starts a directory; further words are files in it, each with an optional size after it; `(empty)` means no
    file at all, `format=x` gives the dataFormat, `replaces=a,b` what the list of a base names; a directory without any
    file named gets a `bucket_00000`, of the size that follows. Words before the first directory are top-level files.
    """
    files: list[FileEntry] = []
    directories: set[str] = set()
    formats: list[tuple[str, str]] = []
    replaced: list[tuple[str, tuple[FileEntry, ...]]] = []
    for line in entries:
        current = ""
        pending: list[tuple[str, int]] = []
        empty = False

        def close(current: str, pending: list[tuple[str, int]], *, empty: bool) -> None:
            if current and not empty and all(not name for name, _ in pending):
                pending = [("bucket_00000", pending[0][1] if pending else 1 << 20)]
            files.extend(FileEntry(current + name, size) for name, size in pending if name)

        for word in line.split():
            if word.endswith("/"):
                close(current, pending, empty=empty)
                current, pending, empty = word, [], False
                directories.add(word.rstrip("/"))
            elif word == "(empty)":
                empty = True
            elif word.startswith("format="):
                formats.append((current.rstrip("/"), word.removeprefix("format=")))
            elif word.startswith("replaces="):
                names = word.removeprefix("replaces=").split(",")
                replaced.append((current.rstrip("/"), tuple(FileEntry(name, 1 << 20) for name in names)))
            elif _SIZE.fullmatch(word):
                bytes_ = size_of(word)
                pending = [*pending[:-1], (pending[-1][0], bytes_)] if pending else [("", bytes_)]
            else:
                pending.append((word, 1 << 20))
        close(current, pending, empty=empty)
    for path in [f.path for f in files] + sorted(directories):
        parts = path.split("/")
        directories.update("/".join(parts[:depth]) for depth in range(1, len(parts)))
    return Listing(tuple(files), tuple(sorted(directories)), tuple(formats), tuple(replaced))


def _cases(name: str, lines: list[str]) -> Iterator[Case]:
    number = 0
    while number < len(lines):
        if not lines[number].startswith("case "):
            number += 1
            continue
        end = next((i for i in range(number, len(lines)) if not lines[i].strip()), len(lines))
        body = [line for line in lines[number + 1 : end] if not line.startswith("#")]
        assert body.count("----") == 1, (
            f"{name}:{number + 1}: a case has one line ----, and none that is blank before it"
        )
        rule = body.index("----")
        yield Case(
            lines[number].removeprefix("case "), body[0], tuple(body[1:rule]), tuple(body[rule + 1 :]), number + 1
        )
        number = end


def _rewrite(name: str, case: Case, actual: tuple[str, ...]) -> None:
    lines = (BOOKS / name).read_text().splitlines()
    start = lines.index(f"case {case.title}")
    rule = lines.index("----", start)
    end = next((i for i in range(rule, len(lines)) if not lines[i].strip()), len(lines))
    lines[rule + 1 : end] = actual
    (BOOKS / name).write_text("\n".join(lines) + "\n")
