"""What the picker is made of: inclusion, enough, equal ranges, scores, properties."""

from dataclasses import replace

import pytest

from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.acid.listing import FileEntry
from compactor.acid.snapshot import AcidState, resolve
from compactor.acid.write_ids import CompactorWriteIdList, ValidTxnList, ValidWriteIdList
from compactor.errors import UsageError
from compactor.planning.included import aborted_inside, enough, included, left_below, overlap, same_range, stranded
from compactor.planning.picker import OPENING_BYTES, Pick, PickInput, pick, score
from compactor.planning.thresholds import auto_compaction_off, cleanup_off, look_up, quarantine_hours
from compactor.roles.initiator.rules import thresholds_from
from compactor.settings import ThresholdSettings
from tests.casebook import listing

DEFAULTS = thresholds_from(ThresholdSettings())

MAJOR, MINOR = CompactionKind.MAJOR, CompactionKind.MINOR


def state(*entries: str, hwm: int = 100, open_txns: tuple[int, ...] = ()) -> AcidState:
    """A partition as the compactor sees it."""
    return resolve(
        listing(entries), CompactorWriteIdList("db.t", hwm), ValidTxnList(50, open_txns), LayoutVersion.HIVE_4
    )


def reader(*entries: str, open_ids: tuple[int, ...]) -> AcidState:
    """A partition as a reader sees it: ranges may count in part."""
    return resolve(listing(entries), ValidWriteIdList("db.t", 100, open_ids), ValidTxnList(50), LayoutVersion.HIVE_4)


def names(dirs) -> list[str]:
    """Their names."""
    return [d.name for d in dirs]


def test_everything_current_is_included_when_nothing_is_left_out():
    """In walk order."""
    assert names(included(state("base_5/ delta_6_6/ delete_delta_7_7/"))) == ["delta_6_6", "delete_delta_7_7"]


def test_what_reaches_to_an_excluded_directory_is_left_out_too():
    """An unfinished result of another compaction excludes from its lowest write id on."""
    found = state("delta_1_1/ delta_2_2/ delta_3_3/ delta_3_5_v40/", open_txns=(40,))
    assert names(included(found)) == ["delta_1_1", "delta_2_2"]


def test_exclusion_spreads_downwards():
    """A directory that falls out excludes what overlaps it in turn."""
    found = reader("delta_1_1/ delta_2_6/ delta_5_9/ delta_8_8_0000/ delta_20_20/", open_ids=(20,))
    assert names(included(found)) == ["delta_1_1", "delta_2_6", "delta_5_9"]
    found = reader("delta_1_1/ delta_2_6/ delta_5_9/ delta_9_9_0000/", open_ids=(9,))
    assert names(included(found)) == ["delta_1_1"]


def test_an_open_overwrite_excludes_from_its_own_id():
    """Its id may be committed any time, and then hides what is below."""
    found = reader("delta_1_1/ delta_2_2/ base_3/ delta_4_4/", open_ids=(3,))
    assert names(included(found)) == ["delta_1_1", "delta_2_2"]


@pytest.mark.parametrize(
    ("entries", "major", "minor", "whole_files_major"),
    [
        ("", False, False, False),
        ("base_5/", False, False, False),
        ("delta_1_1/", False, False, False),
        ("000000_0", True, False, False),
        ("000000_0 000001_0", True, False, True),
        ("base_5/ delta_6_6/", True, False, True),
        ("delta_1_1/ delta_2_2/", True, True, True),
        ("delta_1_1/ delete_delta_2_2/", True, False, True),
        ("delete_delta_1_1/ delete_delta_2_2/", True, True, True),
        ("delta_1_1/ delta_2_2/ delete_delta_3_3/", True, True, True),
    ],
)
def test_enough(entries, major, minor, whole_files_major):
    """
    Major: originals, or two pieces. Minor: two deltas of one kind, or three. Insert-only: two pieces, original files
    being pieces.
    """
    found = state(*([entries] if entries else []))
    assert (enough(found, MAJOR, insert_only=False), enough(found, MINOR, insert_only=False)) == (major, minor)
    assert enough(found, MAJOR, insert_only=True) is whole_files_major
    assert enough(found, CompactionKind.REBALANCE, insert_only=False)
    assert not enough(found, CompactionKind.ABORT_CLEANUP, insert_only=False)


