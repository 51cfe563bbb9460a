"""What a plan needs, and what becomes of one that needs more than there is."""

from dataclasses import replace

import pytest

from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.acid.names import DirKind
from compactor.errors import RefusedError
from compactor.planning.document import (
    Action,
    BucketPlan,
    CompactionPlan,
    FileRole,
    FormatSpec,
    InputFile,
    OutputDir,
    Prediction,
    Segment,
)
from compactor.planning.limits import fitted, in_windows, within_memory
from compactor.planning.prediction import predict
from compactor.planning.segments import Sizes
from compactor.reasons import Reason

EVENTS = 10
SIZES = Sizes(8, 128, events=EVENTS, spilled_events=4 * EVENTS)


def segment(chunk, *, action=Action.RECODE, events=0, size=10):
    """One stripe."""
    return Segment(action, "delta_6_6/bucket_00000", (0,), "", 1, size, chunk, events)


def bucket(*segments, events=0):
    """An output file of these segments, with so many delete events."""
    return BucketPlan(0, "bucket_00000", segments, ("delete_delta_7_7/bucket_00000",), events)


def test_a_plan_that_fits_exactly_is_taken(made):
    """Each limit is the most that may be written."""
    assert fitted(made, made.bytes_needed, made.names_needed, "a quota", Reason.DISK_FULL) is made
    assert fitted(made, None, None, "a quota", Reason.DISK_FULL) is made


@pytest.mark.parametrize("short", ["bytes", "names"])
def test_a_plan_that_is_a_little_too_large_is_made_one_by_one(made, short):
    """Chunks written side by side exist twice for a while; one after the other they don't."""
    room = (made.bytes_needed - 1, None) if short == "bytes" else (None, made.names_needed - 1)
    slower = fitted(made, *room, "a quota", Reason.DISK_FULL)
    assert slower.one_by_one
    assert "instead of 2 chunks side by side" in slower.warnings[-1]
    assert "a quota is the limit" in slower.warnings[-1]


@pytest.mark.parametrize(("room", "words"), [((0, None), "0 are free at /t"), ((None, 1), "1 are left at /t")])
def test_a_plan_that_never_fits_is_refused(made, room, words):
    """With the figures."""
    with pytest.raises(RefusedError, match=words) as caught:
        fitted(made, *room, "a quota", Reason.DISK_FULL)
    assert caught.value.reason is Reason.DISK_FULL


def test_events_are_told_only_where_they_are_too_many():
    """A chunk may have as many delete events as a task holds in memory, more of them on disk, and no more than that."""
    whole = bucket(segment(0, events=EVENTS), events=EVENTS)
    assert within_memory(whole, [], SIZES) == []
    fits = bucket(segment(0, events=EVENTS), segment(1, events=EVENTS), events=2 * EVENTS)
    assert [said for said in within_memory(fits, [], SIZES) if "can't be divided" in said] == []
    large = bucket(segment(0, events=4 * EVENTS), events=5 * EVENTS)
    assert "40 delete events" in within_memory(large, [], SIZES)[-1]
    with pytest.raises(RefusedError, match="41 delete events"):
        within_memory(bucket(segment(0, events=4 * EVENTS + 1), events=5 * EVENTS), [], SIZES)


@pytest.mark.parametrize(("events", "passes"), [(EVENTS, None), (EVENTS + 1, 2), (2 * EVENTS, 2), (2 * EVENTS + 1, 3)])
def test_events_are_joined_in_as_few_passes_as_memory_allows(events, passes):
    """One pass isn't worth a word."""
    said = in_windows(bucket(events=events), SIZES)
    assert said == [] if passes is None else f"in {passes} passes" in said[0]


def test_a_probe_is_paid_for_on_top_of_a_copy():
    """A stripe that is probed takes longer than one that is copied at once, and not as long as one encoded anew."""

    def seconds(action):
        out = OutputDir(DirKind.BASE, "base_6", (bucket(segment(-1, action=action, size=1 << 30)),))
        return predict([out], FormatSpec(), 1, {("delta_6_6/bucket_00000", 0): 1 << 30}, 0).seconds

    assert 0 < seconds(Action.COPY) < seconds(Action.PROBE) < seconds(Action.RECODE)


@pytest.fixture
def made():
    """A minor compaction in two chunks, with delete events."""
    chunks = (segment(0), segment(0), segment(1), segment(-1, action=Action.COPY))
    return CompactionPlan(
        entity="db.t",
        location="/t",
        requested=CompactionKind.MINOR,
        kind=CompactionKind.MINOR,
        layout=LayoutVersion.HIVE_4,
        insert_only=False,
        write_ids="",
        name_write_id=7,
        min_write_id=6,
        max_write_id=7,
        highest_write_id=7,
        visibility_txn=None,
        columns=(("a", "int"),),
        outputs=(OutputDir(DirKind.DELTA, "delta_6_7", (bucket(*chunks),)),),
        inputs=(InputFile("delete_delta_7_7/bucket_00000", 5, 0, FileRole.DELETE_DELTA, "delete_delta_7_7", 0, 7, 7),),
        prediction=Prediction(written=40, recoded=20, cut=10),
    )


def test_what_a_plan_needs(made):
    """Written bytes, delete events, and chunks twice; a directory with its markers, and a directory and file a task."""
    assert made.bytes_needed == 40 + 5 + 30
    assert replace(made, kind=CompactionKind.MAJOR).bytes_needed == 40 + 30
    assert made.names_needed == 3 + 3 + 2 * (1 + 2)
