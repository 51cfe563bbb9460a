"""`compactor doctor`: each thing that the daemon needs is tried, and what fails comes with its remedy."""

import contextlib
import json
import os
import re
import socket
import sqlite3
import sys
from types import SimpleNamespace

import pytest
from sqlalchemy import insert, literal, select

from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.cli.commands.setup import doctor
from compactor.cli.commands.setup.doctor import Standing
from compactor.coordination import Member, SeenMember
from compactor.errors import UnreachableError
from compactor.metastore.catalog import Catalog
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.model import Entity
from compactor.metrics import version
from compactor.roles.identity import Identity
from compactor.roles.pauses import POOL_KEY
from compactor.spark.code_identity import code
from tests.unit.cli.commands.setup.test_init import site

OURS = version()


def found(shop, *words):
    """The findings by check; and the exit code."""
    result = shop.run("-o", "tsv", "doctor", *words)
    lines = [line.split("\t") for line in result.stdout.splitlines()[1:]]
    return {line[0]: line[1:] for line in lines}, result.exit_code


@pytest.fixture
def free(shop):
    """No port is fixed."""
    with shop.config.open("a", encoding="utf-8") as file:
        file.write("http:\n  port: 0\n")
    return shop


def test_all_is_well(free):
    """Of an embedded metastore without a daemon; nothing is left in the store, and nothing in the metastore."""
    before = sorted(str(path) for path in (free.root / "warehouse").rglob("*"))
    checks, code = found(free, "--no-spark")
    standings = {check.split()[0]: line[0] for check, line in checks.items()}
    assert standings == {
        "settings": "ok",
        "database": "ok",
        "rights": "ok",
        "server": "ok",
        "clock": "ok",
        "daemons": "warning",
        "Hive": "ok",
        "tables": "ok",
        "names": "ok",
        "columns": "ok",
        "store": "ok",
        "port": "ok",
        "Java": "ok",
        "Spark": "skipped",
    }
    assert code == 0
    assert "listed within" in next(line[1] for check, line in checks.items() if check.startswith("store"))
    assert sorted(str(path) for path in (free.root / "warehouse").rglob("*")) == before
    assert "metastore.db: schema of Hive 4.1.0, answers within" in checks["database"][1]
    assert checks["daemons"][1:] == ["the database coordinates; no daemon runs", "compactor run, or its systemd unit"]


def test_without_the_database_nothing_else_is_tried(shop):
    """One line for it, one that says so; the exit code tells."""
    (shop.root / "metastore.db").unlink()
    checks, code = found(shop)
    assert [line[0] for line in checks.values()] == ["ok", "failed", "skipped"]
    assert "no such file" in checks["database"][1]
    assert code == 1


def test_a_database_without_hives_tables_comes_with_its_own_remedy(shop):
    """Not with doubts about the user."""
    (shop.root / "metastore.db").unlink()
    with contextlib.closing(sqlite3.connect(shop.root / "metastore.db")) as empty:
        empty.execute("VACUUM")
    standing, said, remedy = found(shop)[0]["database"]
    assert (standing, "create them with Hive's schematool" in said, "user" in remedy) == ("failed", True, False)


def test_a_driver_that_isnt_installed(shop, monkeypatch):
    """The remedy is the finding's own, not the user's rights."""
    monkeypatch.setenv("COMPACTOR_DATABASE__URL", "postgresql://db/x")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    standing, said, remedy = found(shop)[0]["database"]
    assert (standing, "the driver for postgresql isn't installed (psycopg)" in said) == ("failed", True)
    assert remedy.startswith("as it says")


def test_a_store_that_cant_be_written(free, monkeypatch):
    """The store's own words, and where to read on; what was made is taken away."""

    def refuse(*_):
        raise UnreachableError("the NameNode is in safe mode")

    monkeypatch.setattr(doctor, "_tried", refuse)
    checks, code = found(free, "--no-spark")
    (store,) = [line for check, line in checks.items() if check.startswith("store")]
    assert store[:2] == ["failed", "the NameNode is in safe mode"]
    assert code == 1
    monkeypatch.undo()
    with free.open() as database:
        dbs = database.schema.dbs
        database.write(lambda connection: connection.execute(dbs.update().values(db_location_uri="/nowhere/at/all")))
    checks, code = found(free, "--no-spark")
    assert checks["store /nowhere/at/all"][:2] == ["warning", "the directory isn't there"]
    assert code == 0


