"""
docs/edge-node.md, followed: its commands as they stand, for two hosts, on PostgreSQL, HDFS, ZooKeeper and YARN.

`tests.deploy.machine` says what stands for a real machine; names of hosts are replaced, and what keeps applications
small is set in the environment.
"""

import itertools
import json
import re
import sys
import time
from contextlib import ExitStack

import pytest
import yaml
from sqlalchemy import func, update

from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.db.database import Database
from compactor.storage.location import join
from compactor.storage.registry import storage_for
from tests.cluster import yarn as yarn_module
from tests.cluster.conftest import postgres, zookeeper_1  # noqa: F401 - fixtures
from tests.cluster.hadoop.servers import UnavailableError
from tests.cluster.mirror import fetch, put
from tests.demo.rows import CatalogRows, MetastoreLedger
from tests.demo.warehouse import Warehouse
from tests.deploy.machine import Machine
from tests.deploy.service import PROJECT
from tests.metastore.servers import UnavailableError as NoMetastoreError
from tests.metastore.servers import schema_script
from tests.needs import missing
from tests.ports import free_port
from tests.reference.compare import expected_rows, read_table

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.postgres, pytest.mark.timeout(900)]
GUIDE = (PROJECT / "docs" / "edge-node.md").read_text(encoding="utf-8")
MANAGED = "/warehouse/tablespace/managed/hive"
DAYS = ("2024-01-01", "2024-01-02", "2024-01-03")
TYPED = "open sesame\n"
"""The password."""
CLOSED = """
runuser -u hdfs -- hdfs dfs -chown -R hive:hadoop /warehouse/tablespace
runuser -u hdfs -- hdfs dfs -chmod -R 770 /warehouse/tablespace/managed/hive
"""
"""How Hive leaves its tables: nobody else may read them."""
SESSION_SECONDS = 4
PATIENCE = 240.0
_roots = itertools.count(1)


def steps():
    """Number of a step → its blocks, as (language, text)."""
    parts = re.split(r"^## (\d+)\. .*$", GUIDE, flags=re.MULTILINE)
    return {
        int(number): re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        for number, text in zip(parts[1::2], parts[2::2], strict=True)
    }


STEPS = steps()


def shell(number):
    """The commands of a step, block by block."""
    return [text for language, text in STEPS[number] if not language]


def until(done, what, said=lambda: ""):
    deadline = time.monotonic() + PATIENCE
    while not (found := done()):
        assert time.monotonic() < deadline, f"not {what}\n{said()}"
        time.sleep(0.1)
    return found


class Site:
    """
    The cluster as the guide finds it: a metastore, and a partitioned table of Hive's on HDFS that is nobody else's to
    write.
    """

    def __init__(self, postgres, hdfs, zookeeper, folder):  # noqa: F811
        self.postgres, self.hdfs, self.folder = postgres, hdfs, folder
        postgres.sql("postgres", f"ALTER DATABASE {postgres.create('4.0.0').rpartition('/')[2]} RENAME TO metastore")
        self.database = Database(postgres.url("metastore"))
        self.warehouse = Warehouse(folder / "warehouse", MetastoreLedger(self.database), CatalogRows(self.database))
        self.table = self.warehouse.create_table(
            "sales", "orders", [("id", "int"), ("state", "string")], partition_keys=[("dt", "string")]
        )
        for number, day in itertools.product(range(3), DAYS):
            with self.warehouse.begin() as txn:
                txn.insert(self.table, [(number * 10 + i, "new") for i in range(5)], (day,))
        for day in DAYS:
            with self.warehouse.begin() as txn:
                txn.delete(self.table, lambda row: row[0] % 10 == 3, (day,))
        self.rows = expected_rows(self.warehouse, self.table)
        self.location = f"{hdfs.root}{MANAGED}"
        self._move()
        self.zookeeper_root = f"/edge-{next(_roots)}"
        self.names = {
            "DB:5432": f"127.0.0.1:{postgres.port}",
            "ZK1:2181,ZK2:2181,ZK3:2181": zookeeper.hosts,
            "/etc/hadoop/conf": str(hdfs.conf),
        }

    def _move(self):
        """The warehouse to HDFS, and the catalog with it; owned by Hive, closed to others."""
        storage = storage_for(self.location)
        for place in ("/warehouse/tablespace", "/warehouse/tablespace/managed", MANAGED):
            storage.mkdir(f"{self.hdfs.root}{place}")
        put(self.folder / "warehouse", self.location)
        here, schema = str(self.folder / "warehouse"), self.database.schema

        def change(connection):
            for column in (schema.sds.c.location, schema.dbs.c.db_location_uri):
                for prefix in (f"file:{here}", here):
                    connection.execute(
                        update(column.table)
                        .where(column.like(f"{prefix}%"))
                        .values({column: func.replace(column, prefix, self.location)})
                    )

        self.database.write(change)

    def directories(self, day):
        return sorted(storage_for(self.location).directories(join(self.location, "sales.db", "orders", f"dt={day}")))

    def assert_rows(self):
        """By a reader that shares no code with us."""
        fetch(self.location, self.folder / "warehouse")
        assert read_table(self.warehouse, self.table) == self.rows

    def close(self):
        self.database.close()
        storage_for(self.location).delete_tree(f"{self.hdfs.root}/warehouse/tablespace")
        self.postgres.sql("postgres", "DROP DATABASE metastore WITH (FORCE)")
        self.postgres.sql("postgres", "DROP ROLE IF EXISTS compactor")


