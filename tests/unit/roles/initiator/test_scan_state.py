"""
How far an Initiator has looked: whatever is written is judged after that, however early cycles end, fail, or are
another daemon's.
"""

from hypothesis import given

from compactor.metastore.candidates import CandidatePart, Left, Look
from compactor.metastore.model import Candidate, Entity
from compactor.roles.initiator.scan_state import ScanState
from tests.strategies import lives_of_initiators

NOTHING = frozenset[str]()


def entity(number):
    return Entity("db", f"t{number}")


def look_at(found, reached):
    """A look that finds these tables."""

    def read(tables):
        return CandidatePart([Candidate(table) for table in tables if table in found])

    return Look(reached, {}, dict.fromkeys(found, 1), read)


class Metastore:
    """Commits in order; each is known by its place."""

    def __init__(self):
        self.commits: list[int] = []

    def look(self, plan):
        """The newest commit of each table that is new since `first`, or that was asked for."""
        newest = {entity(table): place for place, table in enumerate(self.commits)}
        return {
            one: place
            for one, place in newest.items()
            if plan.first is None or place >= plan.first or one in set(plan.also)
        }


@given(lives_of_initiators())
def test_everything_that_was_written_is_judged(life):
    """
    By each daemon that leads for long enough, whatever happened before: commits, cycles that end after some, cycles
    that fail, of two daemons in turn.
    """
    metastore, daemons = Metastore(), [(ScanState(), {}), (ScanState(), {})]

    def cycle(daemon, budget, *, fails, full_scan_seconds=1e9):
        reach, judged = daemons[daemon]
        plan = reach.plan(0, NOTHING, full_scan_seconds)
        found = metastore.look(plan)
        look = look_at(found, len(metastore.commits))
        order = [candidate.entity for part in look.parts(plan.left) for candidate in part.candidates]
        if fails:
            return len(order)
        judged.update({one: found[one] for one in order[:budget]})
        reach.came(plan, look, again=frozenset(), left=Left(order[budget:]), passed_over=False)
        return len(order) - budget

    for daemon, step, number in life:
        if step == "commits":
            metastore.commits.append(number)
        else:
            cycle(daemon, number, fails=step == "fails")
    for daemon, (_, judged) in enumerate(daemons):
        while cycle(daemon, 1, fails=False) > 0:
            pass
        assert judged == {entity(table): place for place, table in enumerate(metastore.commits)}


def test_what_was_left_is_first_in_the_order_in_which_it_was_left():
    """Though a look finds things in another order, and new ones with them."""
    reach = ScanState()
    plan = reach.plan(0, NOTHING, 1)
    reach.came(plan, Look(7, {}), again={entity(9)}, left=Left([entity(3), entity(1)]), passed_over=False)
    plan = reach.plan(1, NOTHING, 1)
    assert (plan.first, list(plan.also)) == (7, [entity(3), entity(1), entity(9)])
    (part,) = look_at([entity(number) for number in (0, 1, 2, 3, 9)], 8).parts(plan.left)
    assert [one.entity for one in part.candidates] == [entity(number) for number in (3, 1, 0, 2, 9)]


def test_everything_is_looked_at_when_it_is_time():
    """Counted from the start of the look that was at everything, also when it went on over several cycles."""
    reach = ScanState()
    for start, full in ((0, True), (500, False), (999, False), (1000, True), (1500, False)):
        plan = reach.plan(start, NOTHING, 1)
        assert plan.full is full
        reach.came(plan, Look(7, {}), again=frozenset(), left=Left([entity(1)]), passed_over=False)


def test_everything_is_looked_at_when_a_pause_is_over_that_hid_something():
    """A pause under which nothing was passed over is none of ours; one that goes on is waited for."""
    reach = ScanState()
    both = frozenset({"table:db.a", "table:db.b"})
    for start, paused, passed_over, full in (
        (0, both, False, True),
        (1, NOTHING, False, False),
        (2, both, True, False),
        (3, frozenset({"table:db.a"}), True, True),
        (4, frozenset({"table:db.a"}), False, False),
        (5, NOTHING, False, True),
        (6, NOTHING, False, False),
    ):
        plan = reach.plan(start, paused, 3600)
        assert plan.full is full
        reach.came(plan, Look(7, {}), again=frozenset(), left=Left(), passed_over=passed_over)


def test_an_unnamed_write_that_is_not_settled_is_told_again():
    """Nothing but the difference of its table's write ids tells of it: they stay as they were."""
    one, two, three, new = (entity(number) for number in range(4))
    nothing: frozenset[int] = frozenset()
    reach = ScanState()
    assert reach.plan(0, NOTHING, 1).handed_out is None
    before = {one: (2, nothing), two: (2, nothing), three: (2, nothing)}
    reach.came(reach.plan(0, NOTHING, 1), Look(7, before), again=frozenset(), left=Left(), passed_over=False)
    plan = reach.plan(1, NOTHING, 1)
    assert plan.handed_out == before
    now = {one: (3, nothing), two: (3, nothing), three: (3, nothing), new: (2, nothing)}
    reach.came(
        plan,
        Look(8, now),
        again={three},
        left=Left([new]),
        unnamed={two, new},
        passed_over=False,
    )
    assert reach.plan(2, NOTHING, 1).handed_out == {one: (3, nothing), two: (2, nothing), three: (3, nothing)}
