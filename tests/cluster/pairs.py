"""
Two servers of one product, of which the second takes over: what a metastore's database does when its primary dies, is
demoted or cut off.

Clients know one address, as by a virtual IP: `front`, which leads to the primary until it is turned. Each commit has
arrived at the second server before the first one answers.
"""

import contextlib
import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlalchemy import make_url

from tests.cluster.network import Relay
from tests.crash.scene import PATIENCE
from tests.metastore.mysql_server import MySQLServer
from tests.metastore.servers import PROJECT, USER, PostgresServer, UnavailableError
from tests.ports import free_ports

_PROVIDER = Path("/usr/lib/galera/libgalera_smm.so")
_PRIORITIES = """
#include <pthread.h>
int pthread_getschedparam(pthread_t thread, int *policy, struct sched_param *parameters) {
    (void) thread; *policy = SCHED_OTHER; parameters->sched_priority = 0; return 0;
}
"""


class Pair(ABC):
    """A primary, `first`, and the server that takes over, `second`."""

    first: PostgresServer | MySQLServer
    second: PostgresServer | MySQLServer

    def __init__(self) -> None:
        self._ends = contextlib.ExitStack()

    def __enter__(self) -> Self:
        try:
            self.first, self.second = self._servers()
            self._ends.callback(self.first.stop)
            self._ends.callback(self.second.stop)
            self._start()
            self.front = self._ends.enter_context(Relay(self.first.port))
        except BaseException:
            self._ends.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.close()

    def create(self, version: str) -> str:
        """The address of a new metastore, by the front."""
        self._url = make_url(self.first.create(version))
        return self._url.set(port=self.front.port).render_as_string(hide_password=False)

    def at(self, server: PostgresServer | MySQLServer) -> str:
        """The address of that metastore at one of the two."""
        return self._url.set(port=server.port).render_as_string(hide_password=False)

    def die(self) -> None:
        """The primary is gone, and the second takes over."""
        self.first.die()
        self.take_over()

    def take_over(self) -> None:
        """The second becomes the primary, and new connections are led there."""
        self._promote()
        self.front.turn(self.second.port)

    @abstractmethod
    def _servers(self) -> tuple[PostgresServer | MySQLServer, PostgresServer | MySQLServer]:
        """The two, not started."""

    @abstractmethod
    def _start(self) -> None:
        """Start both; returns when the second follows."""

    @abstractmethod
    def _promote(self) -> None:
        """Let the second take writes."""


class Standby(Pair):
    """PostgreSQL with a synchronous standby. Clients know both by their address."""

    first: PostgresServer
    second: PostgresServer

    def create(self, version: str) -> str:
        super().create(version)
        hosts = [f"127.0.0.1:{port}" for port in (self.front.port, self.second.port)]
        return (
            self._url.set(host=None, port=None).update_query_dict({"host": hosts}).render_as_string(hide_password=False)
        )

    def _servers(self) -> tuple[PostgresServer, PostgresServer]:
        return PostgresServer(), PostgresServer()

    def _start(self) -> None:
        self.first.start()
        self.second.follow(self.first)
        self.first.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.first.sql("postgres", "SELECT pg_reload_conf()")

    def _promote(self) -> None:
        self.second.promote()
        self.second.sql("postgres", "ALTER SYSTEM RESET synchronous_standby_names")
        self.second.sql("postgres", "SELECT pg_reload_conf()")