@pytest.fixture
def site(postgres, hdfs, zookeeper_1, tmp_path):  # noqa: F811 - pytest's way
    try:
        schema_script("4.0.0")
    except NoMetastoreError as error:
        missing(str(error))
    made = Site(postgres, hdfs, zookeeper_1, tmp_path)
    yield made
    made.close()


@pytest.fixture
def machine(site):
    """Makes hosts, by name."""
    with ExitStack() as stack:

        def make(name, **settings):
            small = {
                "COMPACTOR_HOST": name,
                "COMPACTOR_HTTP__HOST": "127.0.0.1",
                "COMPACTOR_HTTP__PORT": str(free_port()),
                "COMPACTOR_ZOOKEEPER__ROOT": site.zookeeper_root,
                "COMPACTOR_ZOOKEEPER__SESSION_TIMEOUT_SECONDS": str(SESSION_SECONDS),
                "COMPACTOR_CLEANER__INTERVAL_SECONDS": "0.5",
            }
            there = Machine(site.folder / name, site.names, small | settings, (site.postgres._bin, site.postgres.port))
            return stack.enter_context(there)

        yield make


def own(host, text):
    """What a machine needs besides, where the guide says that a site's own variables go."""
    lines = "".join(f"{name}={json.dumps(value) if ' ' in value else value}\n" for name, value in host.settings.items())
    return text.replace("HADOOP_CONF_DIR=/etc/hadoop/conf\n", f"HADOOP_CONF_DIR=/etc/hadoop/conf\n{lines}")


def install_program(host):
    """Step 4."""
    for block in shell(4):
        host.follow(block)
    said = (host.root / "pip").read_text().splitlines()
    assert said == ["pip install --require-hashes --requirement requirements.lock", "pip install --no-deps ."]


def settle(host):
    """Step 5; returns what the looks at the end said."""
    password, files, looks = shell(5)
    host.follow(password, typed=TYPED)
    host.follow(own(host, files))
    return host.follow(looks)


def members(host):
    return {one["host"]: one for one in json.loads(host.follow("compactor members -o json"))}


def leader(host, others=()):
    """Who leads every role, of those that are there."""
    there = members(host)
    return next((name for name, one in there.items() if name not in others and len(one["leads"]) == 3), None)


def look_around(host):
    """
    Every page of docs/runbooks: the commands to look with, as they stand but for names; returns how many there were.
    """
    pages = sorted((PROJECT / "docs" / "runbooks").glob("Compactor*.md"))
    lines = sorted(
        {line for page in pages for line in page.read_text(encoding="utf-8").split("```")[1].strip().splitlines()}
    )
    ours = [line for line in lines if not line.startswith(("beeline", "echo srvr"))]  # Hive's client, and nc
    port = host.settings["COMPACTOR_HTTP__PORT"]
    for line in ours:
        here = (
            line.replace("DB.TABLE/PARTITION", f"sales.orders/dt={DAYS[1]}")
            .replace("DB.TABLE", "sales.orders")
            .replace("localhost:9700", f"localhost:{port}")
        )
        # nothing found is an answer, too
        host.follow(re.sub(r"\| (grep (?:-\w )*[^|]+)$", r"| { \1 || [ $? = 1 ]; }", here))
    return len(ours)


