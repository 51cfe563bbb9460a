"""
A name service of two NameNodes with Kerberos where everything is encrypted on its way: by keytab, and by a delegation
token as a container has one.
"""

import pytest

from compactor.errors import UnreachableError
from compactor.settings.stores import Hdfs
from compactor.storage.hdfs import client
from compactor.storage.hdfs.driver import HdfsStorage
from compactor.storage.hdfs.tokens import VARIABLE, HeldToken, parse
from compactor.storage.location import split
from compactor.storage.registry import StorageOptions
from tests.cluster.kerberos.secured import ME, hdfs, works

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def server(kdc, tmp_path_factory):
    """Two NameNodes; answers of NameNodes and blocks of DataNodes are encrypted."""
    with hdfs(
        kdc,
        tmp_path_factory.mktemp("ha"),
        "ha",
        **{"hadoop.rpc.protection": "privacy", "dfs.data.transfer.protection": "privacy"},
    ) as started:
        yield started


@pytest.fixture
def held(realm, monkeypatch):
    """This process as a container: it holds tokens of its own, and can't reach the KDC."""
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.setenv("KRB5_CONFIG", "/dev/null")
    made = HeldToken()
    monkeypatch.setattr(client, "HELD", made)
    return made


@pytest.fixture
def active(server):
    """Moves the active NameNode; the first is it again afterwards."""
    yield lambda number: server.command("namenode", "activate", number)
    server.command("namenode", "activate", 0)


def driver(server, location=None, **login):
    return HdfsStorage(
        split(location or server.root), StorageOptions(hdfs=Hdfs(conf_dir=server.conf, rpc_timeout_seconds=20, **login))
    )


def test_by_keytab(server, realm, keytab, active):
    """
    The driver does all it can, and goes on where the other NameNode has taken over: a connection to each has its own
    key.
    """
    mine = driver(server, principal=ME, keytab=keytab)
    assert works(mine, f"{server.root}/warehouse/keytab") == "compactor"
    active(1)
    works(mine, f"{server.root}/warehouse/again")


def test_by_a_token(server, held, keytab, tmp_path, active):
    """Without keytab and ticket: the token is the name service's, good for both NameNodes; files are its owner's."""
    server.command("token", "get", ME, keytab, tmp_path / "tokens")
    assert held.take((tmp_path / "tokens").read_bytes())
    mine = driver(server)
    assert works(mine, f"{server.root}/warehouse/token") == "compactor"
    active(1)
    works(mine, f"{server.root}/warehouse/token-again")


def test_a_token_for_others(server, held, keytab, tmp_path):
    """
    Who asks a NameNode that there is no token for is told which there are, and what Spark needs to know; not that there
    is no ticket.
    """
    server.command("token", "get", ME, keytab, tmp_path / "tokens")
    data = (tmp_path / "tokens").read_bytes()
    held.take(data)
    assert [token.service for token in parse(data)] == ["ha-hdfs:ns1"]
    alone = f"hdfs://{server.setting('hdfs-site.xml', 'dfs.namenode.rpc-address.ns1.nn1')}"
    with pytest.raises(
        UnreachableError,
        match=r"no delegation token for 127\.0\.0\.1:\d+, only for ha-hdfs:ns1: name hdfs://127.*hadoopFileSystems",
    ):
        driver(server, alone).exists(f"{alone}/warehouse")


def test_encrypted_transfer(kdc, realm, keytab, tmp_path):
    """A key of the NameNode's instead of block tokens, and AES: the driver does all it can."""
    how = {
        "dfs.encrypt.data.transfer": "true",
        "dfs.encrypt.data.transfer.cipher.suites": "AES/CTR/NoPadding",
        "hadoop.rpc.protection": "integrity",
    }
    with hdfs(kdc, tmp_path, **how) as alone:
        assert works(driver(alone, principal=ME, keytab=keytab), f"{alone.root}/warehouse/encrypted") == "compactor"