class Replica(Pair):
    """MariaDB with a semi-synchronous replica, which is read-only."""

    first: MySQLServer
    second: MySQLServer

    def _servers(self) -> tuple[MySQLServer, MySQLServer]:
        common = ("--log-bin", "--binlog-format=ROW", "--log-slave-updates", "--gtid-strict-mode")
        source = (
            "--server-id=1",
            "--rpl-semi-sync-master-enabled",
            "--rpl-semi-sync-master-wait-point=AFTER_SYNC",
            "--rpl-semi-sync-master-timeout=600000",
        )
        return (
            MySQLServer("mariadb", *common, *source, "--rpl-semi-sync-master-wait-no-slave=OFF"),
            MySQLServer("mariadb", *common, "--server-id=2", "--rpl-semi-sync-slave-enabled"),
        )

    def _start(self) -> None:
        self.first.start()
        self.second.begin()
        self.second.sql(
            "mysql",
            f"CHANGE MASTER TO master_host = '127.0.0.1', master_port = {self.first.port}, master_user = '{USER}',"
            " master_use_gtid = slave_pos; START SLAVE; SET GLOBAL read_only = 1",
        )
        # who may write on a read-only server isn't told that it is one
        self.first.sql("mysql", f"REVOKE READ ONLY ADMIN, SUPER ON *.* FROM '{USER}'@'127.0.0.1'")
        self._wait("SHOW GLOBAL STATUS LIKE 'Rpl_semi_sync_slave_status'", "ON")
        self._wait("SELECT 1, count(*) FROM mysql.user WHERE user = 'guarded'", "1")

    def demote(self) -> None:
        """The primary takes no more writes; connections to it stay."""
        self.first.sql("mysql", "SET GLOBAL read_only = 1")

    def _promote(self) -> None:
        self.second.sql("mysql", "STOP SLAVE IO_THREAD")
        self._applied()
        self.second.sql("mysql", "STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = 0")

    def _applied(self) -> None:
        """All that has arrived is applied."""
        deadline = time.monotonic() + PATIENCE
        while True:
            with self.second.connection("mysql") as connection, connection.cursor() as cursor:
                cursor.execute("SHOW SLAVE STATUS")
                names = [column[0] for column in cursor.description]
                status = dict(zip(names, cursor.fetchone(), strict=True))
            if status["Read_Master_Log_Pos"] == status["Exec_Master_Log_Pos"]:
                return
            assert time.monotonic() < deadline, status
            time.sleep(0.05)

    def _wait(self, query: str, wanted: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while _second_column(self.second, query) != wanted:
            assert time.monotonic() < deadline, query
            time.sleep(0.05)


class Galera(Pair):
    """
    Two nodes of a Galera cluster, of which the second has the majority.

    Raises:
        UnavailableError: Galera isn't installed, or can't be made to run here.
    """

    first: MySQLServer
    second: MySQLServer

    def _servers(self) -> tuple[MySQLServer, MySQLServer]:
        if not _PROVIDER.is_file():
            raise UnavailableError("Galera isn't installed (Debian: apt-get install galera-4 rsync)")
        ports = free_ports(6)
        self._group = ports[0]
        return (
            self._node("first", ports[:3], weight=1, others=""),
            self._node("second", ports[3:], weight=2, others=f"127.0.0.1:{ports[0]}"),
        )

    @staticmethod
    def _node(name: str, ports: list[int], *, weight: int, others: str) -> MySQLServer:
        group, incremental, state = ports
        provider = {
            "gmcast.listen_addr": f"tcp://127.0.0.1:{group}",
            "ist.recv_addr": f"127.0.0.1:{incremental}",
            "gcache.size": "16M",
            "pc.weight": weight,
            # whoever is gone is missed within two seconds
            "evs.keepalive_period": "PT0.3S",
            "evs.inactive_check_period": "PT0.3S",
            "evs.suspect_timeout": "PT1S",
            "evs.inactive_timeout": "PT2S",
        }
        return MySQLServer(
            "mariadb",
            "--log-bin",
            "--binlog-format=ROW",
            "--innodb-autoinc-lock-mode=2",
            "--wsrep-on=ON",
            f"--wsrep-provider={_PROVIDER}",
            "--wsrep-cluster-name=compactor",
            f"--wsrep-cluster-address=gcomm://{others}",
            "--wsrep-node-address=127.0.0.1",
            f"--wsrep-node-name={name}",
            "--wsrep-sst-method=rsync",
            f"--wsrep-sst-receive-address=127.0.0.1:{state}",
            f"--wsrep-provider-options={';'.join(f'{key}={value}' for key, value in provider.items())}",
            preload=_patient_about_priorities(),
        )

    def _start(self) -> None:
        self.first.begin()
        self._ready(self.first)  # a node answers before it takes statements
        self.first.make_users()
        self.second.begin()
        self.together()

    def together(self) -> None:
        """Wait until both are nodes of one cluster."""
        deadline = time.monotonic() + PATIENCE
        while any(
            (self.status(node, "wsrep_local_state_comment"), self.status(node, "wsrep_cluster_size")) != ("Synced", "2")
            for node in (self.first, self.second)
        ):
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def status(self, node: MySQLServer, name: str) -> str:
        """One of a node's status variables."""
        return _second_column(node, f"SHOW GLOBAL STATUS LIKE '{name}'")

    @contextlib.contextmanager
    def cut_off(self) -> Iterator[None]:
        """The first doesn't hear of the second any more, and has no majority."""
        self.second.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.second.signal(signal.SIGCONT)

    def _promote(self) -> None:
        self._ready(self.second)

    def _ready(self, node: MySQLServer) -> None:
        """Wait until a node, alone, is a cluster with a majority."""
        deadline = time.monotonic() + PATIENCE
        while self.status(node, "wsrep_ready") != "ON" or self.status(node, "wsrep_cluster_size") != "1":
            assert time.monotonic() < deadline
            time.sleep(0.05)


def _second_column(server: MySQLServer, query: str) -> str:
    with server.connection("mysql") as connection, connection.cursor() as cursor:
        cursor.execute(query)
        row = cursor.fetchone()
    return str(row[1]) if row else ""


def _patient_about_priorities() -> Path:
    """
    A library to preload. Galera asks for the priority of a thread that it has just started, and ends where the system
    doesn't know it, as in some virtual machines.

    Raises:
        UnavailableError: there is no C compiler.
    """
    library = PROJECT / ".tools" / "galera-priorities.so"
    if library.is_file():
        return library
    library.parent.mkdir(exist_ok=True)
    partial = library.with_suffix(f".{os.getpid()}")
    try:
        subprocess.run(
            ["gcc", "-x", "c", "-shared", "-fPIC", "-o", str(partial), "-"], input=_PRIORITIES, text=True, check=True
        )
    except FileNotFoundError:
        raise UnavailableError("gcc isn't installed: Galera can't be made to run everywhere") from None
    partial.rename(library)
    return library


PAIRS: dict[str, type[Pair]] = {"postgres": Standby, "mariadb": Replica, "galera": Galera}
"""By the product's name in tests."""
