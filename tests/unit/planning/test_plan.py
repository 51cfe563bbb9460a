"""Plans: contents against names, outputs, format, prediction, and the document."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.acid.columns import ColumnRule
from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.acid.names import DirKind
from compactor.acid.row_id import Hit, RowKey, SyntheticIds, encode
from compactor.acid.snapshot import resolve
from compactor.acid.write_ids import CompactorWriteIdList, ValidTxnList, ValidWriteIdList
from compactor.errors import RefusedError
from compactor.planning.document import (
    Action,
    BucketPlan,
    Cut,
    DeleteScope,
    FileCopy,
    FileRole,
    FormatSpec,
    InputFile,
    OutputDir,
    Segment,
)
from compactor.planning.facts import DeleteFacts, FileFacts, StripeFacts, TableSpec
from compactor.planning.format import choose_format
from compactor.planning.included import only_cleaning
from compactor.planning.insert_only.joins import JoinSizes
from compactor.planning.plan import plan, plan_whole_files, prepare
from compactor.planning.prediction import predict
from compactor.planning.segments import SegmentSource, Sizes, one_bucket, segments
from compactor.planning.select import everything, select
from compactor.planning.small import joined
from compactor.reasons import Reason
from tests.casebook import listing
from tests.strategies import stripe_sources

MIB = 1 << 20
BUCKET = encode(0, 0)
ACID_DELTA = "delta_6_6_0000/bucket_00000"
SIZES = Sizes(8 * MIB, 128 * MIB)


def selected(
    *entries,
    kind=CompactionKind.MAJOR,
    hwm=9,
    aborted=(),
    layout=LayoutVersion.HIVE_4,
    columns=(("a", "int"),),
    insert_only=False,
):
    """A selection of a directory drawn as in the case books."""
    write_ids = CompactorWriteIdList.from_reader(ValidWriteIdList("db.t", hwm, (), aborted))
    txn = 99 if layout is LayoutVersion.HIVE_4 else None
    state = resolve(listing(entries), write_ids, ValidTxnList(99, (99,)) if txn else None, layout)
    spec = TableSpec("db.t", columns, ColumnRule.NAME, insert_only=insert_only)
    return select(state, spec, kind, layout, write_ids, txn)


@pytest.mark.parametrize(
    ("entries", "aborted", "layout", "left"),
    [
        ("base_5/ delta_7_7/", 7, LayoutVersion.HIVE_3, None),
        ("base_5/ delta_4_4/ delta_7_7/", 7, LayoutVersion.HIVE_3, (6, 1)),
        ("delta_1_1/ delta_2_2/", 1, LayoutVersion.HIVE_3, None),
        ("base_5/ delta_4_4/", 3, LayoutVersion.HIVE_3, (9, 1)),
        ("base_5/ delta_7_7/", 7, LayoutVersion.HIVE_4, (9, 1)),
        ("base_5/ delta_4_4/ delta_7_7/", 7, LayoutVersion.HIVE_4, (9, 2)),
        ("delta_1_1/ delta_2_2/", 1, LayoutVersion.HIVE_4, (9, 1)),
    ],
)
def test_only_what_an_entry_reaches_calls_the_cleaner(entries, aborted, layout, left):
    """
    On Hive 3.1 an entry ends below aborted ids. One with nothing to remove would later remove what another compaction
    replaced, though readers need it.
    """
    write_ids = CompactorWriteIdList.from_reader(ValidWriteIdList("db.t", 9, (), (aborted,)))
    state = resolve(listing((entries,)), write_ids, None, layout)
    found = only_cleaning(state, write_ids, layout)
    assert (found and (found.highest_write_id, found.directories)) == left


def stripe(write_id, index=0, rows=100, size=16 * MIB, bucket=BUCKET, **more):
    """A stripe of rows 0 … of one write id."""
    first = index * rows
    known = {
        "first": RowKey(write_id, bucket, first),
        "last": RowKey(write_id, bucket, first + rows - 1),
        "last_exact": True,
        "write_ids": (write_id, write_id),
        "buckets": (bucket, bucket),
        "current_ids": (write_id, write_id),
        "operations": (0, 0),
    }
    return StripeFacts(index, rows, size, **(known | more))


def facts(path, *stripes, **more):
    return FileFacts(path, sum(one.rows for one in stripes), more.pop("acid", True), stripes, **more)


def by_path(*files):
    return {file.path: file for file in files}


def planned(selection, known, deletes=None):
    prepared = prepare(selection, known)
    return plan(prepared, deletes or {}, FormatSpec(), "/t", SIZES)


def two_files(**second):
    return by_path(facts("base_5/bucket_00000", stripe(5)), facts("delta_6_6_0000/bucket_00000", stripe(6, **second)))


def test_a_plan_of_a_major():
    """Base and delta are copied into one file of one base."""
    made = planned(selected("base_5/ delta_6_6_0000/"), two_files())
    assert made.names == ("base_0000006_v0000099",)
    (bucket,) = made.outputs[0].buckets
    assert (bucket.name, [segment.action for segment in bucket.segments]) == (
        "bucket_00000",
        [Action.COPY, Action.COPY],
    )
    assert (bucket.deletes, bucket.delete_events) == ((), 0)
    assert made.prediction.copied == made.prediction.written == 32 * MIB
    assert {file.path for file in made.inputs} == {"base_5/bucket_00000", "delta_6_6_0000/bucket_00000"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"buckets": (encode(1, 0), encode(1, 0))}, Reason.WRONG_BUCKET),
        ({"buckets": (encode(0, 0), encode(1, 0))}, Reason.WRONG_BUCKET),
        ({"buckets": (1, encode(0, 0))}, Reason.WRONG_BUCKET),
        ({"buckets": (3 << 29, 3 << 29)}, Reason.CORRUPT_FILE),
        ({"operations": (0, 1)}, Reason.UNSUPPORTED_FORMAT),
        ({"operations": (2, 2)}, Reason.UNSUPPORTED_FORMAT),
        ({"write_ids": (7, 7)}, Reason.CORRUPT_FILE),
        ({"write_ids": (5, 6)}, Reason.CORRUPT_FILE),
        ({"current_ids": (5, 6)}, Reason.CORRUPT_FILE),
        ({"current_ids": (5, 5)}, Reason.CORRUPT_FILE),
        ({"current_ids": (6, 7)}, Reason.CORRUPT_FILE),
    ],
)
def test_statistics_that_contradict_the_name_are_refused(changes, reason):
    """A file whose rows can't be what its directory and name say is never read on."""
    with pytest.raises(RefusedError) as caught:
        planned(selected("base_5/ delta_6_6_0000/"), two_files(**changes))
    assert caught.value.reason is reason
    assert "delta_6_6_0000/bucket_00000" in caught.value.message


