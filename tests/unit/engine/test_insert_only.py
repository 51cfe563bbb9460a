"""Insert-only tables: small files become one, others are carried over, by name and bucket, in any format."""

import gzip
import threading
from dataclasses import replace

import pytest

from compactor.acid.compaction import CompactionKind
from compactor.acid.names import ORIGINALS_FILE
from compactor.concat import text
from compactor.engine.insert_only import tasks
from compactor.errors import RefusedError, VerificationError
from compactor.reasons import Reason
from compactor.storage.local_fs.driver import LocalStorage
from tests.compacting import Attempt, compact, settings, unchanged


def filled(warehouse, file_format="orc", buckets=0):
    table = warehouse.create_table(
        "db",
        "mm",
        [("id", "int"), ("v", "string")],
        insert_only=True,
        file_format=file_format,
        buckets=buckets,
        bucket_columns=("id",) if buckets else (),
    )
    for start in (1, 11, 21):
        with warehouse.begin() as txn:
            txn.insert(table, [(start + i, f"v{i}") for i in range(5)])
    return table


@pytest.mark.parametrize("file_format", ["orc", "text"])
@pytest.mark.parametrize("kind", [CompactionKind.MAJOR, CompactionKind.MINOR])
def test_small_files_become_one_and_rows_stay(warehouse, file_format, kind):
    """Three files of one partition become one file; readers see the same rows."""
    table = filled(warehouse, file_format)
    attempt, published = compact(warehouse, table, kind)
    (name,) = published.directories
    assert name == (
        f"base_0000003_v{attempt.txn:07d}"
        if kind is CompactionKind.MAJOR
        else f"delta_0000001_0000003_v{attempt.txn:07d}"
    )
    assert [file.name for file in published.staged.files] == ["000000_0"]


def test_a_joined_file_that_is_not_there_is_missed(warehouse):
    """Unless each of its inputs was carried over alone."""
    attempt = Attempt(warehouse, filled(warehouse))
    attempt.stage()
    (joined,) = attempt.staged.files
    (path,) = attempt.location.glob(f".compactor-*/out/{joined.directory}/{joined.name}")
    path.unlink()
    attempt.staged = replace(attempt.staged, files=())
    with pytest.raises(VerificationError, match=r"000000_0 is missing, and delta_0000001_.* wasn't carried over"):
        attempt.verify()


@pytest.mark.parametrize("read", [False, True])
def test_files_in_no_delta_are_taken_in_only_where_queries_read_them(warehouse, read):
    """
    A file that lies beside the deltas, and one in a subdirectory, are no rows for Hive as it is delivered, and stay
    without a trace in the result; where `hive.mm.allow.originals` is set they are rows, and the result lists them.
    """
    table = filled(warehouse, "text")
    (table.location / "sub").mkdir()
    for name in ("stray.csv", "sub/000000_0"):
        (table.location / name).write_text("99,stray\n")
    attempt = Attempt(warehouse, table, settings=settings(readers={"insert_only_originals": read}))
    taken = {file.path for file in attempt.plan().inputs}
    attempt.run()
    assert {"stray.csv", "sub/000000_0"} <= taken if read else not any("delta" not in path for path in taken)
    (base,) = table.location.glob("base_*")
    rows = "".join(file.read_text() for file in base.glob("0*")).splitlines()
    assert rows.count("99,stray") == (2 if read else 0)
    assert len(rows) == (17 if read else 15)
    assert (base / ORIGINALS_FILE).exists() is read
    assert (table.location / "stray.csv").exists()


@pytest.mark.parametrize("why", ["skip.header.line.count", "com.acme.OwnSerDe"])
def test_files_whose_lines_may_not_stand_for_themselves_are_carried(warehouse, why):
    """A header line of each file stays the first of a file, and a SerDe that isn't known gets files as they were."""
    attempt = Attempt(warehouse, filled(warehouse, "text"))
    attempt.read_with(serde=why) if why.startswith("com.") else attempt.read_with(properties=((why, "1"),))
    plan = attempt.plan()
    assert [len(output.copies) for output in plan.outputs] == [3]
    assert all(why in copy.reason for copy in plan.outputs[0].copies)


def test_files_are_carried_side_by_side_where_the_store_is_remote(warehouse, monkeypatch):
    """A task copies several files at a time, and reports them in the plan's order."""
    attempt = Attempt(warehouse, filled(warehouse, "text"))
    attempt.read_with(serde="com.acme.OwnSerDe")
    together, right = threading.Barrier(3), LocalStorage.link_or_copy

    def copy(storage, source, target):
        together.wait(60)
        right(storage, source, target)

    monkeypatch.setattr(LocalStorage, "side_by_side", 16)
    monkeypatch.setattr(LocalStorage, "link_or_copy", copy)
    attempt.stage()
    assert [file.name for file in attempt.staged.files] == [one.name for one in attempt.plan().outputs[0].copies]


def test_a_file_that_is_none_of_its_format_is_carried_with_the_reason(warehouse):
    """Its readers know what they make of it; the others are joined."""
    attempt = Attempt(warehouse, filled(warehouse))
    path = next(attempt.location.glob("delta_0000002_*/000000_0"))
    path.write_bytes(b"no such file")
    (output,) = attempt.plan().outputs
    assert [(copy.path.rpartition("/")[2], "not an ORC file" in copy.reason) for copy in output.copies] == [
        ("000000_0", True)
    ]
    assert len(output.joins) == 1


