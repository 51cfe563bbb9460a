"""
The shared session's driver, as the daemon sees it: a child process that leads a process group of its own, with Spark's
JVM in it.

So nothing of Spark is in the daemon: a start that takes hours, a JVM that hangs or has no memory left are ended by
killing the group. What a start had submitted to YARN doesn't notice that, and is killed by the tag that only this
driver has.
"""

import contextlib
import itertools
import os
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from compactor.errors import CancelledError, UnreachableError
from compactor.log import get_logger
from compactor.settings.work import Spark
from compactor.spark.application.command import tags
from compactor.spark.application.orphans import by_keytab, end_on_yarn
from compactor.spark.code_identity import code
from compactor.spark.conf import POOLS, as_user, common_conf, executor_python, log_to_stderr, without_contradiction
from compactor.spark.java import require_java
from compactor.spark.results import JobEnd
from compactor.spark.session.printed import messages, says_something
from compactor.spark.site import classic, overridden, site_defaults, site_python, without_variables
from compactor.spark.submitter import JobName
from compactor.storage.registry import configured

_log = get_logger(__name__)
POLL_SECONDS: Final = 0.1
STOP_SECONDS: Final = 15.0
"""How long Spark may take to stop in order, which its cluster may prevent. After that the driver is killed."""
CANCEL_SECONDS: Final = 30.0
"""How long a cancelled job is waited for. Tasks that take longer are harmless."""
SILENT_SECONDS: Final = 150.0
"""
A driver that says nothing for so long is killed: it speaks every half minute, unless its JVM doesn't answer, for want
of memory for example.
"""
GRACE_SECONDS: Final = 30.0
"""How long a driver that was frozen together with this process has to speak when both go on."""
_COMPILER: Final = "-XX:TieredStopAtLevel=1"
"""
The JVM compiles its code quickly instead of well: it only schedules, the rows are in Python, and the better compiler
costs more than the first thousand small jobs.
"""
_SOCKET_DIRECTORY_BYTES: Final = 64
"""
The longest name of a directory for the sockets between Spark's JVM and its Python workers; Linux takes 107 bytes with
the socket's own name. Over TCP, which Spark uses otherwise, each task waits 40 ms for a delayed acknowledgement: Spark
writes its input in small pieces. Spark has these sockets since 4.1 (SPARK-51688).
"""
_LOGGERS: Final = {"org.apache.spark.api.python.PythonGatewayServer": "fatal"}
"""
A failed task comes back as an error of `compactor.errors`; its Java stack trace on standard error wouldn't help. An
operator may set another log4j configuration.
"""
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_MAIN: Final = """
import sys
from multiprocessing.connection import Connection
connection = Connection(int(sys.argv[1]))
sys.path[:], conf, code = connection.recv()
from compactor.spark.session.driver import SessionDriver
SessionDriver(connection, conf, code).serve()
"""
"""
The driver's program. Its properties come over the connection, because a command line is readable for every user of the
machine.
"""


class DriverEndedError(Exception):
    """The driver ended, or was ended, before the job did."""


@dataclass(slots=True)
class _Call:
    """A job that runs in the driver."""

    ended: threading.Event = field(default_factory=threading.Event)
    share: float = 0.0
    end: JobEnd | None = None


