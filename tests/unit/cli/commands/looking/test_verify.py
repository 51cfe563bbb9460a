"""
`compactor verify`: what a partition holds, what its files say of themselves, and what another directory holds instead.
"""

import shutil

import pytest

from compactor.cli.session import Code
from compactor.orc import recode
from tests.compacting import KIB, Attempt, settings
from tests.demo import files
from tests.demo.rows import CatalogRows, MetastoreLedger
from tests.demo.warehouse import Warehouse


@pytest.fixture
def compacted(shop):
    """A table of the shop's metastore after a compaction, with its directory, and what it was before."""
    with shop.open() as database:
        warehouse = Warehouse(shop.root / "warehouse", MetastoreLedger(database), CatalogRows(database))
        table = warehouse.create_table(
            "mart", "facts", [("id", "int"), ("state", "string")], parameters={"orc.compress": "NONE"}
        )
        for start in range(2):
            with warehouse.begin() as txn:
                txn.insert(table, [(100 * start + n, f"{n * 2654435761 % (1 << 32):x}" * 8) for n in range(100)])
        with warehouse.begin() as txn:
            txn.delete(table, lambda row: row[0] == 5)
        shutil.copytree(table.location, shop.root / "before")
        Attempt(warehouse, table, settings=settings(splice={"min_stripe_bytes": KIB})).run()
    return table.location


def test_a_table_is_read_and_its_compacted_files_are_proved(shop, compacted):
    """Rows, a digest for the keys and each column, and what is known of each file."""
    found = shop.json("verify", "mart.facts")
    assert (found["rows"], found["against"]) == (199, None)
    assert [one["column"] for one in found["columns"]] == ["ROW__ID", "id", "state"]
    (file,) = found["files"]
    assert (file["verdict"], file["path"].rpartition("/")[2]) == ("proved", "bucket_00000")
    assert 0 < file["recoded"] <= file["stripes"]


def test_inputs_that_were_kept_equal_the_result(shop, compacted):
    """Exit 0, and the same digests on both sides."""
    found = shop.json("verify", "mart.facts", "--against", f"file:{shop.root}/before")
    assert found["against"] == {
        "directory": f"file:{shop.root}/before",
        "rows": 199,
        "equal": True,
        "missing": 0,
        "extra": 0,
    }
    assert all(one["digest"] == one["against"] and one["different"] == 0 for one in found["columns"])


def test_other_values_are_counted_by_column(shop, compacted):
    """Exit 1; the table shows the column, how many rows, and the first."""
    delta = next((shop.root / "before").glob("delta_0000001*"))
    bucket = next(delta.glob("bucket_*"))
    bucket.unlink()
    events = [
        (files.INSERT, 1, 1 << 29, n, 1, (n, "changed" if n in {7, 8} else f"{n * 2654435761 % (1 << 32):x}" * 8))
        for n in range(99)
    ]
    files.write_acid(bucket, [("id", "int"), ("state", "string")], events)
    result = shop.run("verify", "mart.facts", "--against", str(shop.root / "before"))
    assert result.exit_code == Code.FAILED, result.stderr
    assert "1 row only in the table, 0 rows only in the other directory, values in 1 column" in result.stderr
    (line,) = [line for line in result.stdout.splitlines() if "state" in line]
    assert "[1, 536870912, 7]" in line
    assert "2" in line.split()


@pytest.fixture
def encoded_anew(monkeypatch):
    """No row is cut out of a stripe."""
    monkeypatch.setattr(recode, "cut", lambda *_: None)


@pytest.mark.usefixtures("encoded_anew")
def test_a_file_that_was_changed_since(shop, request):
    """A recoded value that isn't what its footer says: exit 1, and the column."""
    (bucket,) = request.getfixturevalue("compacted").glob("base_*/bucket_*")
    data = bytearray(bucket.read_bytes())
    data[data.index(f"{50 * 2654435761 % (1 << 32):x}".encode())] ^= 1
    bucket.write_bytes(data)
    result = shop.run("verify", "mart.facts")
    assert result.exit_code == Code.FAILED, result.stderr
    assert "holds other values than were read from its inputs, in state" in result.stderr


def test_a_stripe_that_was_changed_since(shop, compacted):
    """A stripe out of which rows were cut isn't what its footer says: exit 1."""
    (bucket,) = compacted.glob("base_*/bucket_*")
    data = bytearray(bucket.read_bytes())
    data[data.index(f"{50 * 2654435761 % (1 << 32):x}".encode())] ^= 1
    bucket.write_bytes(data)
    result = shop.run("verify", "mart.facts")
    assert result.exit_code == Code.FAILED, result.stderr
    assert "holds other bytes than its stripes had when rows were cut out of them" in result.stderr


def test_a_table_that_was_never_compacted(shop):
    """Nothing was kept, which is said and no error."""
    result = shop.run("verify", "shop.orders")
    assert result.exit_code == Code.DONE, result.stderr
    assert "115 rows" in result.stderr
    assert "no file tells a digest of its inputs" in result.stderr


@pytest.mark.parametrize("inside", ["delta_0000001_0000001_0000", ""])
def test_a_directory_of_lower_write_ids_than_the_base(shop, compacted, inside):
    """
    One replaced delta by itself, or a directory without any: refused, and it is said up to where both would be read.
    """
    other = shop.root / "before" / inside if inside else shop.root / "empty"
    other.mkdir(exist_ok=True)
    result = shop.run("verify", "mart.facts", "--against", str(other))
    assert result.exit_code == Code.REFUSED, result.stderr
    assert (
        f"both are read up to write id {int(bool(inside))}, the highest in the names of {other}, and a base holds more"
        in result.stderr
    )


def test_a_directory_that_is_not_there(shop):
    """Refused, in one line."""
    result = shop.run("verify", "shop.orders", "--against", "/nowhere/at/all")
    assert result.exit_code == Code.REFUSED, result.stderr
    assert "'/nowhere/at/all' doesn't exist" in result.stderr


@pytest.mark.parametrize("root", ["/", "//", "file:///", "hdfs:/"])
def test_a_root_is_no_tables_directory(shop, root):
    """Nothing is listed: it would be all files there are."""
    result = shop.run("verify", "shop.orders", "--against", root)
    assert result.exit_code == Code.USAGE, result.stderr
    assert result.stderr.startswith(f"error: --against {root} is all there is: name a directory of the same table")


def test_an_empty_name_is_a_mistake(shop):
    """As from a variable of a script that isn't set: nothing is compared with nothing."""
    result = shop.run("verify", "shop.orders", "--against", "")
    assert result.exit_code == Code.USAGE, result.stderr
    assert "--against is empty" in result.stderr
