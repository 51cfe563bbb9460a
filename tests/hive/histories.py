"""Random histories for the fast lane: what is drawn, how one is played, and those that once went wrong."""

import contextlib
import logging
import os
import shutil

import pytest
import structlog
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from compactor.metastore.db.database import Database
from compactor.metastore.txn import transactions
from compactor.metastore.txn.allocated_ids import HandedOut
from compactor.roles.worker import monitor, older_snapshots
from tests.counts import count
from tests.hive.java import UnavailableError as NoJavaError
from tests.hive.lane.lane import Lane
from tests.hive.lane.model import Statement, Turns
from tests.metastore.servers import UnavailableError, schema_script
from tests.needs import missing

HISTORIES = 40
"""Of both releases together."""
RELEASES = {"3.1.0": "3.1.3", "4.0.0": "4.0.1"}
"""By the version of the schema."""
_BESIDE, _ENOUGH = 0.6, 25
"""The share of histories that must compact something beside open readers or writers, of that many at least."""
_PHASES = [phase for phase in Phase if phase is not Phase.explain]
"""Without tracing each line, which costs a sixth of the time."""

_COUNT, _WHICH, _YES = st.integers(1, 3), st.integers(0, 3), st.booleans()
_PLACES = st.lists(st.integers(0, 2), min_size=1, max_size=2, unique=True).map(tuple)
_KINDS = st.sampled_from(["insert", "insert", "copy", "update", "delete", "overwrite"])
_STATEMENTS = st.builds(Statement, _KINDS, _PLACES, _COUNT, st.integers(0, 1), _YES)
_WRITES = [st.tuples(st.just("write"), _STATEMENTS, st.sampled_from([True, True, False])) for _ in range(3)]
"""Three strategies, so that writes come three times as often: `one_of` drops an object that it gets twice."""
_STEPS = st.one_of(
    *_WRITES,
    st.tuples(st.just("start"), _STATEMENTS),
    st.tuples(
        st.just("stream"),
        st.integers(0, 2),
        _COUNT,
        st.lists(st.sampled_from([True, False, None]), min_size=2, max_size=3),
    ),
    st.tuples(st.just("open_stream"), st.integers(0, 2), st.integers(2, 3)),
    st.tuples(st.just("stream_on"), _WHICH, st.sampled_from([True, True, False])),
    st.tuples(st.just("stream_on"), _WHICH, st.just(True)),
    st.tuples(st.just("close_stream"), _WHICH),
    st.tuples(st.just("go_on"), _WHICH),
    st.tuples(st.just("finish"), _WHICH, _YES),
    st.tuples(st.just("reap"), _WHICH),
    st.tuples(st.just("write_late"), _WHICH),
    st.tuples(st.just("read"), _YES),
    st.tuples(st.just("list"), _WHICH),
    st.tuples(st.just("read_no_more"), _WHICH),
    st.tuples(st.just("ask"), st.integers(0, 2), _YES),
    *(
        st.tuples(st.just(role))
        for role in (
            "initiate",
            "work",
            "work",
            "clean",
            "clean",
            "keep_house",
            "hive_keeps_house",
            "restart",
            "hive_initiates",
            "hive_cleans",
            "hive_cleans",
        )
    ),
)
_ODD = [
    st.tuples(st.just("write_nothing"), st.integers(0, 2)),
    st.tuples(st.just("die")),
    st.tuples(st.just("ask_in_capitals"), st.integers(0, 2), _YES),
    st.tuples(st.just("ask_at_once"), st.integers(0, 2), _YES),
    st.tuples(st.just("observe_minor"), st.integers(0, 2)),
]
"""
What a test thinks of last: a statement without a file, a worker that dies before it marks its entry, a second entry of
a table by other letters or by two requests at once, and a reader of a result that another reader keeps from being
cleaned.
"""
_TABLES = st.one_of(
    st.just({"partitioned": True}),
    st.builds(lambda rows: {"partitioned": False, "originals": rows}, st.sampled_from([0, 0, 3])),
    st.builds(lambda partitioned: {"partitioned": partitioned, "insert_only": True}, _YES),
)
_ROLES = [("initiate",), ("clean",), ("keep_house",), ("hive_keeps_house",)]
_INSERT, _INSERT_BEGUN, _INSERT_UNDONE = (
    ("write", Statement("insert")),
    ("start", Statement("insert")),
    ("write", Statement("insert"), False),
)
_FORGETS_INSIDE = [("clean",), ("hive_initiates",), ("work",), ("hive_cleans",), ("hive_keeps_house",)]
"""An aborted write among committed ones in the only delta."""
_REAPED_AND_LATE = [
    ("reap", 0),
    ("ask", 0, True),
    ("work",),
    ("clean",),
    ("clean",),
    ("hive_keeps_house",),
    ("hive_keeps_house",),
    ("write_late", 0),
]
"""Its HiveServer2 falls silent, Hive rolls it back, a compaction and the cleaning go by, and then its tasks write."""
_DEAD_CLIENT = [
    ("stream_on", 0, False),
    ("reap", 0),
    ("reap", 0),
    *[_INSERT] * 2,
    ("ask", 0, True),
    ("work",),
    ("clean",),
]
"""A client of the streaming API dies: the end of what it wrote was handed out to nobody."""
_COMPACTED = [_INSERT, _INSERT, ("ask", 0, True), ("work",)]


