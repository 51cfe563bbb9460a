"""
HDFS that lets nobody in without Kerberos, with a real KDC: keytab, ticket cache, no ticket, and tickets that run out.
"""

import time

import pytest

from compactor.errors import UnreachableError
from compactor.settings.stores import Hdfs
from compactor.storage.hdfs.driver import HdfsStorage
from compactor.storage.location import split
from compactor.storage.registry import StorageOptions
from tests.cluster.hadoop.servers import write_site
from tests.cluster.kdc import REALM
from tests.cluster.kerberos.secured import hdfs, works

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
LIFE = 8
"""Seconds that short tickets are valid."""


@pytest.fixture(scope="module")
def server(kdc, tmp_path_factory):
    """HDFS that wants tickets."""
    with hdfs(kdc, tmp_path_factory.mktemp("hdfs")) as started:
        yield started


@pytest.fixture
def log_in(server, realm):
    """A new driver, whose connection is its own, with these settings."""

    def made(**settings):
        return HdfsStorage(
            split(server.root), StorageOptions(hdfs=Hdfs(conf_dir=server.conf, rpc_timeout_seconds=20, **settings))
        )

    return made


@pytest.fixture
def directory(server, request):
    """One for each test; the driver makes it."""
    return f"{server.root}/warehouse/{request.node.name}"


def refused(driver, location):
    """The one line that says so, by the error of a store that may answer later."""
    with pytest.raises(UnreachableError) as caught:
        driver.exists(location)
    said = str(caught.value)
    assert "\n" not in said
    assert "Kerberos: " in said
    assert "hdfs.principal" in said
    assert "GssMajorCodes" not in said
    return said


def expired(seconds):
    """
    Wait until a ticket of so many seconds that was given before is over; the library doesn't use one's last moments,
    and a server allows for clocks.
    """
    time.sleep(seconds + 1)  # there is no event: a ticket's end is a time


def test_by_keytab(log_in, directory, keytab, tmp_path):
    """
    The driver lists, writes, reads and renames as the keytab's principal, without any ticket beforehand; nothing is
    left in the default cache.
    """
    assert works(log_in(principal=f"compactor@{REALM}", keytab=keytab), directory) == "compactor"
    assert not (tmp_path / "default").exists()


def test_by_keytab_beside_the_ticket_of_somebody_else(log_in, realm, directory, keytab, tmp_path):
    """Whose ticket is in the default cache doesn't matter, and it stays there."""
    realm.login("other", realm.keytab("other"), tmp_path / "default")
    before = (tmp_path / "default").read_bytes()
    assert works(log_in(principal=f"compactor@{REALM}", keytab=keytab), directory).startswith("compactor")
    assert (tmp_path / "default").read_bytes() == before


def test_by_a_ticket_cache(log_in, realm, directory, keytab, tmp_path):
    """`hdfs.ticket_cache` names it, as a file or as Kerberos does."""
    realm.login("compactor", keytab, tmp_path / "cache")
    works(log_in(principal=f"compactor@{REALM}", ticket_cache=str(tmp_path / "cache")), directory)
    works(log_in(principal=f"compactor@{REALM}", ticket_cache=f"FILE:{tmp_path}/cache"), f"{directory}/again")


def test_by_the_default_cache(log_in, realm, directory, keytab, tmp_path):
    """Without a principal in the settings the ticket that the process has is taken."""
    realm.login("compactor", keytab, tmp_path / "default")
    assert works(log_in(), directory).startswith("compactor")


def test_without_a_ticket(log_in, directory, keytab, tmp_path):
    """One line says what is wanting, for each way to log in."""
    me = f"compactor@{REALM}"
    assert f"default cache: FILE:{tmp_path}/default" in refused(log_in(), directory)
    refused(log_in(principal=me, ticket_cache=str(tmp_path / "none")), directory)
    refused(log_in(principal=f"nobody@{REALM}", keytab=keytab), directory)
    with pytest.raises(UnreachableError, match=r"hdfs\.keytab leads to .*none"):
        log_in(principal=me, keytab=tmp_path / "none").exists(directory)


