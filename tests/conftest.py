"""Fixtures that every package of tests may use."""

import os
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path

import hypothesis
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry

from compactor.acid.compaction import LayoutVersion
from compactor.engine.tasks import memory
from compactor.roles.worker import older_snapshots
from compactor.settings.stores import S3
from compactor.storage.registry import configure, configured
from tests.cluster import s3_broken, s3_server
from tests.cluster.fixtures import ha, ha_server, hdfs, hdfs_directory, hdfs_server, yarn_server, zones, zones_server  # noqa: F401 - for every package
from tests.counts import COUNTS
from tests.demo.ledger import MemoryLedger
from tests.demo.warehouse import Warehouse
from tests.hive.java import UnavailableError
from tests.hive.reader import HiveReader
from tests.metastore.compiled import compiled_once
from tests.needs import missing

hypothesis.settings.register_profile("untimed", deadline=None)  # no claim is about time: machines under test are busy
hypothesis.settings.load_profile("untimed")
os.environ["JDK_JAVA_OPTIONS"] = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""
For every JVM that tests start: most end before better code would pay, and classes of released jars needn't be verified.
"""
LONG_FIRST = ("crash", "cluster", "hive", "spark")
"""
Marks of tests that start servers and sessions; files that hold such come first, so that no worker begins a long one
when the others have ended.
"""


class _Impatient:
    """A clock by which the first pause is longer than any wait."""

    seconds = 0.0

    def monotonic(self):
        return self.seconds

    def sleep(self, _):
        self.seconds += older_snapshots.WAIT_SECONDS


@pytest.fixture(scope="session", autouse=True)
def older_readers_stay():
    """Before a first base of Hive 3.1 readers of tests don't go home; tests of that wait bring clocks of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(older_snapshots, "time", _Impatient())
        yield


@pytest.fixture(scope="session", autouse=True)
def cycles_are_rarely_collected():
    """Tasks that run here don't collect cycles as often as in Spark's workers: this process has far more objects."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "WORTH_A_COLLECTION", 256 << 20)
        yield


@pytest.fixture(scope="session", autouse=True)
def statements_are_compiled_once():
    with compiled_once():
        yield


@pytest.fixture
def warehouse(tmp_path):
    """An empty Hive 4 warehouse without a metastore database."""
    return Warehouse(tmp_path / "warehouse", MemoryLedger())


@pytest.fixture
def warehouse_3(tmp_path):
    """An empty Hive 3.1 warehouse without a metastore database."""
    return Warehouse(tmp_path / "warehouse", MemoryLedger(LayoutVersion.HIVE_3))


@pytest.fixture(scope="session")
def hive_4():
    """Hive 4.1.0's own reader; one JVM for all tests of the process."""
    yield from _reader("4")


@pytest.fixture(scope="session")
def hive_3():
    """Hive 3.1.3's own reader."""
    yield from _reader("3")


def _reader(version):
    try:
        reader = HiveReader(version)
    except UnavailableError as error:
        missing(str(error))
    with reader:
        yield reader


@pytest.fixture(scope="session")
def s3(tmp_path_factory):
    """An S3 server with a bucket `warehouse`."""
    with s3_server.running(tmp_path_factory.mktemp("s3")) as server:
        server.bucket("warehouse")
        yield server


@pytest.fixture
def s3_directory(s3):
    """Location of an empty directory on the S3 server."""
    return _in_bucket(s3, "warehouse")


@pytest.fixture
def s3_whole_keys(s3):
    """The same in a bucket that lists unfinished uploads as MinIO does: of a whole key only."""
    return _in_bucket(s3, s3_broken.WHOLE_KEYS)


@pytest.fixture
def s3_unconditional(s3):
    """The same in a bucket that deletes an object whatever its ETag, as most stores but Amazon's do."""
    return _in_bucket(s3, *s3_broken.MISSED)


def _in_bucket(s3, bucket):
    configure(replace(configured(), s3=S3(**s3.settings)))
    s3.bucket(bucket)
    name = uuid.uuid4().hex
    s3.client.put_object(Bucket=bucket, Key=f"{name}/", Body=b"")
    return f"s3a://{bucket}/{name}"


@pytest.fixture
def fsspec_directory(monkeypatch):
    """
    Location of an empty directory on a store that only fsspec knows: its file system in memory, in Google's place.
    """
    monkeypatch.setitem(_registry, "gs", MemoryFileSystem)  # the package has no way to unregister
    name = uuid.uuid4().hex
    MemoryFileSystem().makedirs(f"/bucket/{name}")
    return f"gs://bucket/{name}"


def pytest_addoption(parser):
    """
    Let case books be written anew from what really comes out, and let more random histories run beside Hive's own
    classes.
    """
    parser.addoption(
        "--rewrite",
        action="store_true",
        default=False,
        help="replace the expected parts of case books by what came out",
    )
    parser.addoption(
        "--live-seed", type=int, default=1, help="the first seed of histories on a living Hive (tests/hive/live)"
    )
    parser.addoption("--live-statements", type=int, default=400, help="their statements on Hive 4.0.1; on 3.1.3 fewer")
    parser.addoption("--live-hours", type=float, default=0, help="go on at least so long, each of them")
    parser.addoption(
        "--histories",
        type=int,
        default=None,
        help="how many random histories run in the fast lane or of the two TxnHandlers; and lives of tables, a test",
    )
    parser.addoption(
        "--model-minutes",
        type=float,
        default=None,
        help="how long each scene of the protocol's model is searched (tests/model/test_protocol.py)",
    )


def pytest_configure(config):
    """Where changes are checked before they land, the slowest tests are listed at the end."""
    if os.environ.get("CI") and not config.option.durations:
        config.option.durations, config.option.durations_min = 25, 5.0


def pytest_collection_modifyitems(items):
    """
    Files in the order of `LONG_FIRST`, of a cluster's those that start YARN applications and then those with the most
    tests first; otherwise as they were shuffled.

    A cluster's test that starts Spark counts for ten: the others take seconds.
    """
    rank = {}
    for item in items:
        own = min(
            (LONG_FIRST.index(mark.name) for mark in item.iter_markers() if mark.name in LONG_FIRST),
            default=len(LONG_FIRST),
        )
        rank[item.path] = min((own, "yarn_server" not in item.fixturenames), rank.get(item.path, (own, True)))
    tests: Counter[Path] = Counter()
    for item in items:
        if item.get_closest_marker("cluster"):
            tests[item.path] += 10 if item.get_closest_marker("spark") else 1
    items.sort(key=lambda item: (*rank[item.path], -tests[item.path]))


def pytest_sessionfinish(session):
    """In CI a skipped test is a failure: whatever it needs must be there. What a worker counted goes home with it."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["counts"] = dict(COUNTS)
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None and reporter.stats.get("skipped") and session.exitstatus == 0:
        session.exitstatus = 1


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """A worker is done: its counts are added."""
    COUNTS.update(getattr(node, "workeroutput", {}).get("counts", {}))


def pytest_terminal_summary(terminalreporter):
    """What ran besides tests, for the record."""
    counted: dict[str, list[str]] = {}
    for what, number in sorted(COUNTS.items()):
        about, colon, kind = what.partition(": ")
        counted.setdefault(about if colon else "", []).append(f"{number:,} {kind if colon else what}")
    for about, kinds in counted.items():
        terminalreporter.write_line(f"{about}: {', '.join(kinds)}" if about else ", ".join(kinds))