@pytest.mark.parametrize("layout", list(LayoutVersion))
def test_the_base_that_hive_made_of_originals_alone(layout):
    """Its name says the lowest number there is, its rows have write id 0: it is compacted like any other base."""
    base, delta = "base_-9223372036854775808", "delta_10000001_10000001_0000"
    known = by_path(facts(f"{base}/bucket_00000", stripe(0)), facts(f"{delta}/bucket_00000", stripe(10_000_001)))
    made = planned(selected(f"{base}/", f"{delta}/", hwm=10_000_001, layout=layout), known)
    (bucket,) = made.outputs[0].buckets
    assert (made.name_write_id, [segment.action for segment in bucket.segments]) == (
        10_000_001,
        [Action.COPY, Action.COPY],
    )
    with pytest.raises(RefusedError, match="outside its directory's range"):
        planned(
            selected(f"{base}/", f"{delta}/", hwm=10_000_001, layout=layout),
            {**known, f"{base}/bucket_00000": facts(f"{base}/bucket_00000", stripe(1))},
        )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"acid": False}, Reason.CORRUPT_FILE),
        ({"schema_problem": "a: string can't become int"}, Reason.SCHEMA_MISMATCH),
    ],
)
def test_files_that_dont_fit_the_table_are_refused(changes, reason):
    """Dropped and renamed columns would be lost for good; a file without ACID columns isn't what its name says."""
    known = by_path(facts("base_5/bucket_00000", stripe(5)), facts("delta_6_6_0000/bucket_00000", stripe(6), **changes))
    with pytest.raises(RefusedError) as caught:
        planned(selected("base_5/ delta_6_6_0000/"), known)
    assert caught.value.reason is reason


def test_two_files_of_one_bucket_are_refused():
    """Readers would take both; whether rows are doubled can't be told."""
    selection = selected("base_5/", "delta_6_6_0000/ bucket_00000 bucket_00000_1")
    known = by_path(
        facts("base_5/bucket_00000", stripe(5)),
        facts("delta_6_6_0000/bucket_00000", stripe(6)),
        facts("delta_6_6_0000/bucket_00000_1", stripe(6)),
    )
    with pytest.raises(RefusedError) as caught:
        planned(selection, known)
    assert caught.value.reason is Reason.SEVERAL_FILES_PER_BUCKET


@pytest.mark.parametrize(
    ("first", "second", "refused"),
    [
        ({}, {"index": 1}, False),
        ({"index": 1}, {}, False),
        ({}, {}, True),
        ({}, {"first": RowKey(6, BUCKET, 99), "last": RowKey(6, BUCKET, 150)}, True),
        ({"index": 1}, {"last": RowKey(6, BUCKET, 100)}, True),
        ({"first": RowKey(6, BUCKET, 50), "last": RowKey(6, BUCKET, 60)}, {}, True),
        ({}, {"index": 1, "last": None}, True),
        ({"last": None}, {"index": 1}, True),
        ({}, {"rows": 0}, False),
    ],
)
def test_attempts_of_one_directory_may_share_a_bucket_when_their_keys_are_disjoint(first, second, refused):
    """`bucket_00000_0` and `bucket_00000_1` are taken together only if statistics prove that no key is in both."""
    selection = selected("base_5/", "delta_6_6_0000/ bucket_00000_0 bucket_00000_1")
    attempts = (
        facts("delta_6_6_0000/bucket_00000_0", replace(stripe(6, **first), index=0)),
        facts("delta_6_6_0000/bucket_00000_1", replace(stripe(6, **second), index=0)),
    )
    known = by_path(facts("base_5/bucket_00000", stripe(5)), *attempts)
    if refused:
        with pytest.raises(RefusedError):
            planned(selection, known)
    else:
        rows = 100 + sum(attempt.rows for attempt in attempts)
        assert sum(segment.rows for segment in planned(selection, known).outputs[0].buckets[0].segments) == rows


