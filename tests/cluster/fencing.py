"""
A daemon that is stopped at a named step, succeeded by another, and continued later: how the tests of fencing do it, and
what must hold afterwards.
"""

import re
import signal

from sqlalchemy import select

from compactor.metastore.compaction_queue.queue import Queue
from compactor.roles import steps
from tests.crash.scene import ended

OWN_STEPS = [step for step in steps.ALL_STEPS if step not in steps.RECOVERY_STEPS]
"""Of a daemon that works by itself; whoever recovers needs a dead one."""
HOLDING_STEPS = [
    steps.INITIATOR_QUEUED,
    steps.WORKER_LOCKED,
    steps.WORKER_PUBLISHED,
    steps.WORKER_COMMITTED,
    steps.CLEANER_SELECTED,
    steps.CLEANER_TRASHED,
    steps.CLEANER_MARKED,
]
"""At these the first holds a mutex, a lock or a transaction that the server must end, or has just ended one."""


def stop_succeed_continue(fleet, step, role=None, servers=None, skew=0.0):
    """
    Stop the first at a step, let the second finish, continue the first.

    Args:
        role: whose loop goes through the step; None: as its name says.
        servers: ZooKeeper's, whose leader is killed while the first is stopped, and started again before it is
            continued.
        skew: seconds by which the first's clock is ahead, and the second's behind.
    """
    stopped = fleet.daemon("first", stop_at=step, skew=skew)
    fleet.wait(stopped.stopped, f"stopped at {step}")
    killed = None if servers is None else servers.leader()
    if servers is not None:
        servers.kill(killed)
    successor = fleet.daemon("second", skew=-skew)
    fleet.wait(fleet.settled, "settled by the second")
    fleet.assert_rows()
    fleet.wait(lambda: fleet.seen("first") is None, "missed")
    if servers is not None:
        servers.start_one(killed)
        servers.wait()
    go_on(fleet, stopped, role or step.partition(".")[0])
    for running in (stopped, successor):
        running.send(signal.SIGTERM)
        assert ended(running.process) == 0
    assert_as_if_one(fleet)


def go_on(fleet, stopped, role):
    before = len(stopped.events())
    stopped.send(signal.SIGCONT)
    fleet.wait(
        lambda: any(event.get("role", "").startswith(role) for event in stopped.events()[before:]),
        "at the end of the cycle that was stopped",
    )
    fleet.wait(lambda: fleet.seen(stopped.name) is not None, "seen again")
    assert_as_if_one(fleet)


def assert_as_if_one(fleet):
    """
    One compaction, once; no row or directory of another, and no component but of what was rolled back: the scene's
    INSERT, and the mark of an attempt, which stay for a day.
    """
    fleet.assert_rows()
    names = fleet.names()
    assert len(names) == 1, names
    assert re.fullmatch(r"base_0000008(_v\d{7})?", names[0])
    assert fleet.settled()
    assert len(Queue(fleet.metastore).history()) == 1
    with fleet.metastore.reading() as connection:
        schema = fleet.metastore.schema
        query = select(schema.txns.c.txn_state, schema.txn_components.c.tc_operation_type).select_from(
            schema.txn_components.join(
                schema.txns, schema.txns.c.txn_id == schema.txn_components.c.tc_txnid, isouter=True
            )
        )
        kept = [tuple(row) for row in connection.execute(query)]
    assert [row for row in kept if row[1] != "c"] == [("a", "i")]
    assert {state for state, _ in kept} == {"a"}
