"""
A NameNode that holds its connections and answers nothing: no compaction waits for it for ever. The client is the real one, the
NameNode one that only listens.
"""

import contextlib
import errno
import socket
import threading
import time

import pytest

from compactor.errors import OutcomeUnknownError, UnreachableError
from compactor.settings.stores import Hdfs
from compactor.storage.hdfs.connections import connections, resolved
from compactor.storage.hdfs.driver import HdfsStorage
from compactor.storage.hdfs.timeouts import Timeouts, addresses
from compactor.storage.location import split
from compactor.storage.registry import StorageOptions

ONCE = """<?xml version="1.0"?><configuration>
  <property><name>dfs.client.failover.max.attempts</name><value>1</value></property>
</configuration>"""


TICK = 0.02
"""Seconds that an answer takes, so that it is seen to come after its question."""


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
        opened.enter_context(
            socket.create_connection(server.getsockname())
        )  # nobody accepts it, and there is room for one
        yield server.getsockname()[1]


def storage(port, folder):
    (folder / "hdfs-site.xml").write_text(ONCE)
    return HdfsStorage(
        split(f"hdfs://127.0.0.1:{port}/"), StorageOptions(hdfs=Hdfs(conf_dir=folder, rpc_timeout_seconds=0.2))
    )


def test_every_question_ends(silent, tmp_path):
    """As for a NameNode that died: unreachable, in one line; a rename looks before it asks, so nothing was sent."""
    there = storage(silent, tmp_path)
    at = f"hdfs://127.0.0.1:{silent}/t"
    for ask in (
        there.list_tree,
        there.create,
        there.open_read,
        there.room,
        lambda location: there.rename_noreplace(location, f"{location}2"),
    ):
        with pytest.raises(UnreachableError) as caught:
            ask(at)
        assert not isinstance(caught.value, OutcomeUnknownError)
        assert "\n" not in str(caught.value)


def test_a_connection_that_isnt_made_is_waited_for_no_longer(full, tmp_path):
    """
    The system would try for two minutes, and the client after that again; meanwhile the connection has no other end
    that could be asked for.
    """
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


@pytest.fixture
def answering():
    """Port of a server that answers every message."""

    def serve(connection):
        with connection:
            while message := connection.recv(100):
                time.sleep(TICK)
                connection.sendall(message)

    def accept():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=server.accept()[:1]).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=accept)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_only_connections_to_namenodes_are_shut_down(silent):
    """Others of the process, open files and unconnected sockets stay as they are."""
    with contextlib.ExitStack() as opened:
        other, left, right, unconnected = map(
            opened.enter_context, (socket.create_server(("127.0.0.1", 0)), *socket.socketpair(), socket.socket())
        )
        to_namenode, elsewhere = (
            opened.enter_context(socket.create_connection(("127.0.0.1", port)))
            for port in (silent, other.getsockname()[1])
        )
        accepted = opened.enter_context(other.accept()[0])
        for waits in (to_namenode, elsewhere):
            waits.sendall(b"?")
        overdue(silent)
        assert to_namenode.recv(1) == b""
        for sender, receiver in ((accepted, elsewhere), (left, right)):
            sender.sendall(b"x")
            assert receiver.recv(1) == b"x"
        assert unconnected.fileno() >= 0


def test_a_connection_on_its_way_is_shut_down(full):
    """Over either family of addresses; others are left alone."""
    with contextlib.ExitStack() as opened:
        begun = []
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::ffff:127.0.0.1")):
            begun.append(opened.enter_context(socket.socket(family)))
            begun[-1].setblocking(False)
            begun[-1].connect_ex((host, full))
        errors = [0, 0]
        for port, expected in ((full - 1, [0, 0]), (full, [errno.ECONNRESET] * 2)):
            overdue(port)
            errors = [one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) for one in begun]
            assert errors == expected


