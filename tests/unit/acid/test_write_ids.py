"""Valid lists: membership, ranges, string forms, the compactor's and the cleaner's views."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.acid.write_ids import (
    CleanerWriteIdList,
    CompactorWriteIdList,
    MalformedListError,
    RangeValidity,
    ValidTxnList,
    ValidWriteIdList,
)
from compactor.errors import CompactorError
from tests import strategies

NONE, SOME, ALL = RangeValidity.NONE, RangeValidity.SOME, RangeValidity.ALL


def share(part: int, whole: int) -> RangeValidity:
    """None, some or all of them."""
    return NONE if part == 0 else ALL if part == whole else SOME


@given(strategies.txn_lists())
def test_transaction_lists_round_trip(txns):
    """The string form gives the same list back."""
    assert ValidTxnList.parse(str(txns)) == txns


@given(strategies.write_id_lists())
def test_write_id_lists_round_trip(ids):
    """The string form gives the same list back, the smallest open id included."""
    assert ValidWriteIdList.parse(str(ids)) == ids


@given(strategies.write_id_lists())
def test_compactor_lists_round_trip(ids):
    """The compactor's list is written and read in the same form."""
    compactor = CompactorWriteIdList.from_reader(ids)
    assert CompactorWriteIdList.parse(str(compactor)) == compactor


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12:9223372036854775807::", ValidTxnList(12)),
        ("12:5:5,7:6", ValidTxnList(12, (5, 7), (6,))),
        ("12:5:5-9:10", ValidTxnList(12, (5, 6, 7, 8, 9), (10,))),
    ],
)
def test_transaction_strings_of_hive(text, expected):
    """Hive's own forms; newer versions write runs of ids as a range."""
    assert ValidTxnList.parse(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("db.t:12:9223372036854775807::", ValidWriteIdList("db.t", 12)),
        ("db.t:12:5:5,7:6", ValidWriteIdList("db.t", 12, (5, 7), (6,))),
        ("db.t:12:13::1-5,8", ValidWriteIdList("db.t", 12, (), (1, 2, 3, 4, 5, 8), 13)),
    ],
)
def test_write_id_strings_of_hive(text, expected):
    """Hive's own forms."""
    assert ValidWriteIdList.parse(text) == expected
    assert str(ValidWriteIdList("db.t", 12)) == "db.t:12:9223372036854775807::"


@given(strategies.write_id_lists(), st.randoms())
def test_the_order_of_ids_makes_no_difference(ids, shuffled):
    """A list of open or aborted ids is a set, whoever hands it over; an id that stands there twice counts once."""
    disordered = []
    for known in (ids.open, ids.aborted):
        mixed = [*known, *known[:2]]
        shuffled.shuffle(mixed)
        disordered.append(tuple(mixed))
    assert ValidWriteIdList(ids.table, ids.high_watermark, *disordered, ids.min_open) == ids
    taken = CompactorWriteIdList.from_reader(ids)
    aborted = [found for found in disordered[1] if found <= taken.high_watermark]
    assert CompactorWriteIdList(ids.table, taken.high_watermark, (), tuple(aborted), taken.min_open) == taken
    assert ValidTxnList(ids.high_watermark, *disordered) == ValidTxnList(ids.high_watermark, ids.open, ids.aborted)


@pytest.mark.parametrize("text", ["", "1:2:3", "a:1::", "1:1:x:", "1:1:1-x:", "1:2:3:4:5"])
def test_malformed_transaction_lists(text):
    """One clear error that quotes the text."""
    with pytest.raises(MalformedListError) as caught:
        ValidTxnList.parse(text)
    assert repr(text) in str(caught.value)
    assert issubclass(MalformedListError, CompactorError)


@pytest.mark.parametrize("text", ["", "db.t:1:2:3", "db.t:a:1::", "db.t:1:b::"])
def test_malformed_write_id_lists(text):
    """One clear error that quotes the text."""
    with pytest.raises(MalformedListError) as caught:
        ValidWriteIdList.parse(text)
    assert repr(text) in str(caught.value)


