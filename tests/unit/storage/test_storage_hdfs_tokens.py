"""
Delegation tokens as Hadoop writes them, and under which names they are held; whether a NameNode wants Kerberos. Real
ones: tests/cluster/kerberos.
"""

import os
import socket
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.errors import UnreachableError
from compactor.settings.stores import Hdfs
from compactor.storage.hdfs import client
from compactor.storage.hdfs.connections import resolved
from compactor.storage.hdfs.kerberos_probe import wants_kerberos
from compactor.storage.hdfs.tokens import VARIABLE, HeldToken, Token, also_as, parse, written
from compactor.storage.location import split
from tests.cluster.hadoop.servers import write_site

TOKENS = st.lists(st.builds(Token, st.binary(max_size=300), st.binary(max_size=20), st.text(max_size=200)), max_size=4)


@pytest.fixture
def held(monkeypatch):
    """By a process that had no file of tokens."""
    monkeypatch.setenv(VARIABLE, "")
    return HeldToken()


def one(service, password=b"p"):
    return Token(b"i", password, service)


@given(TOKENS)
def test_what_is_written_is_read(tokens):
    """For every length that a number of Hadoop's has its own form for."""
    assert parse(written(tokens)) == tuple(tokens)


def test_other_secrets_are_left_out():
    """
    YARN's tokens and secret keys of an application aren't handed on; another form of Hadoop's credentials is nobody's
    tokens here.
    """
    mine = written([one("a:1")])
    other = mine[6:-1].replace(b"\x15HDFS_DELEGATION_TOKEN", b"\x10YARN_AM_RM_TOKEN")
    assert parse(b"HDTS\0\x02" + other + mine[6:-1] + b"\x01\x01k\x01v") == (one("a:1"),)
    assert parse(b"HDTS\x01\x05") == parse(b"") == ()


def test_what_is_cut_off_is_no_token():
    """At whatever byte before the end of the tokens."""
    whole = written([one("a:1"), one("b:2")])
    for length in range(6, len(whole) - 1):
        with pytest.raises(ValueError, match="cut off"):
            parse(whole[:length])


def test_a_token_is_found_by_the_name_in_the_location():
    """
    Hadoop notes numbers; who asks by a name that leads there, on the same port, has the token too. Name services are
    names already.
    """
    tokens = (one("127.0.0.1:8020"), one("ha-hdfs:ns1"))
    names = [("localhost", 8020), ("localhost", 8021), ("nowhere.invalid", 8020), ("127.0.0.1", 8020)]
    assert also_as(tokens, names) == (*tokens, one("localhost:8020"))


def test_held_tokens_are_in_a_file_that_is_nowhere(held):
    """
    Its name stays the same when newer tokens are taken, and names of NameNodes that were said before count for these
    too.
    """
    assert held.services([("localhost", 8020)]) == frozenset()
    assert not held.take(written([]))
    assert os.environ[VARIABLE] == ""
    assert held.take(written([one("127.0.0.1:8020", b"old")]))
    path = Path(os.environ[VARIABLE])
    assert held.services([("localhost", 8020)]) == {"127.0.0.1:8020", "localhost:8020"}
    assert held.take(written([one("127.0.0.1:8020", b"new")]))
    assert Path(os.environ[VARIABLE]) == path
    assert parse(path.read_bytes()) == (one("127.0.0.1:8020", b"new"), one("localhost:8020", b"new"))
    assert "new" not in repr(parse(path.read_bytes()))


@pytest.mark.parametrize(
    ("said", "wanted"),
    [(b"\x05TOKEN\x08KERBEROS", True), (b"\x06SIMPLE\x08KERBEROS", False), (b"\x10\x00", False), (b"", False)],
)
def test_a_namenode_is_asked_what_it_wants(said, wanted):
    """Only who takes nothing else wants Kerberos; who closes, is silent or isn't there wants nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as silent:

        def answer():
            connection = server.accept()[0]
            with connection:
                assert connection.recv(100).startswith(b"hrpc")
                if said:
                    connection.sendall(len(said).to_bytes(4) + said)

        thread = threading.Thread(target=answer)
        thread.start()
        names = [("127.0.0.1", 1), silent.getsockname(), server.getsockname()]
        assert wants_kerberos(names, 0.2) == (server.getsockname() if wanted else None)
        thread.join()


@pytest.mark.parametrize("host", ["nn..example.org", "n" * 64])
def test_a_host_that_is_no_name_is_not_there(host):
    """
    A location of the metastore may say anything: who asks goes on to the next NameNode, and it resolves to no number.
    """
    assert wants_kerberos([(host, 8020)], 0.2) is None
    assert resolved([(host, 8020), ("127.0.0.1", 8020)]) == {("127.0.0.1", 8020)}


def test_a_task_with_tokens_for_others_is_told_which(held, monkeypatch, tmp_path):
    """
    One whose keytab is on another machine can't log in otherwise; one with a keytab at hand can, and one without
    Kerberos has no use for tokens.
    """
    monkeypatch.setattr(client, "HELD", held)
    held.take(written([one("ha-hdfs:ns1")]))
    write_site(tmp_path / "core-site.xml", {"hadoop.security.authentication": "kerberos"})
    (tmp_path / "keytab").touch()

    def by_token(location, keytab=None):
        login = {"principal": "a@B", "keytab": tmp_path / keytab} if keytab else {}
        return client.reached_by_token(split(location), Hdfs(conf_dir=tmp_path, **login))

    assert by_token("hdfs://ns1/x")
    assert by_token("hdfs://ns1/x", "none")
    assert by_token("viewfs://mounts/x")
    assert by_token("hdfs:///x")
    assert not by_token("hdfs://ns2/x", "keytab")
    with pytest.raises(
        UnreachableError,
        match=r"^Spark has no delegation token for ha-hdfs:ns2, only for ha-hdfs:ns1: name hdfs://ns2 in",
    ):
        by_token("hdfs://ns2/x")
    with pytest.raises(
        UnreachableError, match=r"hdfs.keytab leads to .*none, .*; Spark has no delegation token for n:8020, only for"
    ):
        by_token("hdfs://n:8020/x", "none")