@pytest.mark.parametrize(
    ("entries", "clash"),
    [
        ("base_5/ delta_6_6/ delta_7_7/", None),
        ("delta_5_5_0000/ delta_5_5_0001/ delete_delta_5_5_0002/", None),
        ("delta_1_4_v9/ delete_delta_1_4_v9/", None),
        ("delta_1_4_v9/ delta_1_4_v12/", "delta_1_4_v9 overlaps delta_1_4_v12"),
        ("delta_1_5/ delta_4_8/", "delta_4_8 overlaps delta_1_5"),
        ("base_50/ delta_40_60/", "delta_40_60 overlaps base_50"),
        ("delta_1_5/ delete_delta_4_8/", None),
    ],
)
def test_overlaps(entries, clash):
    """Ranges of one kind may meet only as statements of one write id; a delta must start above the base."""
    found = state(entries)
    sentence = overlap(found.base, found.deltas)
    assert sentence == (None if clash is None else f"{clash}: rows may be there twice")


@pytest.mark.parametrize(
    ("entries", "kind", "clash"),
    [
        ("delta_1_1_0/ delta_2_2_0/", MINOR, None),
        ("delta_1_1_0/ delta_2_2_0/", MAJOR, None),
        ("delta_5_5_0/ delta_5_5_1/", MINOR, None),
        ("delta_1_1_0/ delta_2_2_0/ delta_1_2_v40/", MINOR, "delta_1_2_v40"),
        ("delete_delta_1_1_0/ delete_delta_2_2_0/ delta_1_2_v40/", MINOR, None),
        ("delta_1_1_0/ delta_2_2_0/ base_2_v40/", MAJOR, "base_2_v40"),
        ("delta_1_1_0/ delta_2_2_0/ base_2_v40/", MINOR, None),
        ("base_5/", MAJOR, None),
    ],
)
def test_a_result_never_doubles_a_range(entries, kind, clash):
    """Readers would read both, so a directory of the result's kind and range stops it, visible or not."""
    found = state(entries, open_txns=(40,))
    there = same_range(found, kind, found.deltas)
    assert (None if there is None else there.name) == clash


def entry(path: str, length: int) -> FileEntry:
    """A file."""
    return FileEntry(path, length)


def test_many_small_deltas_score_higher_than_few_large_ones():
    """Bytes spared per byte written: opening files and merging deletes cost the reader, copying costs us."""
    base = [entry("base_5/bucket_00000", 1 << 30)]
    small = [[entry(f"delta_{i}/bucket_00000", 1 << 10)] for i in range(20)]
    large = [[entry(f"delta_{i}/bucket_00000", 1 << 30)] for i in range(20)]
    assert score(MINOR, base, small, []) > score(MINOR, base, large, [])
    assert score(MINOR, base, small, []) > score(MAJOR, base, small, []) > 0


def test_deletes_weigh_once_per_directory_they_are_merged_into():
    """So folding them in spares more where there are more directories."""
    base = [entry("base_5/bucket_00000", 1 << 30)]
    deletes = [[entry("delete_delta_9/bucket_00000", 1 << 20)]]
    few = [[entry("delta_6/bucket_00000", 1 << 20)]]
    many = [[entry(f"delta_{i}/bucket_00000", 1 << 18)] for i in range(4)]
    assert score(MAJOR, base, many, deletes) > score(MAJOR, base, few, deletes)


def test_a_score_in_numbers():
    """Deletes cost a reader their bytes once for each directory with rows, or once; then there is each file to open."""
    base = [entry("base_5/bucket_00000", 1000)]
    inserts = [[entry(f"delta_{i}/bucket_00000", 100)] for i in (6, 7)]
    deletes = [[entry(f"delete_delta_{i}/bucket_00000", 10)] for i in (6, 7, 8)]
    assert score(MINOR, base, inserts, deletes) == (3 * OPENING_BYTES + 30 * (3 - 2)) / 230
    assert score(MAJOR, base, inserts, deletes) == (5 * OPENING_BYTES + 30 * 3) / 1200
    assert score(MINOR, base, [], deletes) == score(MINOR, [], [], deletes) == 2 * OPENING_BYTES / 30
    assert score(MINOR, [], inserts, deletes) == (3 * OPENING_BYTES + 30 * (2 - 1)) / 230


