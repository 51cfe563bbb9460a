"""How long connections to NameNodes have waited: what the system knows of real ones, and what is made of it."""

import contextlib
import socket
import time
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.storage.hdfs.connections import Silences, TcpConnection, connections

LIMIT, AGAIN = 60.0, 5.0
NAMENODE = ("10.0.0.1", 8020)


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

        assert seen().fresh
        ours.sendall(b"?")
        time.sleep(0.3)
        waiting = seen()
        assert waiting.peer == name
        assert waiting.fresh
        assert waiting.received >= waiting.sent > 0.2
        theirs.sendall(b"!")
        time.sleep(0.1)
        answered = seen()
        assert answered.inode == waiting.inode
        assert not answered.fresh
        assert answered.sent > answered.received > 0


@dataclass
class Line:
    """A connection that is watched by a clock that is moved by hand."""

    silences: Silences = field(default_factory=lambda: Silences(LIMIT, AGAIN))

    def at(self, now, sent, received, *, asked=None, inode=1, fresh=False, everything=False):
        """
        Whether it is told to be overdue then, having sent and received last at these moments; the oldest question was
        asked at one.
        """
        seen = TcpConnection(inode, NAMENODE, now - sent, None if received is None else now - received, fresh)
        return inode in self.silences.overdue(
            [seen], now, None if asked is None else now - asked, everything=everything
        )


CASES = {
    "unanswered since it asked, which was long after the last answer": [
        (1000, 1000, 0, False),
        (1059, 1000, 0, False),
        (1060, 1000, 0, True),
    ],
    "first seen when it has waited for a while": [(1040, 1000, 990, False), (1061, 1000, 990, True)],
    "first seen when it has waited too long": [(1061, 1000, 990, True)],
    "nobody has asked for long": [(1000, 0, 1, False), (1100, 0, 1, False)],
    "asked again and again, and none is answered": [
        (1000, 1000, 0, False),
        (1030, 1030, 0, False),
        (1059, 1059, 0, False),
        (1061, 1061, 0, True),
    ],
    "asked again and again, and something comes": [
        (1000, 1000, 0, False),
        (1030, 1030, 1029, False),
        (1061, 1061, 1029, False),
        (1089, 1089, 1029, True),
    ],
    "answered, and asked later": [
        (1000, 1000, 0, False),
        (1010, 1000, 1005, False),
        (1070, 1065, 1005, False),
        (1124, 1065, 1005, False),
        (1125, 1065, 1005, True),
    ],
    "on its way": [(1000, 1000, None, False), (1059, 1059, None, False), (1060, 1060, None, True)],
    "told once": [(1061, 1000, 990, True), (1062, 1000, 990, False), (1200, 1000, 990, False)],
    "in the same tick": [
        (1000, 1000, 1000, False),
        (1100, 1000, 1000, False),
        (1101, 1101, 1000, False),
        (1160, 1101, 1000, False),
        (1161, 1101, 1000, True),
    ],
}


@pytest.mark.parametrize("case", CASES)
def test_how_long_a_connection_has_waited(case):
    """Looks at one connection: when, when it sent last, when something came last, and whether it is overdue."""
    line = Line()
    for now, sent, received, late in CASES[case]:
        assert line.at(now, sent, received) is late, now


def test_while_a_question_is_overdue_there_is_less_time():
    """It waits on its next connection. Without one, what was silent an hour ago may be as slow as any."""
    line = Line()
    assert line.at(1060, 1000, 990, asked=1000)
    assert not line.at(1064, 1060, 1060, asked=1000, inode=2, fresh=True)
    assert line.at(1065, 1060, 1060, asked=1000, inode=2, fresh=True)
    assert not line.at(1070, 1068, 1069, asked=1000, inode=3)
    assert not line.at(1080, 1060, 1059, asked=1070, inode=4)


def test_what_cant_be_told_counts_with_a_question_as_old():
    """Its last answer came when the question was sent, or the question waits elsewhere and nobody uses this one."""
    line = Line()
    assert not line.at(1059, 1000, 1000, asked=1000)
    assert line.at(1060, 1000, 1000, asked=1000)
    assert not line.at(1061, 1030, 1030, asked=1000, inode=2)
    assert not line.at(1100, 1000, 1000, inode=3)


def test_everything_is_everything():
    """Even what something comes on; once."""
    line = Line()
    assert line.at(1200, 1198, 1199, asked=1000, everything=True)
    assert not line.at(1201, 1198, 1199, asked=1000, everything=True)


def test_what_isnt_looked_at_is_forgotten():
    """It may have been answered, and asked again, meanwhile."""
    line = Line()
    assert not line.at(1000, 1000, 990)
    line.silences.forget()
    assert not line.at(1070, 1069, 1001)


@given(st.lists(st.tuples(st.booleans(), st.floats(0.01, LIMIT - 0.02)), min_size=1, max_size=30))
def test_who_is_answered_within_the_limit_is_never_overdue(exchanges):
    """However questions and answers follow one another, and whether it is looked at after each or not."""
    line, now, received = Line(), 1000.0, 999.0
    for looked_at, seconds in exchanges:
        sent = now
        now += seconds
        if looked_at:
            assert not line.at(now, sent, received, asked=sent)
        received = now
        now += 0.01
        if looked_at:
            assert not line.at(now, sent, received)
