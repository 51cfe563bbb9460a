"""
The driver of a Spark application that runs one compaction's jobs. `spark-submit` starts it, on this machine or in the
cluster.

The driver takes requests from the compaction's mailbox, one after the other, runs each as a Spark job, and answers. It
ends when the daemon says so; when the mailbox is gone, because then the compaction was given up; and when no request
has come for a while, because then the daemon is gone.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext

from compactor.errors import CancelledError, CompactorError
from compactor.log import get_logger
from compactor.spark.application.mailbox import Assignment, Mailbox, Seen
from compactor.spark.delegation_tokens import in_a_container, keep_current
from compactor.spark.jobs import SparkJob
from compactor.storage.registry import configure, storage_for

_log = get_logger(__name__)
LOOK_SECONDS: Final = 1.0
BLIND_SECONDS: Final = 300.0
"""How long the store may fail to answer before the driver gives up."""
CANCEL_SECONDS: Final = 10.0
TOKEN_SECONDS: Final = 600.0
"""
How often a driver in the cluster takes new delegation tokens from Spark. Spark gets them hours before the old ones run
out.
"""
CONTAINER_CONF: Final = "__spark_conf__/__hadoop_conf__"
"""Where Spark puts Hadoop's configuration in each of YARN's containers."""


class Driver:
    """
    Serves one mailbox.

    Args:
        context: a SparkContext.
    """

    def __init__(self, context: Any, mailbox: Mailbox, assignment: Assignment) -> None:
        self._context = context
        self._mailbox = mailbox
        self._assignment = assignment
        self._seen_at = time.monotonic()
        self._tokens_at = time.monotonic()

    def serve(self) -> str:
        """Serve requests until there is nothing more to do; returns why the driver ends."""
        try:
            self._mailbox.announce(self._context.applicationId)
            return self._serve_all()
        except CancelledError as error:
            return str(error)

    def _serve_all(self) -> str:
        answered, busy_at = 0, time.monotonic()
        while True:
            seen = self._look()
            if seen is None or seen.end:
                return "the compaction was given up" if seen is None else "all jobs are done"
            if seen.asked > answered:
                if not self._serve(seen.asked):
                    return "the compaction was given up"
                answered, busy_at = seen.asked, time.monotonic()
            elif time.monotonic() - busy_at > self._assignment.silence_seconds:
                return f"nothing was asked for {self._assignment.silence_seconds:g} s: the daemon is gone"
            else:
                time.sleep(LOOK_SECONDS / 2)

    def _serve(self, number: int) -> bool:
        """
        Run one request and answer it. Returns False when the compaction was given up, or the daemon wants no answer any
        more.
        """
        step, function, tasks = self._mailbox.request(number)
        given = self._assignment
        job = SparkJob(self._context, given.job.at(step), function, tasks, given.storage, code=given.code)
        told = 0
        while not job.wait(LOOK_SECONDS):
            seen = self._look()
            if seen is None or seen.end:
                job.cancel(CANCEL_SECONDS)
                return False
            percent = int((job.share_done() or 0) * 100)
            if percent >= told + 5:
                told = percent
                self._mailbox.tell_part(number, percent)
        self._mailbox.reply(number, job.end())
        return True

    def _look(self) -> Seen | None:
        """
        As `Mailbox.look`. A store that doesn't answer is asked again for a while, because the job may have taken hours.
        """
        if time.monotonic() - self._tokens_at > TOKEN_SECONDS:
            self._tokens_at = time.monotonic()
            keep_current(self._context)
        while True:
            try:
                seen = self._mailbox.look()
            except (CompactorError, OSError) as error:
                if time.monotonic() - self._seen_at > BLIND_SECONDS:
                    raise
                _log.warning("store.call_failed", error=str(error))
                time.sleep(LOOK_SECONDS)
            else:
                self._seen_at = time.monotonic()
                return seen


def main(path: str) -> str:
    """
    Read an assignment and carry it out; returns why the driver ended.

    Args:
        path: the assignment's file; a plain name where the cluster has put it into the driver's directory.
    """
    if "HADOOP_CONF_DIR" not in os.environ and (conf := Path(CONTAINER_CONF)).is_dir():
        os.environ["HADOOP_CONF_DIR"] = str(conf.resolve())
    assignment = Assignment.read(Path(path))
    in_a_container()
    configure(assignment.storage)
    mailbox = Mailbox(storage_for(assignment.home), assignment.home, bytes.fromhex(assignment.secret))
    if mailbox.look() is None:
        return "the compaction was given up before it began"
    context = SparkContext.getOrCreate()
    try:
        return Driver(context, mailbox, assignment).serve()
    finally:
        context.stop()


if __name__ == "__main__":
    sys.stderr.write(f"compactor: {main(sys.argv[1])}\n")
