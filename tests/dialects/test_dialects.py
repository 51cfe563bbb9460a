"""What errors of Oracle and SQL Server mean, and how their drivers are addressed; no server of either was at hand."""

import contextlib
import socket
import sys
from types import SimpleNamespace

import oracledb
import pytest
from sqlalchemy import make_url
from sqlalchemy.dialects.mssql.pyodbc import dialect as mssql_dialect
from sqlalchemy.exc import DBAPIError

from compactor.errors import SettingsError, UnreachableError
from compactor.metastore.db.database import Database
from compactor.metastore.db.dialects import Failure
from compactor.metastore.db.dialects.address import dialect_of, parse
from compactor_dialects.oracle import Oracle
from compactor_dialects.sqlserver import SQLServer
from tests.dialects.conftest import PROJECT

ORACLE = [
    ("ORA-00060", Failure.CONFLICT),  # deadlock
    ("ORA-00054", Failure.CONFLICT),  # LOCK TABLE … WAIT ran out
    ("ORA-30006", Failure.CONFLICT),  # FOR UPDATE WAIT ran out
    ("ORA-08177", Failure.CONFLICT),  # serialization
    ("ORA-01013", Failure.CONFLICT),  # cancelled
    ("ORA-01555", Failure.CONFLICT),  # snapshot too old
    ("DPY-4024", Failure.CONFLICT),  # time-out of a call
    ("ORA-01017", Failure.CREDENTIALS),
    ("ORA-28000", Failure.CREDENTIALS),  # locked account
    ("ORA-12514", Failure.UNREACHABLE),  # no such service
    ("ORA-01033", Failure.UNREACHABLE),  # starting or stopping
    ("DPY-6005", Failure.UNREACHABLE),
    ("ORA-03113", Failure.LOST),
    ("ORA-00028", Failure.LOST),  # killed
    ("ORA-02396", Failure.LOST),  # idle for too long
    ("DPY-4011", Failure.LOST),
    ("DPY-1001", Failure.LOST),
    ("ORA-01653", Failure.UNABLE),  # no room
    ("ORA-00018", Failure.UNABLE),  # no session left
    ("ORA-16000", Failure.UNABLE),  # a standby
    ("ORA-00942", Failure.OTHER),  # no such table
    ("ORA-01031", Failure.OTHER),  # no right
    ("ORA-00955", Failure.OTHER),  # the table is there already
    ("", Failure.OTHER),
]
_SERVER = "[Microsoft][ODBC Driver 18 for SQL Server][SQL Server]"
_DRIVER = "[Microsoft][ODBC Driver 18 for SQL Server]"
_NO_DATABASE = (
    f"{_SERVER}Login failed for user 'c'. (18456) (SQLDriverConnect); [28000] {_SERVER}Cannot open database"
    ' "m" requested by the login. The login failed. (4060) (SQLDriverConnect)'
)
SQL_SERVER = [
    ("40001", f"{_SERVER}Transaction (Process ID 5) was deadlocked. (1205) (SQLExecDirectW)", Failure.CONFLICT),
    ("42000", f"{_SERVER}Lock request time out period exceeded. (1222) (SQLExecDirectW)", Failure.CONFLICT),
    ("HYT00", f"{_DRIVER}Query timeout expired (0) (SQLExecDirectW)", Failure.CONFLICT),
    ("HY008", f"{_DRIVER}Operation canceled (0) (SQLExecDirectW)", Failure.CONFLICT),
    ("28000", f"{_SERVER}Login failed for user 'c'. (18456) (SQLDriverConnect)", Failure.CREDENTIALS),
    ("28000", _NO_DATABASE, Failure.UNREACHABLE),
    ("HYT00", f"{_DRIVER}Login timeout expired (0) (SQLDriverConnect)", Failure.UNREACHABLE),
    ("08001", f"{_DRIVER}TCP Provider: Error code 0x2746 (10054) (SQLDriverConnect)", Failure.UNREACHABLE),
    (
        "01000",
        "[unixODBC][Driver Manager]Can't open lib 'ODBC Driver 18 for SQL Server' : file not found (0) (SQLDriverConnect)",
        Failure.UNREACHABLE,
    ),
    ("08S01", f"{_DRIVER}Communication link failure (0) (SQLExecDirectW)", Failure.LOST),
    ("08S01", f"{_DRIVER}TCP Provider: Error code 0x68 (104) (SQLEndTran)", Failure.LOST),
    ("HY000", f"{_SERVER}Cannot continue: the session is in the kill state. (596) (SQLExecDirectW)", Failure.LOST),
    ("42000", f"{_SERVER}The transaction log for database 'm' is full. (9002) (SQLExecDirectW)", Failure.UNABLE),
    ("25000", f"{_SERVER}the database is read-only. (3906) (SQLExecDirectW)", Failure.UNABLE),
    ("42S02", f"{_SERVER}Invalid object name 'TXNS'. (208) (SQLExecDirectW)", Failure.OTHER),
    ("42000", f"{_SERVER}The SELECT permission was denied on 'TXNS'. (229) (SQLExecDirectW)", Failure.OTHER),
    ("42S01", f"{_SERVER}There is already an object named 'X'. (2714) (SQLExecDirectW)", Failure.OTHER),
    ("42000", f"{_SERVER}Incorrect syntax near (1205. (102) (SQLExecDirectW)", Failure.OTHER),
]


class DriverError(Exception):
    pass