def test_each_place_of_tables_is_tried(free):
    """A warehouse that no database names, and a mount of some tables that takes no writes; one of each directory."""
    root = free.root / "warehouse"
    managed, mounted = free.root / "managed" / "shop.db", free.root / "mounted" / "shop.db"
    with free.open() as database:
        sds = database.schema.sds
        for place, table in ((managed, "orders"), (mounted, "events")):
            place.mkdir(parents=True)
            moved = sds.update().where(sds.c.location.like(f"%/{table}")).values(location=f"file:{place}/{table}")
            database.write(lambda connection, moved=moved: connection.execute(moved))
    mounted.chmod(0o555)
    checks, _ = found(free, "--no-spark")
    stores = {check.split(":")[-1]: line[0] for check, line in checks.items() if check.startswith("store")}
    expected = {str(managed): "ok", str(mounted): "ok" if os.geteuid() == 0 else "failed"}
    assert stores.items() >= expected.items()
    assert len(stores) == len(expected) + 1, root


def test_a_port_that_another_has(shop):
    """It may be a daemon of ours."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.listen()
        port = other.getsockname()[1]
        with shop.config.open("a", encoding="utf-8") as file:
            file.write(f"http:\n  host: 127.0.0.1\n  port: {port}\n")
        checks, _ = found(shop, "--no-spark")
    assert checks["port"][0] == "warning"
    assert f"127.0.0.1:{port} can't be taken" in checks["port"][1]


@pytest.mark.parametrize(
    ("apart", "standing", "said"),
    [(0, "ok", ""), (-3600, "warning", "1 h behind"), (90, "warning", "1 min 30 s ahead of")],
)
def test_clocks(apart, standing, said):
    """A few seconds are no matter."""
    database = SimpleNamespace(read=lambda _: (doctor.time.time() + apart) * 1000, now_ms=None)
    (one,) = doctor.clock(SimpleNamespace(database=lambda: database))
    assert one.standing.value == standing
    assert said in one.sentence


def member(*roles, version="1.0"):
    return SeenMember(Member("i", "h", 1, version, roles), (), 0)


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ([member("initiator", "cleaner", "housekeeper", "worker")], ["1 daemon of version 1.0"]),
        (
            [member("initiator", "cleaner", "housekeeper"), member("worker", version="1.1")],
            ["2 daemons of version 1.0 and 1.1"],
        ),
        ([member("worker")], ["1 daemon", "none of them is the Initiator", "the Cleaner", "the Housekeeper"]),
        ([member("initiator", "cleaner", "housekeeper")], ["1 daemon", "none of them is a worker"]),
    ],
)
def test_what_daemons_lack_together(members, expected):
    """A role that none has, versions that differ."""
    findings = doctor.judged_members("here", members)
    assert len(findings) == len(expected)
    assert all(part in one.sentence for part, one in zip(expected, findings, strict=True))
    assert (findings[0].standing is Standing.WARNING) == ("and" in expected[0])


def told(shop, check, *words):
    """The findings of one check: standing, sentence and remedy."""
    return [
        (one["standing"], one["sentence"], one["remedy"])
        for one in shop.json("doctor", "--no-spark", *words)
        if one["check"] == check
    ]


def test_hives_own_workers_are_noticed(free):
    """Two compactors beside each other are seldom wanted."""
    free.run("enqueue", "shop.orders")
    with free.open() as database:
        assert Queue(database).claim("hive-host-42", "4.0.1") is not None
    (standing, said, remedy), _ = told(free, "Hive")
    assert standing == "warning"
    assert "1 of the latest 1 compaction" in said
    assert remedy.startswith("hive.compactor.worker.threads=0")


@pytest.mark.parametrize(
    ("job", "worker_version", "standing"),
    [
        ("job_local1167349261_0182", None, "warning"),
        (None, "4.0.1", "warning"),
        (None, "3.1.3000.7.2.17.0-334", "warning"),
        ("here-compactor-shop.orders", OURS, "ok"),
        (None, OURS, "ok"),
        (None, None, "ok"),
    ],
)
def test_what_hives_own_workers_did_is_noticed(free, job, worker_version, standing):
    """
    Of a compaction that succeeded the history has no worker, whoever did it: Hive's by MapReduce have its job, those by
    queries the worker's version.
    """
    with free.open() as database:
        history = database.schema.completed_compactions
        row = {"cc_id": 1, "cc_database": "shop", "cc_table": "orders", "cc_state": "s", "cc_type": "a"}
        entry = insert(history).values(
            row | {"cc_hadoop_job_id": job, "cc_worker_version": worker_version, "cc_start": 1, "cc_end": 2}
        )
        database.write(lambda connection: connection.execute(entry))
    assert told(free, "Hive")[0][0] == standing


def test_hives_own_initiator_is_noticed(free):
    """By what it queued: where it runs and when it did so last. Neither ours nor a person is it."""
    with free.open() as database:
        queue = Queue(database)
        ours = Identity("edge-1", "me").worker_id("initiator")
        for name in (ours, "hms-1-manual", None, "hms-1-31"):
            queue.enqueue(Entity("shop", "orders", f"p={name}"), CompactionKind.MINOR, initiator_id=name)
        queue.record_did_not_initiate(Entity("shop", "events"), "no", initiator_id=ours)
        assert [standing for standing, *_ in told(free, "Hive")] == ["ok", "warning"]
        for thread in (31, 32, 33):
            queue.enqueue(Entity("shop", "events", f"p={thread}"), CompactionKind.MINOR, initiator_id=f"hms-2-{thread}")
        _, (standing, said, remedy) = told(free, "Hive")
        assert standing == "warning"
        assert "queued 4 compactions within 3 days: on hms-2 (3, last 20" in said
        assert ", hms-1 (1, last 20" in said
        assert "metastore.compactor.initiator.on (hive.compactor.initiator.on) = false" in remedy
        entries = database.schema.compaction_queue
        week = entries.update().values(cq_enqueue_time=entries.c.cq_enqueue_time - 7 * 86_400_000)
        database.write(lambda connection: connection.execute(week))
    assert told(free, "Hive")[1] == ("ok", "Hive's own Initiator queued nothing within 3 days", None)


def put(database, of, key, value):
    """Set a property of those tables, or databases."""
    parameters, owner, where = of
    row = select(owner, literal(key), literal(value)).where(where)
    database.write(lambda connection: connection.execute(insert(parameters).from_select(list(parameters.c), row)))


SLIPS = """
worker: {pool: etl, pools: {night: 1}}
windows:
  blackouts:
    - {name: close, tables: [shop.orders, shoq.*], start: "01:00", end: "02:00"}
  maintenance:
    - {name: late, tables: [shop.ordres, "*.even*"], pools: [nigth, night, default, web], start: "01:00", end: "02:00"}
