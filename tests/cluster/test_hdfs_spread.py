"""Large files on a real HDFS: many tasks write each, and it is the file that one task writes."""

import hashlib

import pytest

from compactor.acid.compaction import CompactionKind
from compactor.engine import spread
from compactor.planning import document
from compactor.settings.stores import Hdfs
from compactor.spark.concat import Concat, HdfsConcat
from compactor.storage.location import join
from compactor.storage.registry import StorageOptions, configure, configured, storage_for
from tests.cluster.mirror import put
from tests.cluster.test_encryption_zones import zone
from tests.cluster.test_hdfs_compaction import Remote, compact_there
from tests.compacting import KIB, settings
from tests.spark import jobs
from tests.spark.conftest import submitter  # noqa: F401 - a fixture

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.timeout(600)]
COLUMNS = [("id", "int"), ("v", "string")]
MIB = 1024 * KIB
SMALL = settings(splice={"min_stripe_bytes": KIB}, recode={"target_stripe_bytes": MIB})


@pytest.fixture
def spreading(monkeypatch):
    """Any bucket is a large one, in pieces of a block each, of 1 MiB."""
    before = configured()
    configure(StorageOptions(hdfs=Hdfs(conf_dir=before.hdfs.conf_dir, block_size=MIB)))
    monkeypatch.setattr(document, "SPREAD_BYTES", 1)
    monkeypatch.setattr(spread, "PIECE_BYTES", MIB)
    yield
    configure(before)


class Recorded:
    """A submitter that remembers which functions ran, and what came back; `before` is called before each."""

    def __init__(self, real, before=lambda function: None):
        self.real = real
        self.before = before
        self.answers = []

    def run(self, job, function, tasks, **how):
        self.before(function)
        made = self.real.run(job, function, tasks, **how)
        self.answers.append((getattr(function, "__name__", type(function).__name__), made))
        return made

    def end(self, job):
        self.real.end(job)

    @property
    def concats(self):
        return [answer for name, answers in self.answers if name == "HdfsConcat" for answer in answers]

    @property
    def pieces(self):
        return [piece for name, answers in self.answers if name == "write_piece" for piece in answers]


def rows(first, count):
    return [(first + i, hashlib.sha256(b"%d" % (first + i)).hexdigest()) for i in range(count)]


def build(warehouse, files=4, count=40_000):
    table = warehouse.create_table("db", "t", COLUMNS)
    for number in range(files):
        with warehouse.begin() as txn:
            txn.insert(table, rows(number * count, count))
    with warehouse.begin() as txn:
        txn.delete(table, lambda row: row[0] % (2 * count) == 7)
    return table


def on_hdfs(submitter, attempt, do, location):  # noqa: F811
    (answer,) = submitter.run(attempt.compaction.job, jobs.OnHdfs(do), [location])
    return answer


def staged(attempt):
    (file,) = attempt.staged.files
    return attempt.compaction._staging.place(file.directory, file.name)


def test_it_is_the_file_that_one_task_writes(warehouse, hdfs_directory, spreading, submitter, monkeypatch):  # noqa: F811
    """
    To the byte, and to the block: DistCp compares files by the checksums of their blocks. It counts as closed, and no
    piece is left.
    """
    table = build(warehouse)
    put(table.location, hdfs_directory)
    recorded = Recorded(submitter)
    many = Remote(warehouse, table, hdfs_directory, attempt="many", submitter=recorded, settings=SMALL)
    many.stage()
    assert len(recorded.pieces) > 3
    assert all(isinstance(answer, int) for answer in recorded.concats)
    with monkeypatch.context() as patched:
        patched.setattr(document, "SPREAD_BYTES", 1 << 30)
        alone = Remote(warehouse, table, hdfs_directory, attempt="alone", submitter=submitter, settings=SMALL)
        alone.stage()
    storage = storage_for(hdfs_directory)
    contents = []
    for attempt in (many, alone):
        with storage.open_read(staged(attempt)) as reader:
            contents.append(reader.read_at(0, reader.size))
    assert contents[0] == contents[1]
    blocks = [on_hdfs(submitter, attempt, jobs.blocks_of, staged(attempt)) for attempt in (many, alone)]
    assert blocks[0] == blocks[1]
    assert set(blocks[0][0][:-1]) == {MIB}
    assert not storage.open_files(
        many.compaction._staging.root, [staged(many).partition(many.compaction._staging.root)[2][1:]]
    )
    left = storage.list_tree(many.compaction._staging.tasks).files
    assert not {piece.name for piece in recorded.pieces} & {file.path for file in left}
    many.verify()
    for attempt in (many, alone):
        attempt.compaction.discard()
    assert not [found for found in storage.directories(hdfs_directory) if found.startswith(".")]