def test_attempts_of_delete_events_never_share_a_bucket():
    """Keys of events are those of rows elsewhere: statistics prove nothing about which attempt counts."""
    delta = "delete_delta_6_6_0000"
    events = {"operations": (2, 2), "write_ids": (5, 5)}
    known = by_path(
        facts("base_5/bucket_00000", stripe(5)),
        facts(
            f"{delta}/bucket_00000_0",
            replace(stripe(6, **events), first=RowKey(5, BUCKET, 0), last=RowKey(5, BUCKET, 9)),
        ),
        facts(
            f"{delta}/bucket_00000_1",
            replace(stripe(6, **events), first=RowKey(5, BUCKET, 10), last=RowKey(5, BUCKET, 19)),
        ),
    )
    with pytest.raises(RefusedError) as caught:
        planned(selected("base_5/", f"{delta}/ bucket_00000_0 bucket_00000_1"), known)
    assert caught.value.reason is Reason.SEVERAL_FILES_PER_BUCKET


@pytest.mark.parametrize("unknown", ["write_ids", "current_ids", "operations", "buckets"])
def test_statistics_that_are_not_there_contradict_nothing(unknown):
    """A writer may leave any of them out: the compaction looks at the rows instead."""
    made = planned(selected("base_5/ delta_6_6_0000/"), two_files(**{unknown: None}))
    assert sum(segment.rows for segment in made.outputs[0].buckets[0].segments) == 200


@pytest.mark.parametrize(
    ("zones", "refused"),
    [(("UTC", "UTC"), False), (("UTC", None), False), (("UTC", "Asia/Tokyo"), True), (("", "UTC"), True)],
)
def test_timestamps_of_two_zones_never_share_a_file(zones, refused):
    """Readers of Hive 3.1 take one zone for all of a file; those of Hive 4 don't."""
    names = ["delta_6_6_0000", "delta_7_7_0000"]
    known = [
        facts(f"{name}/bucket_00000", stripe(at), zone=zone)
        for at, name, zone in zip((6, 7), names, zones, strict=True)
    ]
    prepared = prepare(selected("/ ".join([*names, ""]), columns=(("a", "timestamp"),)), by_path(*known))
    plan(prepared, {}, FormatSpec(one_zone=False), "/t", SIZES)
    if refused:
        with pytest.raises(RefusedError, match="would stand in one file"):
            plan(prepared, {}, FormatSpec(one_zone=True), "/t", SIZES)
    else:
        plan(prepared, {}, FormatSpec(one_zone=True), "/t", SIZES)


def test_bucket_numbers_above_4095_decode_modulo_4096():
    """Rows of bucket_04097 belong to bucket 1, and come into its file."""
    low, high = encode(1, 0), encode(1, 0x800)
    selection = selected("delta_6_6_0000/ bucket_00001 bucket_04097", "delta_7_7_0000/ bucket_00001")
    known = by_path(
        facts("delta_6_6_0000/bucket_00001", stripe(6, bucket=low)),
        facts("delta_6_6_0000/bucket_04097", stripe(6, bucket=high)),
        facts("delta_7_7_0000/bucket_00001", stripe(7, bucket=low)),
    )
    (bucket,) = planned(selection, known).outputs[0].buckets
    assert (bucket.bucket, bucket.name, sum(segment.rows for segment in bucket.segments)) == (1, "bucket_00001", 300)


def test_original_rows_are_numbered_over_all_files_of_a_bucket():
    """ROW__IDs of files from before ACID run on over copies, in path order; later deletes name them."""
    selection = selected("000000_0 000000_0_copy_1 000001_0 000002_0 0", "delta_6_6_0000/")
    plain = {
        path: facts(path, StripeFacts(0, 10, MIB), StripeFacts(1, 5, MIB), acid=False)
        for path in ("000000_0", "000000_0_copy_1", "000001_0")
    }
    prepared = prepare(selection, plain | by_path(facts("delta_6_6_0000/bucket_00000", stripe(6))))
    found = {
        source.file.path: source.file.synthetic
        for group in prepared.buckets.values()
        for source in group
        if source.file.raw
    }
    assert found == {
        "000000_0": SyntheticIds(0, encode(0, 0), 0),
        "000000_0_copy_1": SyntheticIds(0, encode(0, 0), 15),
        "000001_0": SyntheticIds(0, encode(1, 0), 0),
    }


def test_keys_of_original_rows_are_those_of_their_stripes():
    """Each stripe goes on where the one before it ends, through all files of the bucket: exact, whatever their size."""
    rows = {"000000_0": (10, 1, 0, 5), "000000_0_copy_1": (3,)}
    plain = [
        facts(path, *(StripeFacts(number, count, MIB) for number, count in enumerate(counts)), acid=False)
        for path, counts in rows.items()
    ]
    found = prepare(selected(" ".join(rows), "delta_6_6_0000/"), by_path(*plain, facts(ACID_DELTA, stripe(6))))
    stripes = [one for source in found.buckets[0] if source.file.raw for one in source.facts.stripes]
    spans = [(one.first.row_id, one.last.row_id) for one in stripes if one.rows]
    assert spans == [(0, 9), (10, 10), (11, 15), (16, 18)]
    for one in stripes:
        assert one.first[:2] == one.last[:2] == (0, BUCKET)
        assert (one.last_exact, one.write_ids, one.buckets) == (True, (0, 0), (BUCKET, BUCKET))


