"""Full-ACID compactions of built warehouses, without Spark: what readers see doesn't change."""

import pytest

from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.acid.names import METADATA_FILE, VERSION_FILE
from compactor.acid.row_id import encode
from compactor.errors import RefusedError
from compactor.orc.format.tail import read_tail
from compactor.planning.document import Action, DeleteScope
from compactor.reasons import Reason
from compactor.storage.local_fs.driver import LocalStorage
from tests.compacting import KIB, Attempt, compact, settings, unchanged
from tests.demo.files import write_acid

MAJOR, MINOR = CompactionKind.MAJOR, CompactionKind.MINOR
COLUMNS = [("id", "int"), ("v", "string")]


def rows(first, count, tag="v"):
    return [(first + i, f"{tag}{first + i}") for i in range(count)]


def lively(warehouse, **how):
    """Inserts, an update and a delete."""
    table = warehouse.create_table("db", "t", COLUMNS, **how)
    for first in (0, 10, 20):
        with warehouse.begin() as txn:
            txn.insert(table, rows(first, 10))
    with warehouse.begin() as txn:
        txn.update(table, lambda row: row[0] % 5 == 0, lambda row: (row[0], "new"))
    with warehouse.begin() as txn:
        txn.delete(table, lambda row: row[0] % 7 == 0)
    return table


def content(attempt, directory):
    return sorted(path.name for path in (attempt.location / directory).iterdir())


def test_major(warehouse):
    """Everything into one base; a bucket file, the version file, nothing else."""
    attempt, published = compact(warehouse, lively(warehouse))
    assert published.directories == (f"base_0000005_v{attempt.txn:07d}",)
    assert content(attempt, published.directories[0]) == [VERSION_FILE, "bucket_00000"]
    assert not [name for name in attempt.names() if name.startswith(".")]


def test_minor_has_two_sides_of_one_range(warehouse):
    """Rows and delete events stay apart; both directories carry the same range and transaction."""
    attempt, published = compact(warehouse, lively(warehouse), MINOR)
    assert sorted(published.directories) == [
        f"delete_delta_0000001_0000005_v{attempt.txn:07d}",
        f"delta_0000001_0000005_v{attempt.txn:07d}",
    ]


def test_major_after_minor(warehouse):
    """A compaction reads what compactions have written."""
    table = lively(warehouse)
    compact(warehouse, table, MINOR)
    with warehouse.begin() as txn:
        txn.insert(table, rows(100, 5))
    compact(warehouse, table, MAJOR, attempt="b")
    with warehouse.begin() as txn:
        txn.delete(table, lambda row: row[0] == 101)
    for first in (200, 300):
        with warehouse.begin() as txn:
            txn.insert(table, rows(first, 5))
    compact(warehouse, table, MINOR, attempt="c")


@pytest.mark.parametrize("kind", [MAJOR, MINOR])
def test_bucketed(warehouse, kind):
    """Each bucket has its own file; rows are never hashed again."""
    attempt, published = compact(warehouse, lively(warehouse, buckets=4, bucket_columns=("id",)), kind)
    assert content(attempt, published.directories[-1]) == [
        VERSION_FILE,
        *(f"bucket_0000{number}" for number in range(4)),
    ]


@pytest.mark.parametrize("kind", [MAJOR, MINOR])
def test_hive_3(warehouse_3, kind):
    """No suffix; the base says that it was compacted; a minor of both sides becomes a major."""
    attempt, published = compact(warehouse_3, lively(warehouse_3), kind)
    assert published.directories == ("base_0000005",)
    assert content(attempt, "base_0000005") == [METADATA_FILE, VERSION_FILE, "bucket_00000"]
    assert attempt.plan().kind is MAJOR


def test_hive_3_minor_of_inserts(warehouse_3):
    """With one side only, one rename does."""
    table = warehouse_3.create_table("db", "t", COLUMNS)
    for first in (0, 10):
        with warehouse_3.begin() as txn:
            txn.insert(table, rows(first, 10))
    _, published = compact(warehouse_3, table, MINOR)
    assert published.directories == ("delta_0000001_0000002",)