def _rolled_back(*places, dynamic=False):
    """A committed insert and one that was rolled back, there."""
    one = Statement("insert", places, dynamic=dynamic)
    return [("write", one), ("write", one, False)]


@contextlib.contextmanager
def quietly():
    """
    Without the log of all those histories, which would hide what a failure says; and without waits for what can't
    happen in one: that the machine loses its power, and that a client of Hive 3.1 opens a transaction just now.
    """
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", lambda _: None)
            patch.setattr(transactions, "SETTLED_MS", 0)
            yield
    finally:
        structlog.reset_defaults()


def play(version, request, parties, folder):
    """
    Random histories on the schema of that version: after each step each open reader and a new one see exactly the
    model's rows with their ROW__IDs.

    Args:
        parties: the fixture of `tests.metastore.databases`.
    """
    try:
        schema_script(version)
    except (UnavailableError, NoJavaError) as error:
        missing(str(error))
    server, release = request.getfixturevalue("postgres"), RELEASES[version]
    played: list[bool] = []
    histories = max(1, (request.config.getoption("--histories") or HISTORIES) // len(RELEASES))
    url = server.borrow(version)

    @settings(max_examples=histories, database=None, suppress_health_check=list(HealthCheck), phases=_PHASES)
    @given(_TABLES, st.lists(st.one_of(_STEPS, *_ODD), min_size=4, max_size=25))
    @example(
        {"partitioned": True},
        [
            ("write", Statement("copy", (1,), 1, 0, False), True),
            ("stream", 1, 1, [True, True, None]),
            ("write", Statement("insert", (1,), 1, 0, False), False),
            ("start", Statement("insert", (0,), 1, 0, False)),
            ("write", Statement("insert", (0,), 1, 0, False), True),
            ("initiate",),
            ("start", Statement("insert", (0,), 1, 0, False)),
            ("work",),
        ],
    )  # a first base beside a writer of another partition, which doesn't list this one
    @example(
        {"partitioned": True},
        [
            ("start", Statement("insert", (1,), 3, 1, dynamic=True)),
            ("finish", 0, False),
            ("hive_keeps_house",),
            ("write_late", 0),
            ("read", True),
        ],
    )  # Hive itself forgets what it hasn't noted: no compactor can help that
    @example({"partitioned": False, "originals": 3}, [*[_INSERT] * 3, ("ask", 0, True), ("work",), ("clean",)])
    @example(
        {"partitioned": True},
        [
            ("write", Statement("update")),
            ("write", Statement("update", dynamic=True), False),
            ("clean",),
            ("write", Statement("insert"), False),
        ],
    )  # what put off the second statement's writes ends when a sweep for the third forgets them
    @example({"partitioned": True}, [*_rolled_back(1), *_ROLES])  # Hive 3.1 stores the name folded
    @example({"partitioned": True}, [*_rolled_back(2), *_ROLES])  # Hive 4 stores it escaped twice
    @example(
        {"partitioned": True},
        [_rolled_back(0)[0], ("start", Statement("insert", dynamic=True)), ("go_on", 0), ("finish", 0, False), *_ROLES],
    )
    @example({"partitioned": False}, [_rolled_back(0)[0], ("stream", 0, 1, [True, None]), *_ROLES])
    @example(
        {"partitioned": False},
        [_INSERT, ("write", Statement("copy"), False), ("keep_house",), ("hive_keeps_house",), _INSERT],
    )
    @example(
        {"partitioned": True},
        [_INSERT, ("write", Statement("copy"), False), ("keep_house",), ("hive_keeps_house",), _INSERT],
    )
    @example(
        {"partitioned": True}, [("clean",), ("start", Statement("overwrite", (0, 1))), ("stream", 0, 1, [None, True])]
    )  # none of them leaves a file
    @example(
        {"partitioned": True}, [("write", Statement("overwrite"), False)]
    )  # Hive 3.1 can't list it until our Cleaner came
    @example(
        {"partitioned": True}, [_INSERT, ("start", Statement("overwrite")), ("go_on", 0)]
    )  # who reads now waits for its lock
    @example({"partitioned": True}, [*[_INSERT] * 3, ("hive_initiates",), ("work",), ("hive_cleans",)])
    @example(
        {"partitioned": False},
        [_INSERT, _INSERT, _INSERT_UNDONE, ("ask", 0, False), ("read",), ("work",), ("hive_cleans",)],
    )
    @example(
        {"partitioned": False},
        [
            *_COMPACTED,
            ("clean",),
            _INSERT,
            ("write", Statement("overwrite"), False),
            *_COMPACTED[-2:],
            ("hive_cleans",),
        ],
    )
    @example(
        {"partitioned": True},
        [_INSERT, ("ask", 0, False), ("work",), _INSERT, _INSERT, ("ask", 0, True), ("work",), ("hive_cleans",)],
    )  # fails the first
    @example(
        {"partitioned": False, "originals": 3},
        [_INSERT, ("initiate",), ("hive_initiates",), _INSERT_UNDONE, ("work",), *[("go_on", 0)] * 3],
    )  # fails the first
    @example(
        {"partitioned": False, "originals": 3}, [("read",), ("read",), _INSERT, _INSERT_BEGUN]
    )  # Hive 3.1 lists again when it opens an original file
    @example(
        {"partitioned": False}, [_INSERT_UNDONE, ("ask", 0, True), ("work",), ("hive_cleans",), ("hive_keeps_house",)]
    )  # nothing lies below what was undone
    @example(
        {"partitioned": False},
        [_INSERT, _INSERT_UNDONE, ("ask", 0, True), ("work",), ("hive_cleans",), ("hive_keeps_house",)],
    )
    @example(
        {"partitioned": False}, [("ask", 0, False), _INSERT_BEGUN, ("work",), ("hive_cleans",)]
    )  # for Hive 3.1 an entry that ends at 0 has no end
    @example(
        {"partitioned": True},
        [
            *[("stream", 0, 1, [True, True])] * 2,
            ("write", Statement("overwrite"), False),
            _INSERT_BEGUN,
            ("hive_initiates",),
        ],
    )
    @example(
        {"partitioned": True},
        [("stream", 2, 1, [True, False]), ("initiate",), ("initiate",), ("write", Statement("insert", (2,)), True)],
    )
    @example(
        {"partitioned": False},
        [_INSERT_BEGUN, ("stream", 0, 2, [True, False]), ("reap", 0), ("hive_keeps_house",), *_FORGETS_INSIDE],
    )
    @example(
        {"partitioned": False}, [_INSERT, ("ask", 0, True), ("work",), ("read",), ("hive_cleans",), ("initiate",)]
    )  # an entry that has nothing to clean
    @example(
        {"partitioned": True}, [_INSERT_BEGUN, _INSERT_BEGUN, _INSERT, ("ask", 0, False), ("work",), ("initiate",)]
    )  # nothing to compact, two times
    @example(
        {"partitioned": False},
        [
            *[_INSERT] * 5,
            ("stream", 0, 3, [None, True, True]),
            ("clean",),
            ("hive_cleans",),
            _INSERT,
            ("initiate",),
            ("work",),
        ],
    )
    @example(
        {"partitioned": False, "originals": 3},
        [
            ("ask", 0, True),
            ("work",),
            ("stream", 0, 1, [True, False]),
            ("hive_cleans",),
            _INSERT,
            _INSERT,
            ("hive_initiates",),
        ],
    )
    @example({"partitioned": False}, [_INSERT, _INSERT, _INSERT_BEGUN, *_REAPED_AND_LATE])
    @example({"partitioned": False}, [_INSERT, _INSERT, ("start", Statement("overwrite")), *_REAPED_AND_LATE])
    @example({"partitioned": False, "insert_only": True}, [_INSERT, _INSERT, _INSERT_BEGUN, *_REAPED_AND_LATE])
    @example(
        {"partitioned": True},
        [_INSERT, _INSERT, ("start", Statement("insert", (0, 1), dynamic=True)), *_REAPED_AND_LATE],
    )
    @example(
        {"partitioned": False},
        [_INSERT_BEGUN, ("reap", 0), *[_INSERT] * 3, ("ask", 0, False), *_REAPED_AND_LATE[2:]],
    )  # below a minor
    @example(
        {"partitioned": False},
        [
            _INSERT,
            ("start", Statement("overwrite")),
            ("reap", 0),
            *[_INSERT] * 3,
            ("ask", 0, False),
            *_REAPED_AND_LATE[2:],
        ],
    )  # inside a minor's range: readers take a late base_2 beside delta_1_5
    @example(
        {"partitioned": False},
        [
            _INSERT,
            _INSERT_BEGUN,
            ("finish", 0, False),
            *_REAPED_AND_LATE[1:],
            *[_INSERT] * 2,
            ("ask", 0, True),
            ("work",),
            ("clean",),
        ],
    )  # what was written late is removed, too
    @example(
        {"partitioned": False},
        [*_COMPACTED, ("clean",), ("observe_minor", 0), ("ask", 0, True), ("die",), ("read_no_more", 0), ("clean",)],
    )  # on Hive 3.1 the result wasn't there when the minor's entry was observed
    @example(
        {"partitioned": False},
        [
            *[*_COMPACTED, ("clean",), ("observe_minor", 0), ("write_nothing", 0), ("ask", 0, True), ("work",)],
            *[("clean",), ("read_no_more", 0), ("clean",)],
        ],
    )  # the result's name reaches no higher than the minor's, though the table's write ids do
    @example(
        {"partitioned": False}, [*[_INSERT] * 3, ("ask", 0, True), ("ask_in_capitals", 0, False), ("work",), ("work",)]
    )
    @example(
        {"partitioned": False},
        [*[_INSERT] * 3, ("ask_at_once", 0, True), ("read", False), ("work",), ("work",), ("clean",)],
    )
    @example({"partitioned": False}, [("ask", 0, True), *[_INSERT] * 2, _INSERT_BEGUN, *[_INSERT] * 3, ("die",)])
    @example({"partitioned": False}, [_INSERT, ("open_stream", 0, 3), ("stream_on", 0, True), ("read",), *_DEAD_CLIENT])
    @example({"partitioned": True}, [("open_stream", 0, 2), *_DEAD_CLIENT])
    @example(
        {"partitioned": True},
        [
            ("start", Statement("insert", (1, 2), 3, 1, dynamic=True)),
            ("reap", 0),
            ("write_late", 3),
            ("stream", 2, 2, [None, None, False]),
            ("hive_keeps_house",),
        ],
    )  # it has written before Hive forgets it, and its partition is known by another
    @example(
        {"partitioned": True},
        [
            ("start", Statement("insert", dynamic=True)),
            ("go_on", 0),
            ("reap", 0),
            _INSERT,
            ("hive_initiates",),
        ],
    )  # … before it was rolled back
    @example(
        {"partitioned": False},
        [("initiate",), ("hive_initiates",), ("stream_on", 0, True), _INSERT_BEGUN, _INSERT],
    )  # written late, and Hive 3.1's own Cleaner forgets it: no compactor can help that
    @example(
        {"partitioned": False, "originals": 3},
        [
            ("start", Statement("overwrite")),
            ("go_on", 0),
            *[_INSERT, _INSERT_BEGUN, _INSERT],
            ("hive_cleans",),
        ],
    )  # Hive 4's own Cleaner would take the open statement's base for valid, and remove the original files
    @example(
        {"partitioned": True},
        [_INSERT_BEGUN, ("reap", 0), ("observe_minor", 1), ("hive_cleans",), ("initiate",)],
    )  # a write id that was rolled back elsewhere, below a minor
    @example(
        {"partitioned": True},
        [
            *[("work",), ("clean",)],
            *[("observe_minor", 0)] * 2,
            *[("write", Statement("update")), ("hive_cleans",), ("work",), ("work",), ("work",)],
        ],
    )  # Hive 3.1's own Cleaner fails two, so Hive's Initiator asks for no third
    @example(
        {"partitioned": True},
        [
            *[("write", Statement("insert", (1,))), ("start", Statement("insert")), ("reap", 0)],
            *[("write", Statement("insert", (1,))), ("read", True), ("ask", 1, False), ("work",), ("clean",)],
            *[("read", True), ("hive_cleans",), ("initiate",), ("ask", 1, True), ("work",), ("hive_cleans",)],
            *[("read_no_more", 0), ("hive_cleans",)],
        ],
    )  # a base that ends where a minor does that isn't cleaned: Hive 3.1's own Cleaner would take both for one
    def live(table, steps):
        turns = Turns()
        try:
            database.handed_out = HandedOut()
            patch.setattr(older_snapshots, "time", turns)
            lane = Lane(database, parties(version, url), turns, folder / "history", **table)
            for name, *about in steps:
                getattr(lane, name)(*about)
                lane.check()
            lane.rest()
            count(f"histories of Hive {release} in the fast lane")
            count(f"steps of Hive {release} in the fast lane", len(steps))
            for state, _ in lane.world.ended():
                count(f"compactions of Hive {release} in the fast lane: {state}")
            played.append(lane.beside)
        finally:
            if turns.waits:
                lane.stop()
            server.empty(version, url)
            shutil.rmtree(folder / "history")

    with Database(url) as database, pytest.MonkeyPatch.context() as patch, quietly():
        patch.setattr(monitor, "LOOK_SECONDS", 3600.0)  # a history's steps aren't in its time
        live()
    server.give_back(version, url)
    count(f"histories of Hive {release} in the fast lane with a compaction beside open readers or writers", sum(played))
    assert sum(played) >= len(played) * _BESIDE or len(played) < _ENOUGH, (
        f"only {sum(played)} of {len(played)} histories compacted beside open readers or writers"
    )
