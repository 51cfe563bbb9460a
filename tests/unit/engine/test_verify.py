"""Verification: whatever goes wrong with our own output is noticed, nothing is published, and the evidence is kept."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

import compactor
from compactor.acid.compaction import CompactionKind
from compactor.engine import full_acid
from compactor.engine.digest_note import read_note
from compactor.engine.results import RowCounts
from compactor.engine.tasks.delete_windows import Written
from compactor.engine.verify.result import _verify_tasks
from compactor.errors import CompactorError, VerificationError
from compactor.orc import recode
from compactor.orc.format.tail import read_tail
from compactor.orc.reading.chunks import ArrowRows
from compactor.orc.writing import splice
from compactor.orc.writing.encode import Encoder
from compactor.planning.document import Action
from compactor.storage.local_fs.driver import LocalStorage
from compactor.storage.local_fs.files import LocalReader
from tests.compacting import KIB, Attempt, settings

COLUMNS = [("id", "int"), ("v", "string")]


def rows(first, count):
    return [(first + i, f"{(first + i) * 2654435761 % (1 << 32):x}" * 4) for i in range(count)]


@pytest.fixture(autouse=True, params=[1 << 40, 0], ids=["in the job that writes", "in a job of its own"])
def _checked(request, monkeypatch):
    """Small results are checked by the tasks that write them, others by tasks of their own."""
    monkeypatch.setattr(full_acid, "AT_ONCE_BYTES", request.param)


@pytest.fixture
def table(warehouse):
    table = warehouse.create_table("db", "t", COLUMNS)
    for first in (0, 5000, 10_000):
        with warehouse.begin() as txn:
            txn.insert(table, rows(first, 5000))
    with warehouse.begin() as txn:
        txn.delete(table, lambda row: 0 < row[0] <= 40)
    return table


def staged(warehouse, table, kind=CompactionKind.MAJOR):
    """Run, with large stripes copied and one recoded."""
    attempt = Attempt(warehouse, table, kind, settings=settings(splice={"min_stripe_bytes": 4 * KIB}))
    attempt.stage()
    return attempt


def out(attempt):
    return next((attempt.location / ".compactor-1-a" / "out").glob("base_*"))


def refused(attempt):
    """The message of the refusal; the evidence is kept, the partition otherwise as it was."""
    with pytest.raises(VerificationError) as caught:
        attempt.verify()
    assert caught.value.message.endswith("kept aside: .evidence-compactor-1-a")
    assert [name for name in attempt.names() if name.startswith(".")] == [".evidence-compactor-1-a"]
    assert not [name for name in attempt.names() if name.startswith("base")]
    return caught.value.message


def change_result(attempt, **changes):
    result = attempt.staged
    attempt.staged = replace(result, files=(replace(result.files[0], **changes), *result.files[1:]))


def test_good_output_passes(warehouse, table):
    """Copied and recoded stripes, both kinds."""
    for kind, actions in ((CompactionKind.MAJOR, {Action.COPY, Action.RECODE}), (CompactionKind.MINOR, {Action.COPY})):
        attempt = staged(warehouse, table, kind)
        assert {
            segment.action
            for output in attempt.plan().outputs
            for bucket in output.buckets
            for segment in bucket.segments
        } == actions
        attempt.verify()
        assert attempt.verified.directories == attempt.plan().names
        assert list(attempt.location.glob(".compactor-1-a/out/*/bucket_00000"))
        attempt.compaction.discard()


def test_a_stray_file(warehouse, table):
    """Readers take every visible file of a base for data."""
    attempt = staged(warehouse, table)
    (out(attempt) / "part-00000").write_text("x")
    assert "part-00000 is too much" in refused(attempt)


def test_a_missing_marker(warehouse, table):
    """Without it an empty base is invisible on some stores."""
    attempt = staged(warehouse, table)
    (out(attempt) / "_orc_acid_version").unlink()
    assert "_orc_acid_version is missing" in refused(attempt)


def test_another_file_than_the_task_reported(warehouse, table):
    """Length and checksum are those that came back with the result."""
    attempt = staged(warehouse, table)
    path = out(attempt) / "bucket_00000"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    assert "isn't the file that its task reported" in refused(attempt)


@pytest.mark.parametrize(
    "counts", [RowCounts(15_000, 14_959, 40, 0), RowCounts(14_999, 14_959, 40, 0), RowCounts(15_000, 14_950, 50, 0)]
)
def test_rows_that_dont_add_up(warehouse, table, counts):
    """In − deleted − aborted = out; not more deleted than delete events; all inputs read."""
    attempt = staged(warehouse, table)
    change_result(attempt, rows=counts)
    assert "15000 rows go in" in refused(attempt)


def test_a_lost_bucket(warehouse, table):
    """Each planned bucket is reported, if only as empty."""
    attempt = staged(warehouse, table)
    result = attempt.staged
    (out(attempt) / "bucket_00000").unlink()
    attempt.staged = replace(result, files=())
    assert "is missing" in refused(attempt)


def test_a_flipped_byte_in_a_copied_stripe(warehouse, table):
    """Sampled bytes and statistics of the source show it (its checksum covers only the tail)."""
    attempt = staged(warehouse, table)
    path = out(attempt) / "bucket_00000"
    last = attempt.staged.files[0].origins[-1]
    assert last.path is not None
    with LocalReader(str(path)) as reader:
        stripe = read_tail(reader).stripes[-1]
    data = bytearray(path.read_bytes())
    data[stripe.offset + 10] ^= 1
    path.write_bytes(data)
    message = refused(attempt)
    assert "hasn't the bytes of its source" in message or "isn't the file" in message


def test_deletes_that_were_not_applied(warehouse, table, monkeypatch):
    """Recoded stripes are read again and held against the delete events."""
    with monkeypatch.context() as patched:
        patched.setattr("compactor.engine.tasks.buckets._Files._applied_events", lambda *_: None)
        attempt = staged(warehouse, table)
    assert "holds deleted rows" in refused(attempt)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda keys: [key._replace(row_id=key.row_id + 1) for key in keys], "last key|hive.acid.key.index excludes"),
        (lambda keys: keys[1:], "no key index"),
        (lambda keys: keys[::-1], "no key index"),
    ],
)
def test_a_wrong_key_index(warehouse, table, monkeypatch, wrong, said):
    """Readers position themselves by it."""
    real = splice.format_key_index
    with monkeypatch.context() as patched:
        patched.setattr(splice, "format_key_index", lambda keys: real(wrong(keys)))
        attempt = staged(warehouse, table)
    assert re.search(said, refused(attempt))


def test_wrong_file_statistics(warehouse, table, monkeypatch):
    """Readers skip delete events by them."""

    def wrong(*args):
        merged = real(*args)
        merged[4].integers.maximum -= 1
        return merged

    real = splice.merge_statistics
    with monkeypatch.context() as patched:
        patched.setattr(splice, "merge_statistics", wrong)
        attempt = staged(warehouse, table)
    assert "file statistics of column 4" in refused(attempt)


def test_lost_delete_events(warehouse, table, monkeypatch):
    """As many distinct events go out as came in."""

    def half(self, rows):
        for keys in real(self, rows):
            yield keys.select(slice(0, len(keys) // 2))

    real = Written.blocks
    attempt = Attempt(warehouse, table, CompactionKind.MINOR)
    attempt.plan()
    with monkeypatch.context() as patched:
        patched.setattr(Written, "blocks", half)
        attempt.stage()
    assert "40 rows go in, but 40 read, 20 written" in refused(attempt)


@pytest.mark.parametrize("left_out", [{"deleted": 1}, {"aborted": 1}, {"deleted": 1, "aborted": 1}])
def test_dropped_delete_events(warehouse, table, left_out):
    """Rows may be deleted or aborted, delete events are only written, whoever accounts for those that are missing."""
    attempt = staged(warehouse, table, CompactionKind.MINOR)
    result = attempt.staged
    (deletes,) = (file for file in result.files if file.directory.startswith("delete_delta"))
    counts = RowCounts(deletes.rows.read, deletes.rows.written - len(left_out), **left_out)
    changed = replace(deletes, rows=counts)
    attempt.staged = replace(result, files=tuple(changed if file is deletes else file for file in result.files))
    assert "delete events were dropped while they were written" in refused(attempt)


def changing(column, change):
    """An encoder that writes another value into one row of each batch."""
    real = Encoder.arrow

    def arrow(self, batches, last):
        made = []
        for batch in batches:
            row = batch.column(5)
            values = row.field(column).to_pylist()
            values[-1] = change(values[-1])
            fields = [
                pa.array(values, row.type.field(n).type) if n == column else row.field(n)
                for n in range(row.type.num_fields)
            ]
            made.append(
                pa.RecordBatch.from_arrays(
                    [*batch.columns[:5], pa.StructArray.from_arrays(fields, fields=list(row.type))], schema=batch.schema
                )
            )
        real(self, made, last)

    return arrow


@pytest.mark.parametrize(
    ("column", "change", "name"),
    [(0, lambda value: value ^ 1, "id"), (1, lambda value: value[:-1], "v"), (1, lambda _: None, "v")],
)
def test_an_encoder_that_changes_a_value(warehouse, table, monkeypatch, column, change, name):  # noqa: PLR0917 - fixtures and cases
    """One value of one row, all keys as they were: the column is named."""
    with monkeypatch.context() as patched:
        patched.setattr(Encoder, "arrow", changing(column, change))
        attempt = staged(warehouse, table)
    assert refused(attempt).startswith(
        f"base_0000004_v{attempt.txn:07d}/bucket_00000 was read back with other values than were read from the inputs, in {name};"
    )


def test_values_that_end_up_beside_other_keys(warehouse, table, monkeypatch):
    """The same values in the same column, but not in their rows."""

    def turned(self, batches, last):
        made = []
        for batch in batches:
            row = batch.column(5)
            order = pa.array([*range(1, len(row)), 0])
            fields = [row.field(0), row.field(1).take(order)]
            made.append(
                pa.RecordBatch.from_arrays(
                    [*batch.columns[:5], pa.StructArray.from_arrays(fields, fields=list(row.type))], schema=batch.schema
                )
            )
        real(self, made, last)

    real = Encoder.arrow
    with monkeypatch.context() as patched:
        patched.setattr(Encoder, "arrow", turned)
        attempt = staged(warehouse, table)
    assert "than were read from the inputs, in v;" in refused(attempt)


def test_rows_that_a_slice_mixed_up(warehouse, table, monkeypatch):
    """
    What goes wrong between decoding and encoding is noticed too: the values are bound to their keys as they are
    decoded.
    """
    real = ArrowRows.select

    def wrong(self, kept):
        return real(self, np.roll(kept, 1))

    with monkeypatch.context() as patched:
        patched.setattr(ArrowRows, "select", wrong)
        with pytest.raises(CompactorError):
            staged(warehouse, table).verify()


def test_a_flipped_byte_in_a_recoded_stripe(warehouse, table, monkeypatch):
    """A store that changes what was written: the checksum covers the tail, the digest all values."""
    value = f"{7000 * 2654435761 % (1 << 32):x}".encode()

    def flipping(storage, location):
        if location.endswith("/bucket_00000") and "/tasks/" in location:
            path = Path(location.removeprefix("file:"))
            path.write_bytes(path.read_bytes().replace(value, bytes([value[0] ^ 1]) + value[1:], 1))
        return opened(storage, location)

    opened = LocalStorage.open_read
    attempt = Attempt(warehouse, table, properties={"orc.compress": "NONE"})
    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, "open_read", flipping)
        attempt.stage()
    assert "read back with other values than were read from the inputs, in v;" in refused(attempt)


@pytest.fixture
def hit(warehouse):
    """Two rows are deleted: they are cut out of their stripe."""
    table = warehouse.create_table("db", "t", COLUMNS)
    with warehouse.begin() as txn:
        txn.insert(table, rows(0, 20_000))
    with warehouse.begin() as txn:
        txn.delete(table, lambda row: row[0] in {1, 2})
    return table


def test_rows_are_cut_out(warehouse, hit):
    """The values were compared when the stripe was cut; its bytes are those that were compared."""
    attempt = staged(warehouse, hit)
    (origin,) = attempt.staged.files[0].origins
    assert origin.checksum is not None
    attempt.verify()
    with LocalReader(str(out(attempt) / "bucket_00000")) as reader:
        note = read_note(read_tail(reader).user_metadata)
    assert (note.digest.rows, note.stripes, note.checksums) == (0, (), ((0, origin.checksum),))


def test_a_flipped_byte_in_a_cut_stripe(warehouse, hit, monkeypatch):
    """A store that changes what was written."""

    def flipping(storage, location):
        if location.endswith("/bucket_00000") and "/tasks/" in location:
            path = Path(location.removeprefix("file:"))
            path.write_bytes(path.read_bytes().replace(original, flipped, 1))
        return opened(storage, location)

    opened = LocalStorage.open_read
    original = next(hit.location.glob("delta_*/bucket_*")).read_bytes()[100_000:100_100]  # a chunk that was kept
    flipped = bytes([original[0] ^ 1]) + original[1:]
    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, "open_read", flipping)
        attempt = staged(warehouse, hit)
    assert "isn't the one whose values were compared with its source" in refused(attempt)


def test_other_rows_are_cut_out(warehouse, hit, monkeypatch):
    """A deleted row that is still there is noticed, though a neighbour went in its place."""
    real = recode.kept_rows

    def wrong(keys, row_filter, tally, *, trusted):
        return np.roll(real(keys, row_filter, tally, trusted=trusted), 1)

    with monkeypatch.context() as patched:
        patched.setattr(recode, "kept_rows", wrong)
        attempt = staged(warehouse, hit)
    assert "holds deleted rows" in refused(attempt)


def test_values_are_not_verified_where_that_is_off(warehouse, table, monkeypatch):
    """Keys still are; no digest is made or noted."""
    with monkeypatch.context() as patched:
        patched.setattr(Encoder, "arrow", changing(1, lambda _: "x"))
        attempt = Attempt(
            warehouse, table, settings=settings(splice={"min_stripe_bytes": 4 * KIB}, recode={"verify_values": False})
        )
        attempt.stage()
    attempt.verify()
    with LocalReader(str(out(attempt) / "bucket_00000")) as reader:
        assert read_note(read_tail(reader).user_metadata) is None


def test_what_a_file_says_of_its_recoded_stripes(warehouse, table):
    """
    The digest of what was read from the inputs stays with the file, beside which stripes it is of; of copied ones there
    is none.
    """
    attempt = staged(warehouse, table)
    with LocalReader(str(out(attempt) / "bucket_00000")) as reader:
        tail = read_tail(reader)
    note = read_note(tail.user_metadata)
    origins = attempt.staged.files[0].origins
    assert [stripe in note.stripes for stripe in range(len(tail.stripes))] == [
        origin.path is None for origin in origins for _ in range(origin.count)
    ]
    assert note.digest == attempt.staged.files[0].digest
    assert note.digest.rows == sum(tail.stripes[stripe].number_of_rows for stripe in note.stripes)


def test_evidence_is_never_published(warehouse, table):
    """After a refusal there is no source to rename any more."""
    attempt = staged(warehouse, table)
    attempt.verify()
    change_result(attempt, rows=RowCounts())
    refused(attempt)
    with pytest.raises(CompactorError):
        attempt.publish(lambda: None)
    assert not [name for name in attempt.names() if name.startswith("base")]


def test_only_verification_makes_what_can_be_published():
    """`Compaction.publish` takes a `Verified`; no other module calls its constructor."""
    package = Path(compactor.__file__).parent
    makers = [path for path in package.rglob("*.py") if re.search(r"\bVerified\(", path.read_text())]
    assert [str(path.relative_to(package)) for path in makers] == ["engine/verify/result.py"]


def test_a_check_of_some_stripes_is_sent_what_it_needs(warehouse, table, monkeypatch):
    """What the checks of a file share goes once beside the job's function: thousands of stripes make hundreds of tasks."""
    monkeypatch.setattr("compactor.engine.verify.result.STRIPES_PER_TASK", 1)
    attempt = staged(warehouse, table)
    (file,) = attempt.staged.files
    ((bucket,),) = (output.buckets for output in attempt.staged.plan.outputs)
    shared, tasks = _verify_tasks(attempt.staged, attempt.compaction._staging)
    assert len(tasks) > 1
    assert [task.start for task in tasks] == list(range(len(tasks)))
    assert [(origin.path, origin.stripe) for task in tasks for origin in task.origins] == [
        (origin.path, origin.stripe) for origin in file.origins for _ in range(origin.count)
    ]
    assert {task.check for task in tasks} == {0}
    check = shared.file(0)
    assert check.count == len(tasks)
    assert check.work.bucket == replace(bucket, segments=())
    needed = {origin.path for origin in file.origins if origin.path is not None} | set(bucket.deletes)
    assert needed <= {one.path for one in check.work.inputs}


def test_each_file_is_checked_as_one_of_its_directory(warehouse, table):
    """A minor compaction makes two, with files of the same names."""
    attempt = staged(warehouse, table, CompactionKind.MINOR)
    staging = SimpleNamespace(tasks="/t", place=lambda directory, name: f"/{directory}/{name}")
    _, tasks = _verify_tasks(attempt.staged, staging)
    checked = {task.check.path: (task.check.work.directory, task.check.work.kind) for task in tasks}
    files = {f"/{file.directory}/{file.name}": (file.directory, file.kind) for file in attempt.staged.files}
    assert len(files) == 2
    assert checked == files
