"""Resolution against rows: whatever happened to a partition, every snapshot reads exactly its rows."""

import pytest
from hypothesis import Phase, find, given, settings

from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.planning.included import included, overlap
from tests import strategies
from tests.history import Compaction, History


@pytest.mark.parametrize("layout", LayoutVersion)
def test_no_snapshot_ever_loses_or_gains_a_row(layout):
    """
    Random lives of writers, aborts, streams, overwrites, compactions and cleaning: all readers, old and new, see the
    rows that the log says, once each.

    On Hive 3.1 a reader older than a compaction may be told that there isn't enough history; it is never given other
    rows.
    """

    @settings(max_examples=100)
    @given(strategies.histories(layout))
    def lives(history: History) -> None:
        history.check()

    lives()


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("layout", LayoutVersion)
def test_no_snapshot_ever_loses_or_gains_a_row_in_long_lives(layout):
    """The same with longer lives and many more of them."""

    @settings(max_examples=1500)
    @given(strategies.histories(layout, steps=40))
    def lives(history: History) -> None:
        history.check()

    lives()


SIGHTS = {
    "an aborted writer is forgotten": lambda history: history.forgotten,
    "somebody who saw a writer open reads on after a cleaning": lambda history: (
        any(c.cleaned for c in history.compactions) and any(s.ids.open for s in history.snapshots)
    ),
    "rows are deleted in a result's range": lambda history: (
        history.deletes and any(name.startswith("delete_delta") for name in history.compacted)
    ),
    "a compaction must leave a directory out": lambda history: any(
        name.startswith("delta") for name in left_out(history)
    ),
}


def left_out(history):
    """What a compaction of now may neither take nor reach over."""
    lists = history.compactor_lists()
    return (
        ()
        if history.lacks_history(*lists)
        else tuple(excluded.dir.name for excluded in history.resolve(*lists).excluded)
    )


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("layout", LayoutVersion)
def test_the_lives_meet_what_they_are_about(layout, sight):
    """A claim about all lives is empty where none of them comes to what is dangerous."""
    generated = settings(max_examples=2000, derandomize=True, database=None, phases=[Phase.generate])
    find(strategies.histories(layout), SIGHTS[sight], settings=generated)


def test_rows_that_hives_merge_compaction_kept_never_come_back():
    """
    It joins deltas with their aborted rows: the id is remembered as long as the result is kept, and forgotten when a
    major compaction has replaced it.
    """
    history = History(LayoutVersion.HIVE_4)
    history.insert(1, "c")
    history.stream(["c", "a"], 1)
    assert history.merge("c")
    assert history.clean()
    history.insert(1, "c")
    history.look()
    history.check()
    assert history.forgotten == set()
    assert history.compact(CompactionKind.MAJOR, "c")
    history.snapshots.clear()
    assert history.clean()
    history.look()
    history.check()
    assert history.forgotten == {3}


@pytest.mark.parametrize("fate", ["o", "c", "a"])
def test_a_stream_beside_hives_base_of_the_watermark_is_neither_removed_nor_joined(fate):
    """
    Hive's query-based major names its base after the watermark, 2, though the stream 2-3 with the open id 3 isn't in
    it: the only rows of 2 are in the stream.

    Readers miss them while 3 is open, and for good when it is rolled back; we mustn't make it worse: the stream stays,
    and nothing reaches over it.
    """
    history = History(LayoutVersion.HIVE_4)
    history.insert(1, "c")
    history.stream(["c", "o"], 1)
    first = history.directories["delta_0000001_0000001_0000"]
    history.directories["base_0000002_v0000004"] = first
    history.compacted.add("base_0000002_v0000004")
    history.txns[4] = "c"
    history.compactions.append(Compaction(CompactionKind.MAJOR, 4, 2, "c", 4))
    if fate != "o":
        history.settle(0, fate)
    history.clean(patient=False)
    assert "delta_0000002_0000003" in history.directories
    history.insert(1, "c")
    txns, ids = history.compactor_lists()
    state = history.resolve(txns, ids)
    deltas = included(state)
    assert overlap(state.base, deltas) is not None or not any(d.acid.max_write_id > 2 for d in deltas)
    assert history.forgotten == set()


def test_a_reader_from_before_a_compaction_reads_the_old_directories():
    """The result's transaction isn't in its list, so it stays with what it had, deletes included."""
    history = History(LayoutVersion.HIVE_4)
    history.insert(3, "c")
    history.update([0], "c")
    history.look()
    assert history.compact(CompactionKind.MAJOR, "c")
    history.look()
    history.check()
    old, new = (history.resolve(s.txns, s.ids) for s in history.snapshots)
    assert old.base is None
    assert [d.name for d in old.deltas] == [
        "delta_0000001_0000001_0000",
        "delete_delta_0000002_0000002_0000",
        "delta_0000002_0000002_0001",
    ]
    assert new.base is not None
    assert new.base.name == "base_0000002_v0000003"
    assert new.deltas == ()


def test_a_result_never_covers_a_straddling_stream():
    """
    The base is named after the last included id, so the stream's committed rows stay visible when its open one is
    rolled back later.
    """
    history = History(LayoutVersion.HIVE_4)
    history.insert(1, "c")
    history.insert(1, "c")
    history.stream(["c", "o"], 2)
    assert history.compact(CompactionKind.MAJOR, "c")
    history.look()
    history.settle(0, "a")
    history.look()
    history.check()
    assert "base_0000002_v0000005" in history.directories
    assert history.snapshots[-1].expected == ((1, 0, 0), (2, 0, 0), (3, 0, 0), (3, 0, 1))


def test_a_minor_of_one_write_id_cancels_its_own_deletes():
    """Delete events of the same directory range no longer hit its rows, so the pairs must go together."""
    history = History(LayoutVersion.HIVE_4)
    history.several_statements(4, [], "c")
    history.look()
    assert history.compact(CompactionKind.MINOR, "c")
    history.look()
    history.check()
    assert [n for n in history.directories if "_v" in n] == ["delta_0000001_0000001_v0000002"]