def test_statements_of_one_transaction_collapse(warehouse):
    """
    A minor of one write id applies that transaction's deletes of its own rows: in one directory they would not count
    any more.
    """
    table = warehouse.create_table("db", "t", COLUMNS)
    with warehouse.begin() as txn:
        txn.insert(table, rows(0, 10))
        txn.insert(table, rows(10, 10))
        txn.delete(table, lambda row: row[0] in {3, 13})
    attempt, published = compact(warehouse, table, MINOR)
    assert attempt.plan().delete_scope is DeleteScope.OWN
    assert published.directories == (f"delta_0000001_0000001_v{attempt.txn:07d}",)


def test_everything_deleted(warehouse):
    """An empty base is still a directory with a version file: without it the old rows would come back."""
    table = warehouse.create_table("db", "t", COLUMNS)
    with warehouse.begin() as txn:
        txn.insert(table, rows(0, 10))
    with warehouse.begin() as txn:
        txn.delete(table, lambda row: True)
    attempt, published = compact(warehouse, table)
    assert content(attempt, published.directories[0]) == [VERSION_FILE]


@pytest.mark.parametrize("kind", [MAJOR, MINOR])
def test_aborted_rows_between_valid_ones(warehouse, kind):
    """A streaming writer's directory holds rows of aborted transactions: they go, the others stay."""
    table = warehouse.create_table("db", "t", COLUMNS)
    batch = warehouse.stream(table, [rows(0, 5), rows(10, 5), rows(20, 5)])
    batch.finish(0, commit=True)
    batch.finish(1, commit=False)
    batch.finish(2, commit=True)
    batch.close()
    with warehouse.begin() as txn:
        txn.insert(table, rows(50, 5))
    attempt, _ = compact(warehouse, table, kind)
    assert attempt.stage().rows.aborted == 5


@pytest.mark.parametrize("kind", [MAJOR, MINOR])
def test_an_open_writer_isnt_covered(warehouse, kind):
    """What lies at or above an open write id stays as it is, and the result's name ends below it."""
    table = lively(warehouse)
    open_txn = warehouse.begin()
    open_txn.insert(table, rows(300, 3))
    with warehouse.begin() as txn:
        txn.insert(table, rows(400, 3))
    attempt, _ = compact(warehouse, table, kind)
    assert attempt.plan().name_write_id == 5
    assert attempt.plan().highest_write_id == 5
    open_txn.commit()


@pytest.mark.parametrize("kind", [MAJOR, MINOR])
def test_files_from_before_acid(warehouse, kind):
    """Rows of original files get the ROW__IDs that readers gave them, and deletes of them still hit."""
    table = warehouse.create_table("db", "t", COLUMNS, transactional=False)
    warehouse.write_original(table, rows(0, 7))
    warehouse.write_original(table, rows(10, 7))
    warehouse.write_original(table, rows(20, 7), bucket=1)
    warehouse.convert(table)
    for first in (30, 40):
        with warehouse.begin() as txn:
            txn.insert(table, rows(first, 3))
    with warehouse.begin() as txn:
        txn.delete(table, lambda row: row[0] in {3, 12, 25, 31})
    attempt, published = compact(warehouse, table, kind)
    if kind is MAJOR:
        assert published.directories == (f"base_10000003_v{attempt.txn:07d}",)


@pytest.mark.parametrize("kind", [MAJOR, MINOR])
def test_loaded_files(warehouse, kind):
    """LOAD DATA leaves files without ROW__IDs in a delta; compaction writes out those that readers count."""
    table = warehouse.create_table("db", "t", COLUMNS)
    with warehouse.begin() as txn:
        txn.insert(table, rows(0, 3))
    with warehouse.begin() as txn:
        txn.load(table, rows(10, 4))
    with warehouse.begin() as txn:
        txn.delete(table, lambda row: row[0] == 11)
    compact(warehouse, table, kind)


def test_insert_overwrite_and_truncate(warehouse):
    """A base by INSERT OVERWRITE is an input like any other; what it replaced is not."""
    table = lively(warehouse)
    with warehouse.begin() as txn:
        txn.overwrite(table, rows(500, 5))
    with warehouse.begin() as txn:
        txn.insert(table, rows(600, 5))
    compact(warehouse, table)
    with warehouse.begin() as txn:
        txn.truncate(table)
    with warehouse.begin() as txn:
        txn.insert(table, rows(700, 5))
    compact(warehouse, table, attempt="b")


