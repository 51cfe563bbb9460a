"""What the Initiator remembers of partitions that it left alone."""

from compactor.reasons import Reason
from compactor.roles.initiator.scan_state import RELIST_MS, Unchanged


def test_what_was_left_alone_is_known_for_a_day():
    """With its reason; after that it has to be listed again."""
    quiet = Unchanged()
    quiet.begin(0, everything=True)
    quiet.leave(1, 1000, Reason.BELOW_THRESHOLDS)
    quiet.end()
    quiet.begin(0, everything=False)
    assert quiet.reason(1, 1000 + RELIST_MS) is Reason.BELOW_THRESHOLDS
    assert quiet.reason(1, 1001 + RELIST_MS) is None
    assert quiet.reason(2, 1000) is None


def test_what_a_full_look_does_not_meet_is_forgotten():
    """Else partitions that were dropped or written to would stay in memory for ever; other looks forget nothing."""
    quiet = Unchanged()
    quiet.begin(0, everything=True)
    for fingerprint in (1, 2):
        quiet.leave(fingerprint, 0, Reason.BELOW_THRESHOLDS)
    quiet.end()
    for everything in (False, True):
        quiet.begin(0, everything=everything)
        assert quiet.reason(1, 0) is Reason.BELOW_THRESHOLDS
        quiet.end()
        assert (quiet.reason(2, 0) is None) is everything


def test_a_look_that_failed_forgets_nothing():
    """It ended before it had met everything."""
    quiet = Unchanged()
    quiet.begin(0, everything=True)
    quiet.leave(1, 0, Reason.NOT_ENOUGH)
    quiet.end()
    quiet.begin(0, everything=True)
    quiet.begin(0, everything=False)
    assert quiet.reason(1, 0) is Reason.NOT_ENOUGH


def test_a_look_that_goes_on_over_several_cycles_is_one_look():
    """What it hasn't met yet is known until its last cycle has ended; what it never met is forgotten then."""
    quiet = Unchanged()
    quiet.begin(0, everything=True)
    for fingerprint in (1, 2, 3):
        quiet.leave(fingerprint, 0, Reason.NOT_ENOUGH)
    quiet.end()
    quiet.begin(0, everything=True)
    assert quiet.reason(1, 0) is Reason.NOT_ENOUGH
    quiet.go_on()
    quiet.begin(0, everything=False)
    assert quiet.reason(2, 0) is Reason.NOT_ENOUGH
    quiet.end()
    quiet.begin(0, everything=False)
    assert [quiet.reason(fingerprint, 0) for fingerprint in (1, 2, 3)] == [Reason.NOT_ENOUGH, Reason.NOT_ENOUGH, None]


def test_a_look_that_never_ends_is_no_leak():
    """Where a new one begins each time before the old one ended, what is known is kept for its day, and no longer."""
    quiet = Unchanged()
    for number in range(3):
        quiet.begin(number * RELIST_MS, everything=True)
        quiet.leave(number, number * RELIST_MS, Reason.NOT_ENOUGH)
        quiet.go_on()
    quiet.begin(2 * RELIST_MS, everything=True)
    assert [quiet.reason(fingerprint, 2 * RELIST_MS) for fingerprint in (1, 2)] == [Reason.NOT_ENOUGH] * 2
    assert len(quiet._left) == 2
