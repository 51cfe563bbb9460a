"""Windows: local times and moments, and when a window's standing changes; for any zone, clocks changed or not."""

from dataclasses import replace
from datetime import UTC, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from compactor.control.times import first, in_ms, last, local_at, shown
from compactor.control.windows import Once, standing
from tests import strategies

MINUTE = 60_000


@given(strategies.local_times(), strategies.zones())
def test_a_local_time_stands_for_its_moments(local, zone):
    """What exists is shown at both; what doesn't is the jump: before it clocks show less, from then on more."""
    early, late = first(local, zone), last(local, zone)
    assert early <= late
    if local_at(early, zone) == local:
        assert local_at(late, zone) == local
    else:
        assert early == late
        assert local_at(early - 1, zone) < local < local_at(early, zone)


@given(strategies.local_times(), strategies.local_times(), strategies.zones())
def test_later_times_come_later(one, other, zone):
    """Neither `first` nor `last` turns an order around."""
    one, other = sorted((one, other))
    assert first(one, zone) <= first(other, zone)
    assert last(one, zone) <= last(other, zone)


@given(strategies.windows(), strategies.local_times())
def test_a_standing_holds_until_it_changes(window, local):
    """From now to `until` nothing changes, and then it does."""
    now = first(local, window.zone)
    found = standing(window, now)
    until = found.until_ms
    if until is None:
        assert standing(window, now + MINUTE).inside == found.inside
        return
    assert until > now
    for moment in {now + MINUTE, (now + until) // 2, until - 1}:
        if now <= moment < until:
            assert standing(window, moment).inside == found.inside
    assert standing(window, until).inside != found.inside


@given(strategies.windows(), strategies.local_times())
def test_far_from_changed_clocks_it_is_what_clocks_show(window, local):
    """Where the zone's offset is the same for three days around, local times alone decide."""
    zone, times = window.zone, window.times
    now = first(local, zone)
    around = {local_at(now + hours * 60 * MINUTE, zone) - timedelta(hours=hours) for hours in range(-49, 50)}
    assume(len(around) == 1 and not isinstance(times, Once))
    minute = local.hour * 60 + local.minute
    today, yesterday = times.on(local.date()), times.on(local.date() - timedelta(days=1))
    overnight = (today and minute >= times.start) or (yesterday and minute < times.end)
    within_a_day = today and times.start <= minute < times.end
    assert standing(window, now).inside == (within_a_day if times.end > times.start else overnight)


@given(strategies.windows(wide=False), strategies.local_times())
def test_a_blackout_is_never_shorter_than_a_window_of_the_same_times(window, local):
    """Whatever clocks do: in doubt nothing begins."""
    now = last(local, window.zone)
    if standing(window, now).inside:
        assert standing(replace(window, wide=True), now).inside


@given(st.integers(0, 4_000_000_000_000), strategies.zones())
def test_moments_and_local_times_are_each_others(moment, zone):
    """What clocks show at a moment stands for it, as the first or the last."""
    moment -= moment % 1000
    local = local_at(moment, zone)
    assert moment in {first(local, zone), last(local, zone)}
    assert in_ms(local.replace(tzinfo=UTC)) == first(local, UTC)


@pytest.mark.parametrize("moment", [-(10**18), 10**18, 253_402_300_800_000])
def test_a_stored_moment_beyond_the_calendar_is_shown_all_the_same(moment):
    """What another program stored must not end a role or a command."""
    assert shown(moment, ZoneInfo("Asia/Tokyo"))[:2] in {"19", "90"}