control:
  only: [shop.*, shoq.*, shop.ordres]
  budgets:
    - {name: few, pools: [elt], jobs: 1}
"""
NAMED = {
    "windows.blackouts: close: there is no database shoq (did you mean shop?)",
    "control.only: there is no database shoq (did you mean shop?)",
    "control.only: no transactional table fits shop.ordres (did you mean orders?)",
    "windows.maintenance: late: no transactional table fits shop.ordres (did you mean orders?)",
    "windows.maintenance: late names pool nigth, which no worker and no table has (did you mean night?)",
    "control.budgets: few names pool elt, which no worker and no table has (did you mean etl or default?)",
    "property compactorthreshold.hive.compactor.delta.num.threshhold of 1 table, such as shop.orders, is none that Hive or compactor reads",
    "property No_Auto_Compation of 1 database, such as shop, is none that Hive or compactor reads",
}


def test_names_that_name_nothing_are_told(free):
    """Slips in patterns, pools and properties, with the name that is near; what is there, or Hive's own, isn't told."""
    with free.config.open("a", encoding="utf-8") as file:
        file.write(SLIPS)
    with free.open() as database:
        schema, tbls, dbs = database.schema, database.schema.tbls.c, database.schema.dbs.c
        of_table = schema.table_params, tbls.tbl_id, tbls.tbl_name == "orders"
        put(database, of_table, "compactorthreshold.hive.compactor.delta.num.threshhold", "3")
        put(database, of_table, "compactorthreshold.hive.compactor.delta.pct.threshold", "3")
        put(database, of_table, "compactor.mapreduce.map.memory.mb", "3")
        put(database, of_table, "hive.compactor.worker.pool", "web")
        put(database, (schema.database_params, dbs.db_id, dbs.name == "shop"), "No_Auto_Compation", "true")
    assert {sentence for standing, sentence, _ in told(free, "names") if standing == "warning"} == NAMED


def test_pools_are_read_once(free, monkeypatch):
    """However many pools the settings name, the pools of tables are asked for once."""
    asked = []
    read = Catalog.parameters_of_tables
    monkeypatch.setattr(Catalog, "parameters_of_tables", lambda self, keys: asked.append(keys) or read(self, keys))
    with free.config.open("a", encoding="utf-8") as file:
        file.write(SLIPS)
    told(free, "names")
    assert asked.count((POOL_KEY,)) == 1


def test_tables_that_are_left_alone_are_told(free):
    """As the Initiator reads the property: in either case of its key, and the database's decides; some are named."""
    assert told(free, "tables") == [("ok", "none has no_auto_compaction", None)]
    with free.open() as database:
        schema = database.schema
        tbls, dbs = schema.tbls.c, schema.dbs.c
        put(database, (schema.table_params, tbls.tbl_id, tbls.tbl_name == "orders"), "NO_AUTO_COMPACTION", "TRUE")
        put(database, (schema.table_params, tbls.tbl_id, tbls.tbl_name == "events"), "No_Auto_Compaction", "true")
        put(database, (schema.table_params, tbls.tbl_id, tbls.tbl_name == "plain"), "no_auto_compaction", "true")
        said = "no Initiator queues 1 table with no_auto_compaction: shop.orders; compactor enqueue does"
        assert told(free, "tables") == [("ok", said, None)]
        put(database, (schema.database_params, dbs.db_id, dbs.name == "shop"), "no_auto_compaction", "true")
    assert "queues 2 tables with no_auto_compaction: shop.events, shop.orders;" in told(free, "tables")[0][1]


