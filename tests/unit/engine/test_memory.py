"""
What a task took is given back when it has ended, cycles included, without a search for cycles after every small task.
"""

import gc
import os
import weakref
from pathlib import Path

import numpy as np
import pytest

from compactor.engine.tasks import memory
from compactor.engine.tasks.memory import WORTH_A_COLLECTION, trimmed


def resident():
    """Resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Knot:
    """Holds a buffer and itself: only a collection frees it."""

    def __init__(self, size):
        self.buffer = np.ones(size, dtype=np.uint8)
        self.me = self


@pytest.fixture(autouse=True)
def as_in_a_worker(monkeypatch):
    """Cycles are collected as often as in Spark's."""
    monkeypatch.setattr(memory, "WORTH_A_COLLECTION", WORTH_A_COLLECTION)


@pytest.fixture
def collections():
    """One entry for every search through all generations."""
    seen = []

    def note(phase, info):
        if phase == "stop" and info["generation"] == 2:
            seen.append(info)

    with trimmed():
        pass  # whatever earlier tests left
    gc.disable()
    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)
    gc.unfreeze()
    gc.enable()


def test_a_large_buffer_in_a_cycle_is_given_back(collections):
    """It would otherwise stay until Python happens to collect."""
    before = resident()
    with trimmed():
        Knot(8 * WORTH_A_COLLECTION)
        assert resident() - before > 7 * WORTH_A_COLLECTION
    assert resident() - before < WORTH_A_COLLECTION
    assert len(collections) == 1


def test_small_tasks_are_not_searched_for_cycles(collections):
    """Many in a row that leave nothing: no collection at all."""
    for _ in range(20):
        with trimmed():
            np.ones(WORTH_A_COLLECTION // 4, dtype=np.uint8).sum()
    assert collections == []


def test_what_small_tasks_leave_adds_up(collections):
    """Each below the limit, together above it: collected before they are three times the limit."""
    before = resident()
    for _ in range(20):
        with trimmed():
            Knot(WORTH_A_COLLECTION // 4)
        assert resident() - before < 3 * WORTH_A_COLLECTION
    assert collections


def test_what_stays_is_not_searched_again(collections):
    """Spark's worker collects after each task: it sees what tasks have made since, not what every module holds."""
    with trimmed():
        kept = Knot(4 * WORTH_A_COLLECTION)
    assert kept.me is kept
    assert len(gc.get_objects()) < gc.get_freeze_count()


def test_what_was_frozen_is_freed_when_it_is_dropped(collections):
    """A cycle that a collection found in use isn't kept for ever."""
    kept = grown_until_collected(collections)
    dropped = weakref.ref(kept[0])
    kept.clear()
    grown_until_collected(collections)
    assert dropped() is None


def grown_until_collected(collections):
    """What tasks keep: one is enough, unless the system takes pages of the process away meanwhile."""
    before, kept = len(collections), []
    for _ in range(8):
        with trimmed():
            kept.append(Knot(4 * WORTH_A_COLLECTION))
        if len(collections) > before:
            return kept
    pytest.fail("no collection")