@pytest.mark.parametrize(
    ("directory", "taken"),
    [
        ("base_5/", True),
        ("base_5_v9/", False),
        ("delta_5_5_0000/", True),
        ("delta_4_5/", False),
        ("delta_4_5_v9/", False),
    ],
)
def test_plain_files_lie_where_a_statement_puts_them(directory, taken):
    """LOAD DATA [OVERWRITE] and CTAS write them into one write id's directory; no compaction makes any."""
    if not taken:
        with pytest.raises(RefusedError, match="isn't named like a bucket file"):
            selected(f"{directory} 000000_0", "delta_6_6_0000/")
        return
    found = selected(f"{directory} 000000_0", "delta_6_6_0000/")
    assert [file.raw for file in found.inserts] == [True, False]


@pytest.mark.parametrize(
    ("entries", "roles"),
    [
        (("base_5/ 000000_0", "delta_6_6_0000/ 000000_0"), [FileRole.BASE, FileRole.DELTA]),
        (("000000_0", "delta_6_6_0000/ 000000_0"), [FileRole.ORIGINAL, FileRole.DELTA]),
    ],
)
def test_files_of_an_insert_only_table_have_roles(entries, roles):
    """The files that lay there before any delta are listed beside the result, so that the Cleaner removes only those."""
    assert [file.role for file in selected(*entries, insert_only=True).files] == roles


def test_loaded_rows_carry_the_write_id_and_statement_of_their_directory():
    """LOAD DATA puts plain files into a delta: their rows are of its write id and statement."""
    selection = selected("base_5/", "delta_6_6_0003/ 000000_0 000000_0_copy_1")
    known = by_path(
        facts("base_5/bucket_00000", stripe(5)),
        facts("delta_6_6_0003/000000_0", StripeFacts(0, 4, MIB), acid=False),
        facts("delta_6_6_0003/000000_0_copy_1", StripeFacts(0, 4, MIB), acid=False),
    )
    found = [source.file.synthetic for source in prepare(selection, known).buckets[0] if source.file.raw]
    assert found == [SyntheticIds(6, encode(0, 3), 0), SyntheticIds(6, encode(0, 3), 4)]


def deleting(*numbers):
    return [
        facts(f"delete_delta_{n}_{n}_0000/bucket_00000", stripe(5, operations=(2, 2), current_ids=(n, n)))
        for n in numbers
    ]


@pytest.mark.parametrize(
    ("buckets", "one"),
    [
        (None, False),
        ((encode(1, 0), encode(1, 5)), True),
        ((encode(1, 0), encode(2, 0)), False),
        ((2, 2), True),
        ((1, 2), False),
        ((1, encode(1, 0)), False),
        ((3 << 29, 3 << 29), False),
    ],
)
def test_when_both_ends_prove_one_bucket(buckets, one):
    """Rows of both codecs have others between them; what no codec wrote proves nothing."""
    assert one_bucket(buckets) is one


@pytest.mark.parametrize(
    ("name", "acid", "reason"),
    [("000000_0", True, Reason.UNKNOWN_NAME), ("004096_0", False, Reason.WRONG_BUCKET), ("004095_0", False, None)],
)
def test_original_files_are_what_their_names_say(name, acid, reason):
    """Rows without ids, of a bucket that an id can have."""
    selection = selected(name, "delta_6_6_0000/")
    known = by_path(facts(name, StripeFacts(0, 10, MIB), acid=acid), facts("delta_6_6_0000/bucket_00000", stripe(6)))
    if reason is None:
        assert planned(selection, known).names == ("base_0000006_v0000099",)
    else:
        with pytest.raises(RefusedError, match=f"db.t: {name}") as caught:
            planned(selection, known)
        assert caught.value.reason is reason


@pytest.mark.parametrize(
    ("entries", "aborted"),
    [
        (("base_5/ delta_6_6_0000/ delete_delta_7_7_0000/",), ()),
        (("base_5/ delta_6_9/",), (4, 7)),
        (("000000_0", "delta_6_6_0000/ delta_7_7_0000/"), ()),
        (("delta_6_6_0000/ delta_7_7_0000/",), (9,)),
    ],
)
def test_what_a_reader_reads_is_what_a_major_takes(entries, aborted):
    """Of the same lists: files, roles, and the aborted ids that may be among the rows."""
    write_ids = CompactorWriteIdList.from_reader(ValidWriteIdList("db.t", 9, (), aborted))
    state = resolve(listing(entries), write_ids, ValidTxnList(99, (99,)), LayoutVersion.HIVE_4)
    spec = TableSpec("db.t", (("a", "int"),), ColumnRule.NAME)
    found, taken = everything(state, spec, LayoutVersion.HIVE_4, write_ids), selected(*entries, aborted=aborted)
    assert found.major
    assert (found.inserts, found.deletes) == (taken.inserts, taken.deletes)
    assert found.aborted == taken.aborted
    with pytest.raises(RefusedError):
        everything(
            resolve(listing(["part-1", *entries]), write_ids, ValidTxnList(99, (99,)), LayoutVersion.HIVE_4),
            spec,
            LayoutVersion.HIVE_4,
            write_ids,
        )