class DriverProcess:
    """
    A driver that starts at once. Safe for concurrent callers.

    Args:
        spark: where and how.
        name: of the application.

    Raises:
        UnreachableError: Java isn't installed, the site's Spark can't be used, or the driver can't be started.
    """

    def __init__(self, spark: Spark, name: str) -> None:
        require_java()
        path = [*site_python(), *sys.path]
        self._spark = spark
        self._began = time.monotonic()
        self._came: float | None = None
        self._numbers = itertools.count()
        self._calls: dict[int, _Call] = {}
        self._lock, self._sending = threading.Lock(), threading.Lock()
        self._settled, self._over = threading.Event(), threading.Event()
        self._ending = False
        self.key = f"session-{secrets.token_hex(6)}"
        self.application: str | None = None
        """Id of the session's Spark application; None before the session is there."""
        self.why_not: str | None = None
        """Why there is no session, in one line."""
        try:
            with contextlib.ExitStack() as undo:
                self._files = Path(tempfile.mkdtemp(prefix="compactor-spark-"))
                undo.callback(shutil.rmtree, self._files, ignore_errors=True)
                conf = self._conf(name)
                self._process, self._connection = self._spawn()
                for back in (self._connection.close, self._process.wait, self._process.kill):  # the last one first
                    undo.callback(back)
                threading.Thread(target=self._listen, name="spark-driver", daemon=True).start()
                threading.Thread(target=self._relay, name="spark-printed", daemon=True).start()
                undo.pop_all()
        except (OSError, RuntimeError) as error:  # RuntimeError: no thread can be started
            raise UnreachableError(self._cannot(f"its driver can't be started: {error}")) from error
        self._send(path, conf, code())

    @property
    def pid(self) -> int:
        """Id of the driver's process and process group."""
        return self._process.pid

    @property
    def seconds(self) -> float:
        """Seconds since the driver began to start."""
        return time.monotonic() - self._began

    @property
    def age(self) -> float:
        """Seconds since the session came; 0 while it starts."""
        return 0.0 if self._came is None else time.monotonic() - self._came

    @property
    def settled(self) -> bool:
        """Whether the session is there, or it is known `why_not`."""
        return self._settled.is_set()

    @property
    def alive(self) -> bool:
        """Whether the session is there and hasn't ended."""
        return self.application is not None and not self._over.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait until the start is settled, `seconds` at most; returns whether it is."""
        return self._settled.wait(seconds)

    def run(
        self,
        job: JobName,
        function: Callable[[Any], Any],
        tasks: Sequence[Any],
        progress: Callable[[float], None],
        cancelled: Callable[[], bool],
    ) -> JobEnd:
        """
        Run a job.

        Raises:
            CancelledError: `cancelled` returned True.
            DriverEndedError: the session has gone.
        """
        number, call = next(self._numbers), _Call()
        self._calls[number] = call
        try:
            self._send("run", number, job, function, tasks, configured())
            while not call.ended.wait(POLL_SECONDS) and not self._over.is_set():
                if cancelled():
                    self._send("cancel", number)
                    deadline = time.monotonic() + CANCEL_SECONDS
                    while not call.ended.wait(POLL_SECONDS) and not self._over.is_set() and time.monotonic() < deadline:
                        pass
                    raise CancelledError(f"{job.name} was cancelled")
                progress(call.share)
        finally:
            del self._calls[number]
        if call.end is None:
            raise DriverEndedError
        return call.end

    def give_up(self, why: str) -> None:
        """End a start without waiting for it; nothing happens when it is settled already."""
        if self._settle(why):
            _log.warning("spark_start.given_up", why=why, seconds=round(self.seconds))
            self._kill()

    def end(self) -> None:
        """
        End the driver and everything that belongs to it: in order when the session lives, within half a minute in any
        state.
        """
        self._ending = True
        limit = threading.Timer(STOP_SECONDS, self._kill)  # sending may block where the driver doesn't read
        limit.start()
        if self.alive:
            self._send("stop")
            self._over.wait(STOP_SECONDS)
        limit.cancel()
        self._settle("Spark's start was given up: the daemon stops")
        self._kill()

    def wait_until_over(self, seconds: float) -> bool:
        """Wait until nothing of the driver is left, `seconds` at most; returns whether nothing is left."""
        return self._over.wait(seconds)

    def _settle(self, why_not: str) -> bool:
        with self._lock:
            if self._settled.is_set():
                return False
            self.why_not = why_not
            self._settled.set()
            return True

    def _listen(self) -> None:
        """Take the driver's messages until it ends, or falls silent; then clear up."""
        try:
            while self._speaks():
                self._take(self._connection.recv())
            _log.warning("spark_driver.killed", silent_seconds=SILENT_SECONDS, application=self.application)
        except (EOFError, OSError):
            pass  # it has ended
        except Exception:
            _log.exception("spark_driver.misunderstood")
        self._kill()
        with self._lock:
            code = self._process.wait()
        self._settle(self._cannot(f"its driver ended with code {code}"))
        with self._sending:  # a thread may still be sending
            self._connection.close()
        shutil.rmtree(self._files, ignore_errors=True)
        if (
            self.application is None
            and self._spark.master == "yarn"
            and (ended := end_on_yarn([self.key], None, os.environ | by_keytab(self._spark)))
        ):
            _log.info("yarn_applications.ended", applications=ended)
        self._over.set()

    def _relay(self) -> None:
        """Log what the driver, its JVM and Python workers print, until all of them have ended."""
        assert self._process.stdout is not None
        with self._process.stdout as printed:
            for message in messages(printed):
                if says_something(message) and not self._ending:
                    _log.warning("spark_process.printed", text=message)
                else:
                    _log.debug("spark_process.printed", text=message)

    def _speaks(self) -> bool:
        """Wait for a message; False: the session is there, and its driver is silent."""
        if self.application is None:
            return self._connection.poll(None)
        return self._connection.poll(SILENT_SECONDS) or self._connection.poll(GRACE_SECONDS)

    def _take(self, message: tuple[Any, ...]) -> None:
        match message:
            case "started", application:
                with self._lock:
                    if not self._settled.is_set():
                        self.application, self._came = application, time.monotonic()
                        self._settled.set()
                if self.application is not None:
                    _log.info("spark_session.started", master=self._spark.master, application=application)
            case "not-started", why:
                self._settle(self._cannot(why))
            case "progress", number, share if (call := self._calls.get(number)) is not None:
                call.share = share
            case "done", number, end if (call := self._calls.get(number)) is not None:
                call.end = end
                call.ended.set()

    def _cannot(self, why: str) -> str:
        return f"Spark can't be started with master {self._spark.master}: {why}"

    def _send(self, *message: object) -> None:
        try:
            with self._sending:
                self._connection.send(message)
        except OSError:  # it has ended, or doesn't read: what follows half a message couldn't be read either
            self._kill()

    def _kill(self) -> None:
        """Kill the driver's process group, if the driver isn't reaped: after that its number may be another's."""
        with self._lock, contextlib.suppress(ProcessLookupError):
            if self._process.returncode is None:
                os.killpg(self._process.pid, signal.SIGKILL)

    def _spawn(self) -> "tuple[subprocess.Popen[str], Connection[Any, Any]]":
        ours, theirs = socket.socketpair()
        for way in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):  # also in the middle of a message
            ours.setsockopt(socket.SOL_SOCKET, way, struct.pack("ll", int(SILENT_SECONDS), 0))
        with theirs:
            environment = {"PYSPARK_DRIVER_PYTHON": sys.executable} | without_variables(os.environ)
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _MAIN, str(theirs.fileno())],
                env=environment | {"PYSPARK_PYTHON": executor_python(self._spark)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="backslashreplace",
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        return process, Connection(ours.detach())

    def _conf(self, name: str) -> dict[str, str]:
        pools = self._files / "pools.xml"
        pools.write_text(POOLS, encoding="utf-8")
        wanted = (
            common_conf(self._spark)
            | as_user(self._spark, None)
            | {
                "spark.app.name": name,
                "spark.scheduler.mode": "FAIR",
                "spark.scheduler.allocation.file": pools.as_uri(),
                "spark.ui.showConsoleProgress": "false",
            }
        )
        if self._spark.principal and self._spark.keytab:
            wanted |= {
                "spark.kerberos.principal": self._spark.principal,
                "spark.kerberos.keytab": str(self._spark.keytab),
            }
        if self._spark.local and len(os.fsencode(self._files)) <= _SOCKET_DIRECTORY_BYTES:
            wanted |= {
                "spark.python.unix.domain.socket.enabled": "true",
                "spark.python.unix.domain.socket.dir": str(self._files),
            }
        if undone := overridden(self._spark.conf, os.environ):
            _log.warning("spark_settings.overridden", settings=undone)
        wanted = classic(wanted | self._spark.conf)
        if self._spark.master == "yarn":
            wanted |= tags(wanted, self.key)
        options = f"{_COMPILER} {log_to_stderr(self._files, 'fatal', 'spark %p %c{1}: %m%n', _LOGGERS)}"
        sites = "" if _JAVA_OPTIONS in wanted else site_defaults().get(_JAVA_OPTIONS, "")
        wanted[_JAVA_OPTIONS] = f"{sites} {options} {wanted.get(_JAVA_OPTIONS, '')}".strip()  # the last one counts
        return without_contradiction(wanted)
