"""Files that several tasks write: the same bytes as by one task, whole or not at all."""

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ByteSize
from structlog.testing import capture_logs

from compactor.acid.compaction import CompactionKind
from compactor.acid.names import DirKind
from compactor.engine import spread
from compactor.engine.results import OutputFile, RowCounts
from compactor.engine.tasks import buckets, layout
from compactor.engine.tasks.layout import Extent, Layout, LayoutSink, PieceTask, pieces, write_piece, write_trial
from compactor.errors import CancelledError, CompactorError, CorruptFileError, RefusedError
from compactor.handles import MemoryReader
from compactor.planning import document
from compactor.planning.limits import EVENT_BYTES
from compactor.reasons import Reason
from compactor.spark.concat import Concat, HdfsConcat, concatenates
from compactor.spark.results import CHECKED_BYTES, checksum
from compactor.storage.local_fs.driver import LocalStorage
from compactor.storage.local_fs.files import LocalWriter
from tests.compacting import KIB, Attempt, InProcess, compact, settings

COLUMNS = [("id", "int"), ("v", "string")]
SMALL = settings(splice={"min_stripe_bytes": KIB}, recode={"target_stripe_bytes": 1024 * KIB})


class Concatenating(InProcess):
    """
    A submitter on whose store files can be put together; here that is done by hand.

    Args:
        refuse: sentences with which the store answers, one after the other, instead; None: it does as asked.
        times: how often each task on an executor runs; the last result counts.
    """

    def __init__(self, refuse=(), times=1):
        self.functions = []
        self.refuse = list(refuse)
        self.times = times

    def run(self, job, function, tasks, **how):
        self.functions.append(getattr(function, "__name__", type(function).__name__))
        if isinstance(function, HdfsConcat):
            return [self.concat(task) for task in tasks]
        for _ in range(self.times):
            results = super().run(job, function, tasks, **how)
        return results

    def concat(self, task):
        if self.refuse and (why := self.refuse.pop(0)) is not None:
            return why
        target, *sources = (Path(one.removeprefix("file:")) for one in (task.target, *task.sources))
        assert {source.parent for source in sources} == {target.parent}
        with target.open("ab") as whole:
            for source in sources:
                whole.write(source.read_bytes())
                source.unlink()
        assert target.stat().st_size == task.length
        return 1 * KIB


@pytest.fixture
def spreading(monkeypatch):
    """Any bucket is a large one, in pieces of some KiB."""
    monkeypatch.setattr(document, "SPREAD_BYTES", 1)
    monkeypatch.setattr(spread, "PIECE_BYTES", 10 * KIB)
    monkeypatch.setattr(spread, "concatenates", lambda location: True)
    monkeypatch.setattr(LocalWriter, "gap_before", lambda *_: 0)


def rows(first, count):
    return [(first + i, f"{(first + i) * 2654435761 % (1 << 32):x}" * 8) for i in range(count)]


def table_of(warehouse, *, deleted=lambda row: row[0] % 15_000 == 0, **how):
    table = warehouse.create_table("db", "t", COLUMNS, **how)
    for number in range(3):
        with warehouse.begin() as txn:
            txn.insert(table, rows(number * 15_000, 15_000))
    if deleted is not None:
        with warehouse.begin() as txn:
            txn.delete(table, deleted)
    return table


def staged_bytes(attempt):
    """The content of each staged file."""
    top = attempt.location / attempt.compaction._staging.name / "out"
    paths = top.glob("*/bucket_*")
    return {(path.parent.name.partition("_v")[0], path.name): path.read_bytes() for path in paths}


DELETIONS = [None, lambda row: row[0] % 15_000 == 0, lambda row: row[0] % 3 == 0, lambda row: row[0] < 16_000]


