"""
The real command line as a process: one clear line on stderr, the exit code of its kind, no traceback, no password,
nothing written.
"""

import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from compactor.metastore.db.database import Database
from tests import forked
from tests.bad_input import damage
from tests.demo.rows import CatalogRows, MetastoreLedger
from tests.demo.warehouse import Warehouse
from tests.metastore.databases import postgres  # noqa: F401 - a fixture
from tests.metastore.servers import GUARDED

USAGE, NOTHING, REFUSED, UNREACHABLE = 2, 3, 4, 5
SECRET = "hunter2-very-secret"


@dataclass
class Shell:
    """A folder with a settings file, a metastore and a table of three deltas."""

    folder: Path

    @property
    def table(self):
        return self.folder / "warehouse" / "db.db" / "t"

    def configure(self, **sections):
        text = yaml.safe_dump({"http": {"host": "127.0.0.1", "port": 0}} | sections)
        (self.folder / "compactor.yaml").write_text(text, encoding="utf-8")

    def run(self, *arguments, **environment):
        around = {name: value for name, value in os.environ.items() if not name.startswith("COMPACTOR_")}
        return forked.command(
            ["--config", str(self.folder / "compactor.yaml"), *arguments],
            environment=around | {"TMPDIR": str(self.folder)} | environment,
            folder=self.folder,
        )

    def fails(self, code, *words, command=("queue",), **environment):
        """One line on stderr with the words, nothing on stdout."""
        done = self.run(*command, **environment)
        assert done.returncode == code, (done.returncode, done.stderr)
        assert done.stdout == ""
        (line,) = done.stderr.splitlines()
        assert line.startswith("error: "), line
        for word in words:
            assert word in line, line
        assert "Traceback" not in line
        assert SECRET not in line
        return line


@pytest.fixture
def shell(tmp_path):
    found = Shell(tmp_path)
    with Database(f"sqlite:///{tmp_path}/metastore.db", create=True) as database:
        warehouse = Warehouse(tmp_path / "warehouse", MetastoreLedger(database), CatalogRows(database))
        table = warehouse.create_table("db", "t", [("id", "int"), ("v", "string")])
        for number in range(3):
            with warehouse.begin() as txn:
                txn.insert(table, [(number, "v")])
    found.configure(database={"url": f"sqlite:///{tmp_path}/metastore.db"})
    return found


COMMANDS = (("queue",), ("plan", "db.t"), ("enqueue", "db.t"), ("run",))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_no_metastore_file(shell, command):
    """The file of an embedded metastore isn't there: it isn't made either."""
    missing = shell.folder / "nowhere" / "metastore.db"
    shell.configure(database={"url": f"sqlite:///{missing}"})
    shell.fails(UNREACHABLE, str(missing), command=command)
    assert not missing.parent.exists()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_server_that_is_down(shell, command):
    """Nobody listens there; the password isn't said."""
    shell.configure(database={"url": "postgresql://hive@127.0.0.1:1/metastore"})
    shell.fails(UNREACHABLE, "127.0.0.1", command=command, COMPACTOR_DATABASE__PASSWORD=SECRET)


def test_a_server_without_a_name(shell):
    """No such host."""
    shell.configure(database={"url": "postgresql://hive@metastore.invalid/metastore"})
    shell.fails(UNREACHABLE, "metastore.invalid", COMPACTOR_DATABASE__PASSWORD=SECRET)


@pytest.mark.postgres
@pytest.mark.parametrize("command", [("queue",), ("run",)], ids=lambda command: command[0])
def test_a_wrong_password(shell, postgres, command):  # noqa: F811 - the fixture
    """The server says no; the user is named, the password isn't, wherever it came from."""
    shell.configure(database={"url": postgres.url("postgres", GUARDED)})
    shell.fails(UNREACHABLE, GUARDED, command=command, COMPACTOR_DATABASE__PASSWORD=SECRET)


