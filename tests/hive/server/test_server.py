"""A real Hive server under our command: what the histories ask of it works in both releases."""

import pyorc
import pytest

from tests.daemon.lab import until
from tests.hive.server.configuration import by_queries
from tests.hive.server.hive import HiveError, hive_server
from tests.hive.server.jars import UnavailableError
from tests.metastore.databases import postgres  # noqa: F401 - a fixture
from tests.needs import missing

pytestmark = [pytest.mark.live, pytest.mark.timeout(900)]
TABLE = "create table t (id int, v string) stored as orc tblproperties ('transactional'='true')"


@pytest.fixture(
    scope="module",
    params=[pytest.param(version, marks=pytest.mark.xdist_group(f"hive-{version}")) for version in ("4", "3")],
)
def server(request, postgres):  # noqa: F811
    """Each release in turn."""
    try:
        context = hive_server(request.param, postgres)
        started = context.__enter__()
    except UnavailableError as error:
        missing(str(error))
    yield started
    context.__exit__(None, None, None)


def ids(server, session="main"):
    return sorted(int(row) for (row,) in server.rows("select id from t", session))


def test_statements_rolled_back_held_and_compacted(server):
    """
    Statements run, are rolled back, held midway and made to fail; Hive's own threads compact; a transaction is left
    open.
    """
    server.sql(
        TABLE,
        "insert into t values (1, 'ü'), (2, 'b')",
        "update t set v = 'c' where id = 2",
        "create temporary function hold as 'Hold'",
    )
    server.roll_back("insert into t values (3, 'never')")
    assert server.rows("select id, v from t order by id") == [("1", "ü"), ("2", "c")]

    hold = server.hold("udf", "here")
    writing = server.begin("insert into t select id + 10, hold('here', v) from t")
    assert hold.met(60) == ["here"]
    assert ids(server, "beside") == [1, 2]
    assert not writing.done()
    hold.release()
    writing.result()
    assert ids(server) == [1, 2, 11, 12]

    failing = server.hold("create", r"delta_.*bucket_", fails=True, times=100)
    with pytest.raises(HiveError):
        server.sql("insert into t values (20, 'never')")
    failing.release()

    left = server.open("default.t")
    before = server.rows("select ROW__ID, * from t")
    server.sql("alter table t compact 'major'")
    server.threads("worker", "cleaner")
    until(lambda: any(path.name.startswith("base_") for path in (server.warehouse / "t").iterdir()), "compacted")
    server.threads()
    assert sorted(server.rows("select ROW__ID, * from t")) == sorted(before)
    server.abort(left)
    with pytest.raises(HiveError):
        server.commit(left)


def test_a_cycle_has_settings_of_its_own(server):
    """Hive 4's Worker compacts by queries when its cycle is told so: such a base has no key index, and the same rows."""
    server.sql(
        TABLE.replace(" t ", " by_queries "),
        "insert into by_queries values (1, 'a'), (2, 'b')",
        "insert into by_queries values (3, 'c')",
        "delete from by_queries where id = 1",
    )
    before = server.rows("select ROW__ID, * from by_queries")
    server.sql("alter table by_queries compact 'major'")
    server.cycle("worker", by_queries(server.folder) if server.version == "4" else {})
    (base,) = (server.warehouse / "by_queries").glob("base_*/bucket_00000")
    with base.open("rb") as file:
        assert ("hive.acid.key.index" in pyorc.Reader(file).user_metadata) == (server.version == "3")
    assert sorted(server.rows("select ROW__ID, * from by_queries")) == sorted(before)
    assert len(before) == 2