@pytest.mark.parametrize("events", [0, 1, 100])
def test_a_minor_keeps_rows_and_events_apart(events):
    """Deletes aren't applied: a reader may still need both sides, if only of one event."""
    selection = selected("base_5/ delta_6_6_0000/ delta_7_7_0000/ delete_delta_8_8_0000/", kind=CompactionKind.MINOR)
    known = by_path(
        facts("delta_6_6_0000/bucket_00000", stripe(6)), facts("delta_7_7_0000/bucket_00000", stripe(7)), *deleting(8)
    )
    made = planned(selection, known, {0: DeleteFacts(0, ("delete_delta_8_8_0000/bucket_00000",), events)})
    names = ("delta_0000006_0000008_v0000099", "delete_delta_0000006_0000008_v0000099")
    assert made.names == names[: 1 + bool(events)]
    assert made.delete_scope is DeleteScope.NONE
    assert made.outputs[0].buckets[0].deletes == ()
    assert [bucket.delete_events for bucket in made.outputs[-1].buckets] == [events]


def test_a_minor_of_one_write_id_applies_that_write_ids_deletes():
    """In one directory of that write id they would no longer count (docs/compaction.md)."""
    selection = selected("base_5/ delta_6_6_0000/ delta_6_6_0001/ delete_delta_6_6_0002/", kind=CompactionKind.MINOR)
    known = by_path(
        facts("delta_6_6_0000/bucket_00000", stripe(6)),
        facts("delta_6_6_0001/bucket_00000", stripe(6, index=1)),
        *deleting(6),
    )
    known["delete_delta_6_6_0002/bucket_00000"] = replace(
        known.pop("delete_delta_6_6_0000/bucket_00000"), path="delete_delta_6_6_0002/bucket_00000"
    )
    made = planned(selection, known, {0: DeleteFacts(0, ("delete_delta_6_6_0002/bucket_00000",), 30, own=10)})
    assert made.delete_scope is DeleteScope.OWN
    assert made.outputs[0].buckets[0].deletes
    assert made.outputs[1].buckets[0].delete_events == 20
    one = planned(selection, known, {0: DeleteFacts(0, ("delete_delta_6_6_0002/bucket_00000",), 11, own=10)})
    assert one.outputs[1].buckets[0].delete_events == 1
    alone = planned(selection, known, {0: DeleteFacts(0, ("delete_delta_6_6_0002/bucket_00000",), 10, own=10)})
    assert [output.kind for output in alone.outputs] == [DirKind.DELTA]
    none = planned(selection, known, {0: DeleteFacts(0, ("delete_delta_6_6_0002/bucket_00000",), 10, own=0)})
    assert not none.outputs[0].buckets[0].deletes


def test_a_minor_without_rows_or_events_still_makes_a_directory():
    """Otherwise the emptied inputs would stay, and be picked again for ever."""
    selection = selected("base_5/ delta_6_6_0000/ delta_7_7_0000/", kind=CompactionKind.MINOR)
    made = planned(selection, by_path(facts("delta_6_6_0000/bucket_00000"), facts("delta_7_7_0000/bucket_00000")))
    assert (made.names, made.outputs[0].buckets) == (("delta_0000006_0000007_v0000099",), ())


def test_format_of_the_largest_input_unless_something_else_is_asked_for():
    """So that most stripes can be copied; the request wins over the table, the table over the files."""
    files = [
        facts("a", stripe(1, size=64 * MIB), codec="snappy", stride=5000),
        facts("b", stripe(2, size=MIB), codec="zlib"),
    ]
    plain = TableSpec("db.t", (), ColumnRule.NAME)
    assert (
        choose_format(plain, LayoutVersion.HIVE_4, files, 64 * MIB, 8 * MIB).codec,
        choose_format(plain, LayoutVersion.HIVE_4, files, 64 * MIB, 8 * MIB).stride,
    ) == (
        "snappy",
        5000,
    )
    asked = replace(plain, parameters={"ORC.COMPRESS": "ZSTD"})
    assert choose_format(asked, LayoutVersion.HIVE_4, files, 64 * MIB, 8 * MIB).codec == "zstd"
    assert (
        choose_format(
            replace(asked, properties={"tblprops.orc.compress": "none"}), LayoutVersion.HIVE_4, files, 64 * MIB, 8 * MIB
        ).codec
        == "none"
    )
    with pytest.raises(RefusedError) as caught:
        choose_format(asked, LayoutVersion.HIVE_3, files, 64 * MIB, 8 * MIB)
    assert caught.value.reason is Reason.UNSUPPORTED_COMPRESSION
    assert "know only NONE, ZLIB, SNAPPY, LZ4" in caught.value.message


def test_format_without_a_model():
    """Files of a streaming writer have no index and no codec: they are no model."""
    assert choose_format(
        TableSpec("db.t", (), ColumnRule.NAME),
        LayoutVersion.HIVE_4,
        [facts("a", stripe(1), codec="none", stride=0)],
        64 * MIB,
        8 * MIB,
    ) == FormatSpec(bloom_fpp=0.01, stripe_rows=100)


