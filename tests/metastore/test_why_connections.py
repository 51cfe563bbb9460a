"""`compactor why` needs one connection, and ends at once when it is interrupted."""

import signal
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner
from sqlalchemy import insert

from compactor.cli.root import cli
from tests.metastore.databases import kinds, metastore


@pytest.fixture(params=kinds(["mariadb-4", "mariadb-3"]))
def shared_database(request, tmp_path):
    """Both generations of Hive, with an entry that is ready for cleaning."""
    with metastore(request.param, request, tmp_path) as found:
        row = {"cq_id": 1, "cq_database": "db", "cq_table": "t", "cq_state": "r", "cq_type": "a"}
        row |= {"cq_retry_retention": 0} if found.schema.generation.layout == "hive-4" else {}
        with found.transaction() as connection:
            connection.execute(insert(found.schema.compaction_queue), row)
        yield found


@pytest.fixture
def config(shared_database, tmp_path):
    """Settings with the user `one`, whom each test makes with its own limits."""
    file = tmp_path / "compactor.yaml"
    url = shared_database.engine.url.set(drivername="mysql", username="one")
    file.write_text(f"database: {{url: '{url.render_as_string()}'}}\n", encoding="utf-8")
    return file


def test_one_connection_is_enough(server, config):
    """A user, or a server at its limit, may have no second one."""
    server.sql(
        "mysql",
        "CREATE OR REPLACE USER 'one'@'127.0.0.1' WITH MAX_USER_CONNECTIONS 1; GRANT ALL ON *.* TO 'one'@'127.0.0.1'",
    )
    result = CliRunner().invoke(cli, ["--config", str(config), "-o", "json", "why"], catch_exceptions=False)
    assert result.exit_code == 0
    assert '"entries": 1' in result.output


def test_an_interrupt_does_not_wait(server, shared_database, config):
    """While the parameters' table is locked, and the command waits for it."""
    server.sql("mysql", "CREATE OR REPLACE USER 'one'@'127.0.0.1'; GRANT ALL ON *.* TO 'one'@'127.0.0.1'")
    with server.connection(shared_database.engine.url.database) as locking, locking.cursor() as cursor:
        cursor.execute("LOCK TABLES TABLE_PARAMS WRITE")
        # a shell's background jobs ignore interrupts, and so would what they start
        command = ["env", "--default-signal=INT", sys.executable, "-m", "compactor.cli", "--config", str(config), "why"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            until = time.monotonic() + 60
            waits = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'one' AND STATE LIKE 'Waiting for table%'"
            while cursor.execute(waits) and cursor.fetchone() == (0,):
                assert process.poll() is None
                assert time.monotonic() < until
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()
            process.communicate()
        assert (process.returncode, "Traceback" in errors) == (130, False), errors