@pytest.mark.parametrize("kind", [MAJOR, MINOR])
def test_columns_added_between_writes(warehouse, kind):
    """Old rows get NULL; the table's current columns are written."""
    table = lively(warehouse)
    warehouse.add_columns(table, [("extra", "bigint")])
    with warehouse.begin() as txn:
        txn.insert(table, [(900, "n", 7)])
    compact(warehouse, table, kind)


def test_partitions_are_compacted_alone(warehouse):
    """Other partitions keep their directories."""
    table = warehouse.create_table("db", "t", COLUMNS, partition_keys=[("dt", "string")])
    for first in (0, 10):
        with warehouse.begin() as txn:
            txn.insert(table, [(*row, day) for row in rows(first, 4) for day in ("a b", "c/d")])
    attempt, _ = compact(warehouse, table, partition="dt=a b")
    assert attempt.compaction.job.name == "testhost-compactor-db.t.dt=a b"
    other = table.directories["dt=c%2Fd"].location
    assert not [path for path in other.iterdir() if path.name.startswith("base")]


def test_large_stripes_are_copied_and_hit_ones_recoded(warehouse):
    """Cost follows the change: with several files, only stripes that deletes can hit are decoded."""
    table = warehouse.create_table("db", "t", [("id", "int"), ("v", "string")])
    for first in (0, 20_000, 40_000):
        with warehouse.begin() as txn:
            txn.insert(table, [(first + i, f"{first + i:x}" * 8) for i in range(20_000)])
    with warehouse.begin() as txn:
        txn.delete(table, lambda row: row[0] == 25_000)
    small = settings(splice={"min_stripe_bytes": 4 * KIB})
    attempt, published = compact(warehouse, table, settings=small)
    plan = attempt.plan()
    actions = {
        segment.path.split("/")[0][:13]: segment.action
        for bucket in plan.outputs[0].buckets
        for segment in bucket.segments
    }
    assert actions == {"delta_0000001": Action.COPY, "delta_0000002": Action.RECODE, "delta_0000003": Action.COPY}
    assert published.staged.copied_bytes > published.staged.recoded_bytes > 0
    counts = attempt.staged.rows
    assert (counts.read, counts.deleted, counts.written) == (60_000, 1, 59_999)


def test_the_plan_is_the_same_when_made_twice(warehouse):
    """Nothing in it depends on when or where it was made."""
    table = lively(warehouse)
    attempt = Attempt(warehouse, table)
    again = Attempt(warehouse, table)
    assert again.plan().outputs[0].buckets == attempt.plan().outputs[0].buckets


@pytest.mark.parametrize(
    ("columns", "orc_columns", "said"),
    [
        ((("id", "int"), ("w", "string")), "name", "find columns by their names, read nothing from v"),
        ((("id", "int"), ("w", "string")), "both", "take other columns of the file for w, and the site has both"),
        ((("id", "int"),), "position", "find columns by their places, read nothing from v"),
    ],
)
def test_values_that_no_reader_finds_are_never_lost(warehouse, columns, orc_columns, said):
    """A column that the site's readers don't find, or not all of them: the sentence names it."""
    table = lively(warehouse)
    table.columns = columns
    with pytest.raises(RefusedError, match=said) as caught:
        Attempt(warehouse, table, settings=settings(readers={"orc_columns": orc_columns})).plan()
    assert caught.value.reason is Reason.SCHEMA_MISMATCH


@pytest.mark.parametrize("home", ["warehouse", "warehouse_3"])
def test_a_renamed_column_is_refused_on_hive_3_alone(home, request):
    """As it is delivered Hive 4 finds columns by their places, where a name means nothing; Hive 3.1 by their names."""
    home = request.getfixturevalue(home)
    table = lively(home)
    table.columns = (("id", "int"), ("w", "string"))
    attempt = Attempt(home, table)
    if home.ledger.layout is LayoutVersion.HIVE_4:
        attempt.run()
        return
    with pytest.raises(RefusedError) as caught:
        attempt.plan()
    assert caught.value.reason is Reason.SCHEMA_MISMATCH


def test_stripes_under_other_names_are_copied(warehouse):
    """Names stand in a file's footer only: after a rename stripes are copied, and the footer has the table's names."""
    table = warehouse.create_table("db", "t", COLUMNS)
    for first in (0, 20_000):
        with warehouse.begin() as txn:
            txn.insert(table, [(first + i, f"{first + i:x}" * 8) for i in range(20_000)])
        table.columns = (("v", "int"), ("ID", "string"))
    attempt = Attempt(warehouse, table, settings=settings(splice={"min_stripe_bytes": 4 * KIB}))
    published = attempt.run()
    (output,) = attempt.plan().outputs
    assert {segment.action for segment in output.segments} == {Action.COPY}
    assert published.staged.recoded_bytes == 0
    assert columns_of_result(attempt, published) == ("v", "ID")