def test_the_model_has_an_index_and_is_compressed():
    """The largest such file with ROW__IDs, among larger ones that lack one of the three."""
    files = [
        facts("index", stripe(1, size=64 * MIB), codec="lz4", stride=0),
        facts("codec", stripe(1, size=64 * MIB), codec="none", stride=2000),
        facts("ids", stripe(1, size=64 * MIB), codec="lz4", stride=3000, acid=False),
        facts("small", stripe(1, size=MIB), codec="zlib", stride=4000),
        facts("model", stripe(1, size=2 * MIB), codec="snappy", stride=5000),
    ]
    found = choose_format(TableSpec("db.t", (), ColumnRule.NAME), LayoutVersion.HIVE_4, files, 64 * MIB, 8 * MIB)
    assert (found.codec, found.stride) == ("snappy", 5000)


@pytest.mark.parametrize(
    ("weights", "together"),
    [
        ([], []),
        ([1], []),
        ([1, 1], [0, 1]),
        ([1, 2], [0, 1]),
        ([1, 3], []),
        ([1, 1, 100], [0, 1]),
        ([100, 1, 1], [1, 2]),
        ([1, 1, 100, 4, 4], [0, 1, 3, 4]),
        ([1, 1, 4], [0, 1, 2]),
        ([16, 4, 1], []),
    ],
)
def test_small_parts_join_those_with_half_of_their_weight(weights, together):
    """On either side of one that is too large for all of them; what can't be copied counts, and is never named."""
    assert list(joined(weights, [True] * len(weights))) == together
    assert list(joined(weights, [False] * len(weights))) == []
    alone = [place == 0 for place in range(len(weights))]
    assert set(joined(weights, alone)) <= {0}


def test_recoded_stripes_are_as_large_as_those_that_are_kept():
    """The largest of them is the measure; small stripes and files without ROW__IDs are none, and a property wins."""
    files = [
        facts("a", stripe(1, rows=300, size=5 * MIB, values=20 * MIB), stripe(1, rows=900, size=MIB)),
        facts("b", stripe(2, rows=200)),
        facts("c", stripe(3, rows=9000), acid=False),
    ]
    spec = TableSpec("db.t", (("a", "int"),), ColumnRule.NAME)
    sized = replace(spec, parameters={"orc.stripe.size": "1000000"})
    chosen = [
        choose_format(*asked, 64 * MIB, 8 * MIB).stripe_rows
        for asked in (
            (spec, LayoutVersion.HIVE_4, files),
            (sized, LayoutVersion.HIVE_4, files),
            (spec, LayoutVersion.HIVE_4, files[2:]),
        )
    ]
    assert chosen == [300, None, None]


def test_bloom_columns_are_those_of_the_table():
    """A name that isn't a column is left out, as Hive does."""
    spec = TableSpec(
        "db.t",
        (("a", "int"), ("B", "int")),
        ColumnRule.NAME,
        parameters={"orc.bloom.filter.columns": "b, nothing", "orc.bloom.filter.fpp": "0.1"},
    )
    found = choose_format(spec, LayoutVersion.HIVE_4, [], 64 * MIB, 8 * MIB)
    assert (found.bloom_columns, found.bloom_fpp) == (("b",), 0.1)


def test_an_index_is_always_written():
    """
    Without one no reader trusts statistics, and no stripe could be copied the next time; a table that asks for none is
    compacted all the same.
    """
    files = [facts("a", stripe(1), stride=5000)]
    spec = TableSpec("db.t", (("a", "int"),), ColumnRule.NAME, parameters={"orc.create.index": "false"})
    assert choose_format(spec, LayoutVersion.HIVE_4, files, 64 * MIB, 8 * MIB).stride == 5000
    for asked in ("0", "-1", "999", "1e30"):
        assert (
            choose_format(
                replace(spec, properties={"orc.row.index.stride": asked}),
                LayoutVersion.HIVE_4,
                files,
                64 * MIB,
                8 * MIB,
            ).stride
            == 10_000
        )


def test_sizes_out_of_all_measure_are_brought_back_into_it():
    """Block and stripe sizes that no writer takes; the smallest and the largest that ours takes are used instead."""
    small = TableSpec(
        "db.t", (("a", "int"),), ColumnRule.NAME, parameters={"orc.compress.size": "0", "orc.stripe.size": "-1"}
    )
    large = TableSpec(
        "db.t", (("a", "int"),), ColumnRule.NAME, parameters={"orc.compress.size": "1e30", "orc.stripe.size": "1e30"}
    )
    chosen = [choose_format(spec, LayoutVersion.HIVE_4, [], 64 * MIB, 8 * MIB) for spec in (small, large)]
    assert [(one.block_size, one.stripe_bytes) for one in chosen] == [(65_536, MIB), (4 * MIB, 1024 * MIB)]


@pytest.mark.parametrize(
    ("name", "value"),
    [("orc.compress.size", "big"), ("orc.compress.size", "nan"), ("orc.stripe.size", "inf"), ("orc.row.index.stride", "nan"), ("orc.bloom.filter.fpp", "0"),
     ("orc.bloom.filter.fpp", "1"), ("orc.bloom.filter.fpp", "-0.5"), ("orc.bloom.filter.fpp", "nan")],
)  # fmt: skip
def test_properties_that_are_no_such_numbers_are_refused(name, value):
    """One sentence that names the table, the property and its value."""
    with pytest.raises(RefusedError, match=name) as caught:
        choose_format(
            TableSpec("db.t", (("a", "int"),), ColumnRule.NAME, parameters={name: value}),
            LayoutVersion.HIVE_4,
            [],
            64 * MIB,
            8 * MIB,
        )
    assert caught.value.reason is Reason.UNSUPPORTED_FORMAT