@pytest.mark.parametrize("deleted", DELETIONS, ids=["none", "few", "many", "a whole file"])
@pytest.mark.parametrize("how", [{}, {"buckets": 2, "bucket_columns": ("id",)}], ids=["one bucket", "two buckets"])
def test_the_file_is_the_one_that_one_task_writes(warehouse, spreading, deleted, how):
    """Byte for byte, checksum, counts and origins: of copied, cut, recoded and probed stripes."""
    table = table_of(warehouse, deleted=deleted, **how)
    alone = Attempt(warehouse, table, settings=SMALL, attempt="alone")
    alone.stage()
    submitter = Concatenating()
    many = Attempt(warehouse, table, settings=SMALL, attempt="many", submitter=submitter)
    many.stage()
    assert "write_piece" in submitter.functions
    assert staged_bytes(many) == staged_bytes(alone)
    for one, other in zip(alone.staged.files, many.staged.files, strict=True):
        assert (other.checksum, other.rows, other.origins, other.digest) == (
            one.checksum,
            one.rows,
            one.origins,
            one.digest,
        )
    many.verify()
    alone.compaction.discard()
    many.compaction.discard()


@pytest.mark.parametrize("kind", [CompactionKind.MAJOR, CompactionKind.MINOR])
def test_readers_see_the_same_rows(warehouse, spreading, kind):
    """Both kinds, published; a delete delta is written by one task as ever."""
    submitter = Concatenating()
    attempt, _ = compact(warehouse, table_of(warehouse), kind, settings=SMALL, submitter=submitter)
    assert "write_piece" in submitter.functions
    assert not [name for name in attempt.names() if name.startswith(".")]


def test_chunks_of_a_large_bucket_are_recoded_side_by_side(warehouse, spreading):
    """However few bytes they are: the task that makes the layout decodes no stripe but those of a single chunk."""
    table = table_of(warehouse, deleted=DELETIONS[2])
    cut = SMALL.model_copy(
        update={"limits": SMALL.limits.model_copy(update={"task_memory_bytes": ByteSize(6000 * EVENT_BYTES)})}
    )
    alone = Attempt(warehouse, table, settings=cut, attempt="alone")
    many = Attempt(warehouse, table, settings=cut, attempt="many", submitter=Concatenating())
    for attempt in (alone, many):
        attempt.stage()
    root = many.location / many.compaction._staging.name
    assert len(list(root.rglob("chunk-*"))) == many.plan().chunks > 1
    assert staged_bytes(many) == staged_bytes(alone)


def test_tasks_that_run_twice_leave_one_file(warehouse, spreading):
    """Each attempt has names of its own; what isn't accepted goes with the staging directory."""
    table = table_of(warehouse)
    alone = Attempt(warehouse, table, settings=SMALL, attempt="alone")
    alone.stage()
    many = Attempt(warehouse, table, settings=SMALL, attempt="many", submitter=Concatenating(times=2))
    many.stage()
    assert staged_bytes(many) == staged_bytes(alone)
    many.verify()
    for attempt in (alone, many):
        attempt.compaction.discard()
    assert not [name for name in many.names() if name.startswith(".")]


def test_a_store_that_refuses_at_the_trial_has_one_task_write(warehouse, spreading):
    """As in an encryption zone: nothing is written twice."""
    submitter = Concatenating(refuse=["concat can not be called for files in an encryption zone."])
    with capture_logs() as log:
        compact(warehouse, table_of(warehouse), settings=SMALL, submitter=submitter)
    assert "write_piece" not in submitter.functions
    (event,) = [event for event in log if event["event"] == "concat.refused"]
    assert "encryption zone" in event["why"]


def test_a_store_that_refuses_the_pieces_has_one_task_write(warehouse, spreading):
    """As when a snapshot was made meanwhile; the pieces go with the staging directory."""
    submitter = Concatenating(refuse=[None, "Concat: the source file is in snapshot"])
    attempt, _ = compact(warehouse, table_of(warehouse), settings=SMALL, submitter=submitter)
    assert submitter.functions.index("write_piece") < len(submitter.functions) - 1
    assert not [name for name in attempt.names() if name.startswith(".")]


