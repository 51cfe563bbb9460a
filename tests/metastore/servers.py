"""
A PostgreSQL server for tests, in a folder of its own, with databases made from Hive's own schema scripts.

The scripts come from Hive's release archives by Maven and are kept below `.tools/`. What can't be had is said by
`UnavailableError`.
"""

import contextlib
import fcntl
import getpass
import itertools
import os
import pwd
import shutil
import subprocess
import tarfile
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import psycopg

from tests.ports import free_port

PROJECT = Path(__file__).resolve().parents[2]
ARCHIVES = {
    "3.1.0": ("org.apache.hive:hive-standalone-metastore:3.1.3", "hive-standalone-metastore-3.1.3-bin.tar.gz"),
    "4.0.0": (
        "org.apache.hive:hive-standalone-metastore-server:4.0.1",
        "hive-standalone-metastore-server-4.0.1-bin.tar.gz",
    ),
}
LATER = {
    "4.3.0": (
        "CREATE UNIQUE INDEX `TXN_STATE_IDX` ON `TXNS` (`TXN_STATE`, `TXN_ID`)",
        "ALTER TABLE `HIVE_LOCKS` ADD COLUMN `HL_CATALOG` varchar(128) NOT NULL DEFAULT 'hive'",
        "ALTER TABLE `MATERIALIZATION_REBUILD_LOCKS` ADD COLUMN `MRL_CAT_NAME` varchar(128) NOT NULL DEFAULT 'hive'",
        "UPDATE `VERSION` SET `SCHEMA_VERSION` = '4.3.0'",
    ),
}
"""
What releases after 4.0.0 changed in tables that the compactor uses; Maven doesn't have their archives. 4.1 brought the
index (HIVE-28828), 4.2 nothing, 4.3 the columns.
"""
COPY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
USER = "hive"
GUARDED = "guarded"
PASSWORD = "open-sesame-42"


class UnavailableError(Exception):
    """PostgreSQL, Maven or an archive can't be had here; the message says which."""


def schema_script(version: str, product: str = "postgres") -> Path:
    """
    Hive's own schema script, "3.1.0" or "4.0.0", for PostgreSQL or another product by Hive's word for it.

    Raises:
        UnavailableError: there is no Maven, or it can't fetch the archive.
    """
    home = PROJECT / ".tools" / "hive-metastore"
    script = home / f"hive-schema-{version}.{product}.sql"
    if script.is_file():
        return script
    if shutil.which("mvn") is None:
        raise UnavailableError(
            "Maven isn't installed (Debian: apt-get install maven): Hive's schema scripts can't be fetched"
        )
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not script.is_file():
            _fetch(version, home, script)
    return script


def schema_statements(version: str, product: str = "postgres") -> str:
    """
    The statements that make an empty metastore: Hive's script, or that of 4.0.0 and what `LATER` adds.

    Raises:
        UnavailableError: as `schema_script`.
    """
    if version not in LATER:
        return schema_script(version, product).read_text(encoding="utf-8")
    changes = ";\n".join(LATER[version])
    quoted = changes.replace("`", '"') if product == "postgres" else changes
    return f"{schema_statements('4.0.0', product)}\n{quoted};\n"


def _fetch(version: str, home: Path, script: Path) -> None:
    artifact, file_name = ARCHIVES[version]
    command = ["mvn", "-q", "-B", COPY_PLUGIN, f"-Dartifact={artifact}:tar.gz:bin", f"-DoutputDirectory={home}"]
    done = subprocess.run(command, cwd=home, capture_output=True, text=True, timeout=600, check=False)
    archive = home / file_name
    if done.returncode or not archive.is_file():
        raise UnavailableError(f"Maven can't fetch {artifact}: {' '.join((done.stdout + done.stderr).split())[:300]}")
    wanted = f"/scripts/metastore/upgrade/{script.suffixes[-2][1:]}/{script.name}"
    with tarfile.open(archive) as members:
        member = next((entry for entry in members if entry.name.endswith(wanted)), None)
        content = members.extractfile(member) if member is not None else None
        if content is None:
            raise UnavailableError(f"{archive.name} holds no {wanted}")
        partial = script.with_suffix(".partial")
        partial.write_bytes(content.read())
    partial.rename(script)
    archive.unlink()


def _binaries() -> Path:
    found = [Path(path).resolve() for path in (shutil.which("initdb"),) if path]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=_version, reverse=True)
    for initdb in found:
        if all((initdb.parent / program).exists() for program in ("pg_ctl", "psql", "postgres")):
            return initdb.parent
    raise UnavailableError("PostgreSQL's server isn't installed (Debian: apt-get install postgresql)")


def _version(initdb: Path) -> float:
    return float(initdb.parts[-3])


