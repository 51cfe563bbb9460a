"""The picker's promise: what was just compacted isn't picked, and what is picked can be compacted."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.planning.picker import Pick, PickInput, Skip, Thresholds, pick
from compactor.reasons import Reason
from tests import strategies
from tests.history import History


def facts(history: History, thresholds: Thresholds) -> PickInput:
    """What the Initiator would give the picker now; every abort is old, and counted until its entry is cleaned."""
    txns, ids = history.compactor_lists()
    cleaned = max((c.highest_write_id for c in history.compactions if c.cleaned), default=0)
    aborted = [i for i in ids.aborted if i > cleaned]
    return PickInput(
        state=history.resolve(txns, ids),
        insert_only=history.insert_only,
        layout=history.layout,
        thresholds=thresholds,
        aborted_count=len(aborted),
        oldest_abort_age_ms=1 << 40 if aborted else None,
        ready_for_cleaning_hwm=max((c.highest_write_id for c in history.ready_for_cleaning()), default=None),
    )


def quiet(history: History) -> History:
    """The same partition with no compaction running."""
    history.settle_compaction("c")
    return history


def readable(history: History) -> bool:
    """Hive 3.1 readers fail on the base of an aborted overwrite; so does the Initiator, with a reason."""
    return not history.lacks_history(*history.compactor_lists())


@pytest.mark.parametrize("insert_only", [False, True])
@pytest.mark.parametrize("layout", LayoutVersion)
def test_a_pick_is_possible_and_is_not_repeated(layout, insert_only):
    """
    Whatever the life, the sizes and the thresholds: the picked compaction happens, and then the picker skips, before
    and after cleaning.
    """

    @settings(max_examples=150)
    @given(strategies.histories(layout, watched=False, insert_only=insert_only), strategies.thresholds(), st.data())
    def once(history: History, thresholds: Thresholds, data: st.DataObject) -> None:
        if not readable(quiet(history)):
            return
        decision = pick(facts(history, thresholds))
        if not isinstance(decision, Pick):
            return
        if decision.reason is Reason.SEVERAL_BASES:
            before = facts(history, thresholds)
            assert isinstance(pick(replace(before, ready_for_cleaning_hwm=before.state.base.acid.max_write_id)), Skip)
            return
        assert history.compact(decision.kind, "c")
        assert history.compactions[-1].kind is decision.kind
        assert isinstance(pick(facts(history, thresholds)), Skip)
        history.lengths = [data.draw(strategies.lengths())]
        while history.clean(patient=False):
            assert isinstance(pick(facts(history, thresholds)), Skip)

    once()


@pytest.mark.parametrize("insert_only", [False, True])
@pytest.mark.parametrize("layout", LayoutVersion)
@pytest.mark.parametrize("kind", [CompactionKind.MAJOR, CompactionKind.MINOR])
def test_any_compaction_is_followed_by_a_skip(layout, kind, insert_only):
    """It doesn't matter who asked for it."""

    @settings(max_examples=60)
    @given(strategies.histories(layout, watched=False, insert_only=insert_only), strategies.thresholds())
    def after(history: History, thresholds: Thresholds) -> None:
        if quiet(history).compact(kind, "c"):
            assert isinstance(pick(facts(history, thresholds)), Skip)

    after()


@pytest.mark.parametrize("layout", LayoutVersion)
def test_the_picker_is_a_function(layout):
    """Same input, same answer; scores are finite and not negative."""

    @settings(max_examples=50)
    @given(strategies.histories(layout, watched=False), strategies.thresholds())
    def twice(history: History, thresholds: Thresholds) -> None:
        if not readable(history):
            return
        given_ = facts(history, thresholds)
        decision = pick(given_)
        assert decision == pick(given_)
        if isinstance(decision, Pick):
            assert 0 <= decision.score < float("inf")

    twice()
