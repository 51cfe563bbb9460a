"""Random histories in the fast lane: whatever Hive's writers and our roles do, in whatever order, every snapshot reads its rows."""

import shutil

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from compactor.metastore.database import Database
from tests.counts import count
from tests.hive.java import UnavailableError as NoJavaError
from tests.hive.lane import Lane, Statement
from tests.metastore.conftest import parties, postgres  # noqa: F401 - fixtures
from tests.metastore.servers import UnavailableError, schema_script
from tests.needs import missing

pytestmark = [pytest.mark.hive, pytest.mark.postgres, pytest.mark.long]
HISTORIES = 100
RELEASES = {"3.1.3": "3.1.0", "4.0.1": "4.0.0"}

_COUNT, _WHICH, _YES = st.integers(1, 3), st.integers(0, 3), st.booleans()
_PLACES = st.lists(st.integers(0, 2), min_size=1, max_size=2, unique=True).map(tuple)
_KINDS = st.sampled_from(["insert", "insert", "insert", "update", "delete", "overwrite"])
_STATEMENTS = st.builds(Statement, _KINDS, _PLACES, _COUNT, st.integers(0, 1), _YES)
_WRITES = st.tuples(st.just("write"), _STATEMENTS, st.sampled_from([True, True, False]))
_STEPS = st.one_of(
    _WRITES,
    _WRITES,
    _WRITES,
    st.tuples(st.just("start"), _STATEMENTS),
    st.tuples(st.just("stream"), st.integers(0, 2), _COUNT, st.lists(st.sampled_from([True, False, None]), min_size=2, max_size=3)),
    st.tuples(st.just("go_on"), _WHICH),
    st.tuples(st.just("finish"), _WHICH, _YES),
    st.tuples(st.just("reap"), _WHICH),
    st.tuples(st.just("read")),
    st.tuples(st.just("read_no_more"), _WHICH),
    st.tuples(st.just("ask"), st.integers(0, 2), _YES),
    *(st.tuples(st.just(role)) for role in ("initiate", "work", "work", "clean", "clean", "keep_house", "hive_keeps_house", "restart")),
)
_TABLES = st.one_of(st.just({"partitioned": True}), st.builds(lambda rows: {"partitioned": False, "originals": rows}, st.sampled_from([0, 0, 3])))
_ROLES = [("initiate",), ("clean",), ("keep_house",), ("hive_keeps_house",)]


def _rolled_back(*places, dynamic=False):
    """A committed insert and one that was rolled back, there."""
    one = Statement("insert", places, dynamic=dynamic)
    return [("write", one), ("write", one, False)]


@pytest.mark.timeout(0)
@pytest.mark.parametrize("release", RELEASES)
def test_every_snapshot_reads_its_rows(release, request, parties, tmp_path):  # noqa: F811 - a fixture
    """After each step each open reader and a new one see exactly the model's rows with their ROW__IDs, read by Hive's own reader."""
    version = RELEASES[release]
    try:
        schema_script(version)
    except (UnavailableError, NoJavaError) as error:
        missing(str(error))
    server = request.getfixturevalue("postgres")

    @settings(
        max_examples=max(1, (request.config.getoption("--histories") or HISTORIES) // len(RELEASES)), database=None, suppress_health_check=list(HealthCheck)
    )
    @given(_TABLES, st.lists(_STEPS, min_size=4, max_size=25))
    @example({"partitioned": True}, [*_rolled_back(1), *_ROLES])  # Hive 3.1 stores the name folded
    @example({"partitioned": True}, [*_rolled_back(2), *_ROLES])  # Hive 4 stores it escaped twice
    @example({"partitioned": True}, [_rolled_back(0)[0], ("start", Statement("insert", dynamic=True)), ("go_on", 0), ("finish", 0, False), *_ROLES])
    @example({"partitioned": False}, [_rolled_back(0)[0], ("stream", 0, 1, [True, None]), *_ROLES])
    def live(table, steps):
        url = server.borrow(version)
        try:
            with Database(url) as database:
                lane = Lane(database, parties(version, url), tmp_path / "history", **table)
                for name, *about in steps:
                    getattr(lane, name)(*about)
                    lane.check()
                lane.rest()
                count(f"histories of Hive {release} in the fast lane")
                count(f"steps of Hive {release} in the fast lane", len(steps))
        finally:
            server.give_back(version, url)
            shutil.rmtree(tmp_path / "history")

    live()
