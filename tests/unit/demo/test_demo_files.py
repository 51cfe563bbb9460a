"""What one file and one directory of the builder look like, in Hive's terms."""

import io

import pyorc
import pytest

from compactor.acid.compaction import LayoutVersion
from tests.demo import files
from tests.demo.files import FileOptions
from tests.demo.ledger import MemoryLedger
from tests.demo.tables import escape_path, java_bucket
from tests.demo.warehouse import Warehouse

COLUMNS = [("id", "int"), ("word", "string")]
BUCKET_0 = 536870912


def layout_of(table):
    return sorted(str(path.relative_to(table.location)) for path in table.location.rglob("*") if path.is_file())


def test_each_stripe_has_its_last_key_in_the_index(tmp_path):
    """hive.acid.key.index has one entry per stripe, the key of the stripe's last row; hive.acid.stats counts events."""
    events = [
        (0, 1, BUCKET_0, number, 1, (number, f"{number * 7919 % 99991} words {number}"))
        for number in reversed(range(60_000))
    ]
    files.write_acid(tmp_path / "bucket_00000", COLUMNS, events, FileOptions(stripe_size=100_000))
    reader = pyorc.Reader(io.BytesIO((tmp_path / "bucket_00000").read_bytes()))
    ends, last = [], -1
    for stripe in reader.iter_stripes():
        last += len(stripe)
        ends.append(f"1,{BUCKET_0},{last};")
    assert len(ends) > 1
    assert reader.user_metadata == {
        "hive.acid.key.index": "".join(ends).encode(),
        "hive.acid.stats": b"60000,0,0",
        "hive.acid.version": b"2",
    }
    assert [row[3] for row in reader][:3] == [0, 1, 2]


def test_stripes_end_after_as_many_rows_as_asked(tmp_path):
    """`orc.stripe.row.count` makes files of many small stripes."""
    options = FileOptions.from_parameters({"orc.stripe.row.count": "3", "orc.compress": "snappy"})
    files.write_acid(
        tmp_path / "bucket_00000", COLUMNS, [(0, 1, BUCKET_0, number, 1, (number, "x")) for number in range(8)], options
    )
    reader = pyorc.Reader(io.BytesIO((tmp_path / "bucket_00000").read_bytes()))
    assert [len(stripe) for stripe in reader.iter_stripes()] == [3, 3, 2]
    assert reader.user_metadata["hive.acid.key.index"] == f"1,{BUCKET_0},2;1,{BUCKET_0},5;1,{BUCKET_0},7;".encode()
    assert reader.compression is pyorc.CompressionKind.SNAPPY


def test_an_empty_file_has_an_empty_index(tmp_path):
    """No rows, no stripes, no keys."""
    files.write_acid(tmp_path / "bucket_00000", COLUMNS, [])
    reader = pyorc.Reader(io.BytesIO((tmp_path / "bucket_00000").read_bytes()))
    assert (len(reader), reader.user_metadata["hive.acid.key.index"], reader.user_metadata["hive.acid.stats"]) == (
        0,
        b"",
        b"0,0,0",
    )


def test_a_file_is_never_replaced(tmp_path):
    """A second write to the same name fails."""
    files.write_plain(tmp_path / "000000_0", COLUMNS, [(1, "a")])
    with pytest.raises(FileExistsError):
        files.write_plain(tmp_path / "000000_0", COLUMNS, [(2, "b")])


def test_names_of_an_update_in_hive_4(tmp_path):
    """Delete is statement 0, insert statement 1; files carry the attempt; every directory has its version file."""
    warehouse = Warehouse(tmp_path / "w", MemoryLedger())
    table = warehouse.create_table("d", "t", COLUMNS)
    with warehouse.begin() as txn:
        txn.insert(table, [(1, "a"), (2, "b")])
    with warehouse.begin() as txn:
        txn.update(table, lambda row: row[0] == 1, lambda row: (row[0], "c"))
    directories = ["delete_delta_0000002_0000002_0000", "delta_0000001_0000001_0000", "delta_0000002_0000002_0001"]
    assert layout_of(table) == [
        f"{name}/{file}" for name in directories for file in ("_orc_acid_version", "bucket_00000_0")
    ]