def test_from_nothing_to_a_pair(site, machine):
    """
    Steps 2 to 8: rights, settings, the first daemon and a compaction, the second, stopped and killed leaders, and a
    compaction by whoever is left.
    """
    first = machine("edge1")
    (rights,) = shell(2)
    first.follow(rights, typed=TYPED * 2)
    first.follow(CLOSED)
    install_program(first)
    stranger = machine("too-early")
    install_program(stranger)
    with pytest.raises(AssertionError, match=r"failed .*(?i:permission denied)"):
        settle(stranger)
    (files,) = shell(3)
    first.follow(files)
    looked = settle(first)
    assert "sales.orders/dt=2024-01-01" in looked
    assert "3 deltas" in looked or "delta_0000001" in looked
    service, attempt = shell(7)
    first.follow(service)
    until(lambda: leader(first) == "edge1", "led by the first", lambda: first.log)
    assert compacted(first.follow(attempt))
    until(
        lambda: [name.partition("_")[0] for name in site.directories(DAYS[0])] == ["base"], "cleaned", lambda: first.log
    )
    assert look_around(first) > 20

    second = machine("edge2")
    install_program(second)
    settle(second)
    second.follow(service)
    (look,) = shell(8)
    assert {"edge1", "edge2"} <= set(second.follow(look).split())
    assert {name: one["state"] for name, one in members(second).items()} == {"edge1": "alive", "edge2": "alive"}
    first.follow("systemctl stop compactor")
    until(lambda: leader(second) == "edge2", "succeeded", lambda: second.log)
    first.follow("systemctl start compactor")
    until(lambda: set(members(first)) == {"edge1", "edge2"}, "back")
    second.follow("systemctl kill --signal=KILL compactor")
    until(lambda: leader(first) == "edge1", "succeeded again", lambda: first.log)
    first.follow(attempt.replace(DAYS[0], DAYS[1]))
    until(lambda: not Queue(site.database).entries(), "cleaned", lambda: first.log)
    first.follow("systemctl stop compactor")
    site.assert_rows()
    # what was written is Hive's to remove: DROP PARTITION
    first.follow(
        "HADOOP_USER_NAME=hive hdfs dfs -rm -r -skipTrash /warehouse/tablespace/managed/hive/sales.db/orders/dt=2024-01-01"
    )


def compacted(answer):
    """Whether the entry's work is done; the Cleaner may be done as well."""
    return "ready for cleaning" in answer or "succeeded" in answer


@pytest.fixture
def yarn(hdfs_server, hdfs, tmp_path_factory):
    """YARN over the HDFS server."""
    try:
        with yarn_module.running(tmp_path_factory.mktemp("yarn"), hdfs_server) as server:
            yield server
    except UnavailableError as error:
        missing(str(error))


def test_on_yarn(site, machine, yarn):
    """
    Step 6: with the archive on HDFS and the settings as shown, the compaction runs in the cluster, as the user
    compactor, by what the archive holds.
    """
    python = (
        f"{sys.base_prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}"  # one that knows nothing of us
    )
    host = machine("edge1")
    host.follow(shell(2)[0], typed=TYPED * 2)
    host.follow(CLOSED)
    host.follow(shell(3)[0])
    install_program(host)
    settle(host)
    host.follow(shell(6)[0])
    (section, _) = [yaml.safe_load(text) for language, text in STEPS[6] if language]
    written = host.root / "etc" / "compactor" / "compactor.yaml"
    settings = yaml.safe_load(written.read_text())
    settings["spark"] = section["spark"] | {"conf": yarn_module.SMALL | {"spark.executorEnv.COMPACTOR_PYTHON": python}}
    written.write_text(yaml.safe_dump(settings))
    host.follow("compactor config check")
    service, attempt = shell(7)
    host.follow(service)
    assert compacted(host.follow(attempt))
    # one that a busy machine didn't let start in time is followed by another
    seen = {
        (application.name, application.user, application.queue.removeprefix("root."))
        for application in yarn.applications()
    }
    assert seen == {("edge1-compactor", "compactor", "default")}
    host.follow("systemctl stop compactor")
    site.assert_rows()
