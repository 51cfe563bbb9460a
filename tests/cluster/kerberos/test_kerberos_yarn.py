"""
Compactions on a YARN with Kerberos, over a HDFS with Kerberos: by keytab in each way to run Spark, and as somebody
else; what is left running is ended so, too.
"""

import itertools
import os
import threading
import time

import hdfs_native
import pytest
from structlog.testing import capture_logs

from compactor.errors import CompactorError, UnreachableError
from compactor.spark.application import orphans
from compactor.spark.application.orphans import by_keytab, end_on_yarn
from compactor.spark.application.submitter import ApplicationSubmitter
from compactor.spark.session.session import SparkSubmitter
from compactor.spark.submitter import BrokenDownError, JobName
from compactor.storage.hdfs.tokens import VARIABLE
from compactor.storage.location import join, split
from compactor.storage.registry import storage_for
from tests.cluster import yarn as yarn_module
from tests.cluster.fixtures import configured_for
from tests.cluster.hadoop.servers import UnavailableError
from tests.cluster.kdc import REALM
from tests.cluster.kerberos.secured import ME, hdfs, java
from tests.cluster.test_hdfs_compaction import build, compact_there
from tests.cluster.test_spark_yarn import PATIENCE, until
from tests.compacting import settings
from tests.needs import missing

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
NUMBERS = itertools.count(1)
YARN = f"yarn/localhost@{REALM}"


@pytest.fixture(scope="module")
def yarn_server(kdc, tmp_path_factory):
    """YARN and HDFS, of which we are the superuser and may be anybody."""
    own = str(kdc.keytab("yarn/localhost"))
    more = {
        f"yarn.{daemon}.{key}": value
        for daemon in ("resourcemanager", "nodemanager")
        for key, value in (("principal", YARN), ("keytab", own))
    }
    more |= {f"hadoop.proxyuser.compactor.{what}": "*" for what in ("hosts", "groups")}
    more |= {"hadoop.user.group.static.mapping.overrides": "compactor=supergroup;ann=users"}
    with hdfs(kdc, tmp_path_factory.mktemp("hdfs"), **more) as server:
        try:
            with yarn_module.running(tmp_path_factory.mktemp("yarn"), server, (java(kdc),)) as started:
                yield started
        except UnavailableError as error:
            missing(str(error))


class Cluster(yarn_module.Yarn):
    """YARN, and how we are configured for it."""

    def __init__(self, server, realm, keytab):
        super().__init__(server)
        self._realm, self._keytab = realm, keytab

    def application(self, tag):
        """The one application that has the tag: user, and what became of it."""
        (found,) = self.applications(tag)
        return found.user, found.state, found.final

    @property
    def login(self):
        """Principal and keytab as a section of the settings names them."""
        return {"principal": ME, "keytab": str(self._keytab)}

    def settings(self, **spark):
        """Ours; processes in the cluster know the realm, but no Python does."""
        conf = yarn_module.SMALL | {
            f"spark.{where}.extraJavaOptions": java(self._realm) for where in ("driver", "executor", "yarn.am")
        }
        return settings(
            spark={"master": "yarn", "queue": "default", "conf": conf} | spark,
            hdfs={"conf_dir": str(self.conf)} | self.login,
        )


@pytest.fixture
def cluster(yarn_server, realm, keytab, monkeypatch):
    """And this process configured for it: our keytab, no ticket."""
    for name, value in yarn_server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", java(realm))
    made = Cluster(yarn_server.server, realm, keytab)
    yield from configured_for(made, made.settings())


@pytest.fixture
def directory(cluster):
    """The location of an empty directory, by a name of the NameNode: in its tokens there is a number."""
    location = f"{cluster.server.root.replace('127.0.0.1', 'localhost')}/warehouse/test{next(NUMBERS)}"
    storage_for(location).mkdir(location)
    return location


def give(cluster, location, user):
    """Give a directory to somebody."""
    client = hdfs_native.Client(
        cluster.server.root,
        config_dir=str(cluster.conf),
        kerberos_principal=ME,
        kerberos_keytab=cluster.login["keytab"],
    )
    client.set_owner(split(location).path, user, "users")


def owners(location, published):
    """Of what was published."""
    storage = storage_for(location)
    return {storage.owner(join(location, name)) for name in published.directories}


def compacted(warehouse, directory, submitter, **how):
    """A whole compaction there, rows as before; returns whose files the result are."""
    try:
        _, published = compact_there(warehouse, build(warehouse), directory, submitter=submitter, **how)
    finally:
        submitter.stop()
    return owners(directory, published)


@pytest.mark.parametrize("deploy_mode", ["client", "cluster"])
def test_an_application_by_keytab(warehouse, directory, cluster, deploy_mode):
    """
    Rows are as before; tasks, and a driver in the cluster, reached HDFS by what Spark had been given for them, under
    the same name.
    """
    given = cluster.settings(mode="submit", deploy_mode=deploy_mode, **cluster.login)
    found = compacted(
        warehouse, directory, ApplicationSubmitter(given), settings=given, entry_id=61, attempt=deploy_mode
    )
    assert found == {"compactor"}
    assert cluster.application(f"compactor-61.{deploy_mode}") == ("compactor", "FINISHED", "SUCCEEDED")


def test_a_session_by_keytab(warehouse, directory, cluster):
    """
    One application for many compactions; tasks have no realm to log in to, but tokens that came with them, newer than
    those of their container one day.
    """
    given = cluster.settings(mode="session", **cluster.login)
    submitter = SparkSubmitter(given)
    realm_there, tokens_there = submitter.run(JobName("n", "1.a"), os.getenv, ["KRB5_CONFIG", VARIABLE])
    assert realm_there is None
    assert tokens_there.startswith("/proc/self/fd/")
    assert compacted(warehouse, directory, submitter, settings=given) == {"compactor"}


def test_as_somebody_else(warehouse, directory, cluster):
    """
    By our keytab an application of the compaction's user: tasks write as that user, whose directory it is; the driver
    is here, and us.
    """
    give(cluster, directory, "ann")
    given = cluster.settings(mode="submit", deploy_mode="client", proxy_user=True, **cluster.login)
    how = {"settings": given, "entry_id": 62, "attempt": "a", "run_as": "ann"}
    assert compacted(warehouse, directory, ApplicationSubmitter(given), **how) == {"ann"}
    assert cluster.application("compactor-62.a") == ("ann", "FINISHED", "SUCCEEDED")


def test_what_is_left_is_ended_by_keytab(cluster, directory, monkeypatch):
    """Without a keytab the command is refused, which is told with what to do; with it YARN confirms."""
    given = cluster.settings(mode="submit", **cluster.login)
    submitter = ApplicationSubmitter(given)
    place = f"{directory}/.compactor-71-a"
    storage_for(place).mkdir(place)
    job, failure = JobName("left", "71.a", place=place), []

    def run():
        try:
            failure.append(submitter.run(job, time.sleep, [PATIENCE]))
        except CompactorError as error:
            failure.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        until(lambda: submitter.application(job), "there")
        with monkeypatch.context() as patch, capture_logs() as lines:
            patch.setattr(orphans, "_CLI_SECONDS", 20)
            assert end_on_yarn([job.key], None, os.environ) == []
        assert "set spark.principal and spark.keytab" in str(lines)
        assert end_on_yarn([job.key], None, os.environ | by_keytab(given.spark)) == [submitter.application(job)]
        thread.join(PATIENCE)
        assert [type(one) for one in failure] in ([BrokenDownError], [UnreachableError])
    finally:
        submitter.stop()