def test_the_tables_of_a_pilot_are_told(free):
    """How many they are; of the stores only those are tried in which they lie."""
    away = free.root / "away" / "hr.db"
    with free.open() as database:
        sds = database.schema.sds
        away.mkdir(parents=True)
        moved = sds.update().where(sds.c.location.like("%/orders")).values(location=f"file:{away}/orders")
        database.write(lambda connection: connection.execute(moved))
    with free.config.open("a", encoding="utf-8") as file:
        file.write("control: {only: [Shop.Ev*]}\n")
    said = "control.only names shop.ev*: 1 of 2 transactional tables; the others are left alone"
    assert told(free, "tables") == [("ok", said, None), ("ok", "none has no_auto_compaction", None)]
    stores = [one["check"] for one in free.json("doctor", "--no-spark") if one["check"].startswith("store")]
    assert len(stores) == 1
    assert str(away) not in stores[0]


HIVES = {"metastore.txn.timeout": "300s", "metastore.compactor.initiator.on": "false"}


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (HIVES, [("ok", "turns Hive's Initiator, Cleaner or workers on, and its transaction time-out is ours", None)]),
        ({}, [("ok", "no file turns", None)]),
        (HIVES | {"hive.compactor.initiator.on": "true", "hive.txn.timeout": "9s"}, [("ok", "no file turns", None)]),
        ({"hive.txn.timeout": "300000ms"}, [("ok", "no file turns", None)]),
        (
            {"hive.txn.timeout": "2min"},
            [
                (
                    "warning",
                    "hive-site.xml: hive.txn.timeout is 120 s, and txn.timeout_seconds is 300",
                    "timeout_seconds: 120",
                )
            ],
        ),
        (
            {"hive.compactor.initiator.on": "TRUE", "hive.compactor.cleaner.on": "true"},
            [
                (
                    "warning",
                    "hive-site.xml: hive.compactor.initiator.on is TRUE",
                    "set it to false, or Hive's Initiator",
                ),
                ("warning", "hive-site.xml: hive.compactor.cleaner.on is true", "set it to false, or Hive's Cleaner"),
            ],
        ),
        (
            {"metastore.compactor.worker.threads": "4", "hive.compactor.worker.threads": "0"},
            [("warning", "metastore.compactor.worker.threads is 4", "set it to 0")],
        ),
        ({"orc.force.positional.evolution": "true"}, [("ok", "no file turns Hive's Initiator", None)]),
        (
            {"orc.force.positional.evolution": "false"},
            [
                ("ok", "no file turns Hive's Initiator", None),
                (
                    "warning",
                    "hive-site.xml: orc.force.positional.evolution: readers find the columns of ORC files by name, and readers.orc_columns is auto",
                    "readers.orc_columns: name",
                ),
            ],
        ),
        (
            {"orc.force.positional.evolution.level": "2"},
            [
                ("ok", "no file turns Hive's Initiator", None),
                ("warning", "orc.force.positional.evolution.level is 2", "Fields inside structs"),
            ],
        ),
        (
            {"hive.txn.timeout": "soon"},
            [("failed", "hive.txn.timeout: 'soon' is no length of time", "docs/operations.md")],
        ),
    ],
)
def test_hives_files_are_compared(free, properties, expected):
    """What clashes with the settings, each with its remedy; what a file leaves out is as Hive delivers it."""
    off = [f"compactor.{role}.on" for role in ("initiator", "cleaner")]
    silent = {f"hive.{name}": "false" for name in off if not {f"hive.{name}", f"metastore.{name}"} & set(properties)}
    path = site(free.root, silent | properties)
    found = free.run("-o", "json", "doctor", "--no-spark", "--hive-site", str(path))
    findings = [one for one in json.loads(found.stdout) if one["check"] == str(path)]
    assert len(findings) == len(expected)
    for one, (standing, said, remedy) in zip(findings, expected, strict=True):
        assert one["standing"] == standing
        assert said in one["sentence"]
        assert one["remedy"] is None if remedy is None else remedy in one["remedy"]


