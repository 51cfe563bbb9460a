"""
CPU time and memory of a process and everything below it, read from /proc: Spark's JVM and Python workers are its
grandchildren.
"""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

_TICKS = os.sysconf("SC_CLK_TCK")


def below(root: int) -> Iterator[int]:
    """`root` and its descendants that are alive."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    pending = [root]
    while pending:
        pid = pending.pop()
        yield pid
        pending += children.get(pid, [])


class CpuMeter:
    """
    Measures the CPU time of all processes below `root` while the block runs. Processes that end meanwhile count; the
    meter's own CPU time doesn't.

    The meter looks twice a second: the time that a process used after the last look at it is lost.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._first: dict[int, float] = {}
        self._last: dict[int, float] = {}
        self._own = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._first = {pid: _cpu(pid) for pid in below(self._root)}
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._look()

    @property
    def seconds(self) -> float:
        return sum(used - self._first.get(pid, 0) for pid, used in self._last.items()) - self._own

    def _watch(self) -> None:
        while not self._done.wait(0.5):
            self._look()
        self._own = time.thread_time()

    def _look(self) -> None:
        for pid in below(self._root):
            if used := _cpu(pid):
                self._last[pid] = used


def _cpu(pid: int) -> float:
    fields = _stat(pid)
    return sum(map(int, fields[11:13])) / _TICKS if fields else 0.0


def python_workers_peak(root: int) -> int:
    """Highest resident set, in bytes, that any Python process below `root` (not `root` itself) has had."""
    peaks = [0]
    for pid in below(root):
        if pid == root:
            continue
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        if fields["Name"].strip().startswith("python"):
            peaks.append(int(fields.get("VmHWM", "0 kB").split()[0]) * 1024)
    return max(peaks)


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; empty when the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
