"""
How a bar is measured and written down.

A bar is a figure with a limit. Peer and ours run alternately, at least three times each, and medians are compared: a
busy machine then slows both.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

RESULTS = Path(__file__).with_name("results.json")


@dataclass(frozen=True, slots=True)
class Result:
    """One bar as it goes into results.json; `figure` and `bar` are in `unit`, `sides` has more of peer and ours."""

    name: str
    figure: float
    bar: float
    unit: str
    holds: bool
    command: str
    detail: str = ""
    sides: dict[str, dict[str, float]] = field(default_factory=dict)

    def line(self) -> str:
        """The bar, its figure and whether it holds, in one line."""
        return f"{'holds ' if self.holds else 'MISSES'}  {self.name:<34} {self.figure:>10.3g} {self.unit:<12} bar {self.bar:g}   {self.detail}"


def at_most(name: str, figure: float, bar: float, unit: str, detail: str = "") -> Result:
    """Make a bar that holds when the figure is at most `bar`."""
    return Result(name, round(figure, 4), bar, unit, figure <= bar, _command(name), detail)


def at_least(name: str, figure: float, bar: float, unit: str, detail: str = "") -> Result:
    """Make a bar that holds when the figure is at least `bar`."""
    return Result(name, round(figure, 4), bar, unit, figure >= bar, _command(name), detail)


def _command(name: str) -> str:
    return f"make bench ONLY={name.split('/', maxsplit=1)[0]}"


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def alternate(peer: Callable[[], float], ours: Callable[[], float], rounds: int = 3) -> tuple[float, float]:
    """Run both in turn; returns the median of each."""
    pairs = [(peer(), ours()) for _ in range(rounds)]
    return statistics.median(p for p, _ in pairs), statistics.median(o for _, o in pairs)


@contextmanager
def scratch() -> Iterator[Path]:
    """Make a temporary directory, in BENCH_DIR if that is set, and remove it afterwards."""
    path = Path(tempfile.mkdtemp(prefix="compactor-bench-", dir=os.environ.get("BENCH_DIR")))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def in_child(
    module: str, *arguments: str, environment: dict[str, str] | None = None, cores: int | None = None
) -> dict[str, float]:
    """
    Run `python -m module arguments` alone in a process and read the JSON object of its last line of output.

    Args:
        cores: pin the process, and all it starts, to that many cores.

    Raises:
        subprocess.CalledProcessError: the process failed; its output was written to stderr.
    """
    command = [sys.executable, "-m", module, *arguments]
    if cores is not None:
        command = ["taskset", "-c", f"0-{cores - 1}", *command]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **(environment or {})}
    )
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        done.check_returncode()
    answer: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def write(results: list[Result]) -> None:
    """Merge into results.json: bars measured now replace those of the same name."""
    old = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    fresh = {result.name for result in results}
    merged = [entry for entry in old if entry["name"] not in fresh] + [_entry(result) for result in results]
    RESULTS.write_text(json.dumps(sorted(merged, key=lambda entry: entry["name"]), indent=1) + "\n")


def _entry(result: Result) -> dict[str, object]:
    entry = asdict(result)
    return entry if result.sides else {name: value for name, value in entry.items() if name != "sides"}