READING = {"hive.compactor.initiator.on": "false", "hive.compactor.cleaner.on": "false"}


@pytest.mark.parametrize(
    ("properties", "said", "remedy"),
    [
        (
            {"hive.mm.allow.originals": " True "},  # as Hadoop reads it
            "hive-site.xml: hive.mm.allow.originals is true, and readers.insert_only_originals is false",
            "readers.insert_only_originals: true",
        ),
        (
            {"hive.txn.opentxn.timeout": "5s"},
            "hive-site.xml: hive.txn.opentxn.timeout is 5s, and this daemon counts on 1000ms",
            "1000ms. A transaction may come to light this long",
        ),
        (
            {"orc.schema.evolution.case.sensitive": "FALSE"},
            "orc.schema.evolution.case.sensitive is FALSE, and this daemon counts on true",
            "true. Inside structs",
        ),
        (
            {"hive.compactor.cleaner.on": ""},
            "no file has metastore.compactor.cleaner.on, which Hive 4.1.0 delivers as true",
            "set it to false, or Hive's Cleaner works beside this daemon's",
        ),
    ],
)
def test_settings_of_readers_are_compared(free, properties, said, remedy):
    """What lets readers see other rows than this daemon counts on, and what a release delivers otherwise than others."""
    path = site(free.root, READING | properties)
    ((_, fine, _), (standing, sentence, what)) = told(free, str(path), "--hive-site", str(path))
    assert "no file turns" in fine
    assert standing == "warning"
    assert said in sentence
    assert remedy in what


def test_settings_of_readers_that_are_as_delivered(free):
    """The value that Hive delivers is fine in any spelling, and where no file has it."""
    path = site(free.root, READING | {"hive.txn.opentxn.timeout": "1s", "hive.txn.read.locks": "TRUE"})
    assert len(told(free, str(path), "--hive-site", str(path))) == 1


@pytest.mark.parametrize(
    ("ours", "layout", "said"),
    [
        ("auto", LayoutVersion.HIVE_4, "found by position (readers.orc_columns: auto); Trino finds those of original"),
        (
            "name",
            LayoutVersion.HIVE_4,
            "found by name (readers.orc_columns: name); Trino finds those of files with ROW__",
        ),
        (
            "auto",
            LayoutVersion.HIVE_3,
            "found by name (readers.orc_columns: auto); Trino finds those of files with ROW__",
        ),
        ("both", LayoutVersion.HIVE_3, "columns by position aren't those by name (readers.orc_columns: both)"),
    ],
)
def test_how_columns_are_found_is_told(ours, layout, said):
    """Also how Trino finds them, of which Hive's files don't tell; nothing is wrong with any of it."""
    finding = doctor.columns(ours, layout)
    assert (finding.standing, finding.remedy) == (Standing.OK, "")
    assert said in finding.sentence