@given(stripe_sources())
def test_every_stripe_is_laid_out_once(sources):
    """Whatever the layout: each stripe appears in exactly one segment, and copied ones follow each other by key."""
    laid = segments(sources, SIZES)
    found = sorted((segment.path, index) for segment in laid for index in segment.stripes)
    assert found == sorted(
        (source.facts.path, one.index) for source in sources for one in source.facts.stripes if one.rows
    )
    known = {(source.facts.path, one.index): one for source in sources for one in source.facts.stripes}
    ends = None
    for segment in laid:
        for index in segment.stripes:
            one = known[segment.path, index]
            if segment.action is Action.COPY:
                assert ends is None or one.first > ends
                assert one.hit is Hit.NONE
        tops = [known[segment.path, index].last for index in segment.stripes]
        ends = max([end for end in [ends, *tops] if end is not None])


@given(stripe_sources())
def test_chunks_are_contiguous(sources):
    """The parts of a chunk stand together, so that one task can write them as one piece; what is copied is in none."""
    laid = segments(sources, SIZES)
    assert {segment.chunk for segment in laid if segment.action is Action.COPY} <= {-1}
    chunks = [segment.chunk for segment in laid if segment.action is not Action.COPY]
    assert chunks == sorted(chunks)
    assert set(chunks) == set(range(len(set(chunks))))


