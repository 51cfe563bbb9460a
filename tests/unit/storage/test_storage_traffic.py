"""
Bytes of objects on S3: counted where they are moved, brought home by the results of tasks, and shown to Prometheus.
"""

import os
import re

import pytest

from compactor.errors import RefusedError
from compactor.metrics import Metrics
from compactor.reasons import Reason
from compactor.spark.results import Counted, results_of, run_elsewhere
from compactor.storage.io_counters import OWN, TASKS, BytesMoved, measured, totals
from compactor.storage.location import join
from compactor.storage.registry import configured, storage_for

MIB = 1 << 20


def moved(before, traffic):
    return traffic.moved - before


def write_and_copy(location):
    """A task: an object of ours, and one that the store makes from it."""
    storage = storage_for(location)
    storage.write_small(join(location, "a"), os.urandom(6 * MIB))
    with storage.open_read(join(location, "a")) as reader, storage.create(join(location, "b")) as writer:
        writer.copy_from(reader, 0, 6 * MIB)
    return len(storage.read_small(join(location, "b"), 6 * MIB))


def test_what_a_task_elsewhere_moves_comes_home(s3_directory):
    """6 MiB sent, 6 copied by the store, 6 received; counted as the tasks' by whoever asked, once."""
    before = TASKS.moved
    answers = list(run_elsewhere(write_and_copy, [s3_directory], configured()))
    assert answers == [Counted(6 * MIB, BytesMoved(6 * MIB, 6 * MIB, 6 * MIB))]
    assert moved(before, TASKS) == BytesMoved()
    assert results_of(answers) == [6 * MIB]
    assert moved(before, TASKS) == BytesMoved(6 * MIB, 6 * MIB, 6 * MIB)


def test_a_task_that_refused_is_counted_too():
    """The first refusal is raised, after everybody's traffic was counted."""
    before = TASKS.moved
    refusal = RefusedError(Reason.CORRUPT_FILE, "odd")
    with pytest.raises(RefusedError, match="odd"):
        results_of(
            [
                Counted(1, BytesMoved(sent=1)),
                Counted(refusal, BytesMoved(received=2)),
                Counted(3, BytesMoved(copied=4)),
            ]
        )
    assert moved(before, TASKS) == BytesMoved(1, 2, 4)


def test_measured_is_what_happens_inside():
    """What was before isn't in it, and it is filled at the end, also by an error."""
    OWN.count(BytesMoved(sent=5))
    found = []

    def fails():
        with measured() as traffic:
            found.append(traffic)
            OWN.count(BytesMoved(received=7))
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert found[0].moved == BytesMoved(received=7)


def test_prometheus_is_shown_both(s3_directory):
    """Every series is there from the start; what this process moves is the daemon's."""

    def shown(metrics):
        found = re.findall(
            r'^compactor_object_store_bytes_total\{by="(\w+)",way="(\w+)"\} (\S+)$',
            metrics.render().decode(),
            re.MULTILINE,
        )
        return {(by, way): float(value) for by, way, value in found}

    metrics = Metrics(totals)
    before = shown(metrics)
    assert set(before) == {(by, way) for by in ("daemon", "tasks") for way in ("sent", "received", "copied")}
    write_and_copy(s3_directory)
    after = shown(metrics)
    assert {key: after[key] - before[key] for key in after if after[key] != before[key]} == {
        ("daemon", way): 6 * MIB for way in ("sent", "received", "copied")
    }