def overdue(port):
    """Look until whatever waits on a connection to there has waited too long."""
    timeouts = Timeouts(lambda: [("localhost", port)], 0.1)
    with timeouts.asking():
        for _ in range(5):
            time.sleep(0.1)
            timeouts.look()


def test_a_namenode_that_answers_some_and_never_the_others(answering):
    """
    Something comes on the connection all the time; the question that stays open for twice as long as it may has it shut
    down, a few times, and no more.
    """
    timeouts = Timeouts(lambda: [("127.0.0.1", answering)], 0.2)
    lost = 0
    with timeouts.asking():
        until = time.monotonic() + 2
        while time.monotonic() < until:
            with (
                socket.create_connection(("127.0.0.1", answering)) as one,
                contextlib.suppress(BrokenPipeError, ConnectionResetError),
            ):
                while time.monotonic() < until:
                    one.sendall(b"?")
                    if one.recv(1) == b"":
                        lost += 1
                        break
    assert 1 <= lost <= 3


def test_a_question_that_gets_on_has_its_time_anew(answering):
    """A listing of many thousands of files is many answers."""
    timeouts = Timeouts(lambda: [("127.0.0.1", answering)], 0.4)
    with timeouts.asking() as gets_on, socket.create_connection(("127.0.0.1", answering)) as one:
        until = time.monotonic() + 2
        while time.monotonic() < until:
            one.sendall(b"?")
            assert one.recv(1) == b"?"
            gets_on()


def test_the_watch_outlives_what_goes_wrong(silent, monkeypatch):
    """It may be out of file descriptors for a moment."""
    called = threading.Event()

    def broken(_):
        called.set()
        raise OSError(errno.EMFILE, "Too many open files")

    timeouts = Timeouts(lambda: [("127.0.0.1", silent)], 0.2)
    with timeouts.asking(), socket.create_connection(("127.0.0.1", silent)) as one:
        with monkeypatch.context() as patched:
            patched.setattr("compactor.storage.hdfs.timeouts.connections", broken)
            assert called.wait(10)
        one.sendall(b"?")
        one.settimeout(10)
        assert one.recv(1) == b""


def test_who_waits_for_something_else_takes_no_connection_from_others(silent, answering):
    """
    A file that hangs at a DataNode is a question without an end: what a NameNode answers on goes on, and so does one
    that nobody needs. The silent one ends.
    """
    with contextlib.ExitStack() as opened:
        timeouts = Timeouts(lambda: [("127.0.0.1", silent), ("127.0.0.1", answering)], 0.8)
        opened.enter_context(timeouts.asking(data=True))
        busy, idle, waiting = (
            opened.enter_context(socket.create_connection(("127.0.0.1", port)))
            for port in (answering, answering, silent)
        )
        idle.sendall(b"?")
        assert idle.recv(1) == b"?"
        waiting.sendall(b"?")
        until = time.monotonic() + 3
        while time.monotonic() < until:
            busy.sendall(b"?")
            assert busy.recv(1) == b"?"
        idle.sendall(b"?")
        assert idle.recv(1) == b"?"
        waiting.settimeout(10)
        assert waiting.recv(1) == b""


def test_nothing_is_looked_at_while_questions_are_young(silent):
    """A connection may have been open for days when something is asked."""
    timeouts = Timeouts(lambda: pytest.fail("asked where NameNodes are"), 0.8)
    timeouts.look()
    with timeouts.asking():
        timeouts.look()


def test_no_handle_stays_open(silent):
    """However often connections are looked at."""
    with socket.create_connection(("127.0.0.1", silent)) as one:
        for _ in range(3):
            with connections(resolved([("127.0.0.1", silent)])) as found:
                handles = [handle for _, handle in found.values()]
            assert [handle.fileno() for handle in handles] == [-1]
        assert one.fileno() >= 0


def test_where_namenodes_are():
    """
    The location's own host, those of name services, the default file system's, and where a mount table leads; whatever
    isn't an address is left out.
    """
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
