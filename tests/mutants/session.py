"""
A pytest session that has imported everything, and forks a child for each mutant, which swaps the changed functions.

What a module computes while it is imported can't be swapped: such a change, and each that no test failed on, is judged
once more in a child that imports the changed module anew (`Imported`).
"""

import functools
import gc
import importlib.abc
import importlib.util
import itertools
import math
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final

import pytest

from tests.mutants.changes import Mutant
from tests.mutants.reach import KEPT, Lines, Map, Reach, clock

KILLED, SURVIVED, UNREACHED, ENDLESS, TOO_LONG, BROKEN = (
    "killed",
    "survived",
    "unreached",
    "endless",
    "too long",
    "broken",
)
RUN: Final = KEPT / f"run-{os.getpid()}"
"""What the children of this process write."""
FAILED: Final = RUN / "failed"
"""Which tests failed while they were recorded, without any change."""
_FAILED: Final = 71
_PATIENCE_SECONDS: Final = 900
"""Of a wall clock, for a child: only one that waits for ever, or a machine that is very busy, takes so long."""
_MEMORY_BYTES: Final = 6 << 30


def ended(child: int, patience: float = _PATIENCE_SECONDS) -> str:
    """What became of a child."""
    end = time.monotonic() + patience
    try:
        while time.monotonic() < end:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                return {0: SURVIVED, _FAILED: KILLED, -signal.SIGPROF: ENDLESS, 1: KILLED, 2: KILLED}.get(
                    code, KILLED if code < 0 else BROKEN
                )
            time.sleep(0.01)
        return TOO_LONG
    finally:
        try:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def forked(work: Callable[[Path], None], name: str = "child", patience: float = _PATIENCE_SECONDS) -> str:
    """Run it in a child with a directory of its own, quietly; a failed test ends the child."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        child = os.fork()
        if child:
            return ended(child, patience)
        try:
            os.setsid()
            out = os.open(RUN / f"{name}.out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(out, 1)
            os.dup2(out, 2)
            resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            work(Path(directory))
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(99)
        os._exit(0)


class Session:
    """
    A plugin: few examples of each property, and instead of running all tests what is asked, in the forked children.

    Args:
        examples: most of each property.
        then: called with this session once the tests are collected.
    """

    def __init__(self, examples: int, then: Callable[["Session"], None]) -> None:
        self._examples = examples
        self._then = then
        self._few: dict[str, Any] = {}
        self.items: dict[str, pytest.Item] = {}
        self._functions: dict[str, list[FunctionType]] = {}
        self._caches: list[functools._lru_cache_wrapper[Any]] = []
        self._allowed: Callable[[pytest.Item], float] = lambda _: 300

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        """
        Properties have few examples, always the same; where the settings stand makes no difference. No health check
        fails a test because the machine is busy.
        """
        from hypothesis import HealthCheck, Phase, settings  # pytest must have loaded it as its plugin first

        self._few = {
            "derandomize": True,
            "database": None,
            "deadline": None,
            "phases": (Phase.explicit, Phase.generate),
            "suppress_health_check": tuple(HealthCheck),
        }

        given = settings.__call__

        def few(own: Any, test: Any) -> Any:
            number = min(own.max_examples, self._examples)
            return given(settings(own, max_examples=number, **self._few), test)

        settings.__call__ = few  # type: ignore[method-assign]
        settings.register_profile("few", max_examples=self._examples, **self._few)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        from hypothesis import settings

        settings.load_profile("few")
        for item in session.items:
            own = getattr(getattr(item, "function", None), "_hypothesis_internal_use_settings", None)
            if own is not None:  # by the profile that was loaded before
                item.function._hypothesis_internal_use_settings = settings(  # type: ignore[attr-defined]
                    own, max_examples=min(own.max_examples, self._examples), **self._few
                )
        self.items = {item.nodeid: item for item in session.items}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> bool:
        gc.collect()
        for thing in gc.get_objects():
            if isinstance(thing, FunctionType):
                self._functions.setdefault(thing.__code__.co_filename, []).append(thing)
            elif isinstance(thing, functools._lru_cache_wrapper) and (thing.__module__ or "").startswith("compactor"):
                self._caches.append(thing)
        gc.freeze()
        self._then(self)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed(report)

    def _failed(self, report: pytest.TestReport) -> None:
        print(report.nodeid, report.longreprtext)
        sys.stdout.flush()
        os._exit(_FAILED)

    def run(self, tests: list[pytest.Item], directory: Path) -> None:
        """Run the tests in this process, which a failed one ends."""
        tests[0].config._tmp_path_factory._basetemp = directory  # type: ignore[attr-defined]
        for item, following in zip(tests, [*tests[1:], None], strict=True):
            signal.setitimer(signal.ITIMER_PROF, self._allowed(item))
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)

    def allow(self, reaches: Iterable[Reach]) -> None:
        """A test that takes much longer than it did runs for ever."""
        most = {reach.test: 10 + 20 * reach.seconds for reach in reaches}
        self._allowed = lambda item: most.get(item.nodeid, 300)

    def record(self, tests: list[pytest.Item], files: list[Path], known: Map) -> None:
        """Record the tests of each file in a child of its own: what they leave in memory goes with it."""
        lines = Lines(files)

        def work(directory: Path, path: Path, items: list[pytest.Item]) -> None:
            failed: dict[str, str] = {}
            self._failed = lambda report: failed.update({report.nodeid: report.longreprtext})  # type: ignore[method-assign]
            items[0].config._tmp_path_factory._basetemp = directory  # type: ignore[attr-defined]
            reaches: list[Reach] = []
            for item, following in zip(items, [*items[1:], None], strict=True):
                started = clock()
                lines.start()
                try:
                    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                finally:
                    run = lines.stop()
                if item.nodeid not in failed:
                    reaches.append(Reach(item.nodeid, round(clock() - started, 4), run))
            known.keep(path, reaches)
            with FAILED.open("a") as told:
                told.writelines(f"failed, and judges nothing: {test}\n{why}\n" for test, why in failed.items())

        FAILED.write_text("")
        for path, group in itertools.groupby(tests, lambda item: item.path):
            end = forked(functools.partial(work, path=path, items=list(group)), "record", math.inf)
            if end != SURVIVED:
                raise SystemExit((RUN / "record.out").read_text())

    def judged(self, mutant: Mutant, tests: list[str]) -> str | None:
        """Run the tests on a mutant whose functions are swapped; nothing, if that can't be."""
        changed = {(code.co_firstlineno, code.co_qualname): code for code in _codes(mutant.code)}
        swapped = []
        for function in self._functions.get(str(mutant.path), ()):
            code = changed.get((function.__code__.co_firstlineno, function.__code__.co_qualname))
            if code is None or len(code.co_freevars) != len(function.__code__.co_freevars):
                return None
            swapped.append((function, code))

        def work(directory: Path) -> None:
            for function, code in swapped:
                function.__code__ = code
            for cache in self._caches:
                cache.cache_clear()
            self.run([self.items[test] for test in tests], directory)

        return forked(work)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


class Imported(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the mutant in its module's place."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(self, fullname: str, _path: Any, _target: Any = None) -> Any:
        if fullname != self._mutant.module:
            return None
        where = self._mutant.path.parent
        inside = [str(where)] if self._mutant.path.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(
            fullname, self._mutant.path, loader=self, submodule_search_locations=inside
        )

    def create_module(self, _spec: Any) -> None:
        return None

    def exec_module(self, module: Any) -> None:
        exec(self._mutant.code, module.__dict__)
