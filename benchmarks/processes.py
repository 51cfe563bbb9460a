"""
CPU time, memory and bytes of a process and everything below it, read from /proc: Spark's JVM and Python workers are its
grandchildren.
"""

import os
import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Self

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def below(root: int, without: Collection[int] = ()) -> Iterator[int]:
    """`root` and its descendants that are alive, but for those of `without` and what is below them."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    pending = [root]
    while pending:
        pid = pending.pop()
        yield pid
        pending += [child for child in children.get(pid, []) if child not in without]


class Meter:
    """
    Measures all processes below `root` while the block runs: CPU time, bytes read and written by system calls of files
    and pipes, highest sum of resident memory. Processes that end meanwhile count; what the meter itself takes doesn't.

    The meter looks five times a second: the CPU time that a process used after the last look at it is lost, and so is a
    peak between two looks. Memory that processes share counts once for each.

    Args:
        without: processes that don't count, nor what is below them.
    """

    def __init__(self, root: int, without: Collection[int] = ()) -> None:
        self._root, self._without = root, frozenset(without)
        self._first: dict[int, float] = {}
        self._last: dict[int, float] = {}
        self._bytes = (0, 0)
        self._own: tuple[float, int, int] = (0.0, 0, 0)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.peak = 0

    def __enter__(self) -> Self:
        self._first = {pid: _cpu(pid) for pid in self._below()}
        self._bytes = self._passed()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._look()
        now = self._passed()
        self._bytes = (now[0] - self._bytes[0] - self._own[1], now[1] - self._bytes[1] - self._own[2])

    @property
    def seconds(self) -> float:
        return sum(used - self._first.get(pid, 0) for pid, used in self._last.items()) - self._own[0]

    @property
    def read(self) -> int:
        return self._bytes[0]

    @property
    def written(self) -> int:
        return self._bytes[1]

    def _below(self) -> Iterator[int]:
        return below(self._root, self._without)

    def _watch(self) -> None:
        while not self._done.wait(0.2):
            self._look()
        self._own = (time.thread_time(), *_io(f"self/task/{threading.get_native_id()}"))

    def _look(self) -> None:
        resident = 0
        for pid in self._below():
            if used := _cpu(pid):
                self._last[pid] = used
            resident += _resident(pid)
        self.peak = max(self.peak, resident)

    def _passed(self) -> tuple[int, int]:
        """
        Bytes read and written by all that are alive, and by their children that have ended: the kernel adds those.
        """
        both = [_io(str(pid)) for pid in self._below()]
        return sum(read for read, _ in both), sum(written for _, written in both)


def _io(process: str) -> tuple[int, int]:
    try:
        lines = Path(f"/proc/{process}/io").read_text().splitlines()
    except OSError:
        return 0, 0
    fields = dict(line.split(": ") for line in lines)
    return int(fields["rchar"]), int(fields["wchar"])


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except OSError:
        return 0


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