@pytest.mark.parametrize(("code", "meaning"), ORACLE)
def test_oracles_errors(code, meaning):
    """By the code that the driver gives; a text that only looks like one means nothing."""
    error = DriverError(SimpleNamespace(full_code=code, message="ORA-00060"))
    assert Oracle().classify(DBAPIError("SELECT 1", None, error)) is meaning


def test_an_oracle_connection_that_the_driver_gave_up_is_lost():
    """Whatever the code says."""
    error = DriverError(SimpleNamespace(full_code="ORA-99999"))
    assert Oracle().classify(DBAPIError("SELECT 1", None, error, connection_invalidated=True)) is Failure.LOST


@pytest.mark.parametrize(("state", "message", "meaning"), SQL_SERVER)
def test_sql_servers_errors(state, message, meaning):
    """By the server's number, which ODBC writes behind its message; else by the state."""
    error = DriverError(state, f"[{state}] {message}")
    assert SQLServer().classify(DBAPIError("SELECT 1", None, error)) is meaning


@pytest.mark.parametrize(
    ("url", "facts"),
    [
        ("oracle://c@db:1522/hive.example", ("tcp", "db", 1522, "hive.example", True)),
        ("oracle://c@db/hive", ("tcp", "db", 1521, "hive", True)),
        ("oracle://c@db/hive?schema=HIVE", ("tcp", "db", 1521, "hive", True)),
        ("oracle://c@db:2484/hive?protocol=tcps&schema=HIVE", ("tcps", "db", 2484, "hive", True)),
        ("oracle://c@db/hive?protocol=tcps&ssl_server_dn_match=off", ("tcps", "db", 1521, "hive", False)),
    ],
)
def test_oracles_driver_understands_our_addresses(url, facts):
    """The path is a service, and options that aren't ours are the driver's own."""
    address, dialect = parse(url, "geheim/@:?")
    connecting = dialect.connecting(address)
    params = oracledb.ConnectParams()
    params.parse_connect_string(connecting.host)
    assert (params.protocol, params.host, params.port, params.service_name, params.ssl_server_dn_match) == facts
    assert (connecting.username, connecting.password) == ("c", "geheim/@:?")
    assert dict(connecting.query) == ({"schema": "HIVE"} if "schema" in url else {})


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (
            "mssql://c@db:1433/metastore",
            "DRIVER={ODBC Driver 18 for SQL Server};Server=db,1433;Database=metastore;UID=c;PWD={g;h}}};APP=compactor",
        ),
        (
            "sqlserver://c@db/metastore?Encrypt=strict&driver=Other",
            "DRIVER={Other};Server=db;Database=metastore;UID=c;PWD={g;h}}};APP=compactor;Encrypt=strict",
        ),
    ],
)
def test_sql_servers_driver_gets_our_addresses(url, said):
    """The ODBC driver is the newest of Microsoft's unless the address says otherwise; nothing weakens its TLS."""
    address, dialect = parse(url, "g;h}")
    ((connection_string,), _) = mssql_dialect().create_connect_args(dialect.connecting(address))
    assert connection_string == said


@contextlib.contextmanager
def closed_port():
    """A port at which nothing listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def test_oracles_real_driver_at_a_closed_port():
    """One line says that the server can't be reached, without the password."""
    with closed_port() as port, pytest.raises(UnreachableError) as caught:
        Database(f"oracle://c@127.0.0.1:{port}/hive", password="geheim", connect_timeout_seconds=2).connect()
    said = str(caught.value)
    assert said.startswith(f"metastore database oracle://c@127.0.0.1:{port}/hive can't be reached: DPY-6005")
    assert "\n" not in said
    assert "geheim" not in said


@pytest.mark.parametrize(("scheme", "module"), [("oracle", "oracledb"), ("mssql", "pyodbc")])
def test_a_missing_driver_is_named(monkeypatch, scheme, module):
    """One of the package's extras installs it."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SettingsError, match=f"the driver for {scheme} isn't installed .{module}.$"):
        Database(f"{scheme}://c@127.0.0.1/hive").connect()
    assert module in {
        wanted.partition(">=")[0] for extra in PROJECT["optional-dependencies"].values() for wanted in extra
    }


def test_every_dialect_of_the_package_is_found_by_all_of_its_names():
    """Schemes of addresses, and names in JDBC's."""
    names = {name: dialect for dialect in (Oracle, SQLServer) for name in (*dialect.schemes, *dialect.jdbc)}
    assert {name: dialect_of(name) for name in PROJECT["entry-points"]["compactor.dialects"]} == names


def test_the_schema_is_set_before_sqlalchemy_asks_for_it(monkeypatch):
    """The session's schema is the address's, quoted; the driver never gets the option."""
    said, given = [], {}

    class Cursor:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def execute(self, statement, *_):
            said.append(statement)
            if len(said) > 1:
                raise oracledb.DatabaseError("enough")

    def connect(**options):
        given.update(options)
        return SimpleNamespace(cursor=Cursor, close=lambda: None, rollback=lambda: None, version="19.0.0.0.0")

    monkeypatch.setattr(oracledb, "connect", connect)
    with contextlib.suppress(Exception):
        Database('oracle://c@db/hive?schema=HI"VE', password="p").connect()
    assert said[0] == 'ALTER SESSION SET CURRENT_SCHEMA = "HIVE"'
    assert given["dsn"] == "tcp://db:1521/hive"
    assert "schema" not in given
    assert make_url("oracle://c@db/hive").database == "hive"