class Lending(ABC):
    """A server that lends databases of Hive's schema, and empties one instead of making the next."""

    def __init__(self) -> None:
        self._emptying: dict[str, str] = {}  # by the schema's version
        self._idle: dict[str, list[str]] = {}

    @abstractmethod
    def create(self, version: str | None = None) -> str:
        """The URL of a new database: of Hive's schema "3.1.0", "4.0.0" or "4.3.0", or empty."""

    @abstractmethod
    def sql(self, database: str, statements: str) -> None:
        """Run statements in a database."""

    def borrow(self, version: str) -> str:
        """
        As `create`, but perhaps one that was used before and is as new again; for those who leave its tables as they
        are.
        """
        idle = self._idle.setdefault(version, [])
        return idle.pop() if idle else self.create(version)

    def give_back(self, version: str, url: str) -> None:
        """Empty a borrowed database for the next one: much cheaper than making one."""
        self.empty(version, url)
        self._idle[version].append(url)

    def empty(self, version: str, url: str) -> None:
        """Make a borrowed database as new again."""
        self.sql(url.rpartition("/")[2], self._emptying[version])


_AS_NEW = """
SET session_replication_role = replica;
CREATE FUNCTION pg_temp.as_new() RETURNS void LANGUAGE plpgsql AS $as_new$ BEGIN {}; END $as_new$
"""
"""A function of a session: it keeps the plans of its statements."""


