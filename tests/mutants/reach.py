"""
Which lines of the package each test reaches, and how long it takes: recorded once, kept under `build/`.

A test's part holds as long as the code, the tests' helpers and case books, and the test's own file are what they were.
"""

import hashlib
import json
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from tests.mutants.changes import ROOT

KEPT: Final = ROOT / "build" / "mutants"


@dataclass(frozen=True, slots=True)
class Reach:
    """One test: its seconds of a processor, and the lines that it reaches, a bit for each, by file."""

    test: str
    seconds: float
    lines: dict[str, int]


class Lines:
    """Notes the lines of some files that are run, once each: a frame without any new line left isn't watched."""

    def __init__(self, files: Iterable[Path]) -> None:
        self._files = {str(file): str(file.relative_to(ROOT)) for file in files}
        self._left: dict[int, tuple[CodeType, set[int]]] = {}
        self._run: dict[str, int] = {}

    def start(self) -> None:
        self._left.clear()
        self._run = {}
        threading.settrace(self._called)
        sys.settrace(self._called)

    def stop(self) -> dict[str, int]:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
        return self._run

    def _called(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        code = frame.f_code
        known = self._left.get(id(code))
        if known is None:
            left = {line for *_, line in code.co_lines() if line} if code.co_filename in self._files else set()
            self._left[id(code)] = known = code, left
            if left:
                self._note(code, code.co_firstlineno, left)
        return self._stepped if known[1] else None

    def _stepped(self, frame: FrameType, event: str, _argument: Any) -> Any:
        code = frame.f_code
        left = self._left[id(code)][1] if id(code) in self._left else set()
        if event == "line" and frame.f_lineno in left:
            self._note(code, frame.f_lineno, left)
        return self._stepped if left else None

    def _note(self, code: CodeType, line: int, left: set[int]) -> None:
        left.discard(line)
        name = self._files[code.co_filename]
        self._run[name] = self._run.get(name, 0) | 1 << line


class Map:
    """What is known of the tests, by their file."""

    def __init__(self, examples: int) -> None:
        everything = [
            *(ROOT / "compactor").rglob("*.py"),
            *(path for path in (ROOT / "tests").rglob("*.py") if not path.match("test_*.py")),
            *(ROOT / "tests" / "cases").glob("*.txt"),
        ]
        everything = [path for path in everything if path.parent.name != "mutants"]
        self._common = _digest(everything) + f"-{examples}"

    def known(self, file: Path) -> list[Reach] | None:
        """The tests of a file, unless they must be recorded."""
        try:
            kept = json.loads(self._place(file).read_text())
        except (OSError, ValueError):
            return None
        if kept["of"] != self._of(file):
            return None
        return [Reach(test, took, {n: int(bits, 16) for n, bits in run.items()}) for test, took, run in kept["tests"]]

    def keep(self, file: Path, tests: list[Reach]) -> None:
        """Keep what was recorded of a file."""
        KEPT.mkdir(parents=True, exist_ok=True)
        listed = [(one.test, one.seconds, {name: f"{bits:x}" for name, bits in one.lines.items()}) for one in tests]
        self._place(file).write_text(json.dumps({"of": self._of(file), "tests": listed}))

    def _of(self, file: Path) -> str:
        return f"{self._common}-{_digest([file])}"

    @staticmethod
    def _place(file: Path) -> Path:
        return KEPT / (str(file.relative_to(ROOT)).replace("/", "-") + ".json")


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(f"{file.relative_to(ROOT)}\n".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:24]


def clock() -> float:
    """Seconds of a processor: how busy the machine is doesn't matter."""
    return time.process_time()