@given(strategies.txn_lists(), strategies.ids())
def test_a_transaction_is_valid_when_it_is_neither_open_nor_aborted_nor_above(txns, txn):
    """Everything at or below the high watermark that isn't listed is committed."""
    assert txns.is_valid(txn) == (txn <= txns.high_watermark and txn not in txns.open and txn not in txns.aborted)
    assert txns.is_aborted(txn) == (txn in txns.aborted)
    assert txns.min_open == min(txns.open, default=None)


@given(strategies.write_id_lists(), strategies.ids(), strategies.ids())
def test_ranges_count_ids_one_by_one(ids, one, other):
    """A range is judged as its ids are."""
    low, high = sorted((one, other))
    members = range(low, high + 1)
    assert ids.range_validity(low, high) is share(sum(map(ids.is_valid, members)), len(members))
    assert ids.range_aborted(low, high) is share(sum(map(ids.is_aborted, members)), len(members))
    assert ids.aborted_within(low, high) == tuple(filter(ids.is_aborted, members))


@given(strategies.write_id_lists(), strategies.ids())
def test_an_id_is_valid_unless_open_aborted_or_above(ids, write_id):
    """Everything at or below the high watermark that isn't listed is committed."""
    assert ids.is_valid(write_id) == (write_id <= ids.high_watermark and write_id not in (*ids.open, *ids.aborted))


@given(strategies.write_id_lists(), strategies.ids())
def test_a_compacted_base_is_valid_below_everything_open(ids, write_id):
    """It holds all ids up to its own, so none of them may be open or unknown."""
    assert ids.is_valid_base(write_id) == (write_id <= ids.high_watermark and not any(i <= write_id for i in ids.open))


@given(strategies.write_id_lists(), strategies.ids(), strategies.ids())
def test_the_compactors_list(ids, one, other):
    """It ends below the first open id; ranges count wholly or not at all; the only exceptions are aborted ids."""
    low, high = sorted((one, other))
    compactor = CompactorWriteIdList.from_reader(ids)
    assert compactor.high_watermark == min([ids.high_watermark, *(i - 1 for i in ids.open)])
    assert compactor.range_validity(low, high) is (ALL if high <= compactor.high_watermark else NONE)
    assert compactor.is_valid(high) == (high <= compactor.high_watermark and ids.is_valid(high))
    assert compactor.is_aborted(high) == (high <= compactor.high_watermark and ids.is_aborted(high))
    assert compactor.min_open == ids.min_open


@pytest.mark.parametrize(
    "make", [lambda: CompactorWriteIdList("t", 5, (3,)), lambda: CompactorWriteIdList("t", 5, (), (), 5)]
)
def test_a_compactors_list_can_not_reach_an_open_id(make):
    """Built by hand it would let open rows into a base."""
    with pytest.raises(ValueError, match="from_reader"):
        make()


@given(strategies.write_id_lists(), strategies.ids(), strategies.ids(), strategies.ids())
def test_the_cleaners_list(ids, cap, one, other):
    """Nothing above its cap is valid or aborted, and a range that reaches above counts for nothing."""
    low, high = sorted((one, other))
    cleaner = CleanerWriteIdList.from_reader(ids, cap)
    limit = min(cap, ids.high_watermark)
    assert cleaner.high_watermark == limit
    for kept, known in ((cleaner.open, ids.open), (cleaner.aborted, ids.aborted)):
        assert kept == tuple(i for i in known if i <= limit)
    assert cleaner.range_validity(low, high) is (NONE if high > limit else ids.range_validity(low, high))
    assert cleaner.is_aborted(high) == (high <= limit and ids.is_aborted(high))
    assert cleaner.aborted_within(low, high) == tuple(i for i in ids.aborted_within(low, high) if i <= limit)
    assert cleaner.range_aborted(low, high) is share(len(cleaner.aborted_within(low, high)), high - low + 1)


@given(st.lists(strategies.ids()))
def test_ids_are_kept_sorted_and_once(ids):
    """However they arrive, so that equal lists are equal."""
    assert ValidTxnList(10, tuple(ids)) == ValidTxnList(10, tuple(sorted(set(ids))))
    assert ValidWriteIdList("t", 10, (), tuple(ids)) == ValidWriteIdList("t", 10, (), tuple(reversed(ids)))