def test_names_of_an_update_in_hive_3(tmp_path):
    """Both sides have the same statement; no attempt in file names."""
    warehouse = Warehouse(tmp_path / "w", MemoryLedger(LayoutVersion.HIVE_3))
    table = warehouse.create_table("d", "t", COLUMNS)
    with warehouse.begin() as txn:
        txn.insert(table, [(1, "a")])
    with warehouse.begin() as txn:
        txn.update(table, lambda _: True, lambda row: row)
    directories = ["delete_delta_0000002_0000002_0000", "delta_0000001_0000001_0000", "delta_0000002_0000002_0000"]
    assert layout_of(table) == [
        f"{name}/{file}" for name in directories for file in ("_orc_acid_version", "bucket_00000")
    ]


def test_names_of_streaming_overwrite_truncate_load_and_insert_only(warehouse):
    """Streaming has no statement; overwrite and truncate are bases; LOAD DATA and insert-only keep plain file names."""
    table = warehouse.create_table("d", "t", COLUMNS)
    batch = warehouse.stream(table, [[(1, "a")], [(2, "b")]], side_file=True)
    assert layout_of(table) == [
        "delta_0000001_0000002/_orc_acid_version",
        "delta_0000001_0000002/bucket_00000",
        "delta_0000001_0000002/bucket_00000_flush_length",
    ]
    batch.close()
    for act in (
        lambda txn: txn.overwrite(table, [(3, "c")]),
        lambda txn: txn.truncate(table),
        lambda txn: txn.load(table, [(4, "d")]),
    ):
        with warehouse.begin() as txn:
            act(txn)
    assert layout_of(table)[:5] == [
        "base_0000003/_orc_acid_version",
        "base_0000003/bucket_00000_0",
        "base_0000004/_metadata_acid",
        "delta_0000001_0000002/_orc_acid_version",
        "delta_0000001_0000002/bucket_00000",
    ]
    assert layout_of(table)[5:] == ["delta_0000005_0000005_0000/000000_0"]
    plain = warehouse.create_table("d", "mm", COLUMNS, insert_only=True)
    with warehouse.begin() as txn:
        txn.insert(plain, [(1, "a"), (2, "b")], writers=2)
    assert layout_of(plain) == ["delta_0000001_0000001_0000/000000_0", "delta_0000001_0000001_0000/000001_0"]


def test_originals_keep_their_names_and_write_ids_start_after_them(warehouse):
    """Conversion leaves `000000_0` and its copies, and the first transaction gets write id 10000001."""
    table = warehouse.create_table("d", "t", COLUMNS, transactional=False)
    warehouse.write_original(table, [(1, "a")])
    warehouse.write_original(table, [(2, "b")])
    warehouse.convert(table)
    with warehouse.begin() as txn:
        txn.insert(table, [(3, "c")])
    assert layout_of(table) == [
        "000000_0",
        "000000_0_copy_1",
        "delta_10000001_10000001_0000/_orc_acid_version",
        "delta_10000001_10000001_0000/bucket_00000_0",
    ]


def test_an_open_writer_sees_neither_later_commits_nor_rows_that_others_delete(warehouse):
    """Updates see the state of when their transaction began; a row under another's delete is left alone."""
    table = warehouse.create_table("d", "t", COLUMNS)
    with warehouse.begin() as txn:
        txn.insert(table, [(1, "a"), (2, "b")])
    late = warehouse.begin()
    with warehouse.begin() as txn:
        txn.insert(table, [(3, "c")])
        txn.delete(table, lambda row: row[0] == 2)
    assert late.delete(table, lambda _: True) == 1
    late.commit()
    assert list(warehouse.expected(table)[None].values()) == [(3, "c")]


def test_partition_values_are_escaped_as_hive_does():
    """Hive's own list of characters, upper-case hexadecimal; nothing is Hive's default partition."""
    assert escape_path("e=f%:#\"'") == "e%3Df%25%3A%23%22%27"
    assert [escape_path(value) for value in ("a b", "c/d", "ü雪", None, "")] == [
        "a b",
        "c%2Fd",
        "ü雪",
        "__HIVE_DEFAULT_PARTITION__",
        "__HIVE_DEFAULT_PARTITION__",
    ]


def test_buckets_of_bucketing_version_1():
    """An int hashes to itself, a string as Java's, over bytes; a sign never matters."""
    assert [java_bucket(value, 4) for value in (0, 5, -1, None)] == [0, 1, 3, 0]
    assert java_bucket("hive", 1000) == 3202928 % 1000
    assert 0 <= java_bucket("ü", 7) < 7
