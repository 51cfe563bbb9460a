"""
Bucket files that aren't what they should be, through the Worker and a real Spark session: one refused entry with its
reason, and nothing else happens.
"""

import shutil

import pytest

from compactor.acid.row_id import encode
from compactor.metastore.model import Entity
from tests.bad_input import damage
from tests.demo import files as written

pytestmark = pytest.mark.spark
COLUMNS = (("id", "int"), ("v", "string"))


def replaced(scene, data):
    path = scene.file()
    path.write_bytes(data)
    scene.remember()
    return path


@pytest.mark.parametrize("keep", [3, 100, 0.5, -1])
def test_truncated(scene, keep):
    """Cut off near the start, in the middle, or by the last byte: the message names the file."""
    damage.truncate(scene.file(), keep)
    scene.remember()
    scene.compact()
    scene.assert_refused("corrupt-file", "delta_0000001_0000001_0000/bucket_00000")


@pytest.mark.parametrize("part", ["postscript", "footer", "metadata", "stripe footer 0"])
def test_flipped_bytes_in_what_describes_a_file(scene, part):
    """Compressed sections don't survive it."""
    path = scene.file()
    where = damage.parts(path.read_bytes())[part]
    for at in range(
        where.start + 3 if part != "postscript" else where.start, where.start + min(9, where.stop - where.start)
    ):
        damage.flip(path, at)
    scene.remember()
    scene.compact()
    ((state, message),) = scene.world.ended()
    assert (state, message.split(":")[0]) in {("refused", "corrupt-file"), ("failed", "corrupt-file")}, message
    assert "delta_0000001_0000001_0000/bucket_00000" in message
    assert "\n" not in message
    scene.assert_untouched()
    scene.assert_others_go_on()


def test_flipped_bytes_in_data_that_has_to_be_decoded(scene):
    """Found while the task decodes: the entry fails (its state was stored already), the file is named."""
    path = scene.file()
    where = damage.parts(path.read_bytes())["data 0"]
    for at in range(where.start + 3, where.stop):
        damage.flip(path, at)
    scene.remember()
    scene.compact()
    scene.assert_ended("failed", "corrupt-file", "delta_0000001_0000001_0000/bucket_00000")
    scene.assert_untouched()
    scene.assert_others_go_on()


def test_zero_length(scene):
    """Hive reads no rows in it, and no more than that is lost; in a delete delta its vectorised reader fails."""
    path = scene.file().with_name("bucket_00005")
    path.write_bytes(b"")
    rows = scene.rows()
    assert "published base_" in scene.compact()
    assert scene.rows() == rows


def test_zero_length_in_a_delete_delta(scene):
    """Hive's vectorised reader fails over it, so no reader says what its rows are."""
    path = scene.file()
    empty = path.parents[1] / "delete_delta_0000001_0000001_0000" / path.name
    empty.parent.mkdir()
    empty.write_bytes(b"")
    scene.remember()
    scene.compact()
    scene.assert_refused("corrupt-file", "delete_delta_0000001_0000001_0000/bucket_00000", "empty")


@pytest.mark.parametrize(
    "data",
    [b"id,v\n1,one\n" * 50, b"PAR1" + bytes(200) + b"PAR1", bytes(1000), b"ORC"],
    ids=["text", "parquet", "zeros", "magic"],
)
def test_not_orc(scene, data):
    """Whatever somebody copied there."""
    replaced(scene, data)
    scene.compact()
    scene.assert_refused("corrupt-file", "delta_0000001_0000001_0000/bucket_00000", "is not an ORC file")


def test_a_plain_file_under_the_name_of_a_bucket(scene):
    """ORC, but without the ACID columns."""
    path = scene.file()
    path.unlink()
    written.write_plain(path, COLUMNS, [(1, "one")])
    scene.remember()
    scene.compact()
    scene.assert_refused("corrupt-file", "doesn't have the ACID columns")


def test_wrong_bucket_in_the_name(scene):
    """
    A file named bucket_00003 whose rows are of bucket 0: readers would filter them all out, or hit the wrong deletes.
    """
    path = scene.file()
    path.rename(path.with_name("bucket_00003"))
    scene.remember()
    scene.compact()
    scene.assert_refused("wrong-bucket", "bucket_00003", "rows of bucket 0")


def test_rows_of_another_bucket_inside(scene):
    """One file, rows of buckets 0 and 1."""
    path = scene.file()
    path.unlink()
    written.write_acid(path, COLUMNS, [(0, 1, encode(number, 0), number, 1, (number, "x")) for number in (0, 1)])
    scene.remember()
    scene.compact()
    scene.assert_refused("wrong-bucket", "rows of bucket 1")


def test_two_files_of_one_bucket(scene):
    """Copied beside itself: every row would be there twice."""
    path = scene.file()
    shutil.copy(path, path.with_name("bucket_00000_7"))
    scene.remember()
    scene.compact()
    scene.assert_refused("several-files-per-bucket", "bucket 0")