def zipped(attempt):
    """The files of a table in gzip, each under the same name."""
    paths = sorted(attempt.location.glob("delta_*/000000_0"))
    for path in paths:
        path.with_name("000000_0.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    return [path.with_name("000000_0.gz") for path in paths]


@pytest.mark.parametrize("damaged", [(1,), (0, 2)])
@pytest.mark.parametrize("carried", [True, False])
def test_a_file_that_turns_out_to_be_damaged_is_carried_alone(warehouse, monkeypatch, damaged, carried):
    """
    What only reading the whole file shows doesn't stop the compaction, nor the others: they are joined, where at least
    two are left. That the damaged ones are there is verified.
    """
    attempt = Attempt(warehouse, filled(warehouse, "text"))
    paths = zipped(attempt)
    for number in damaged:
        paths[number].write_bytes(paths[number].read_bytes()[:-4])
    attempt.plan()
    if not carried:
        monkeypatch.setattr(tasks, "_carry", lambda task, copies, right=tasks._carry: right(task, list(copies)[1:]))
    attempt.stage()
    if not carried:
        with unchanged(attempt), pytest.raises(VerificationError):
            attempt.compaction.verify(attempt.staged)
        return
    published = attempt.compaction.publish(attempt.compaction.verify(attempt.staged), lambda: None)
    made = {path.name: path for path in (attempt.location / published.directories[0]).glob("0*")}
    if len(damaged) == 1:
        assert set(made) == {"000000_0.gz", "000000_2.gz"}
        good = [gzip.decompress(paths[number].read_bytes()) for number in (0, 2)]
        assert gzip.decompress(made["000000_0.gz"].read_bytes()) == b"".join(good)
        assert made["000000_2.gz"].read_bytes() == paths[1].read_bytes()
    else:
        assert set(made) == {"000000_1.gz", "000000_2.gz", "000000_3.gz"}
        assert [made[name].read_bytes() for name in sorted(made)] == [path.read_bytes() for path in paths]


def test_a_joined_file_that_differs_from_its_inputs_is_not_published(warehouse, monkeypatch):
    """The task that wrote a file reads it back; a difference stops the compaction, and the file is kept aside."""
    attempt = Attempt(warehouse, filled(warehouse, "text"))
    right = text.join
    monkeypatch.setattr(text, "join", lambda readers, kind, sink: right(readers[::-1], kind, sink)[::-1])
    attempt.plan()
    attempt.stage()
    with unchanged(attempt), pytest.raises(VerificationError):
        attempt.compaction.verify(attempt.staged)


def test_bucket_numbers_stay(warehouse):
    """Readers of bucketed tables go by the number in the file's name."""
    table = filled(warehouse, buckets=4)
    attempt, published = compact(warehouse, table)
    found = {path.name for path in (attempt.location / published.directories[0]).iterdir()} - {"_orc_acid_version"}
    assert found == {path.name[:6] + "_0" for path in attempt.location.glob("delta_*/0*")}


@pytest.mark.parametrize(
    "extension",
    [".bz2", ".lzo_deflate", ".x-custom-codec", ".extension-longer-than-ten", ".c000.snappy", ". odd", ".ü"],
)
def test_extensions_stay(warehouse, extension):
    """
    Hadoop chooses the codec by how a name ends, and knows extensions of any form: a file without its own would be read
    undecompressed.
    """
    table = filled(warehouse, "text", buckets=2)
    old = sorted(Attempt(warehouse, table).location.glob("delta_*/0*"))
    for path in old:
        path.rename(path.with_name(path.name + extension))
    attempt, published = compact(warehouse, table)
    found = [
        path.name
        for path in (attempt.location / published.directories[0]).iterdir()
        if path.name != "_orc_acid_version"
    ]
    assert len(found) == len(old)
    assert all(name.endswith(extension) for name in found)
    assert {name[:6] for name in found} == {path.name[:6] for path in old}


def test_an_extension_that_cannot_be_kept_is_refused(warehouse):
    """A short name with an extension that fills it to the last byte: no name of ours could carry it."""
    attempt = Attempt(warehouse, filled(warehouse))
    path = next(attempt.location.glob("delta_0000002_*/000000_0"))
    path.rename(path.with_name("x." + "y" * 253))
    with unchanged(attempt), pytest.raises(RefusedError) as caught:
        attempt.plan()
    assert caught.value.reason is Reason.UNKNOWN_NAME


def test_files_are_linked_and_the_old_ones_stay(warehouse):
    """Readers that have the old directories open lose nothing; no byte is written twice."""
    attempt = Attempt(warehouse, filled(warehouse, "text"))
    attempt.read_with(serde="com.acme.OwnSerDe")
    published = attempt.run()
    old = next(attempt.location.glob("delta_0000001_*/000000_0"))
    assert old.samefile(attempt.location / published.directories[0] / "000000_0")


def test_wholly_aborted_writes_are_left_out(warehouse):
    """A delta of an aborted transaction isn't carried over; it is the Cleaner's."""
    table = filled(warehouse)
    txn = warehouse.begin()
    txn.insert(table, [(99, "never")])
    txn.abort()
    _, published = compact(warehouse, table)
    assert published.staged.rows.written == 15


def test_a_file_that_changed_under_the_plan_is_noticed(warehouse):
    """Planned with one length, found with another: nothing is published."""
    attempt = Attempt(warehouse, filled(warehouse))
    attempt.plan()
    with next(attempt.location.glob("delta_0000002_*/000000_0")).open("ab") as file:
        file.write(b"x")
    with unchanged(attempt), pytest.raises(RefusedError) as caught:
        attempt.stage()
    assert caught.value.reason is Reason.INPUT_CHANGED