def test_a_ticket_that_comes_late(log_in, realm, directory, keytab, tmp_path):
    """The same driver works as soon as somebody has put a ticket where it looks."""
    driver = log_in(principal=f"compactor@{REALM}", ticket_cache=str(tmp_path / "cache"))
    refused(driver, directory)
    realm.login("compactor", keytab, tmp_path / "cache")
    works(driver, directory)


def test_a_ticket_that_runs_out_in_the_cache(log_in, server, realm, directory, tmp_path):
    """
    A connection outlives its ticket; the next one is refused until there is a new ticket, and then the same driver goes
    on.
    """
    short = realm.keytab("short", life=f"{LIFE} sec")
    realm.login("short", short, tmp_path / "cache")
    driver = log_in(principal=f"short@{REALM}", ticket_cache=str(tmp_path / "cache"))
    works(driver, directory)
    expired(LIFE)
    works(driver, f"{directory}/same-connection")
    server.command("namenode", "stop", 0)
    server.command("namenode", "start", 0)
    assert "expired" in refused(driver, directory)
    realm.login("short", short, tmp_path / "cache")
    works(driver, f"{directory}/next-connection")


def test_a_ticket_that_runs_out_is_renewed_by_the_keytab(log_in, server, realm, directory):
    """A connection made after the first ticket's end has another, without anybody's help: a daemon lives for months."""
    driver = log_in(principal=f"brief@{REALM}", keytab=realm.keytab("brief", life=f"{LIFE} sec"))
    works(driver, directory)
    asked = realm.log().count("AS_REQ")
    expired(LIFE)
    server.command("namenode", "stop", 0)
    server.command("namenode", "start", 0)
    works(driver, f"{directory}/again")
    assert realm.log().count("AS_REQ") > asked


def test_a_stale_ticket_of_our_own_in_the_default_cache(log_in, realm, directory, tmp_path):
    """Somebody once tried the daemon's principal by hand: the keytab gets a new ticket nevertheless."""
    tried = realm.keytab("tried", life=f"{LIFE} sec")
    realm.login("tried", tried, tmp_path / "default")
    expired(LIFE)
    works(log_in(principal=f"tried@{REALM}", keytab=tried), directory)


def test_without_the_kdc(log_in, realm, directory, keytab, tmp_path):
    """
    A ticket that is there is used; a keytab alone is of no use until the KDC is back, and then the same driver works.
    """
    realm.login("compactor", keytab, tmp_path / "cache")
    works(log_in(principal=f"compactor@{REALM}", ticket_cache=str(tmp_path / "cache")), directory)
    driver = log_in(principal=f"compactor@{REALM}", keytab=keytab)
    realm.stop()
    try:
        assert "Cannot contact any KDC" in refused(driver, directory)
        assert log_in(principal=f"compactor@{REALM}", ticket_cache=str(tmp_path / "cache")).exists(directory)
    finally:
        realm.start()
    works(driver, f"{directory}/again")


def test_a_configuration_without_kerberos(server, tmp_path, monkeypatch):
    """One line says at once what is wrong, whoever says where the NameNode is; hdfs-native would try for minutes."""
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    write_site(tmp_path / "core-site.xml", {"fs.defaultFS": server.root})
    write_site(
        tmp_path / "hdfs-site.xml",
        {"dfs.ha.namenodes.ns1": "nn1", "dfs.namenode.rpc-address.ns1.nn1": server.root.removeprefix("hdfs://")},
    )
    for location, conf in ((server.root, tmp_path), ("hdfs://ns1", tmp_path), (server.root, None)):
        driver = HdfsStorage(split(location), StorageOptions(hdfs=Hdfs(conf_dir=conf)))
        with pytest.raises(
            UnreachableError,
            match=r"the NameNode at .* wants Kerberos, but .* kerberos as hadoop.security.authentication: set hdfs.conf_dir",
        ):
            driver.exists(f"{location}/warehouse")
