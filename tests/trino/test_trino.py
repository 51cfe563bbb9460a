"""
Trino reads the same rows of tables that a real Hive wrote: before a compaction of ours, at every step of it, after it,
and after cleaning.
"""

import time

import pytest

from compactor.acid.compaction import CompactionKind
from compactor.metastore.db.database import Database
from compactor.metastore.model import Entity, QueueState
from compactor.roles.cleaner.cleaner import Cleaner
from compactor.roles.services import Services
from compactor.roles.worker.worker import Worker
from compactor.settings import Settings
from tests.hive.server.hive import hive_server
from tests.hive.server.jars import UnavailableError as NoHiveError
from tests.metastore.databases import postgres  # noqa: F401 - a fixture
from tests.needs import missing
from tests.trino.server import Trino, UnavailableError
from tests.unit.roles.world import Inline

pytestmark = [pytest.mark.trino, pytest.mark.timeout(900)]
WRITTEN = """
create table whole (id int, v string, d decimal(20,4), at timestamp) stored as orc tblproperties ('transactional'='true')
insert into whole values (1, 'ü', 1.5, '2024-01-01 00:00:00.123456'), (2, null, null, null), (3, 'c', -7, '1999-12-31 23:59:59')
insert into whole values (4, 'd', 0, null), (5, '', 12345678.9, '2038-01-19 03:14:08')
update whole set v = 'new' where id = 2
delete from whole where id in (1, 5)
create table bucketed (id int, v string) clustered by (id) into 3 buckets stored as orc tblproperties ('transactional'='true')
insert into bucketed values (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')
delete from bucketed where id = 2
insert into bucketed values (2, 'again'), (7, 'g')
create table parted (id int) partitioned by (p string) stored as orc tblproperties ('transactional'='true')
insert into parted partition (p = 'x y') values (1), (2)
insert into parted partition (p = 'x y') values (3)
delete from parted where id = 1
create table theirs (id int, v string, d decimal(20,4), at timestamp) stored as orc tblproperties ('transactional'='true')
create table theirs_parted (id int, v string) partitioned by (p string) stored as orc tblproperties ('transactional'='true')
create table later (id int) stored as orc tblproperties ('transactional'='true')
create table plain (id int, v string) stored as orc tblproperties ('transactional'='true', 'transactional_properties'='insert_only')
insert into plain values (1, 'a')
insert into plain values (2, 'b')
"""
THEIRS = """
insert into theirs values (1, 'ü', 1.5, timestamp '2024-01-01 00:00:00.123456'), (2, null, null, null), (3, 'c', -7, timestamp '1999-12-31 23:59:59')
insert into theirs values (4, 'd', 0, null), (5, '', 12345678.9, timestamp '2038-01-19 03:14:08')
update theirs set v = 'new' where id in (2, 4)
delete from theirs where id in (1, 5)
merge into theirs t using (values (3, 'merged'), (6, 'six')) s (id, v) on t.id = s.id when matched then update set v = s.v when not matched then insert (id, v) values (s.id, s.v)
insert into theirs_parted values (1, 'a', 'x y'), (2, 'b', 'x y'), (3, 'c', 'z')
insert into theirs_parted values (4, 'd', 'x y')
delete from theirs_parted where id = 2
"""
"""Trino as a writer."""
PLACE = "partition (p = 'x y')"
_SECONDS = 60
"""For a second after an id was handed out a lower one may still be about to open."""
SUBJECTS = [
    ("whole", None, "(10, 'more', 1, null)"),
    ("bucketed", None, "(10, 'more')"),
    ("parted", "p=x y", "(10)"),
    ("plain", None, "(10, 'more')"),
]


@pytest.fixture(scope="module")
def hive(postgres):  # noqa: F811
    """Hive 4.0.1 with tables written so that Trino can read them."""
    try:
        context = hive_server("4", postgres)
        started = context.__enter__()
    except NoHiveError as error:
        missing(str(error))
    started.sql("set hive.acid.direct.insert.enabled=false", *WRITTEN.strip().splitlines())
    yield started
    context.__exit__(None, None, None)


@pytest.fixture(scope="module")
def trino(hive, tmp_path_factory):
    """Trino over that Hive's metastore."""
    try:
        server = Trino(hive.metastore_port, tmp_path_factory.mktemp("trino"))
    except UnavailableError as error:
        missing(str(error))
    with server:
        yield server


@pytest.fixture
def services(hive):
    """Ours on that metastore; `watched` is called at each step."""
    with Database(hive.database) as database:
        watched = []
        settings = Settings(
            database={"url": hive.database}, host="here", user="compactor", worker={"prefer_major": True}
        )
        found = Services.over(
            database, settings, observers=[lambda step, _: [look(step) for look in watched]], submitter=Inline()
        )
        yield found, watched


@pytest.mark.parametrize("subject", SUBJECTS, ids=[table for table, *_ in SUBJECTS])
@pytest.mark.parametrize("kind", [CompactionKind.MINOR, CompactionKind.MAJOR])
def test_the_rows_are_the_same_at_every_step(hive, trino, services, kind, subject):
    """
    No step of Worker or Cleaner shows a part of a directory, or rows twice; Hive sees the same rows as Trino in the
    end.
    """
    table, partition, more = subject
    hive.sql(
        "set hive.acid.direct.insert.enabled=false",
        *[f"insert into {table} {PLACE if partition else ''} values {more}"] * 2,
    )
    _compacted(hive, trino, services, Entity("default", table, partition), kind)


@pytest.fixture(scope="module")
def theirs(trino):
    """Written by Trino into Hive's tables."""
    for statement in THEIRS.strip().splitlines():
        trino.rows(statement)


@pytest.mark.usefixtures("theirs")
@pytest.mark.parametrize(("table", "partition"), [("theirs", None), ("theirs_parted", "p=x y")])
def test_what_trino_wrote_stays(hive, trino, services, table, partition):
    """Of inserts, updates, deletes and merges of Trino's, too, a minor and a major compaction change nothing."""
    for kind in (CompactionKind.MINOR, CompactionKind.MAJOR):
        _compacted(hive, trino, services, Entity("default", table, partition), kind)
        where = f"where p = '{partition[2:]}'" if partition else ""
        trino.rows(f"update {table} set v = concat(v, '!') {where}")


def _compacted(hive, trino, services, entity, kind):
    (services, watched), table = services, entity.table
    query = f"select * from {table}"
    before = trino.rows(query)
    assert len(before) == len(hive.rows(query)) > 1
    seen = []
    watched.append(lambda step: seen.append((step, trino.rows(query))))
    assert services.queue.enqueue(entity, kind).accepted
    said = [Worker(services, 1).run_once().sentence]
    hive.sql("insert into later values (1)")  # the Cleaner waits for a transaction that is younger than the compaction
    cleaner, until = Cleaner(services), time.monotonic() + _SECONDS
    while services.queue.entries(QueueState.READY_FOR_CLEANING) and time.monotonic() < until:
        said.append(cleaner.run_once().sentence)
        time.sleep(0.5)
    watched.clear()
    assert [step for step, rows in seen if rows != before] == []
    assert {"worker.published", "cleaner.deleted"} <= {step for step, _ in seen}, (said, seen[-1:])
    assert trino.rows(query) == before
    assert sorted(hive.rows(f"select id from {table}")) == sorted((str(row[0]),) for row in before)
