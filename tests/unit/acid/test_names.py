"""Names: parsing, writing, and what is refused."""

import pickle

import pytest
from hypothesis import given

from compactor.acid.compaction import LayoutVersion
from compactor.acid.names import (
    AcidDir,
    BucketFile,
    DirKind,
    MalformedNameError,
    OriginalFile,
    base_name,
    bucket_name,
    delete_delta_name,
    delta_name,
    has_hidden_part,
    is_hidden,
    is_side_file,
    looks_acid,
    original_name,
    parse_bucket_file,
    parse_dir,
    parse_original_file,
)
from compactor.reasons import Reason
from tests import strategies


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("base_000123", (DirKind.BASE, 0, 123, None, 0)),
        ("base_5", (DirKind.BASE, 0, 5, None, 0)),
        ("base_1234567890", (DirKind.BASE, 0, 1234567890, None, 0)),
        ("base_24_v26", (DirKind.BASE, 0, 24, None, 26)),
        ("base_0000024_v0000026", (DirKind.BASE, 0, 24, None, 26)),
        ("base_-9223372036854775808", (DirKind.BASE, 0, -(2**63), None, 0)),
        ("delta_000005_000006", (DirKind.DELTA, 5, 6, None, 0)),
        ("delete_delta_000005_000006", (DirKind.DELETE_DELTA, 5, 6, None, 0)),
        ("delta_0000001_0000001_0000", (DirKind.DELTA, 1, 1, 0, 0)),
        ("delta_1_4_v9", (DirKind.DELTA, 1, 4, None, 9)),
        ("delete_delta_0000005_0000005_0002", (DirKind.DELETE_DELTA, 5, 5, 2, 0)),
        ("delta_5_5_12345_v7", (DirKind.DELTA, 5, 5, 12345, 7)),
        ("delta_025_030", (DirKind.DELTA, 25, 30, None, 0)),
        ("delta_0000063_63", (DirKind.DELTA, 63, 63, None, 0)),
        ("base_24_v0", (DirKind.BASE, 0, 24, None, 0)),
        ("base_9223372036854775807", (DirKind.BASE, 0, 2**63 - 1, None, 0)),
    ],
)
def test_directories_are_parsed(name, expected):
    """Every form of Hive's grammar, at any width."""
    assert parse_dir(name) == AcidDir(*expected, name)


@pytest.mark.parametrize(
    "name",
    [
        "000000_0",
        "subdir",
        "HIVE_UNION_SUBDIR_1",
        "k=delta_1_1",
        "Base_5",
        "DELTA_1_1",
        "",
        "base",
        "delta",
        "delete_delta",
    ],
)
def test_other_directories_are_none_of_ours(name):
    """A name counts only by how it starts; case matters."""
    assert parse_dir(name) is None
    assert not looks_acid(name)


@pytest.mark.parametrize(
    "name",
    ["base_", "base_x", "base_5_6", "base_5_v", "base_5_vx", "base_-5", "base_5.bak", "base_5_v6_v7", "delta_", "delta_1", "delta_1_", "delta_1_x", "delta_1_2_3_4",
     "delta_2_1", "delta_-1_2", "delta_1_2_v", "delta_1_2_x", "delta_1_2 ", "delta_١_٢", "delta_1_9223372036854775808", "delete_delta_1", "delete_delta_1_2_", "delta_1_2\n"],
)  # fmt: skip
def test_malformed_directories_are_refused(name):
    """What starts like an ACID directory and isn't one makes Hive's readers fail, so it is never passed over."""
    with pytest.raises(MalformedNameError) as caught:
        parse_dir(name)
    assert caught.value.reason is Reason.UNKNOWN_NAME
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("name", ["base_24_v26", "delta_1_4_v9", "delete_delta_1_4_v9", "base_24_v0"])
def test_hive_3_reads_no_visibility_suffix(name):
    """Hive 3.1 throws NumberFormatException on `_v`."""
    with pytest.raises(MalformedNameError, match=r"Hive 3\.1"):
        parse_dir(name, LayoutVersion.HIVE_3)


