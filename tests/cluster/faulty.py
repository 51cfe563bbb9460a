"""Functions that tests run on the executors of a cluster with a sick node; importable there by name."""

import os
import time
from pathlib import Path

from pyspark import TaskContext

from compactor.engine.tasks.buckets import run_task
from compactor.errors import CancelledError, CorruptFileError, RefusedError, UnreachableError
from compactor.reasons import Reason

SICK = "sick"
"""The folder of the sick node's Worker, in which its executors run."""
STORE = "hdfs://nn:8020"
LATE = "_late"
"""What a straggler leaves, had it been waited for."""


def on_the_sick_node():
    return f"/{SICK}/" in f"{Path.cwd()}/"


def unreachable_there(number):
    """One node can't reach the store, and finds that out quickly: without exclusion it would draw every task."""
    if on_the_sick_node():
        raise UnreachableError(f"{STORE} doesn't answer", store=STORE)
    time.sleep(0.2)
    return number


def damaged_there(number):
    if on_the_sick_node():
        raise CorruptFileError(f"bucket_{number:05d} has a wrong checksum")
    return number


def unreachable(_):
    raise UnreachableError(f"{STORE} doesn't answer", store=STORE)


def damaged(_):
    raise CorruptFileError("bucket_00000 has a wrong checksum")


def given_up(_):
    """As on a node whose mount is missing: there the staging directory isn't."""
    raise CancelledError("this compaction was given up: its staging directory is gone")


def refuse_first(task):
    """The first task refuses; the others say that they begin, and take their time."""
    number, folder = task
    if number == 0:
        raise RefusedError(Reason.SCHEMA_MISMATCH, "column 3 is of another type")
    (Path(folder) / str(number)).touch()
    time.sleep(20)
    return number


def cut_off_first(shared, task):
    """The first attempt ends in the middle of its file, for a reason that passes; what it wrote stays behind."""
    result = run_task(shared, task)
    if TaskContext.get().attemptNumber() == 0:
        (file,) = Path(task.work.tasks.removeprefix("file:")).glob("*/bucket_*")
        os.truncate(file, file.stat().st_size // 2)
        raise UnreachableError(f"{STORE} doesn't answer", store=STORE)
    return result


def straggle_first(shared, task):
    """The first attempt stays behind after its work; Spark starts a second one beside it."""
    result = run_task(shared, task)
    if TaskContext.get().attemptNumber() == 0 and TaskContext.get().partitionId() == 0:
        time.sleep(90)
        (Path(task.work.location.removeprefix("file:")) / LATE).touch()
    return result
