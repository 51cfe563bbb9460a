"""What a cycle left, in its order; and in which order a look tells the candidates."""

from hypothesis import given
from hypothesis import strategies as st

from compactor.metastore.candidates import CandidatePart, Left, Look
from compactor.metastore.candidates import look as module
from compactor.metastore.model import Candidate, Entity
from tests.strategies import entities


@given(st.lists(entities(), unique=True), st.sets(entities()))
def test_the_order_is_kept(found, asked):
    """What was added comes back as it was added, and those of some tables are told."""
    left = Left(found)
    assert list(left) == found
    assert len(left) == len(found)
    tables = {entity.whole_table() for entity in asked}
    assert left.of(tables) == {entity for entity in found if entity.whole_table() in tables}


@given(st.sets(entities()), st.data())
def test_every_candidate_is_told_once(there, data):
    """
    Whatever was left, and however small the parts: what was left first, in its order, then the others by table; and
    each candidate in one part, with the word that no commit tells of it.
    """
    left = data.draw(
        st.lists(st.one_of(entities(), st.sampled_from(sorted(there, key=str) or [Entity("a", "b")])), unique=True)
    )
    unnamed = data.draw(st.sets(st.sampled_from(sorted(there, key=str)))) if there else set()
    at_once = data.draw(st.integers(1, 5))
    tables = sorted({one.whole_table() for one in there}, key=str)

    def read(some):
        found = sorted(
            (one for one in there if one.whole_table() in some),
            key=lambda one: (some.index(one.whole_table()), str(one)),
        )
        return CandidatePart([Candidate(one) for one in found], frozenset(unnamed.intersection(found)))

    look = Look(1, {}, {table: sum(one.whole_table() == table for one in there) for table in tables}, read)
    before, module._AT_ONCE = module._AT_ONCE, at_once
    try:
        parts = list(look.parts(Left(left)))
    finally:
        module._AT_ONCE = before
    told = [candidate.entity for part in parts for candidate in part.candidates]
    first = [entity for entity in left if entity in there]
    others = [one.entity for one in read(tables).candidates if one.entity not in first]
    assert told == first + others
    for part in parts:
        assert part.unnamed == unnamed.intersection(candidate.entity for candidate in part.candidates)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.integers(1, 10))
def test_a_table_of_which_much_was_left_is_read_once(sizes, at_once):
    """However many parts would hold what was left of it: a read is of the whole table."""
    left = [Entity("db", f"t{table}", f"p={number}") for table, size in enumerate(sizes) for number in range(size)]
    read = []

    def note(tables):
        read.extend(tables)
        return CandidatePart([Candidate(one) for one in left if one.whole_table() in tables])

    before, module._AT_ONCE = module._AT_ONCE, at_once
    try:
        parts = list(Look(1, {}, {}, note).parts(Left(left)))
    finally:
        module._AT_ONCE = before
    assert [candidate.entity for part in parts for candidate in part.candidates] == left
    assert len(read) == len(sizes)
