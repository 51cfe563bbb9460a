"""
The driver of the shared Spark session: a child process of the daemon, in which PySpark and its JVM live.

The driver runs the jobs that the daemon sends, and says every half minute that the JVM answers. It ends when the daemon
says so, when the session is gone (its JVM died, or its application was killed), and with the daemon, whose end closes
the connection. The daemon ends a driver that falls silent.

They say tuples to each other, over a connection that pickles them. A job has a number in its session.

    the daemon   run, number, job name, function, tasks, how the tasks reach stores
                 cancel, number                the job's `done` follows
                 stop                          stop the session in order, and end
    the driver   started, application          the session is there, and a task has run; its Spark application's id
                 not-started, why              the session can't be started, in one line; the driver ends
                 alive                         the JVM has answered just now
                 progress, number, share       of the job's tasks that are finished, 0 to 1
                 done, number, end             the job has ended (`results.JobEnd`)
"""

import contextlib
import logging
import os
import signal
import socketserver
import threading
import traceback
import warnings
from multiprocessing.connection import Connection
from typing import Any, Final

from py4j import java_gateway
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext

from compactor.spark.code_identity import require_code
from compactor.spark.jobs import POLL_SECONDS, SparkJob, executor_check, first_line, why_failed
from compactor.spark.results import JobEnd

ASK_SECONDS: Final = 30.0


class SessionDriver:
    """
    A session and its jobs. Its process leads a process group, in which nothing of the daemon is.

    Args:
        connection: with the daemon.
        conf: the session's properties.
        code: the daemon's; see `code_identity`.
    """

    def __init__(self, connection: "Connection[Any, Any]", conf: dict[str, str], code: str) -> None:
        self._connection = connection
        self._code = code
        self._sending = threading.Lock()
        self._stop = threading.Event()
        self._jobs: dict[int, SparkJob] = {}
        socketserver.BaseServer.handle_error = _lost  # type: ignore[assignment]  # of any arguments
        logging.getLogger().addFilter(_is_not_of_a_lost_jvm)
        threading.Thread(target=self._listen, name="daemon", daemon=True).start()
        self._conf = SparkConf().setAll(list(conf.items()))

    def serve(self) -> None:
        """Start the session, serve the daemon, stop the session."""
        try:
            require_code(self._code)
            self._context = SparkContext(conf=self._conf)
            why_not = self._why_unfit()
        except Exception as error:
            self._send("not-started", first_line(error))
            return
        if why_not is None:
            self._send("started", self._context.applicationId)
        else:
            self._send("not-started", why_not)
            self._stop.set()
        while not self._stop.wait(ASK_SECONDS):
            self._end_without_session()
            self._send("alive")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PySpark warns about a JVM that is gone already
            self._context.stop()
        _wait_for_jvm()

    def _why_unfit(self) -> str | None:
        """Why no task can run; None: one has run. Waits for an executor, as long as the daemon waits for the session."""
        check = executor_check(self._context, self._conf.get("spark.app.name") or "compactor", self._code)
        while not check.wait(ASK_SECONDS):
            self._end_without_session()
        return why_failed(check.end())

    def _listen(self) -> None:
        """
        Obey the daemon. When it ends, this process group does, also while the session starts; and when a message can't
        be obeyed (a function that can't be imported, no memory or thread left), for no job would be answered any more.
        """
        try:
            while True:
                self._obey(self._connection.recv())
        except BaseException as error:
            if not isinstance(error, EOFError | ConnectionError):
                traceback.print_exc()
        finally:
            _end_group()

    def _obey(self, message: tuple[Any, ...]) -> None:
        match message:
            case "run", number, job, function, tasks, storage:
                self._jobs[number] = SparkJob(self._context, job, function, tasks, storage, code=self._code)
                threading.Thread(target=self._answer, args=(number,), daemon=True).start()
            case "cancel", number if (running := self._jobs.get(number)) is not None:
                threading.Thread(target=running.cancel, daemon=True).start()
            case ("stop",):
                self._stop.set()

    def _answer(self, number: int) -> None:
        """Follow a job to its end. A job that can't be followed ends the session: the daemon waits for each answer."""
        try:
            self._follow(number)
        except BaseException:
            traceback.print_exc()
            _end_group()

    def _follow(self, number: int) -> None:
        job = self._jobs[number]
        while not job.wait(POLL_SECONDS):
            if (share := job.share_done()) is not None:
                self._send("progress", number, share)
        end = job.end()
        if end.why is not None:
            self._end_without_session()
        try:
            self._send("done", number, end)
        except Exception as error:
            self._send("done", number, JobEnd(why=f"its results can't be sent: {first_line(error)}"))
        del self._jobs[number]

    def _end_without_session(self) -> None:
        """If the session is gone, end this process: the daemon sees that the connection is closed."""
        if not _alive(self._context):
            _end_group()

    def _send(self, *message: object) -> None:
        with self._sending, contextlib.suppress(OSError):  # the daemon's end is `_listen`'s
            self._connection.send(message)


def _alive(context: SparkContext) -> bool:
    """Whether a session lives; asks its JVM, however long that takes to answer."""
    try:
        return not context._jsc.sc().isStopped()  # noqa: SLF001 - PySpark has no public question for this
    except (Py4JError, OSError, AttributeError):
        return False


def _lost(*_: object) -> None:
    """
    Say nothing when the connection of PySpark's accumulators breaks: the JVM has died, which ends this session, and the
    standard library would print a traceback among the daemon's log lines.
    """


def _is_not_of_a_lost_jvm(record: logging.LogRecord) -> bool:
    """Py4J logs a traceback on the root logger when the JVM dies while it answers; of that our own error tells."""
    return record.pathname != str(java_gateway.__file__)


def _wait_for_jvm() -> None:
    """
    Let a stopped session's JVM end by itself, as it does when its standard input does: at its end it removes its
    temporary files. The daemon kills what takes longer.
    """
    process = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001 - PySpark has no public way to its JVM's end
    if process is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
        process.wait()


def _end_group() -> None:
    """End this process and its JVM, in whatever state they are."""
    os.killpg(0, signal.SIGKILL)