def test_rows_that_all_go_leave_no_file(warehouse, spreading):
    """There is nothing to put together."""
    submitter = Concatenating()
    _, published = compact(warehouse, table_of(warehouse, deleted=lambda _: True), settings=SMALL, submitter=submitter)
    assert not published.staged.files


def test_without_spark_a_large_file_is_written_by_one_task(warehouse, spreading):
    """What runs functions elsewhere than in Spark's driver can't put files together."""
    compact(warehouse, table_of(warehouse), settings=SMALL)
    assert isinstance(HdfsConcat()(Concat("/a", ("/b",), 2)), str)


@pytest.mark.parametrize("limit", ["SPREAD_BYTES", "concatenates"])
def test_small_files_and_other_stores_cost_no_question(warehouse, spreading, monkeypatch, limit):
    """Neither jobs nor files more than before."""
    if limit == "concatenates":
        monkeypatch.setattr(spread, "concatenates", concatenates)
    else:
        monkeypatch.setattr(document, "SPREAD_BYTES", 1 << 30)
    submitter = Concatenating()
    attempt = Attempt(warehouse, table_of(warehouse), settings=SMALL, submitter=submitter)
    attempt.stage()
    assert not {"HdfsConcat", "write_piece"} & set(submitter.functions)
    assert not list((attempt.location / attempt.compaction._staging.name).rglob("*trial*"))