@pytest.mark.parametrize("name", ["backup", "delta_abc", "base_xyz", "deltas_0000001_0000001"])
def test_an_unknown_directory(scene, name):
    """It may hold rows that somebody counts on."""
    place = scene.table.location / name
    place.mkdir()
    (place / "data").write_text("x")
    scene.remember()
    scene.compact()
    scene.assert_refused("unknown-name", name)


def test_an_unknown_file_in_a_delta(scene):
    """Hive passes it over; whoever put it there may not know that."""
    scene.file().with_name("part-00000.orc").write_text("x")
    scene.remember()
    scene.compact()
    scene.assert_refused("unknown-name", "part-00000.orc")


def test_an_unknown_file_beside_the_deltas(scene):
    """Hive would read it as an original file and number its rows by its place among others."""
    (scene.table.location / "notes.txt").write_text("x")
    scene.remember()
    scene.compact()
    scene.assert_refused("unknown-name", "notes.txt")


@pytest.mark.parametrize(
    "inside",
    [
        "base_0000003/base_0000003",
        "delta_0000001_0000001_0000/delta_0000001_0000001_0000",
        "delta_0000001_0000001_0000/more",
    ],
)
def test_nested_directories(scene, inside):
    """A base in a base is what a careless rename leaves (it moves into the target)."""
    place = scene.table.location / inside
    place.mkdir(parents=True)
    shutil.copy(scene.file("delta_0000002_0000002_0000"), place / "bucket_00000")
    scene.remember()
    scene.compact()
    scene.assert_refused("nested-directory", inside.split("/")[0])


@pytest.mark.parametrize(
    ("columns", "row", "words"),
    [
        (
            (("id", "int"), ("v", "string"), ("extra", "bigint")),
            (1, "x", 5),
            ("read nothing from extra",),
        ),
        ((("id", "string"), ("v", "string")), ("one", "x"), ("id",)),
        ((("id", "int"), ("v", "array<int>")), (1, [2]), ("v",)),
    ],
    ids=["a column too much", "text for a number", "a list for a text"],
)
def test_mixed_schema(scene, columns, row, words):
    """Rows that the table's columns can't hold, or not without loss: refused, with file and column."""
    path = scene.file()
    path.unlink()
    written.write_acid(path, columns, [(0, 1, encode(0, 0), 0, 1, row)])
    scene.remember()
    scene.compact()
    scene.assert_refused("schema-mismatch", "delta_0000001_0000001_0000/bucket_00000", *words)


@pytest.mark.parametrize("place", ["footer", "postscript"])
def test_an_encrypted_file(scene, place):
    """Told by the footer, or by encrypted stripe statistics in the postscript."""

    def footer(message):
        message.encryption = b""

    def postscript(message):
        message.stripe_statistics_length = 10

    damage.rewrite_tail(scene.file(), **({"footer": footer} if place == "footer" else {"postscript": postscript}))
    scene.remember()
    scene.compact()
    scene.assert_refused("encrypted-file", "delta_0000001_0000001_0000/bucket_00000")


@pytest.mark.parametrize("kind", [3, 6, 17], ids=["lzo", "brotli", "unknown"])
def test_an_unknown_compression(scene, kind):
    """LZO needs a library that may not be shipped; others don't exist yet."""

    def postscript(message):
        message.compression = kind

    damage.rewrite_tail(scene.file(), postscript=postscript)
    scene.remember()
    scene.compact()
    scene.assert_refused("unsupported-compression", "delta_0000001_0000001_0000/bucket_00000")


def test_a_symbolic_link(scene, tmp_path):
    """What it points to may belong to somebody else."""
    path = scene.file()
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    scene.remember()
    scene.compact()
    scene.assert_refused("unknown-name", "symbolic link")


def test_a_broken_delete_delta(scene):
    """Without its events deleted rows would come back."""
    damage.truncate(scene.file("delete_delta_0000004_0000004_0000"), 0.5)
    scene.remember()
    scene.compact()
    scene.assert_refused("corrupt-file", "delete_delta_0000004_0000004_0000/bucket_00000")


def test_the_entry_names_a_broken_partition(scene):
    """Of a partitioned table: the partition is named, its neighbour is compacted."""
    world = scene.world
    table = world.table("p", rows=0, partition_keys=[("k", "string")])
    for part in ("a", "b"):
        for number in range(2):
            world.insert(table, [(number, part)], [part])
    (broken,) = (table.location / "k=a" / "delta_0000001_0000001_0000").glob("bucket_*")
    damage.truncate(broken, 50)
    scene.compact(entity=Entity("db", "p", "k=a"))
    scene.assert_ended("refused", "corrupt-file", "db.db/p/k=a/delta_0000001_0000001_0000/bucket_00000")
    assert "published base_" in world.compact(table, partition="k=b")
