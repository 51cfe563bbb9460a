"""How long connections to NameNodes have waited: what the system knows of real ones, and what is made of it."""

import contextlib
import errno
import socket
import time
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.storage.hdfs_connections import Connection, Silences, connections, resolved
from compactor.storage.hdfs_patience import shut_down
from tests.unit.storage.test_storage_hdfs_patience import full, silent  # noqa: F401 - fixtures

LIMIT, AGAIN = 60.0, 5.0
ONE, OTHER = ("10.0.0.1", 8020), ("10.0.0.2", 8020)


def test_only_connections_to_namenodes_are_shut_down(silent):  # noqa: F811
    """Others of the process, open files and unconnected sockets stay as they are."""
    with contextlib.ExitStack() as opened:
        other, left, right, unconnected = map(opened.enter_context, (socket.create_server(("127.0.0.1", 0)), *socket.socketpair(), socket.socket()))
        to_namenode, elsewhere = (opened.enter_context(socket.create_connection(("127.0.0.1", port))) for port in (silent, other.getsockname()[1]))
        accepted = opened.enter_context(other.accept()[0])
        for waits in (to_namenode, elsewhere):
            waits.sendall(b"?")
        assert shut_down(resolved([("localhost", silent)]), Silences(0, 0)) == [("127.0.0.1", silent)]
        assert to_namenode.recv(1) == b""
        for sender, receiver in ((accepted, elsewhere), (left, right)):
            sender.sendall(b"x")
            assert receiver.recv(1) == b"x"
        assert unconnected.fileno() >= 0


def test_a_connection_on_its_way_is_shut_down(full):  # noqa: F811
    """Over either family of addresses; others are left alone."""
    with contextlib.ExitStack() as opened:
        begun = []
        for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::ffff:127.0.0.1")):
            begun.append(opened.enter_context(socket.socket(family)))
            begun[-1].setblocking(False)
            begun[-1].connect_ex((host, full))
        assert shut_down(frozenset({("127.0.0.1", full - 1), ("127.0.0.2", full)}), Silences(0, 0)) == []
        shut_down(frozenset({("127.0.0.1", full)}), Silences(0, 0))
        assert [one.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) for one in begun] == [errno.ECONNRESET] * 2


def test_what_the_system_knows_of_a_connection():
    """Since when it sent nothing, and since when nothing came."""
    with contextlib.ExitStack() as opened:
        server = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        name = server.getsockname()
        ours = opened.enter_context(socket.create_connection(name))
        theirs = opened.enter_context(server.accept()[0])

        def seen():
            with connections(frozenset({name})) as found:
                ((one, _),) = found.values()
            return one

        ours.sendall(b"?")
        time.sleep(0.3)
        waiting = seen()
        assert waiting.peer == name
        assert 0.2 < waiting.sent <= waiting.received
        theirs.sendall(b"!")
        time.sleep(0.1)
        answered = seen()
        assert answered.inode == waiting.inode
        assert answered.received < waiting.sent < answered.sent


@dataclass
class Line:
    """A connection that is watched by a clock that is moved by hand."""

    silences: Silences = field(default_factory=lambda: Silences(LIMIT, AGAIN))
    now: float = 1000.0

    def at(self, now, **last):
        """Whether it is overdue then, having sent and received last at these moments; `received=None`: it isn't made."""
        inode, peer = last.pop("inode", 1), last.pop("peer", ONE)
        received = None if last["received"] is None else now - last["received"]
        return inode in self.silences.overdue([Connection(inode, peer, now - last["sent"], received)], now)


CASES = {
    "unanswered since it asked, which was long after the last answer": [(1000, 1000, 0, False), (1059, 1000, 0, False), (1060, 1000, 0, True)],
    "first seen when it has waited for a while": [(1040, 1000, 990, False), (1061, 1000, 990, True)],
    "first seen when it has waited too long": [(1061, 1000, 990, True)],
    "nobody has asked for long": [(1000, 0, 1, False), (1100, 0, 1, False)],
    "asked again and again, and none is answered": [(1000, 1000, 0, False), (1030, 1030, 0, False), (1059, 1059, 0, False), (1061, 1061, 0, True)],
    "asked again and again, and something comes": [(1000, 1000, 0, False), (1030, 1030, 1029, False), (1061, 1061, 1029, False), (1089, 1089, 1029, True)],
    "answered, and asked later": [
        (1000, 1000, 0, False),
        (1010, 1000, 1005, False),
        (1070, 1065, 1005, False),
        (1124, 1065, 1005, False),
        (1125, 1065, 1005, True),
    ],
    "on its way": [(1000, 1000, None, False), (1059, 1059, None, False), (1060, 1060, None, True)],
}


@pytest.mark.parametrize("case", CASES)
def test_how_long_a_connection_has_waited(case):
    """Looks at one connection: when, when it sent last, when something came last, and whether it is overdue."""
    line = Line()
    for now, sent, received, late in CASES[case]:
        assert line.at(now, sent=sent, received=received) is late, now


def test_the_next_connection_to_a_silent_namenode_gets_less_time():
    """Until it answers, or the limit is over; the other NameNode keeps its time."""
    line = Line()
    assert line.at(1060, sent=1000, received=990)
    assert not line.at(1064, inode=2, sent=1060, received=1060)
    assert line.at(1065, inode=2, sent=1060, received=1060)
    assert not line.at(1075, inode=3, sent=1065, received=1065, peer=OTHER)
    assert line.silences.any
    assert not line.at(1080, inode=4, sent=1078, received=1079)
    assert not line.silences.any
    assert not line.at(1090, inode=5, sent=1080, received=1080)


def test_less_time_ends_with_the_limit():
    """One that was silent an hour ago may be as slow as any."""
    line = Line()
    assert line.at(1060, sent=1000, received=990)
    assert not line.at(1119, inode=2, sent=1116, received=1116)
    assert not line.at(1121, inode=2, sent=1116, received=1116)


def test_what_isnt_looked_at_is_forgotten():
    """It may have been answered, and asked again, meanwhile."""
    line = Line()
    assert not line.at(1000, sent=1000, received=990)
    line.silences.forget()
    assert not line.at(1070, sent=1069, received=1001)


@given(st.lists(st.tuples(st.booleans(), st.floats(0.01, LIMIT - 0.02)), min_size=1, max_size=30))
def test_who_is_answered_within_the_limit_is_never_overdue(exchanges):
    """However questions and answers follow one another, and whether it is looked at after each or not."""
    line, now, received = Line(), 1000.0, 999.0
    for looked_at, seconds in exchanges:
        sent = now
        now += seconds
        if looked_at:
            assert not line.at(now, sent=sent, received=received)
        received = now
        now += 0.01
        if looked_at:
            assert not line.at(now, sent=sent, received=received)