def test_a_score_counts_files_by_bucket():
    """Two deltas of two buckets become one file a bucket; names without a bucket stay files of their own."""
    deltas = [[entry(f"d{i}/bucket_0000{b}_0", 0) for b in range(2)] for i in range(2)]
    assert score(MAJOR, [], deltas, []) == 2 * OPENING_BYTES
    loose = [
        [entry("d1/part-1", 0)],
        [entry("d2/part-2", 0)],
        [entry("d3/000000_0", 0)],
        [entry("d4/000000_0_copy_1", 0)],
    ]
    assert score(MAJOR, [], loose, []) == 1 * OPENING_BYTES


def test_nothing_scores_nothing():
    """No division by zero, no negative score."""
    assert score(MAJOR, [], [], []) == 0
    assert score(MINOR, [], [], []) == 0


@pytest.mark.parametrize("layout", LayoutVersion)
def test_a_property_is_looked_up_in_lower_then_upper_case(layout):
    """As Hive does; no other spelling counts."""
    assert look_up({"a_b": "1", "A_B": "2"}, "a_b") == "1"
    assert look_up({"A_B": "2"}, "a_b") == "2"
    assert look_up({"A_b": "3"}, "a_b") is None
    assert not auto_compaction_off({}, {}, layout)
    assert not auto_compaction_off({"No_Auto_Compaction": "true"}, {}, layout)


def test_cleanup_off():
    """`no_cleanup` of the table or of the partition, either letter case."""
    assert cleanup_off({"no_cleanup": "TRUE"}, {})
    assert cleanup_off({}, {"NO_CLEANUP": "true"})
    assert not cleanup_off({"no_cleanup": "false"}, {})


@pytest.mark.parametrize(
    ("value", "hours"),
    [(None, 2), ("", 2), ("0", 0), ("0.5", 0.5), ("48", 48), ("-1", None), ("nan", None), ("two", None)],
)
def test_how_long_a_table_keeps_its_quarantine(value, hours):
    """The table's property, else the setting; one that is negative or no number is told, not used."""
    parameters = {} if value is None else {"compactor.cleaner.quarantine_hours": value}
    if hours is None:
        with pytest.raises(UsageError, match="quarantine_hours"):
            quarantine_hours(2, parameters)
    else:
        assert quarantine_hours(2, parameters) == hours


@pytest.mark.parametrize(
    ("entries", "ids"),
    [("base_5/ delta_5_6/", "in write id 5 can't"), ("base_5/ delta_4_6/", "in write ids 4 to 5 can't")],
)
def test_what_a_stranded_stream_holds_is_told(entries, ids):
    """The sentence names the ids that a reader passes over."""
    lists = CompactorWriteIdList.from_reader(ValidWriteIdList("db.t", 9, (), (6,)))
    left = stranded(resolve(listing([entries]), lists, ValidTxnList(99), LayoutVersion.HIVE_4))
    assert left is not None
    assert ids in left.sentence


@pytest.mark.parametrize(
    ("entries", "aborted", "left"),
    [
        ("base_5/ delta_4_8/", (6, 7, 8), True),
        ("base_5/ delta_4_8/", (7, 8), False),
        ("base_5/ delta_4_8/", (6, 8), False),
        ("base_5/ delta_4_8/", (6, 7), False),
        ("base_5/ delta_6_8/", (6, 7, 8), False),
    ],
)
def test_a_stream_is_stranded_where_all_of_it_above_the_base_was_rolled_back(entries, aborted, left):
    """One committed write id is enough for readers to read it."""
    lists = CompactorWriteIdList.from_reader(ValidWriteIdList("db.t", 9, (), aborted))
    found = stranded(resolve(listing([entries]), lists, ValidTxnList(99), LayoutVersion.HIVE_4))
    assert (found is not None) is left