class PostgresServer(Lending):
    """
    One running server; `create` makes a fresh database and returns its URL.

    Args:
        options: of the server, besides those for speed.
    """

    def __init__(self, *options: str) -> None:
        super().__init__()
        self._bin = _binaries()
        self._account = "postgres" if os.geteuid() == 0 else getpass.getuser()
        if os.geteuid() == 0:
            try:
                pwd.getpwnam(self._account)
            except KeyError:
                raise UnavailableError("PostgreSQL doesn't run as root, and there is no user postgres") from None
        self._home = Path(tempfile.mkdtemp(prefix="compactor-postgres-"))
        self._data = self._home / "data"
        self._numbers = itertools.count(1)
        self._guard: subprocess.Popen[bytes] | None = None
        self._more = options
        self._options = ""
        self._watching: psycopg.Connection[tuple[int]] | None = None
        self._cleaning: dict[str, psycopg.Connection[tuple[None]]] = {}  # by the database
        self.port = 0

    def start(self) -> None:
        self._own_home()
        self._run("initdb", "-D", self._data, "-U", USER, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
        rules = self._data / "pg_hba.conf"
        rules.write_text(f"host all {GUARDED} 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
        self._begin()
        self.sql("postgres", f"CREATE ROLE {GUARDED} LOGIN PASSWORD '{PASSWORD}'")

    def follow(self, primary: "PostgresServer") -> None:
        """Start as a standby of another server."""
        self._own_home()
        source = f"host=127.0.0.1 port={primary.port} user={USER}"
        self._run("pg_basebackup", "-D", self._data, "-d", source, "-R", "-X", "stream", "-c", "fast", "--no-sync")
        self._begin()

    def promote(self) -> None:
        """From a standby to a primary."""
        self._run("pg_ctl", "-D", self._data, "-w", "-t", "60", "promote")

    def die(self) -> None:
        """End at once, without a word to anybody."""
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "-w", "stop")

    def _own_home(self) -> None:
        if os.geteuid() == 0:
            shutil.chown(self._home, self._account, pwd.getpwnam(self._account).pw_gid)

    def _begin(self) -> None:
        """On a port of its own, with a guard."""
        for attempt in range(5):
            self.port = free_port()
            self._options = f"-p {self.port} -k {self._home} -c listen_addresses=127.0.0.1 -c fsync=off -c full_page_writes=off -c max_connections=200{''.join(f' -c {one}' for one in self._more)}"
            try:
                self._run(
                    "pg_ctl", "-D", self._data, "-w", "-t", "60", "-l", self._home / "log", "-o", self._options, "start"
                )
                break
            except UnavailableError:
                if attempt == 4:
                    raise
        self._guard = self._guarded()

    def _guarded(self) -> subprocess.Popen[bytes]:
        """A process that ends the server when we are gone, however that came about: its input ends then."""
        postmaster = (self._data / "postmaster.pid").read_text(encoding="ascii").split("\n", 1)[0]
        script = 'read line || { kill -QUIT "$1"; sleep 2; rm -rf "$2"; }'
        command = ["sh", "-c", script, "guard", postmaster, str(self._home)]
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )

    def go_away(self) -> None:
        """Break off every connection, and let nobody in."""
        self._hang_up()
        self._run("pg_ctl", "-D", self._data, "-m", "fast", "-w", "stop")

    def _hang_up(self) -> None:
        for connection in (self._watching, *self._cleaning.values()):
            if connection is not None:
                connection.close()
        self._watching = None
        self._cleaning.clear()

    def come_back(self) -> None:
        """Start again, with what was committed."""
        self._run("pg_ctl", "-D", self._data, "-w", "-t", "60", "-l", self._home / "log", "-o", self._options, "start")
        assert self._guard is not None
        self._guard.communicate(b"stopped\n")
        self._guard = self._guarded()

    def stop(self) -> None:
        self._hang_up()
        if self._guard is not None:
            self._guard.communicate(b"stopped\n")
        with contextlib.suppress(UnavailableError):
            self._run("pg_ctl", "-D", self._data, "-m", "immediate", "-w", "stop")
        shutil.rmtree(self._home, ignore_errors=True)

    def url(self, database: str, user: str = USER) -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def create(self, version: str | None = None) -> str:
        """The URL of a new database: of Hive's schema "3.1.0", "4.0.0" or "4.3.0", or empty."""
        name = f"metastore_{next(self._numbers)}"
        if version is None:
            self.sql("postgres", f"CREATE DATABASE {name}")
            return self.url(name)
        self.sql("postgres", f"CREATE DATABASE {name} TEMPLATE {self._template(version)}")
        return self.url(name)

    def _template(self, version: str) -> str:
        template = "hive_" + version.replace(".", "_")
        if version not in self._emptying:
            self.sql("postgres", f"CREATE DATABASE {template}")
            self.load(template, schema_statements(version))
            self._emptying[version] = self._how_to_empty(template)
        return template

    def _how_to_empty(self, template: str) -> str:
        """The statements that bring every table of a database back to what its schema script left in it."""
        statements = []
        with psycopg.connect(host="127.0.0.1", port=self.port, user=USER, dbname=template) as connection:
            names = [
                name
                for (name,) in connection.execute(
                    "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
                )
            ]
            for name in names:
                statements.append(f"DELETE FROM {name}")
                rows = connection.execute(f"SELECT row_to_json(t)::text FROM {name} t").fetchall()
                literals = [row.replace("'", "''") for (row,) in rows]
                statements += [
                    f"INSERT INTO {name} SELECT * FROM json_populate_record(NULL::{name}, '{literal}')"
                    for literal in literals
                ]
            sequences = connection.execute(
                "SELECT quote_literal(quote_ident(sequencename)), start_value FROM pg_sequences WHERE schemaname = 'public'"
            ).fetchall()
            statements += [f"PERFORM setval({name}, {start}, false)" for name, start in sequences]
        return ";\n".join(statements)

    def empty(self, version: str, url: str) -> None:
        """Make a borrowed database as new again, by a connection that is kept: a new one has nothing in its caches."""
        database = url.rpartition("/")[2]
        if database not in self._cleaning:
            self._cleaning[database] = connection = psycopg.connect(
                host="127.0.0.1", port=self.port, user=USER, dbname=database, autocommit=True
            )
            connection.execute(_AS_NEW.format(self._emptying[version]))  # type: ignore[call-overload]
        self._cleaning[database].execute("SELECT pg_temp.as_new()")

    def restore(self, dump: str) -> str:
        """The URL of a new database filled from a plain dump."""
        url = self.create()
        self.load(url.rpartition("/")[2], dump)
        return url

    def load(self, database: str, script: str) -> None:
        """Run a script by psql: dumps hold its meta-commands."""
        command = [
            str(self._bin / "psql"),
            "-X",
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
            "-U",
            USER,
            "-d",
            database,
        ]
        done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"psql: {done.stderr}")

    def sql(self, database: str, statements: str) -> None:
        with psycopg.connect(
            host="127.0.0.1", port=self.port, user=USER, dbname=database, autocommit=True
        ) as connection:
            connection.execute(statements)  # type: ignore[call-overload]

    def cut_off(self, database: str) -> None:
        """End the package's connections to a database."""
        ours = f"datname = '{database}' AND application_name = 'compactor'"
        self.sql("postgres", f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}")

    def waiting(self, database: str) -> int:
        """How many connections to a database wait for a lock."""
        blocked = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT l.granted"
        if self._watching is None:
            self._watching = psycopg.connect(
                host="127.0.0.1", port=self.port, user=USER, dbname="postgres", autocommit=True
            )
        row = self._watching.execute(f"{blocked} AND a.datname = '{database}'").fetchone()  # type: ignore[call-overload]
        assert row is not None
        return int(row[0])

    def deadlocks(self, database: str) -> int:
        """How many there were in a database."""
        with psycopg.connect(host="127.0.0.1", port=self.port, user=USER, dbname="postgres") as connection:
            query = "SELECT deadlocks FROM pg_stat_database WHERE datname = %s"
            row = connection.execute(query, [database]).fetchone()
        assert row is not None
        return int(row[0])

    def _run(self, program: str, *arguments: object) -> None:
        as_account = (
            {"user": self._account, "group": pwd.getpwnam(self._account).pw_gid, "extra_groups": []}
            if os.geteuid() == 0
            else {}
        )
        # the server inherits these handles and outlives pg_ctl: a pipe would never end
        with (self._home / "output").open("w+") as output:
            done = subprocess.run(
                [str(self._bin / program), *map(str, arguments)],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                check=False,
                **as_account,
            )
            output.seek(0)
            if done.returncode:
                raise UnavailableError(f"{program} failed: {' '.join(output.read().split())[:500]}")


@contextlib.contextmanager
def postgres_server(*options: str) -> Iterator[PostgresServer]:
    """
    A server for as long as the block runs.

    Args:
        options: as for `PostgresServer`.

    Raises:
        UnavailableError: there is none here.
    """
    server = PostgresServer(*options)
    try:
        server.start()
        yield server
    finally:
        server.stop()
