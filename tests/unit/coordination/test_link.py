"""How long a question waits for a connection to ZooKeeper that isn't there, and why it isn't."""

import pytest
from kazoo.protocol.states import KazooState

from compactor.coordination.zk.connection import Link
from compactor.settings import ZooKeeper


@pytest.fixture
def clock(monkeypatch):
    """Seconds, moved by hand."""
    at = [1000.0]
    monkeypatch.setattr("compactor.coordination.zk.connection.elapsed", lambda: at[0])
    return at


def test_many_questions_wait_for_one_time_out(clock):
    """
    Until the session time-out after the connection was lost; afterwards a second each. A connection that is there again
    is worth all of it again.
    """
    link = Link(ZooKeeper(hosts="127.0.0.1:1", session_timeout_seconds=20), lambda _: None)
    link._on_state(KazooState.CONNECTED)
    assert link.patience == 20
    link._on_state(KazooState.SUSPENDED)
    clock[0] += 15
    assert link.patience == 5
    link._on_state(KazooState.LOST)
    assert link.patience == 5
    clock[0] += 3600
    assert link.patience == 1
    link._on_state(KazooState.CONNECTED)
    link._on_state(KazooState.SUSPENDED)
    assert link.patience == 20


def test_what_was_the_matter_before_is_no_reason_now():
    """
    Once there is a connection, kazoo's complaints are over: a server that stops answering an hour later isn't
    "refused".
    """
    link = Link(ZooKeeper(hosts="127.0.0.1:1"), lambda _: None)
    link.client.logger.warning("Connection dropped: socket connection error: %s", "Connection refused")
    assert link.trouble == "Connection refused"
    link._on_state(KazooState.CONNECTED)
    assert "refused" not in link.trouble
    link.client.logger.warning("Connection dropped: %s", "socket connection broken")
    link._on_state(KazooState.SUSPENDED)
    assert link.trouble == "Connection dropped: socket connection broken"
