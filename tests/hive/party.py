"""
Hive's own TxnHandler, 3.1.3's or 4.0.1's, on a metastore database: the real second party of tests.

A JVM with many clients ("sessions", a thread each) that do what the test says, several at once if it wants, each
stopped before every statement to the database if it wants that. Any method of Hive's `TxnStore` can be called;
structures of Thrift are dictionaries by the fields' names, enumerations their names.
"""

import contextlib
import itertools
import json
import os
import queue
import subprocess
import tempfile
import threading
from pathlib import Path
from urllib.parse import urlsplit

from tests.hive.java import built, java

SOURCE = Path(__file__).parent / "txn"
JUDGE = SOURCE.with_name("judge") / "Judge.java"
STAND_IN = SOURCE / "hive3" / "Hive.java"
PROFILES = {"3.1.0": "hive3", "4.0.0": "hive4", "4.3.0": "hive4"}
"""By the version of the schema."""
_SETTINGS = {
    "javax.jdo.option.ConnectionUserName": "hive",
    "javax.jdo.option.ConnectionPassword": "-",
    "hive.support.concurrency": "true",
    "datanucleus.connectionPool.maxPoolSize": "8",
    "hive.hmshandler.retry.interval": "100ms",
    "fs.defaultFS": "file:///",
    "fs.file.impl": "PlainFiles",
    "hive.compactor.delta.num.threshold": "1",
    "hive.compactor.abortedtxn.threshold": "0",
}
_MYSQL = {"javax.jdo.option.ConnectionUserName": "java", "javax.jdo.option.ConnectionPassword": "java"}
_THREADS = "org.apache.hadoop.hive.ql.txn.compactor"
"""They throw nothing: they log it."""
_LIMIT_SECONDS = 120
"""More than any step takes, on any machine: what is silent for longer hangs."""


class HiveError(Exception):
    """What Hive threw; `kind` is the exception's class, `trace` its stack."""

    def __init__(self, kind, message, trace):
        super().__init__(f"{kind}: {message}")
        self.kind, self.trace = kind, trace


class Pending:
    """A call that is under way in one session."""

    def __init__(self, party, session):
        self._party, self._session = party, session
        self.answers = queue.SimpleQueue()
        self._answer = None

    def at(self):
        """The statement before which the call stands, waited for; None: it has ended."""
        if self._answer is None:
            answer = self.answers.get(timeout=_LIMIT_SECONDS)
            if "at" in answer:
                return answer["at"]
            self._answer = answer
        return None

    def look(self, seconds):
        """Whether the call "stands" before a statement or has "ended"; None: it is still running."""
        try:
            answer = self.answers.get(timeout=seconds)
        except queue.Empty:
            return None
        if "at" in answer:
            return "stands"
        self._answer = answer
        return "ended"

    def go(self):
        """Let the call do the statement before which it stands."""
        self._party.send({"release": self._session})

    def finish(self):
        """Let the call run to its end; its result."""
        self._party.send({"release": self._session, "all": True})
        return self.result()

    def ended(self):
        """Whether there is a result."""
        return self._answer is not None

    def result(self):
        """
        What Hive answered, waited for.

        Raises:
            HiveError: Hive threw it.
        """
        while self.at() is not None:
            pass
        if "error" in self._answer:
            raise HiveError(self._answer["error"], self._answer.get("message"), self._answer["trace"])
        return self._answer["result"]


class Party:
    """
    The JVM. Use as a context manager.

    Args:
        version: of the schema, "3.1.0", "4.0.0" or "4.3.0": Hive 3.1.3, else 4.0.1.
        url: of the database, as `tests.metastore.servers` gives it.
        settings: Hive's, by name.

    Raises:
        UnavailableError: it can't be built here.
    """

    def __init__(self, version, url, **settings):
        self.hive_4 = version != "3.1.0"
        home, classpath = built(SOURCE, PROFILES[version], beside=[JUDGE, *([] if self.hive_4 else [STAND_IN])])
        place = urlsplit(url)
        product = place.scheme.partition("+")[0]
        # Hive 4.0.1 asks "? IS NULL" for a partition, which PostgreSQL refuses unless values are put into the text
        mode = "?preferQueryMode=simple" if self.hive_4 and product == "postgresql" else ""
        address = f"jdbc:gate:{product}://{place.hostname}:{place.port}{place.path}{mode}"
        command = java(f"{home}:{classpath}", heap="512m")
        command[1:1] = [
            "-Dspring.jdbc.getParameterType.ignore=true",
            f"-Dorg.slf4j.simpleLogger.log.{_THREADS}=error",
            "-Djava.util.logging.config.file=/dev/null",
        ]
        store = {"hive.metastore.txn.store.impl": "org.apache.hadoop.hive.metastore.txn.CompactionTxnHandler"}
        user = {} if product == "postgresql" else _MYSQL
        command += [
            "Party",
            address,
            *(f"{key}={value}" for key, value in (_SETTINGS | store | user | settings).items()),
        ]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            encoding="utf-8",
            cwd=home,
            env=os.environ | {"LC_ALL": "C.UTF-8"},
        )
        self._numbers, self._waiting, self._lock = itertools.count(1), {}, threading.Lock()
        if not self._process.stdout.readline():
            raise RuntimeError(f"Hive's TxnHandler didn't start: {self._said()}")
        threading.Thread(target=self._hear, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def begin(self, call, *args, session="main", gated=False):
        """
        Start a call; several may be under way, in different sessions.

        Args:
            call: a method of TxnStore, a static method with its class, or one of Party.java's own.
            gated: stop before each statement, commit and rollback.
        """
        pending, number = Pending(self, session), next(self._numbers)
        with self._lock:
            self._waiting[number] = pending
        self.send({"id": number, "session": session, "call": call, "args": args, "gated": gated})
        return pending

    def call(self, call, *args, session="main"):
        """One call to its end."""
        return self.begin(call, *args, session=session).result()

    def send(self, request):
        """A line to the JVM."""
        with self._lock:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()

    def let_go(self):
        """Let the JVM end, without waiting for it."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def close(self):
        """End the JVM."""
        self.let_go()
        self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def _hear(self):
        with contextlib.suppress(ValueError):  # closed
            for line in self._process.stdout:
                answer = json.loads(line)
                with self._lock:
                    pending = self._waiting[answer["id"]] if "at" in answer else self._waiting.pop(answer["id"])
                pending.answers.put(answer)
        for pending in self._waiting.values():
            pending.answers.put({"error": "Ended", "message": "the JVM is gone", "trace": ""})

    def _said(self):
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-2000:]
