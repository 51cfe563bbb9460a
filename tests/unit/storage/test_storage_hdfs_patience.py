"""A NameNode that holds its connections and answers nothing: nobody waits for it for ever. The client is the real one, the NameNode one that only listens."""

import contextlib
import errno
import socket
import threading

import pytest

from compactor.errors import OutcomeUnknownError, UnreachableError
from compactor.settings.stores import Hdfs
from compactor.storage.hdfs import HdfsStorage
from compactor.storage.hdfs_patience import addresses, resolved, shut_down
from compactor.storage.location import split
from compactor.storage.options import StorageOptions

ONCE = """<?xml version="1.0"?><configuration>
  <property><name>dfs.client.failover.max.attempts</name><value>1</value></property>
</configuration>"""


@pytest.fixture
def silent():
    """Port of a server that takes every connection and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        yield server.getsockname()[1]


@pytest.fixture
def full():
    """Port of a server that takes no connection more: whoever wants one hears nothing, as if packets were lost."""
    with contextlib.ExitStack() as opened:
        server = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        opened.enter_context(socket.create_connection(server.getsockname()))  # nobody accepts it, and there is room for one
        yield server.getsockname()[1]


def storage(port, folder):
    (folder / "hdfs-site.xml").write_text(ONCE)
    return HdfsStorage(split(f"hdfs://127.0.0.1:{port}/"), StorageOptions(hdfs=Hdfs(conf_dir=folder, rpc_timeout_seconds=0.2)))


def test_every_question_ends(silent, tmp_path):
    """As for a NameNode that died: unreachable, in one line; a rename looks before it asks, so nothing was sent."""
    there = storage(silent, tmp_path)
    at = f"hdfs://127.0.0.1:{silent}/t"
    for ask in (there.list_tree, there.create, there.open_read, there.room, lambda location: there.rename_noreplace(location, f"{location}2")):
        with pytest.raises(UnreachableError) as caught:
            ask(at)
        assert not isinstance(caught.value, OutcomeUnknownError)
        assert "\n" not in str(caught.value)


def test_a_connection_that_isnt_made_is_waited_for_no_longer(full, tmp_path):
    """The system would try for two minutes, and the client after that again; meanwhile the connection has no other end that could be asked for."""
    with pytest.raises(UnreachableError) as caught:
        storage(full, tmp_path).stat(f"hdfs://127.0.0.1:{full}/t")
    assert "\n" not in str(caught.value)


def test_many_threads_wait_no_longer_than_one(silent, tmp_path):
    """They share a connection, and all of them are freed with it."""
    there = storage(silent, tmp_path)
    outcomes = []

    def ask():
        try:
            there.stat(f"hdfs://127.0.0.1:{silent}/t")
        except UnreachableError:
            outcomes.append("unreachable")

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == ["unreachable"] * 6


def test_only_connections_to_namenodes_are_shut_down(silent):
    """Others of the process, open files and unconnected sockets stay as they are."""
    with contextlib.ExitStack() as opened:
        other, left, right, unconnected = map(opened.enter_context, (socket.create_server(("127.0.0.1", 0)), *socket.socketpair(), socket.socket()))
        to_namenode, elsewhere = (opened.enter_context(socket.create_connection(("127.0.0.1", port))) for port in (silent, other.getsockname()[1]))
        accepted = opened.enter_context(other.accept()[0])
        assert shut_down(resolved([("localhost", silent)])) == 1
        assert to_namenode.recv(1) == b""
        for sender, receiver in ((accepted, elsewhere), (left, right)):
            sender.sendall(b"x")
            assert receiver.recv(1) == b"x"
        assert unconnected.fileno() >= 0


def test_a_connection_on_its_way_is_shut_down(full):
    """Over either family of addresses, with the one that was made; others are left alone."""
    with contextlib.ExitStack() as opened:
        begun = []
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::ffff:127.0.0.1")):
            begun.append(opened.enter_context(socket.socket(family)))
            begun[-1].setblocking(False)
            begun[-1].connect_ex((host, full))
        assert shut_down(frozenset({("127.0.0.1", full - 1), ("127.0.0.2", full)})) == 0
        assert shut_down(frozenset({("127.0.0.1", full)})) == 1 + len(begun)
        assert [one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) for one in begun] == [errno.ECONNRESET] * 2


def test_where_namenodes_are():
    """The location's own host, those of name services, the default file system's, and where a mount table leads; whatever isn't an address is left out."""
    properties = [
        ("dfs.namenode.rpc-address", "alone:8020"),
        ("dfs.namenode.rpc-address.ns1.nn1", " one:8020 "),
        ("dfs.namenode.rpc-address.ns1.nn2", "[fe80::2]:9000"),
        ("dfs.namenode.rpc-addresses", "no:1"),
        ("dfs.namenode.rpc-address.ns2.nn1", "${host}"),
        ("fs.defaultFS", "hdfs://default:9000"),
        ("fs.viewfs.mounttable.c.link./a", "hdfs://ns1/a,hdfs://mounted:8020/a"),
        ("dfs.namenode.http-address", "web:9870"),
    ]
    known = {("alone", 8020), ("one", 8020), ("fe80::2", 9000), ("default", 9000), ("mounted", 8020)}
    assert addresses("ns1", properties) == known
    assert addresses("here:8020", properties) == known | {("here", 8020)}
    assert addresses("", []) == frozenset()
    assert resolved([("127.0.0.1", 1), ("no.such.host.invalid", 2)]) == {("127.0.0.1", 1)}