@pytest.mark.parametrize("kind", [CompactionKind.MAJOR, CompactionKind.MINOR])
def test_readers_see_the_same_rows(warehouse, hdfs_directory, spreading, submitter, kind):  # noqa: F811
    """Published like any result."""
    recorded = Recorded(submitter)
    compact_there(warehouse, build(warehouse), hdfs_directory, kind, submitter=recorded, settings=SMALL)
    assert len(recorded.pieces) > 3


def test_a_lost_executor_loses_no_piece(warehouse, hdfs_directory, spreading, submitter, monkeypatch):  # noqa: F811
    """Each task's process dies after its work at first: what it wrote is left out, and removed."""
    monkeypatch.setattr(spread, "write_piece", jobs.die_first_piece)
    compact_there(warehouse, build(warehouse, files=3), hdfs_directory, submitter=submitter, settings=SMALL)
    assert not [found for found in storage_for(hdfs_directory).directories(hdfs_directory) if found.startswith(".")]


def test_a_snapshot_of_the_pieces_has_one_task_write(warehouse, hdfs_directory, spreading, submitter):  # noqa: F811
    """HDFS refuses to move blocks that a snapshot holds."""
    table = build(warehouse, files=3)
    put(table.location, hdfs_directory)
    concats = []

    def snapshot(function):
        if isinstance(function, HdfsConcat):
            concats.append(function)
            if len(concats) == 2:
                on_hdfs(submitter, attempt, jobs.take_snapshot, hdfs_directory)

    recorded = Recorded(submitter, snapshot)
    attempt = Remote(warehouse, table, hdfs_directory, submitter=recorded, settings=SMALL)
    try:
        attempt.stage()
        attempt.verify()
        block, why = recorded.concats
        assert block == MIB
        assert "in snapshot" in why
    finally:
        on_hdfs(submitter, attempt, jobs.drop_snapshot, hdfs_directory)
        attempt.compaction.discard()


def test_a_concat_that_was_made_before_changes_nothing(warehouse, hdfs_directory, spreading, submitter):  # noqa: F811
    """As when its answer was lost; a file that is neither the first piece nor the whole is refused with the cause."""
    storage = storage_for(hdfs_directory)
    files = [join(hdfs_directory, name) for name in "abc"]
    for file in files:
        storage.write_small(file, file[-1].encode() * 10)
    attempt = Remote(warehouse, build(warehouse, files=1, count=10), hdfs_directory, submitter=submitter)
    request = Concat(files[0], tuple(files[1:]), 30)
    for _ in range(2):
        assert submitter.run(attempt.compaction.job, HdfsConcat(), [request]) == [MIB]
        assert storage.read_small(files[0]) == b"a" * 10 + b"b" * 10 + b"c" * 10
    (why,) = submitter.run(attempt.compaction.job, HdfsConcat(), [Concat(files[0], (files[1],), 31)])
    assert "does not exist" in why
    assert storage.read_small(files[0]) == b"a" * 10 + b"b" * 10 + b"c" * 10


def test_in_an_encryption_zone_one_task_writes(warehouse, zones, spreading, submitter):  # noqa: F811
    """HDFS refuses concat there, which is tried before anything is written."""
    directory = zone(zones)
    configure(StorageOptions(hdfs=Hdfs(conf_dir=zones.conf, block_size=MIB)))
    recorded = Recorded(submitter)
    compact_there(warehouse, build(warehouse, files=2), directory, submitter=recorded, settings=SMALL)
    assert not recorded.pieces
    (why,) = recorded.concats
    assert "encryption zone" in why
