"""
A real Hive for tests: metastore and HiveServer2 of release 3.1.3 or 4.0.1 in one JVM, on a database of Hive's own
schema, MapReduce in local mode, in a temporary folder.

    with hive_server("4", postgres) as hive:
        hive.sql("create table t (id int) stored as orc tblproperties ('transactional'='true')")
        hive.sql("insert into t values (1)")
        hive.rows("select ROW__ID, * from t")

The JVM ends when its standard input does, so also with a test process that was killed. Hive's local MapReduce loses
rows when statements that run jobs run at the same time: one writer at a time, any number of readers whose queries are
fetch tasks (plain selects without aggregation are). A reader that began before a job of the same JVM, and reads on
after it, reads nothing: those that are held belong into a second JVM (`HiveServer.second`).
"""

import contextlib
import itertools
import json
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from tests.hive.server import configuration
from tests.hive.server.jars import RELEASES, UnavailableError, built
from tests.metastore.servers import Lending
from tests.ports import free_ports

START_SECONDS = 240


class HiveError(Exception):
    """Hive refused a command, or a statement failed; the message is Hive's, with its causes."""


class HiveServer:
    """
    One running server.

    Args:
        version: "3" or "4".
        database: URL of a database of Hive's schema, in a server on this machine.
        folder: an empty one; `warehouse`, `external`, `conf` and `log` are made in it.
        settings: more of hive-site.xml; "timeout" sets both names of `hive.txn.timeout`.
        beside: only a HiveServer2, which shares folder and metastore with this one. A query here may be held while a
            job runs there.
        jvm: more options of the JVM.

    Raises:
        UnavailableError: there is no Java or Maven, the jars can't be had, or the server doesn't start.
    """

    def __init__(
        self,
        version: str,
        database: str,
        folder: Path,
        settings: dict[str, str] | None = None,
        *,
        memory: str = "2g",
        level: str = "WARN",
        beside: "HiveServer | None" = None,
        jvm: Iterable[str] = configuration.QUICK,
    ) -> None:
        self.version, self.release, self.database, self.folder = version, RELEASES[version].version, database, folder
        self.warehouse, self.external, self.log = folder / "warehouse", folder / "external", folder / "log"
        self.metastore_port, self.server_port = free_ports(2)
        if beside is None:
            conf = configuration.write(
                folder,
                database=database,
                metastore_port=self.metastore_port,
                server_port=self.server_port,
                more=dict(settings or {}),
                level=level,
            )
            for place in (self.warehouse, self.external):
                place.mkdir()
            self.classpath = [conf, *built(version)]
        else:
            self.metastore_port, self.classpath, self.log = 0, beside.classpath, folder / "log-2"
        self._jvm = tuple(jvm)
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[dict[str, Any]]] = {0: Future()}
        self._lock = threading.Lock()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self.java("Server", self.metastore_port, self.server_port, memory=memory),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                encoding="utf-8",
                cwd=folder / "scratch",
                start_new_session=True,
            )
        threading.Thread(target=self._read, daemon=True).start()
        try:
            self._waiting[0].result(START_SECONDS)
        except Exception as error:
            self.close()
            raise UnavailableError(f"Hive {self.release} doesn't start: {error}") from error

    @property
    def pid(self) -> int:
        """Of the JVM."""
        return self._process.pid

    def java(self, program: str, *arguments: object, memory: str = "512m") -> list[str]:
        """The command that runs one of our Java programs on this server's class path and configuration."""
        scratch = self.folder / "scratch"
        logging = [
            f"-Dlog4j2.configurationFile={self.folder}/conf/hive-log4j2.properties",
            "-Dlog4j2.disableJmx=true",
            f"-Djava.io.tmpdir={scratch}",
        ]
        encoding = [
            "-Dfile.encoding=UTF-8",
            "-Dsun.jnu.encoding=UTF-8",
            f"-Dderby.stream.error.file={scratch}/derby.log",
        ]
        place = ":".join(map(str, self.classpath))
        java = ["java", f"-Xmx{memory}", *self._jvm, *configuration.JVM, *logging, *encoding]
        if self.version == "3":
            return [
                *java,
                f"-Dclasspath={place}",
                "-cp",
                str(self.classpath[1]),
                "Launch",
                program,
                *map(str, arguments),
            ]
        return [
            *java,
            "-cp",
            place,
            program,
            *map(str, arguments),
        ]  # threads of its Initiator know Java's own loader alone

    def send(self, do: str, **fields: object) -> "Future[dict[str, Any]]":
        """
        Tell the server something (see Server.java); commands of one `session` run one after the other, without one at
        once and in turn.
        """
        answer: Future[dict[str, Any]] = Future()
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = answer
            try:
                assert self._process.stdin is not None
                self._process.stdin.write(json.dumps({"id": number, "do": do, **fields}) + "\n")
                self._process.stdin.flush()
            except OSError as error:
                raise HiveError(f"Hive's JVM is gone: {self.said()}") from error
        return answer

    def do(self, command: str, **fields: object) -> dict[str, Any]:
        """The same, waited for."""
        return self.send(command, **fields).result()

    def begin(self, sql: str, session: str = "main") -> "Future[dict[str, Any]]":
        """Start a statement in a session."""
        return self.send("sql", sql=sql, session=session)

    def sql(self, *statements: str, session: str = "main") -> None:
        """
        Run statements.

        Raises:
            HiveError: one fails.
        """
        for statement in statements:
            self.begin(statement, session).result()

    def rows(self, query: str, session: str = "main") -> list[tuple[str | None, ...]]:
        """A query's rows, every value as JDBC's text, bytes as hexadecimal digits, NULL as None."""
        return [tuple(row) for row in self.begin(query, session).result()["rows"]]

    def roll_back(self, sql: str, session: str = "rolling back", settings: dict[str, str] | None = None) -> str:
        """Run a statement to its end, under settings of its own, and then roll its transaction back: its files stay."""
        return str(self.do("roll-back", sql=sql, session=session, settings=settings or {})["said"])

    def open(self, *tables: str) -> int:
        """
        Open a transaction; on each table ("db.name") it gets a write id and a lock as a writer does. Nothing heartbeats
        it.
        """
        txn = int(self.do("open")["txn"])
        for table in tables:
            self.do("write", txn=txn, table=table)
        return txn

    def commit(self, txn: int) -> None:
        self.do("commit", txn=txn)

    def abort(self, txn: int) -> None:
        self.do("abort", txn=txn)

    def threads(self, *names: str) -> None:
        """Which of Hive's own "initiator", "worker", "cleaner" are to run from now on."""
        self.do("threads", on=names)

    def cycle(self, name: str, settings: dict[str, str] | None = None) -> None:
        """One cycle of one of those, under settings of its own."""
        self.do("cycle", thread=name, settings=settings or {})

    def hold(self, operation: str, path: str, *, times: int = 1, fails: bool = False) -> "Hold":
        """
        A break point for Hive.

        Args:
            operation: "rename", "delete", "open", "create", "listed" (after the listing) of the file system, or "udf":
                the function `hold('path', value)` of SQL.
            path: a regular expression found in the path; of a rename in `from -> to`.
            times: how many threads it stops.
            fails: they don't wait but fail.
        """
        name = f"hold {next(self._numbers)}"
        self.do("hold", name=name, on=operation, path=path, times=times, fails=fails)
        return Hold(self, name)

    def said(self, characters: int = 3000) -> str:
        """The end of Hive's log."""
        return self.log.read_text(encoding="utf-8", errors="replace")[-characters:] if self.log.exists() else ""

    @contextlib.contextmanager
    def second(self) -> "Iterator[HiveServer]":
        """A second HiveServer2 on the same metastore and folder, for as long as the block runs."""
        server = HiveServer(self.version, self.database, self.folder, memory="768m", beside=self)
        try:
            yield server
        finally:
            server.close()

    def close(self) -> None:
        """End the JVM."""
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                answer = json.loads(line)
                waiting = self._waiting.pop(answer["id"])
                if "error" in answer:
                    waiting.set_exception(HiveError(answer["error"]))
                else:
                    waiting.set_result(answer)
        with self._lock:
            for waiting in self._waiting.values():
                waiting.set_exception(HiveError(f"Hive's JVM ended: {self.said()}"))
            self._waiting.clear()


class Hold:
    """A break point that was set."""

    def __init__(self, server: HiveServer, name: str) -> None:
        self._server, self._name = server, name

    def met(self, seconds: float = 0.0) -> list[str]:
        """Paths at which threads have been stopped; waits so long for the first."""
        return list(self._server.do("held", name=self._name, millis=round(seconds * 1000), session=self._name)["met"])

    def release(self) -> None:
        """Let them go on, and stop no more."""
        self._server.do("release", name=self._name)


@contextlib.contextmanager
def hive_server(
    version: str, metastore: Lending, settings: dict[str, str] | None = None, **how: Any
) -> Iterator[HiveServer]:
    """
    A server for as long as the block runs, on a new database and an empty warehouse.

    Raises:
        UnavailableError: it can't be had here.
    """
    with tempfile.TemporaryDirectory(prefix="compactor-hive-", ignore_cleanup_errors=True) as place:
        url = metastore.create(RELEASES[version].schema)
        server = HiveServer(version, url, Path(place), settings, **how)
        try:
            yield server
        finally:
            server.close()
            shutil.rmtree(place, ignore_errors=True)
