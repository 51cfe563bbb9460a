"""The meter of the benchmarks: the processes that it watches, not itself."""

import os
import subprocess
import sys
import time

from benchmarks import processes

MEGABYTE = 1 << 20
WRITES = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_bytes(bytearray(5 << 20))"
HOLDS = "import sys; held = bytearray(100 << 20); print(flush=True); sys.stdin.readline()"


def spin(seconds):
    begin = time.thread_time()
    while time.thread_time() - begin < seconds:
        pass


def test_looking_costs_nothing(monkeypatch):
    """A process that only waits used nothing, however long it takes to look at all processes."""
    look = processes.below

    def slow(root, without=()):
        spin(0.3)
        return look(root, without)

    with processes.Meter(os.getpid()) as meter:
        monkeypatch.setattr(processes, "below", slow)
        time.sleep(1.7)
        monkeypatch.setattr(processes, "below", look)
    assert meter.seconds < 0.2
    assert meter.read < MEGABYTE  # of /proc, once more for each process of the machine


def test_bytes_of_a_child_that_ended_count_once(tmp_path):
    """What a child wrote counts, though it has ended, and no second time with its parent's."""
    with processes.Meter(os.getpid()) as meter:
        subprocess.run([sys.executable, "-c", WRITES, tmp_path / "file"], check=True)
    assert 5 * MEGABYTE <= meter.written < 6 * MEGABYTE


def test_memory_of_a_child_counts_unless_left_out():
    """The peak has the memory of a child; a meter that leaves the child out has neither its memory nor its bytes."""
    with subprocess.Popen([sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        with processes.Meter(os.getpid()) as every, processes.Meter(os.getpid(), without={child.pid}) as without:
            time.sleep(0.5)
        child.communicate(b"\n")
    assert every.peak - without.peak > 90 * MEGABYTE
