"""Compactions as Spark jobs: chunks, repeated and late tasks, cancellation, several at once."""

import functools
import threading

import pytest

from compactor.acid.compaction import CompactionKind
from compactor.engine import compaction as compaction_module
from compactor.engine import full_acid
from compactor.engine.insert_only import jobs as insert_only
from compactor.errors import CancelledError, RefusedError
from compactor.planning.document import Action
from tests.compacting import KIB, Attempt, compact, settings
from tests.spark import jobs

pytestmark = pytest.mark.spark
COLUMNS = [("id", "int"), ("v", "string")]


def rows(first, count):
    return [(first + i, f"{(first + i) * 2654435761 % (1 << 32):x}" * 4) for i in range(count)]


def large(warehouse, name="t", files=6, count=4000):
    """A table whose stripes count as large under `small_stripes`, one of them deleted from."""
    table = warehouse.create_table("db", name, COLUMNS)
    for number in range(files):
        with warehouse.begin() as txn:
            txn.insert(table, rows(number * count, count))
    with warehouse.begin() as txn:
        txn.delete(table, lambda row: row[0] % 1000 == 0)
    return table


def small_stripes():
    """Every stripe of the tests is large, and a chunk is one of them."""
    return settings(splice={"min_stripe_bytes": 4 * KIB}, recode={"target_stripe_bytes": 1024 * KIB})


def cut_small(monkeypatch):
    """Chunks of a few stripes, so that one bucket makes several."""
    real = compaction_module.Compaction.sizes.fget

    def sizes(self):
        found = real(self)
        return type(found)(found.min_stripe, 64 * KIB)

    monkeypatch.setattr(compaction_module.Compaction, "sizes", property(sizes))


def test_one_bucket_is_recoded_by_several_tasks(warehouse, submitter, monkeypatch):
    """Chunks in a first job, put together in a second; the result is that of one task."""
    cut_small(monkeypatch)
    attempt, published = compact(warehouse, large(warehouse), submitter=submitter, settings=small_stripes())
    (bucket,) = attempt.plan().outputs[0].buckets
    assert len({segment.chunk for segment in bucket.segments if segment.action is not Action.COPY}) > 1
    assert len(published.staged.files) == 1
    assert attempt.staged.rows.deleted == 24


@pytest.mark.parametrize("kind", [CompactionKind.MAJOR, CompactionKind.MINOR])
def test_both_kinds_on_spark(warehouse, submitter, kind):
    """The same rows, whoever runs the tasks."""
    compact(warehouse, large(warehouse), kind, submitter=submitter)


def test_insert_only_on_spark(warehouse, submitter):
    """Whole files are carried over by tasks too."""
    table = warehouse.create_table("db", "mm", COLUMNS, insert_only=True)
    for first in (0, 10):
        with warehouse.begin() as txn:
            txn.insert(table, rows(first, 5))
    compact(warehouse, table, submitter=submitter)


def test_a_task_that_dies_after_its_work_is_repeated_without_harm(warehouse, submitter, monkeypatch):
    """The first attempt leaves a finished file behind; exactly one file is published."""
    monkeypatch.setattr(full_acid, "run_task", jobs.die_first)
    attempt, published = compact(warehouse, large(warehouse, files=2), submitter=submitter)
    assert len(published.staged.files) == 1
    assert sorted(path.name for path in (attempt.location / published.directories[0]).iterdir()) == [
        "_orc_acid_version",
        "bucket_00000",
    ]


def test_files_joined_twice_are_published_once(warehouse, submitter, monkeypatch):
    """The same for insert-only tables."""
    monkeypatch.setattr(insert_only, "run_whole", jobs.die_first_whole)
    table = warehouse.create_table("db", "mm", COLUMNS, insert_only=True)
    for first in (0, 10):
        with warehouse.begin() as txn:
            txn.insert(table, rows(first, 5))
    _, published = compact(warehouse, table, submitter=submitter)
    assert [file.rows.written for file in published.staged.files] == [10]


def test_cancelled_between_staging_and_the_job(warehouse, submitter):
    """Nothing runs, and discarding leaves nothing."""
    attempt = Attempt(warehouse, large(warehouse), submitter=submitter)
    before = attempt.names()
    with pytest.raises(CancelledError):
        attempt.stage(cancelled=lambda: True)
    attempt.compaction.discard()
    assert attempt.names() == before


def test_a_task_that_comes_late_finds_no_place(warehouse, submitter):
    """After `discard`, a task that starts can't write anywhere: nothing makes the staging directory again."""
    attempt = Attempt(warehouse, large(warehouse), submitter=submitter)
    plan = attempt.plan()
    attempt.compaction._staging.make()
    shared, first, _ = full_acid._tasks(plan, attempt.compaction._staging.tasks, digests=True, together=0)
    attempt.compaction.discard()
    before = attempt.names()
    with pytest.raises((CancelledError, RefusedError)):
        submitter.run(attempt.compaction.job, functools.partial(full_acid.run_task, shared), first)
    assert attempt.names() == before


def test_several_compactions_at_once(warehouse, submitter):
    """Concurrent workers share the session; each result is its own table's."""
    tables = [large(warehouse, f"t{number}", files=3, count=500) for number in range(3)]
    attempts = [Attempt(warehouse, table, submitter=submitter, entry_id=number) for number, table in enumerate(tables)]
    published = {}

    def work(number):
        attempt = attempts[number]
        attempt.stage()
        attempt.verify()
        published[number] = attempt.publish(lambda: None)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [published[number].directories for number in range(3)] == [
        (f"base_0000004_v{attempt.txn:07d}",) for attempt in attempts
    ]
