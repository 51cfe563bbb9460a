"""
Parts of compactions: whatever the partition and the limits, each can be published, keeps to the limits, and leaves less
to do.
"""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.planning.included import enough, included
from compactor.planning.parts import Excess, PartLimits, next_part
from tests.strategies import histories

MIB = 1 << 20
layouts = st.sampled_from(LayoutVersion)
limits = st.builds(
    PartLimits,
    st.integers(2, 8),
    st.sampled_from([None, 0, 1000, 2 * MIB, 25 * MIB, 1 << 31]),
    st.just("the file system"),
)
kinds = st.sampled_from([CompactionKind.MAJOR, CompactionKind.MINOR])


def apart(deltas):
    """How many groups of directories there are that overlap with no other."""
    reached, groups = -1, 0
    for acid in sorted((d.acid for d in deltas), key=lambda acid: acid.min_write_id):
        groups += acid.min_write_id > reached
        reached = max(reached, acid.max_write_id)
    return groups


@given(layouts.flatmap(lambda layout: histories(layout, watched=False)), kinds, limits, st.booleans())
def test_a_part_takes_whole_write_ids_in_a_row(history, kind, limit, minors):
    """
    What is left out lies wholly below or wholly above it, keeps no aborted rows below it, and the part keeps to the
    limits.
    """
    txns, ids = history.compactor_lists()
    if history.lacks_history(txns, ids):
        return
    state = history.resolve(txns, ids)
    state = replace(state, deltas=included(state))
    if not enough(state, kind, insert_only=False):
        return
    part = next_part(state, kind, limit, insert_only=False, minors=minors, aborted=ids.aborted)
    if isinstance(part, Excess):
        assert limit.bytes is not None
        return
    if part.parts is None:
        assert part.deltas == state.deltas
        assert part.kind is kind or (
            part.kind is CompactionKind.MAJOR and not minors
        )  # where no minor can be published
        return
    assert enough(replace(state, deltas=part.deltas), part.kind, insert_only=False)
    assert len(part.deltas) <= limit.deltas or apart(part.deltas) <= 3
    assert part.kind is (CompactionKind.MINOR if minors else CompactionKind.MAJOR)
    low, high = min(d.acid.min_write_id for d in part.deltas), max(d.acid.max_write_id for d in part.deltas)
    for left in (d for d in state.deltas if d not in part.deltas):
        below = left.acid.max_write_id < low
        assert below or left.acid.min_write_id > high
        if below:
            assert minors
            assert not ids.aborted_within(left.acid.min_write_id, left.acid.max_write_id)


@given(layouts.flatmap(lambda layout: histories(layout, watched=False)), kinds)
def test_without_limits_it_is_the_whole(history, kind):
    """Nothing is divided that needn't be."""
    txns, ids = history.compactor_lists()
    if history.lacks_history(txns, ids):
        return
    state = history.resolve(txns, ids)
    part = next_part(state, kind, PartLimits(1 << 30), insert_only=False, minors=True, aborted=())
    assert (part.kind, part.deltas, part.parts) == (kind, state.deltas, None)
