"""CPU time and memory of a process and everything below it, read from /proc: Spark's JVM and Python workers are its grandchildren."""

import os
from collections.abc import Iterator
from pathlib import Path

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


def cpu_seconds(root: int) -> float:
    """User and system time of the tree, ended and reaped children included."""
    total = 0
    for pid in below(root):
        if fields := _stat(pid):
            total += sum(map(int, fields[11:15]))
    return total / _TICKS


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
    """Fields of /proc/PID/stat from the state on; empty when it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
