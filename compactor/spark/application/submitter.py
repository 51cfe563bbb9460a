"""
`spark.mode: submit`: a Spark application of its own for each compaction, started by `spark-submit`.

The first job of a compaction starts the application. Later jobs go to the same application, through a mailbox in the
compaction's staging directory. `end` lets it go. Without `end` the application ends when the staging directory is gone.
So a daemon that comes back after it was killed only removes that directory, and needs to find nothing else.
"""

import contextlib
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from compactor.errors import CancelledError, CompactorError, UnreachableError
from compactor.log import get_logger
from compactor.settings import Settings
from compactor.spark.application.command import command, environment
from compactor.spark.application.mailbox import DIRECTORY, Assignment, Mailbox, Seen
from compactor.spark.application.orphans import YARN_ID, by_keytab, end_group, end_on_yarn, end_processes
from compactor.spark.code_identity import code
from compactor.spark.java import require_java, telling_line
from compactor.spark.results import JobEnd
from compactor.spark.site import require_no_connect
from compactor.spark.submitter import BrokenDownError, Failed, JobName, Runner
from compactor.storage.base import Storage
from compactor.storage.location import join, parent
from compactor.storage.registry import StorageOptions, storage_for

Given = TypeVar("Given")
Made = TypeVar("Made")

_log = get_logger(__name__)
LOOK_SECONDS: Final = 0.5
BLIND_SECONDS: Final = 300.0
"""How long the store may fail to answer before the compaction is given up."""
PATIENCE_SECONDS: Final = 15.0
"""How long each way of ending an application may take before the next, harder one."""
_NO_LOGIN: Final = re.compile(r"AccessControlException: Client cannot authenticate via:\[[A-Z, ]*KERBEROS")
"""Hadoop's client has neither ticket nor token, and would retry for a quarter of an hour."""
_SUBMITTED: Final = re.compile(r"Submitted application (application_\d+_\d+)")


@dataclass(slots=True)
class _Application:
    """A started application."""

    job: JobName
    folder: Path
    mailbox: Mailbox
    process: "subprocess.Popen[bytes]"
    started: float = field(default_factory=time.monotonic)
    asked: int = 0
    id: str | None = None
    there: bool = False

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")


