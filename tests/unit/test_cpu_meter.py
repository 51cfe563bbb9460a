"""The CPU meter of the benchmarks: the processes that it watches, not itself."""

import os
import time

from benchmarks import processes


def spin(seconds):
    begin = time.thread_time()
    while time.thread_time() - begin < seconds:
        pass


def test_looking_costs_nothing(monkeypatch):
    """A process that only waits used nothing, however long it takes to look at all processes."""
    look = processes.below

    def slow(root):
        spin(0.3)
        return look(root)

    with processes.CpuMeter(os.getpid()) as meter:
        monkeypatch.setattr(processes, "below", slow)
        time.sleep(1.7)
        monkeypatch.setattr(processes, "below", look)
    assert meter.seconds < 0.2