@pytest.mark.parametrize("command", [("queue",), ("plan", "db.t"), ("run",)], ids=lambda command: command[0])
@pytest.mark.parametrize("kind", ["empty", "foreign", "older", "not a database"])
def test_a_metastore_of_unknown_schema(shell, kind, command):
    """
    No tables, somebody else's, Hive's with one missing, or no database at all: said what was found; nothing is created.
    """
    path = shell.folder / "other.db"
    if kind == "older":
        path.write_bytes((shell.folder / "metastore.db").read_bytes())
    if kind == "not a database":
        path.write_bytes(b"this is no database, it only has the name of one\n" * 100)
    else:
        connection = sqlite3.connect(path)
        connection.execute(
            {
                "empty": "SELECT 1",
                "foreign": "CREATE TABLE invoices (id integer)",
                "older": "DROP TABLE COMPACTION_QUEUE",
            }[kind]
        )
        connection.commit()
        connection.close()
    before = path.read_bytes()
    shell.configure(database={"url": f"sqlite:///{path}"})
    done = shell.run(*command)
    assert done.returncode in {REFUSED, UNREACHABLE}, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert "other.db" in line or "schema" in line, line
    assert "Traceback" not in line
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("database: {url: 'sqlite:///m.db'}\nworker: {thread: 2}\n", ("worker.thread", "threads")),
        ("database: {url: 'sqlite:///m.db'}\nworker: {threads: many}\n", ("worker.threads",)),
        ("database: {url: 'sqlite:///m.db'}\nworker: {threads: -1}\n", ("worker.threads",)),
        ("database: {url: 'sqlite:///m.db'}\nworker: {pools: {'': 2}}\n", ("worker.pools",)),
        ("database: {url: 'sqlite:///m.db'}\nworkers: {threads: 2}\n", ("workers",)),
        ("database: {url: 5}\n", ("database.url",)),
        ("database: 5\n", ("database",)),
        (
            "database: {url: 'sqlite:///m.db'}\ntxn: {timeout_seconds: 10}\nworker: {heartbeat_seconds: 20}\n",
            ("heartbeat_seconds", "timeout_seconds"),
        ),
        ("database: {url: 'sqlite:///m.db'}\nspark: {master: 'yarn', mode: session, idle_seconds: -1}\n", ("spark.",)),
        ("database: [unclosed\n", ("compactor.yaml",)),
        ("- a\n- list\n", ("compactor.yaml",)),
        (f"database: {{url: 'postgresql://hive:{SECRET}@db/m', password: {SECRET}x}}\n", ("database.password",)),
    ],
)
def test_a_mistake_in_the_settings(shell, text, words):
    """
    An unknown key (with what was probably meant), a wrong type, a value out of range, an impossible combination, no
    YAML: the key or the file is named.
    """
    (shell.folder / "compactor.yaml").write_text(text, encoding="utf-8")
    for command in (("config", "check"), ("run",)):
        shell.fails(USAGE, *words, command=command)


def test_another_database(shell):
    """One that isn't supported is told by its scheme."""
    shell.configure(database={"url": "db2://x/y"})
    shell.fails(USAGE, "database.url", "db2")


def test_a_password_in_the_settings_file(shell):
    """Refused, with the places where it may stand; not repeated."""
    shell.configure(database={"url": f"postgresql://hive:{SECRET}@db/m"})
    shell.fails(USAGE, "database.url", "password_file")


def test_a_mistake_in_the_environment(shell):
    """The variable is named."""
    shell.fails(USAGE, "COMPACTOR_WORKER__THREADS", COMPACTOR_WORKER__THREADS="many")


def test_no_settings_file(shell):
    """The path is named."""
    (shell.folder / "compactor.yaml").unlink()
    shell.fails(USAGE, "compactor.yaml")


def test_nothing_to_do(shell):
    """A table with one delta: exit code 3."""
    with Database(f"sqlite:///{shell.folder}/metastore.db") as database:
        warehouse = Warehouse(shell.folder / "warehouse", MetastoreLedger(database), CatalogRows(database))
        warehouse._databases.add("db")
        table = warehouse.create_table("db", "single", [("id", "int")], insert_only=True)
        with warehouse.begin() as txn:
            txn.insert(table, [(1,)])
    done = shell.run("plan", "db.single")
    assert done.returncode == NOTHING, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda path: damage.truncate(path, 50), ("bucket_00000", "not an ORC file")),
        (lambda path: (path.unlink(), path.mkdir()), ("bucket_00000", "is a directory")),
        (lambda path: path.rename(path.with_name("bucket_00007")), ("bucket_00007", "bucket 0")),
        (lambda path: damage.copy_below(path, "odd"), ("odd",)),
        (lambda path: (path.parents[1] / "base_x").mkdir(), ("base_x",)),
        (
            lambda path: damage.rewrite_tail(path, footer=lambda message: setattr(message, "encryption", b"")),
            ("bucket_00000", "encrypted"),
        ),
    ],
    ids=["truncated", "a directory", "wrong bucket", "nested", "unknown", "encrypted"],
)
def test_plan_of_a_broken_table_is_refused(shell, break_it, words):
    """`plan` says what the Worker would say: exit code 4."""
    break_it(next((shell.table / "delta_0000002_0000002_0000").glob("bucket_*")))
    shell.fails(REFUSED, *words, command=("plan", "db.t"))


def test_no_such_table(shell):
    """Named, with the nearest one."""
    done = shell.run("plan", "db.tt")
    assert done.returncode in {USAGE, REFUSED}, done.stderr
    assert "db.tt" in done.stderr
    assert len(done.stderr.splitlines()) == 1
