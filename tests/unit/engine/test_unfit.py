"""Executors on which no task can begin: the cause, from what Spark says of a failed job."""

import pytest

from compactor.spark.unfit import UnfitError, why_unfit

LOST = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent "
    "failure: Lost task 0.3 in stage 0.0 (TID 3) (node7 executor 2): "
)
STACK = "\n\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)\n\nDriver stacktrace:"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            'java.io.IOException: Cannot run program "/opt/python3": error=2, No such file or directory',
            (
                'node7: Cannot run program "/opt/python3": error=2, No such file or directory (spark.python, or the path of '
                "the daemon's own interpreter)"
            ),
        ),
        (
            (
                "org.apache.spark.SparkException: \nError from python worker:\n  bin/python: 5: exec:\n  python3.11: not found\n"
                "PYTHONPATH was:\n  /x/pyspark.zip\norg.apache.spark.SparkException: EOFException occurred"
            ),
            "node7: its Python didn't start: python3.11: not found",
        ),
        (
            (
                "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
                "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different "
                "version: 3.12 than that in driver: 3.11, PySpark cannot run with different minor versions.\nPlease check"
            ),
            (
                "node7: Python in worker has different version: 3.12 than that in driver: 3.11, PySpark cannot run with "
                "different minor versions."
            ),
        ),
        (
            "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\nValueError: never works",
            None,
        ),
        ("ExecutorLostFailure (executor 2 exited caused by one of the running tasks) Reason: worker lost", None),
        ("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", None),
    ],
)
def test_the_cause_is_told_from_what_a_task_did(said, why):
    """A task that began and failed, or took its executor down, is no fault of Spark's: it may be the entry's."""
    assert why_unfit(f"{LOST}{said}{STACK}") == why


def test_our_own_refusal_names_the_node():
    """As a task raises it."""
    assert why_unfit(f"x\ncompactor.spark.unfit.UnfitError: {UnfitError('lacks it')}{STACK}").endswith(" lacks it")