def columns_of_result(attempt, published):
    """Names of the columns of a result's one file."""
    (file,) = (attempt.location / published.directories[0]).glob("bucket_*")
    with LocalStorage().open_read(str(file)) as reader:
        return read_tail(reader).row_tree.names


def test_a_float_that_became_a_double_is_refused_on_hive_3(warehouse_3):
    """Its reader takes 1.1 in older files for 1.1, and would read 1.100000023841858 after a compaction."""
    table = warehouse_3.create_table("db", "t", [("id", "int"), ("x", "float")])
    for number in (1, 2):
        with warehouse_3.begin() as txn:
            txn.insert(table, [(number, 1.1)])
    table.columns = (("id", "int"), ("x", "double"))
    with pytest.raises(RefusedError, match="a float column has become a double") as caught:
        Attempt(warehouse_3, table).plan()
    assert caught.value.reason is Reason.SCHEMA_MISMATCH


@pytest.mark.parametrize("damage", ["cut", "text"])
def test_broken_files_are_refused_with_their_name(warehouse, damage):
    """Truncated and foreign files: one line, and nothing is written."""
    table = lively(warehouse)
    attempt = Attempt(warehouse, table)
    broken = next(attempt.location.glob("delta_0000002_*/bucket_00000_0"))
    data = broken.read_bytes()
    broken.write_bytes({"cut": data[: len(data) // 2], "text": b"hello\n" * 100}[damage])
    before = attempt.names()
    with pytest.raises(RefusedError) as caught:
        attempt.plan()
    assert caught.value.reason is Reason.CORRUPT_FILE
    assert "delta_0000002" in caught.value.message
    assert "\n" not in caught.value.message
    assert attempt.names() == before


def test_layouts_are_told_apart(warehouse_3):
    """The 3.1 fixture is what it says: no transactions in its snapshot."""
    assert warehouse_3.ledger.layout is LayoutVersion.HIVE_3


@pytest.mark.parametrize("size", [1, 10_000, 65_536, 100_000, 262_145])
@pytest.mark.parametrize("kind", [MAJOR, MINOR])
def test_every_legal_compression_block_size(warehouse, size, kind):
    """
    Hive takes any `orc.compress.size`, our writer multiples of 64 KiB: rounded up, beside copied stripes whose blocks
    are smaller or larger.
    """
    table = warehouse.create_table(
        "db", "t", [("id", "int"), ("v", "string")], parameters={"orc.compress.size": "400000"}
    )
    with warehouse.begin() as txn:
        txn.insert(table, [(number, f"{number * 7919 % 100_003:06d}" * 20) for number in range(2000)])
    warehouse.set_parameters(table, {"orc.compress.size": str(max(size, 10_000))})
    for first in (5000, 8000):
        with warehouse.begin() as txn:
            txn.insert(table, rows(first, 10))
    warehouse.set_parameters(table, {"orc.compress.size": str(size)})
    attempt, published = compact(warehouse, table, kind, settings=settings(splice={"min_stripe_bytes": 4 * KIB}))
    assert published.staged.copied_bytes
    assert published.staged.recoded_bytes
    path = attempt.location / published.directories[0] / "bucket_00000"
    with LocalStorage().open_read(f"file:{path}") as reader:
        assert read_tail(reader).block_size == max(400_000, -(-size // 65_536) * 65_536)


def test_rows_changed_before_they_were_written_are_refused_at_planning(warehouse):
    """
    Statistics show a current write id below the original one: refused before anything is read or staged, not after the
    whole job.
    """
    table = lively(warehouse)
    path = next(table.location.glob("delta_0000002_*/bucket_*"))
    path.unlink()
    write_acid(path, COLUMNS, [(0, 2, encode(0, 0), row, 1, (row, "v")) for row in range(10)])
    attempt = Attempt(warehouse, table)
    with unchanged(attempt), pytest.raises(RefusedError) as caught:
        attempt.plan()
    assert caught.value.reason is Reason.CORRUPT_FILE
    assert "changed before they were written" in caught.value.message