@given(stripe_sources(), st.integers(1, 2000))
def test_prediction_counts_everything_once(sources, stripe_rows):
    """Copied, probed, cut and recoded together are all bytes; joining makes no more stripes than there were."""
    output = FormatSpec(stripe_rows=stripe_rows)
    laid = segments(sources, SIZES, output)
    stripes = {(source.file.path, one.index): one.weight for source in sources for one in source.facts.stripes}
    directory = OutputDir(DirKind.BASE, "b", (BucketPlan(0, "bucket_00000", laid),))
    found = predict([directory], output, len(sources), stripes, 0)
    assert found.copied + found.probed + found.cut + found.recoded == sum(source.facts.bytes for source in sources)
    assert found.joined <= found.recoded
    assert (found.files_before, found.files_after) == (len(sources), 1)
    assert found.stripes_before == len(stripes)
    full = sum(1 + one.rows // stripe_rows for source in sources for one in source.facts.stripes)
    assert (found.stripes_after > 0) == bool(stripes)
    assert found.stripes_after <= full


def test_a_prediction_in_numbers():
    """Each action has its rate. A probe reads the keys too; delete events are decoded, and aren't written."""
    laid = (
        Segment(Action.COPY, "a", (0,), "", 1, 1_000_000_000),
        Segment(Action.PROBE, "a", (1,), "", 1, 400_000_000, 0),
        Segment(Action.RECODE, "a", (2,), "", 1, 12_000_000, 1),
        Segment(Action.RECODE, "a", (3,), "", 1, 25_000_000, 2, 1, Cut.YES),
    )
    copies = (FileCopy("b", "c", 200_000_000),)
    directory = OutputDir(DirKind.BASE, "b", (BucketPlan(0, "bucket_00000", laid),), copies=copies)
    stripes = {("a", number): 1 for number in range(4)}
    found = predict([directory], FormatSpec(), 2, stripes, 24_000_000)
    assert (found.copied, found.probed, found.recoded, found.cut) == (
        1_200_000_000,
        400_000_000,
        12_000_000,
        25_000_000,
    )
    assert found.read == 1_200_000_000 + 412_000_000 + 12_000_000 + 25_000_000 + 24_000_000
    assert found.written == 1_200_000_000 + 400_000_000 + 12_000_000 + 25_000_000
    assert found.seconds == round(1 + 1 / 3 + 1 + 1 + 2 + 1, 3)
    assert (found.files_before, found.files_after, found.stripes_before, found.stripes_after) == (2, 2, 4, 4)


def test_whole_files_are_predicted_by_their_bytes():
    """As many are read as are written: an insert-only table has no delete events."""
    chosen = selected("base_5/ 000000_0 10M delta_6_6_0000/ 000000_0 20M", insert_only=True)
    found = plan_whole_files(chosen, "/t", {}, JoinSizes(256 * MIB, 64 * MIB, 8 * MIB)).prediction
    assert found.copied == found.read == found.written == 30 * MIB


@given(stripe_sources())
def test_what_is_surely_cut_has_few_events(sources):
    """Rows are surely cut out of a stripe only where its events are few wherever they hit, and one does."""
    known = {(source.facts.path, one.index): one for source in sources for one in source.facts.stripes}
    for segment in segments(sources, SIZES):
        for index in segment.stripes:
            one = known[segment.path, index]
            if segment.cut is not Cut.NO:
                assert segment.action is not Action.COPY
                assert one.hit is not Hit.NONE
            if segment.cut is Cut.YES:
                assert one.events <= one.removable[0]
                assert segment.action is Action.PROBE or one.hit is Hit.CERTAIN


STRIPE = 64 << 20


def result_of(sources, sizes):
    """
    The file that a plan makes of a bucket, as the next plan sees it: copied stripes as they were, each recoded chunk as
    even stripes of about full size, whose keys follow each other.
    """
    stripes, bucket, row = [], encode(0, 0), 0
    facts = {source.facts.path: source.facts for source in sources}

    def add(rows, size):
        nonlocal row
        keys = (RowKey(5, bucket, row), RowKey(5, bucket, row + rows - 1))
        ids = ((5, 5), (bucket, bucket), (5, 5), (0, 0))
        stripes.append(StripeFacts(len(stripes), rows, size, *keys, True, *ids))
        row += rows

    for _, together in itertools.groupby(segments(sources, sizes), lambda one: (one.chunk, one.action)):
        some = list(together)
        if some[0].action is Action.RECODE:
            size, rows = sum(one.bytes for one in some), sum(one.rows for one in some)
            count = min(rows, max(1, round(size / STRIPE)))
            for number in range(count):
                add(rows * (number + 1) // count - rows * number // count, size // count)
        else:
            for one in some:
                for index in one.stripes:
                    found = facts[one.path].stripes[index]
                    add(found.rows, found.bytes)
    path = "base_9"
    file = InputFile(path, 1, 0, FileRole.BASE, path, 0, 0, 9)
    return SegmentSource(file, FileFacts(path, row, True, tuple(stripes)))


@given(stripe_sources())
def test_what_a_compaction_leaves_the_next_one_copies(sources):
    """Nothing came between: not one stripe is decoded again."""
    sizes = Sizes(8 * MIB, 2 * STRIPE)
    again = segments([result_of(sources, sizes)], sizes)
    assert all(segment.action is Action.COPY for segment in again)


@given(stripe_sources(), st.data())
def test_one_deleted_row_costs_one_stripe(sources, data):
    """After a compaction, a delete that hits one stripe has that stripe decoded, and small ones beside it at most."""
    sizes = Sizes(8 * MIB, 2 * STRIPE)
    made = result_of(sources, sizes)
    if not made.facts.stripes:
        return
    at = data.draw(st.integers(0, len(made.facts.stripes) - 1))
    stripes = tuple(replace(one, hit=Hit.CERTAIN) if one.index == at else one for one in made.facts.stripes)
    hit = replace(made, facts=replace(made.facts, stripes=stripes))
    decoded = [
        index for segment in segments([hit], sizes) if segment.action is Action.RECODE for index in segment.stripes
    ]
    assert at in decoded
    others = [made.facts.stripes[index].weight for index in decoded if index != at]
    assert all(weight < sizes.min_stripe for weight in others)
    assert sum(others) < 3 * sizes.min_stripe


@given(st.lists(st.integers(10, 24).map(lambda bits: 1 << bits), min_size=1, max_size=40))
def test_small_inserts_are_written_again_a_few_times_only(inserts):
    """
    A compaction after each insert: bytes are encoded anew as often as they can grow by half, and small stripes stay few.
    """
    sizes, base, written = Sizes(8 * MIB, 2 * STRIPE), SegmentSource(*empty_base()), 0
    for number, size in enumerate(inserts):
        key = RowKey(100 + number, encode(0, 0), 0)
        ids = ((key.write_id,) * 2, (key.bucket,) * 2, (key.write_id,) * 2, (0, 0))
        stripe = StripeFacts(0, 1, size, key, key, True, *ids)
        path = f"delta_{key.write_id}_{key.write_id}"
        file = InputFile(path, 1, 0, FileRole.DELTA, path, 0, key.write_id, key.write_id)
        sources = [base, SegmentSource(file, FileFacts(path, 1, True, (stripe,)))]
        written += sum(one.bytes for one in segments(sources, sizes) if one.action is Action.RECODE)
        base = result_of(sources, sizes)
        small = [one.weight for one in base.facts.stripes if one.weight < sizes.min_stripe]
        assert len(small) <= 30
    assert written <= 40 * sum(inserts)


@given(st.integers(MIB, 64 * MIB), st.integers(2, 6))
def test_stripes_that_are_small_on_purpose_are_copied(asked, count):
    """A table whose `orc.stripe.size` is below `splice.min_stripe_bytes` is not written again by each compaction."""
    spec = TableSpec("db.t", (("a", "int"),), ColumnRule.NAME, parameters={"orc.stripe.size": str(asked)})
    stripes = [stripe(5, index, size=asked // 4, values=asked) for index in range(count)]
    known = by_path(facts("base_5/bucket_00000", *stripes), facts("delta_6_6_0000/bucket_00000", stripe(6, size=100)))
    chosen = choose_format(spec, LayoutVersion.HIVE_4, known.values(), 64 * MIB, SIZES.min_stripe)
    made = plan(prepare(selected("base_5/ delta_6_6_0000/"), known), {}, chosen, "/t", SIZES)
    (bucket,) = made.outputs[0].buckets
    assert all(segment.action is Action.COPY for segment in bucket.segments if segment.path.startswith("base_5"))


def empty_base():
    """A base without rows."""
    return InputFile("base_9", 1, 0, FileRole.BASE, "base_9", 0, 0, 9), FileFacts("base_9", 0, True, ())