@pytest.mark.parametrize("positional", ["true", "false"])
def test_both_rules_suit_any_reader(free, positional):
    """Where `readers.orc_columns` is `both`, as for Trino beside Hive, nothing asks to take it back."""
    with free.config.open("a", encoding="utf-8") as file:
        file.write("readers:\n  orc_columns: both\n")
    path = site(free.root, READING | {"orc.force.positional.evolution": positional})
    assert [standing for standing, *_ in told(free, str(path), "--hive-site", str(path))] == ["ok"]


def test_each_of_hives_files_is_judged_with_those_beside_it(free):
    """A time-out of ours that isn't Hive's default; one metastore's metastore-site.xml counts before its hive-site.xml."""
    with free.config.open("a", encoding="utf-8") as file:
        file.write("txn:\n  timeout_seconds: 600\n")
    first, second = free.root / "one", free.root / "two"
    for folder in (first, second):
        folder.mkdir()
    one = site(first, READING | {"hive.txn.timeout": "300s"})
    site(first, {"hive.txn.timeout": "10min"}, "metastore-site.xml")
    two = site(second, READING)
    words = ("--hive-site", str(one), "--hive-site", str(two))
    assert told(free, str(one), *words)[0][0] == "ok"
    ((standing, said, _),) = told(free, str(two), *words)
    assert standing == "warning"
    assert said == "metastore.txn.timeout, which no file has, is 300 s, and txn.timeout_seconds is 600"
    checks, code = found(free, "--no-spark", "--hive-site", str(free.root / "none.xml"))
    assert checks[str(free.root / "none.xml")][0] == "failed"
    assert code == 1


@pytest.mark.parametrize(
    ("says", "standing"),
    [('openjdk version "17.0.1"', "ok"), ('java version "1.8.0_292"', "failed"), ("what", "failed")],
)
def test_java(tmp_path, monkeypatch, says, standing):
    """Its version, however it is written."""
    home = tmp_path / "bin"
    home.mkdir()
    (home / "java").write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    (home / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert doctor.java().standing.value == standing
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    assert doctor.java().standing is Standing.FAILED


@pytest.mark.spark
def test_spark_is_started_and_sees_the_store(free):
    """As the daemon's session, with a task that looks at each store."""
    with free.config.open("a", encoding="utf-8") as file:
        file.write("spark:\n  master: local[1]\n")
    result = free.json("doctor")
    said = [one["sentence"] for one in result if one["check"] == "Spark"]
    assert said[0].startswith("a session on local[1] worked within")
    assert re.match(rf"an executor on \S+: {re.escape(code())}, \S+; [0-9.]+ .iB free in /", said[1])
    assert said[2].startswith("a task may use 1.0 GiB (limits.task_memory_bytes); spark.driver.memory 1g")
    assert said[3].startswith("executors see ")


@pytest.mark.spark
def test_an_application_of_its_own_is_tried_as_the_daemon_has_it(free):
    """It is talked to through a hidden directory in the first store, of which nothing is left."""
    with free.config.open("a", encoding="utf-8") as file:
        file.write("spark:\n  mode: submit\n  master: local[1]\n")
    before = sorted(str(path) for path in (free.root / "warehouse").rglob("*"))
    result = free.json("doctor")
    said = [one["sentence"] for one in result if one["check"] == "Spark"]
    assert said[0].startswith("an application on local[1] worked within")
    assert said[3].startswith("executors see ")
    assert sorted(str(path) for path in (free.root / "warehouse").rglob("*")) == before


def test_spark_that_doesnt_start(free, monkeypatch):
    """Its reason, and the settings to look at."""

    class Away:
        def __init__(self, settings):
            self.stopped = False

        def warm_up(self, seconds):
            raise UnreachableError("no ResourceManager")

        def stop(self):
            pass

    monkeypatch.setattr(doctor, "submitter_for", Away)
    checks, code = found(free)
    assert checks["Spark"] == ["failed", "no ResourceManager", "spark.master, spark.conf; see docs/spark.md"]
    assert code == 1