def test_names_as_hive_writes_them():
    """Minimum widths: seven digits for ids, four for statements, five for buckets, six for originals."""
    assert base_name(200) == "base_0000200"
    assert base_name(24, 26) == "base_0000024_v0000026"
    assert base_name(1234567890) == "base_1234567890"
    assert delta_name(100, 200, 0) == "delta_0000100_0000200_0000"
    assert delta_name(100, 200) == "delta_0000100_0000200"
    assert delta_name(100, 200, 7) == "delta_0000100_0000200_0007"
    assert delta_name(1234567880, 1234567890, 0) == "delta_1234567880_1234567890_0000"
    assert delete_delta_name(1, 10) == "delete_delta_0000001_0000010"
    assert delete_delta_name(1, 10, 5) == "delete_delta_0000001_0000010_0005"
    assert delete_delta_name(1, 4, None, 9) == "delete_delta_0000001_0000004_v0000009"
    assert (bucket_name(23), bucket_name(123456789)) == ("bucket_00023", "bucket_123456789")
    assert (original_name(1), original_name(123), original_name(123456789)) == ("000001_0", "000123_0", "123456789_0")


@pytest.mark.parametrize(
    "write",
    [
        lambda: base_name(-1),
        lambda: base_name(1, -1),
        lambda: delta_name(5, 4),
        lambda: delta_name(-1, 4),
        lambda: delete_delta_name(1, 4, -1),
        lambda: bucket_name(-1),
        lambda: original_name(-1),
    ],
)
def test_impossible_names_are_never_written(write):
    """No negative ids, no reversed range."""
    with pytest.raises(ValueError, match="not negative"):
        write()


@given(strategies.acid_dirs())
def test_written_names_parse_back(acid):
    """What we write for a directory is parsed to the same directory."""
    match acid.kind:
        case DirKind.BASE:
            name = base_name(acid.max_write_id, acid.visibility_txn)
        case DirKind.DELTA:
            name = delta_name(acid.min_write_id, acid.max_write_id, acid.statement_id, acid.visibility_txn)
        case DirKind.DELETE_DELTA:
            name = delete_delta_name(acid.min_write_id, acid.max_write_id, acid.statement_id, acid.visibility_txn)
    parsed = parse_dir(name)
    assert parsed == AcidDir(
        acid.kind, acid.min_write_id, acid.max_write_id, acid.statement_id, acid.visibility_txn, name
    )
    assert name.count("_v") == (acid.visibility_txn > 0)


@given(strategies.file_names())
def test_parsing_never_raises_anything_else(name):
    """Any name at all is a directory of ours, none of ours, or malformed; file names never raise."""
    try:
        parsed = parse_dir(name)
    except MalformedNameError:
        assert looks_acid(name)
    else:
        assert (parsed is not None) == looks_acid(name)
    parse_bucket_file(name)
    parse_original_file(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bucket_00001", (1, None)),
        ("bucket_123", (123, None)),
        ("bucket_00000_0", (0, 0)),
        ("bucket_04097_12", (4097, 12)),
        ("bucket_00000_flush_length", None),
        ("bucket_00000_0_1", None),
        ("bucket_", None),
        ("bucket_x", None),
        ("xbucket_00000", None),
        ("000000_0", None),
    ],
)
def test_bucket_files(name, expected):
    """Bucket and attempt by name; side files are none."""
    parsed = parse_bucket_file(name)
    assert parsed == (None if expected is None else BucketFile(*expected))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("000123_0", (123, 0)),
        ("000000_0_copy_2", (0, 2)),
        ("000001_1", (1, 0)),
        ("7_3", (7, 0)),
        ("123456789_0", (123456789, 0)),
        ("000000_0_copy_", None),
        ("000000_0_copy_01ab23cd45ef67ab", None),
        ("000000_0_copy_0123456789012345", (0, 123456789012345)),
        ("000000", None),
        ("000000_0.gz", None),
        ("part-00000", None),
        ("random", None),
    ],
)
def test_original_files(name, expected):
    """Bucket and copy by name; a name that tells no bucket is none."""
    parsed = parse_original_file(name)
    assert parsed == (None if expected is None else OriginalFile(*expected))


def test_hidden_and_side_files():
    """Readers pass over names with `_` or `.` in front; side files belong to bucket files."""
    assert [is_hidden(n) for n in ("_done", ".crc", "_orc_acid_version", "000000_0", "bucket_0", "a_b")] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]
    assert [has_hidden_part(p) for p in ("a/b", "a/_b/c", "a/.b", "_a/b")] == [False, True, True, True]
    assert [is_side_file(n) for n in ("bucket_00000_flush_length", "bucket_00000", "x_flush_length")] == [
        True,
        False,
        False,
    ]


def test_the_error_travels():
    """It can be pickled: Spark executors and process pools send it back."""
    error = pickle.loads(pickle.dumps(MalformedNameError("base_x", "can't be parsed")))
    assert (error.name, error.reason, str(error)) == (
        "base_x",
        Reason.UNKNOWN_NAME,
        str(MalformedNameError("base_x", "can't be parsed")),
    )