class ApplicationSubmitter(Runner):
    """
    The `StoppableSubmitter` of `spark.mode: submit`.

    Args:
        settings: `spark.*` says where and how.
        failed: see `Runner`.
    """

    def __init__(self, settings: Settings, failed: Failed = lambda _: None) -> None:
        super().__init__(failed)
        code()  # before an upgrade may replace the files that this process has loaded
        self._settings = settings.spark
        self._options = StorageOptions.of(settings)
        self._lock = threading.Lock()
        self._running: dict[str, _Application] = {}
        self._ending: set[threading.Thread] = set()

    def _answers(
        self,
        job: JobName,
        function: Callable[[Given], Made],
        tasks: Sequence[Given],
        progress: Callable[[float], None],
        cancelled: Callable[[], bool],
    ) -> JobEnd:
        try:
            application = self._running.get(job.key) or self._start(job)
            application.asked += 1
            application.mailbox.ask(application.asked, job.step, function, tasks)
            self._follow(application, progress, cancelled)
            return application.mailbox.answer(application.asked)
        except BaseException:
            self.end(job)
            raise

    def _follow(
        self, application: _Application, progress: Callable[[float], None], cancelled: Callable[[], bool]
    ) -> None:
        """Wait until the application has answered."""
        job, seen_at = application.job, time.monotonic()
        while True:
            if cancelled():
                raise CancelledError(f"{job.name} was cancelled")
            ended = application.process.poll() is not None  # checked before looking: its last answer must be seen
            try:
                seen = application.mailbox.look()
            except (CompactorError, OSError) as error:
                if ended or time.monotonic() - seen_at > BLIND_SECONDS:
                    raise
                _log.warning("store.call_failed", error=str(error))
            else:
                if seen is None:
                    raise CancelledError(f"{job.name} was given up: its staging directory is gone")
                seen_at = time.monotonic()
                self._notice(application, seen)
                if seen.answered >= application.asked:
                    return
                if seen.asked == application.asked:
                    progress(seen.part)
                if ended:
                    raise self._explained(application, seen)
                if application.id is None and _NO_LOGIN.search(application.said()):
                    what = f"Spark application {job.name} can't be started with master {self._settings.master}: YARN or HDFS wants Kerberos"
                    raise UnreachableError(
                        f"{what}: set spark.principal and spark.keytab, or keep a ticket in the default cache (kinit)"
                    )
                if seen.application is None and time.monotonic() - application.started > self._settings.start_seconds:
                    raise UnreachableError(
                        f"{_which(application)} hasn't started within {self._settings.start_seconds:g} s (spark.start_seconds)"
                    )
            time.sleep(LOOK_SECONDS)

    def _notice(self, application: _Application, seen: Seen) -> None:
        """Record the application's id: from its driver, or before that from the output of `spark-submit`."""
        found = seen.application
        application.there = application.there or found is not None
        if found is None and application.id is None and (said := _SUBMITTED.search(application.said())):
            found = said[1]
        if found is not None and found != application.id:
            application.id = found
            _log.info("spark_application.started", application=found, name=application.job.name)

    def _explained(self, application: _Application, seen: Seen) -> CompactorError:
        why = telling_line(application.said()) or f"exit code {application.process.returncode}"
        if seen.application is None:
            return UnreachableError(
                f"Spark application {application.job.name} can't be started with master {self._settings.master}: {why}"
            )
        return BrokenDownError(f"{_which(application)} ended before its work: {why}")

    def _start(self, job: JobName) -> _Application:
        require_java()
        require_no_connect(self._settings.conf)
        if job.place is None:
            raise CompactorError(f"{job.name} has no staging directory to talk through")
        options = self._options.beneath(job.root)
        storage, home, secret = (
            storage_for(job.place, options.root_of),
            join(job.place, DIRECTORY),
            secrets.token_bytes(32),
        )
        mailbox = Mailbox(storage, home, secret)
        mailbox.open()
        if self._settings.proxy_user:
            _let_write(storage, job.place, home)
        folder = Path(tempfile.mkdtemp(prefix="compactor-submit-"))
        try:
            options = options.as_user(job.user) if self._settings.proxy_user and job.user else options
            assignment = Assignment(
                code(), job.name, job.key, home, secret.hex(), self._settings.silence_seconds, options
            )
            assignment.write(folder / "assignment.json")
            line, env = command(self._settings, job, folder / "assignment.json"), environment(job, folder)
            if self._settings.proxy_user:  # spark-submit takes no keytab beside --proxy-user, but Hadoop does
                env |= by_keytab(self._settings)
            with (folder / "log").open("wb") as log:
                process = subprocess.Popen(
                    line, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, cwd=folder, start_new_session=True
                )
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise UnreachableError(f"spark-submit can't be started: {error}") from None
        _log.info("spark_application.submitted", master=self._settings.master, name=job.name, key=job.key)
        application = _Application(job, folder, mailbox, process)
        with self._lock:
            self._running[job.key] = application
        return application

    def application(self, job: JobName) -> str | None:
        application = self._running.get(job.key)
        return application.id if application is not None else None

    def end(self, job: JobName) -> None:
        with self._lock:
            application = self._running.pop(job.key, None)
        if application is not None:
            self._aside(lambda: self._end(application), f"end-{job.key}")

    def _end(self, application: _Application) -> None:
        """
        End an application: first by a message, where the driver is there to read it; then on YARN by the
        ResourceManager; then by signals.
        """
        with contextlib.suppress(CompactorError, OSError):
            application.mailbox.end()
            if (seen := application.mailbox.look()) is not None:
                self._notice(application, seen)  # the driver may have started since the last look
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                application.process.wait(PATIENCE_SECONDS if application.there else LOOK_SECONDS)
                return
            if self._settings.master == "yarn":
                said = _SUBMITTED.search(application.said())
                env = environment(application.job, application.folder) | by_keytab(self._settings)
                end_on_yarn([application.job.key], application.id or (said[1] if said else None), env)
            end_group(application.process, PATIENCE_SECONDS)
        finally:
            shutil.rmtree(application.folder, ignore_errors=True)

    def end_left_over(self, keys: Collection[str], application: str | None) -> None:
        if not keys and not (application and YARN_ID.fullmatch(application)):
            return
        self._aside(lambda: self._end_left_over(keys, application), "end-left-over")

    def _end_left_over(self, keys: Collection[str], application: str | None) -> None:
        if self._settings.master == "yarn" and (
            ended := end_on_yarn(keys, application, os.environ | by_keytab(self._settings))
        ):
            _log.info("orphans.ended", applications=ended)
        if processes := end_processes(keys):
            _log.info("orphans.ended", processes=processes)

    def _aside(self, action: Callable[[], None], name: str) -> None:
        def run() -> None:
            try:
                action()
            except Exception as error:
                _log.warning("spark_application.not_ended", error=str(error))
            finally:
                self._ending.discard(threading.current_thread())

        thread = threading.Thread(target=run, name=name, daemon=True)
        self._ending.add(thread)
        thread.start()

    def stop(self) -> None:
        for application in list(self._running.values()):
            self.end(application.job)
        for thread in list(self._ending):
            thread.join()


def _which(application: _Application) -> str:
    return f"Spark application {application.id or application.job.key} of {application.job.name}"


def _let_write(storage: Storage, place: str, home: str) -> None:
    """Let the application, which runs as the table's owner, write where tasks and the driver write."""
    for directory in (place, join(place, "tasks"), home):
        storage.adopt(parent(place), directory)