@pytest.mark.parametrize(
    ("entries", "by_name", "by_range"),
    [
        ("delta_3_3_0000/ delta_4_6_v7/", True, True),
        ("delta_3_3_0000/ delta_4_6/", False, True),
        ("delta_3_3_0000/ delta_4_4/", False, False),
        ("delta_3_3_0000/ delta_4_4_0000/", False, False),
        ("delta_3_5/ delta_6_6_0000/", False, False),
        ("delta_3_5_v7/ delta_6_6_0000/", False, False),
        ("", False, False),
    ],
)
def test_a_part_is_told_by_what_it_left_below(entries, by_name, by_range):
    """By the names of Hive 4; those of Hive 3.1 tell by a range of several write ids without a statement."""
    lists = CompactorWriteIdList.from_reader(ValidWriteIdList("db.t", 9))
    state = resolve(listing([f"base_2/ {entries}"]), lists, ValidTxnList(99), LayoutVersion.HIVE_4)
    assert left_below(state, told_by_name=True) is by_name
    assert left_below(state, told_by_name=False) is by_range


@pytest.mark.parametrize(
    ("limits", "excess"),
    [
        (replace(DEFAULTS, delta_count=10, delta_ratio=4), 2),
        (replace(DEFAULTS, delta_count=10, delta_ratio=0.25), 8),
        (replace(DEFAULTS, delta_count=1, delta_ratio=0.25), 20),
        (replace(DEFAULTS, delta_count=0, delta_ratio=0), 20),
        (replace(DEFAULTS, delta_count=-5, delta_ratio=-1), 20),
    ],
)
def test_the_excess_is_that_of_the_threshold_passed_farthest(limits, excess):
    """Twenty deltas with twice the bytes of their base; a threshold without a positive value is no measure."""
    deltas = " ".join(f"delta_{number}_{number}/ 10M" for number in range(6, 26))
    picked = pick(PickInput(state(f"base_5/ 100M {deltas}"), False, LayoutVersion.HIVE_4, limits))
    assert isinstance(picked, Pick)
    assert picked.excess == pytest.approx(excess)


def test_without_a_base_the_ratio_is_no_measure():
    """Twenty deltas alone pass the count twofold, however low the threshold of the ratio is."""
    deltas = " ".join(f"delta_{number}_{number}/ 10M" for number in range(6, 26))
    limits = replace(DEFAULTS, delta_count=10, delta_ratio=0.1)
    picked = pick(PickInput(state(deltas), False, LayoutVersion.HIVE_4, limits))
    assert isinstance(picked, Pick)
    assert picked.excess == pytest.approx(2)


def test_rows_of_aborted_writes_lie_in_what_streams_wrote():
    """Not in a compaction's result, whatever its range; of other directories than those that are given none is told."""
    found = resolve(
        listing(("base_5/ delta_6_10/ delta_11_15_v9/ delta_21_25/",)),
        CompactorWriteIdList.from_reader(ValidWriteIdList("db.t", 100, (), (7, 12, 22))),
        ValidTxnList(50),
        LayoutVersion.HIVE_4,
    )
    assert found.mixed_aborted_write_ids == {7, 12, 22}
    assert aborted_inside(found, found.deltas) == [7, 22]
    assert aborted_inside(found, found.deltas[:1]) == [7]


@pytest.mark.parametrize(
    ("count", "age_hours", "excess"), [(500, 13, 5), (3, 13, 1.5), (500, 120, 10), (3, 6, 1.5), (500, None, 5)]
)
def test_aborts_count_as_far_as_their_rows_lie_among_others(count, age_hours, excess):
    """Ten of the table's aborted write ids are inside a directory; the threshold is two, or twelve hours."""
    write_ids = ValidWriteIdList("db.t", 100, (), tuple(range(10, 20)))
    found = resolve(
        listing(("base_5/ 100M delta_6_40/ 1M",)),
        CompactorWriteIdList.from_reader(write_ids),
        ValidTxnList(50),
        LayoutVersion.HIVE_4,
    )
    age_ms = None if age_hours is None else age_hours * 3_600_000
    limits = replace(DEFAULTS, aborted_count=2)
    picked = pick(PickInput(found, False, LayoutVersion.HIVE_4, limits, count, age_ms))
    assert isinstance(picked, Pick)
    assert picked.excess == pytest.approx(excess)