def test_pieces_count_as_names(warehouse, spreading, monkeypatch):
    """Of large files alone: where a quota leaves too few, each file is one task's."""
    plan = Attempt(warehouse, table_of(warehouse), settings=SMALL).plan()
    monkeypatch.setattr(document, "PIECE_BYTES", 100)
    many = plan.names_needed
    assert plan.pieces == sum(bucket.bytes for bucket in plan.buckets) // 100
    monkeypatch.setattr(document, "SPREAD_BYTES", 1 << 30)
    assert (plan.pieces, plan.names_needed) == (0, many - sum(bucket.bytes for bucket in plan.buckets) // 100)


def laid_out(lengths):
    """A layout of ranges of one file each, so many bytes long, every second one beginning at byte 7."""
    extents = tuple(Extent(f"/f{number}", 7 * (number % 2), length) for number, length in enumerate(lengths) if length)
    file = OutputFile("", "base_1", DirKind.BASE, "bucket_00000", 0, sum(lengths), 0, RowCounts(1, 1))
    return Layout(file, extents)


@given(st.lists(st.integers(0, 200 * KIB), min_size=1, max_size=20).filter(any), st.integers(1 * KIB, 300 * KIB))
def test_pieces_are_the_whole_file_in_order(lengths, size):
    """All but the last have the same length, and the file's last bytes, of the checksum, are in the last."""
    whole = laid_out(lengths)
    tasks = pieces(whole, size, "/t")
    sizes = [sum(extent.length for extent in task.extents) for task in tasks]
    assert sum(sizes) == whole.file.length
    assert set(sizes[:-1]) <= {size}
    assert sizes[-1] >= min(CHECKED_BYTES, whole.file.length)
    assert [task.last for task in tasks] == [False] * (len(tasks) - 1) + [True]
    joined = []
    for extent in (extent for task in tasks for extent in task.extents):
        last = joined[-1] if joined else None
        if last is not None and (last.location, last.offset + last.length) == (extent.location, extent.offset):
            joined[-1] = Extent(last.location, last.offset, last.length + extent.length)
        else:
            joined.append(extent)
    assert tuple(joined) == whole.extents


def test_a_task_is_small():
    """A piece of a terabyte of one file takes less than 2 KiB to send."""
    source = Extent("hdfs://nameservice/warehouse/sales.db/orders/dt=2024-01-01/base_0000001/bucket_00000", 3, 1 << 40)
    file = OutputFile("", "base_1", DirKind.BASE, "bucket_00000", 0, 1 << 40, 0)
    tasks = pieces(Layout(file, (source,)), 256 << 20, "hdfs://nameservice/warehouse/sales.db/orders/dt=2024-01-01/t")
    assert len(tasks) == 4096
    assert max(len(pickle.dumps(task)) for task in tasks) < 2 * KIB


def test_footers_are_read_ahead_of_a_layout(warehouse, spreading, monkeypatch):
    """Once each, and in turns where there are many: the layout that comes of it is the same."""
    monkeypatch.setattr(buckets, "_FOOTERS", 2)
    table = table_of(warehouse, deleted=None)
    read = []
    monkeypatch.setattr(
        layout, "at_once", lambda count, actions: read.append(len(actions)) or [act() for act in actions]
    )
    alone, many = (
        Attempt(warehouse, table, settings=SMALL, attempt=name, submitter=by)
        for name, by in (("alone", InProcess()), ("many", Concatenating()))
    )
    for attempt in (alone, many):
        attempt.stage()
    assert sum(read) == sum(len(segment.stripes) for segment in many.plan().outputs[0].segments)
    assert staged_bytes(many) == staged_bytes(alone)


def test_a_layout_notes_what_it_can_and_keeps_the_rest(tmp_path):
    """Ranges of open files are noted, neighbours as one; bytes in memory are written to the file of its own."""
    storage = LocalStorage()
    source, own = str(tmp_path / "source"), str(tmp_path / "own")
    storage.write_small(source, bytes(range(100)))
    with storage.create(own) as writer, storage.open_read(source) as reader:
        sink = LayoutSink(writer, own)
        sink.write(b"ORC")
        sink.copy_from(reader, 10, 20)
        sink.copy_from(reader, 30, 5)
        sink.copy_from(MemoryReader(b"abcdef"), 1, 3)
        sink.write(b"")
        sink.write(b"end")
        assert sink.position == 34
        with pytest.raises(CorruptFileError):
            sink.copy_from(reader, 90, 11)
    assert sink.extents == (Extent(own, 0, 3), Extent(source, 10, 25), Extent(own, 3, 6))
    assert Path(own).read_bytes() == b"ORCbcdend"


def test_a_piece_is_its_extents(tmp_path):
    """The last one also reports the checksum of its end, as it is read back."""
    storage = LocalStorage()
    for letter in "ab":
        storage.write_small(str(tmp_path / letter), letter.encode() * 100)
    extents = (
        Extent(str(tmp_path / "a"), 0, 10),
        Extent(str(tmp_path / "b"), 5, 20),
        Extent(str(tmp_path / "a"), 0, 1),
    )
    for last in (False, True):
        piece = write_piece(PieceTask(str(tmp_path), "x", extents, last))
        with storage.open_read(str(tmp_path / piece.name)) as reader:
            assert reader.read_at(0, 100) == b"a" * 10 + b"b" * 20 + b"a"
            assert piece.checksum == (checksum(reader) if last else 0)
        assert piece.length == 31


def test_a_late_or_hindered_piece_leaves_nothing(tmp_path):
    """A directory that is gone stays gone; a source that is gone or shorter is named, and no piece is left."""
    storage = LocalStorage()
    storage.write_small(str(tmp_path / "a"), b"a" * 10)
    with pytest.raises(CancelledError):
        write_trial(str(tmp_path / "gone"))
    with pytest.raises(CancelledError):
        write_piece(PieceTask(str(tmp_path / "gone"), "x", (Extent(str(tmp_path / "a"), 0, 10),), last=True))
    with pytest.raises(RefusedError) as refused:
        write_piece(PieceTask(str(tmp_path), "x", (Extent(str(tmp_path / "b"), 0, 10),), last=True))
    assert refused.value.reason is Reason.INPUT_CHANGED
    with pytest.raises(CompactorError):
        write_piece(PieceTask(str(tmp_path), "x", (Extent(str(tmp_path / "a"), 0, 11),), last=True))
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_only_hdfs_is_asked():
    """Of its locations and those of a mount table."""
    assert concatenates("hdfs://ns/t")
    assert concatenates("viewfs://c/t")
    assert not any(map(concatenates, ("/t", "file:/t", "s3a://b/t", "abfs://c@a/t")))
