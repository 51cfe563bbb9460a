"""Chunks of a bucket open only the delete files that hit them, and none of the events is lost by it."""

import contextlib
import pickle
import random
from dataclasses import replace
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as trying
from hypothesis import strategies as st

from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.engine import compaction as compaction_module
from compactor.engine import full_acid
from compactor.engine.delete_files import Deletes
from compactor.engine.results import RowCounts
from compactor.engine.tasks.specs import ChunkResult
from compactor.errors import RefusedError, VerificationError
from compactor.orc.digests.digest import NO_DIGEST, Digest
from compactor.orc.events.hit_by import HitBy
from compactor.planning.document import EVERY_FILE, Action
from compactor.storage.local_fs.driver import LocalStorage
from tests.compacting import KIB, Attempt, compact, settings
from tests.demo.ledger import MemoryLedger
from tests.demo.warehouse import Warehouse

COLUMNS = [("id", "int"), ("v", "string")]
PER_FILE = 40


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    """A chunk is one stripe, and each result is checked by tasks of their own, one a stripe."""
    real = compaction_module.Compaction.sizes.fget
    monkeypatch.setattr(
        compaction_module.Compaction, "sizes", property(lambda self: replace(real(self), chunk=1, min_stripe=1))
    )
    monkeypatch.setattr("compactor.engine.verify.result.STRIPES_PER_TASK", 1)


class Opened(LocalStorage):
    """Counts how often delete files are opened."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def open_read(self, path):
        self.count += "delete_delta" in path
        return super().open_read(path)


def rows(first):
    return [(first + i, f"{(first + i) * 2654435761 % (1 << 32):x}" * 4) for i in range(PER_FILE)]


def filled(warehouse, files):
    table = warehouse.create_table("db", "t", COLUMNS)
    for number in range(files):
        with warehouse.begin() as txn:
            txn.insert(table, rows(number * PER_FILE))
    return table


def test_opens_grow_with_hits(warehouse, monkeypatch):
    """Twelve delete files that hit a stripe each are opened once by planning, work and check, not by each of 12 chunks."""
    table = filled(warehouse, 12)
    for number in range(12):
        with warehouse.begin() as txn:
            txn.delete(table, lambda row, number=number: row[0] == number * PER_FILE + 7)
    storage = Opened()
    monkeypatch.setattr("compactor.engine.tasks.buckets.storage_for", lambda _: storage)
    monkeypatch.setattr("compactor.engine.verify.stripes.storage_for", lambda _: storage)
    attempt, published = compact(warehouse, table)
    (bucket,) = attempt.plan().outputs[0].buckets
    assert len({segment.chunk for segment in bucket.segments}) == 12
    assert [segment.hit_by for segment in bucket.segments] == [1 << number for number in range(12)]
    assert published.staged.rows.deleted == 12
    assert storage.count == 24


@st.composite
def lives(draw):
    """Deletes and updates of some rows by several writes, some of which are aborted; a compaction may come in between."""
    steps = []
    for _ in range(draw(st.integers(2, 9))):
        what = draw(st.sampled_from(("delete", "delete", "update", "insert", "minor", "major")))
        steps.append((what, draw(st.integers(0, 1 << 30)), draw(st.integers(1, 60)), draw(st.booleans())))
    return steps


def play(warehouse, steps):
    table = filled(warehouse, 4)
    for number, (what, seed, share, aborts) in enumerate(steps):
        chance = random.Random(seed)
        if what in {"minor", "major"}:
            with contextlib.suppress(RefusedError):  # there is nothing to compact
                compact(warehouse, table, CompactionKind[what.upper()], attempt=f"s{number}", settings=how())
            continue
        txn = warehouse.begin()
        if what == "insert":
            txn.insert(table, rows((number + 4) * PER_FILE))
        elif what == "delete":
            txn.delete(table, lambda _, chance=chance, share=share: chance.random() * 100 < share)
        else:
            txn.update(table, lambda _, chance=chance, share=share: chance.random() * 100 < share, lambda row: row)
        if aborts:
            txn.abort()
        else:
            txn.commit()
    return table


def how():
    return settings(splice={"min_stripe_bytes": KIB})


@pytest.mark.parametrize("layout", LayoutVersion)
@trying(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=lives())
def test_the_result_is_that_of_all_delete_files(layout, tmp_path_factory, steps):
    """
    Whatever was deleted, by whichever writes: stripes, counts and bytes are those of a compaction whose tasks open every
    delete file.
    """
    results = []
    for every in (False, True):
        with pytest.MonkeyPatch.context() as patched:
            if every:
                patched.setattr(HitBy, "masks", lambda hits: [None] * len(hits._spans))
            warehouse = Warehouse(tmp_path_factory.mktemp("w"), MemoryLedger(layout))
            table = play(warehouse, steps)
            try:
                _, published = compact(warehouse, table, attempt="last", settings=how())
            except RefusedError as error:  # there is nothing to compact
                results.append(error.reason)
                continue
            results.append(
                [
                    (file.name, file.length, file.rows, file.stripes, file.digest)
                    for file in published.staged.files + published.staged.empty
                ]
            )
    assert results[0] == results[1]


def two_hits(warehouse):
    """A table of three stripes, each hit by another delete file, and the attempt to compact it."""
    table = filled(warehouse, 3)
    for number in range(3):
        with warehouse.begin() as txn:
            txn.delete(table, lambda row, number=number: row[0] == number * PER_FILE + 7)
    return Attempt(warehouse, table, settings=how())


def test_a_file_left_out_by_mistake_stops_the_compaction(warehouse):
    """Each task holds the number of its events against the one that planning counted in all files."""
    attempt = two_hits(warehouse)
    plan = attempt.plan()
    (output,) = plan.outputs
    (bucket,) = output.buckets
    wrong = replace(bucket, segments=tuple(replace(segment, hit_by=0) for segment in bucket.segments))
    with pytest.raises(VerificationError, match=r"1 delete events are between the keys of these rows, 0 were read"):
        attempt.compaction.stage(replace(plan, outputs=(replace(output, buckets=(wrong,)),)))
    attempt.compaction.discard()


def test_without_chunks_planning_does_not_look(warehouse, monkeypatch):
    """One task that recodes all of a bucket's rows opens all delete files in any case."""
    real = compaction_module.Compaction.sizes.fget
    monkeypatch.setattr(
        compaction_module.Compaction, "sizes", property(lambda self: replace(real(self), chunk=1 << 20))
    )
    asked = []
    look = Deletes.look
    monkeypatch.setattr(
        Deletes, "look", lambda self, *values, by_file: asked.append(by_file) or look(self, *values, by_file=by_file)
    )
    plan = two_hits(warehouse).plan()
    assert asked == [False]
    assert {segment.hit_by for segment in plan.outputs[0].buckets[0].segments} == {EVERY_FILE}


class Walked(tuple):
    """Counts how often it is walked through."""

    __slots__ = ()
    times: ClassVar = 0

    def __iter__(self):
        Walked.times += 1
        return super().__iter__()


def test_tasks_of_many_buckets_are_planned_in_one_walk(warehouse, monkeypatch):
    """The inputs were walked through for each bucket: 4,096 buckets of 40 deltas took a minute."""
    table = warehouse.create_table("db", "t", COLUMNS, buckets=8, bucket_columns=("id",))
    for number in range(3):
        with warehouse.begin() as txn:
            txn.insert(table, rows(number * PER_FILE))
    plan = Attempt(warehouse, table, settings=how()).plan()
    assert len(plan.outputs[0].buckets) > 4
    monkeypatch.setattr(Walked, "times", 0)
    full_acid._tasks(replace(plan, inputs=Walked(plan.inputs)), "/t", digests=True, together=1)
    assert Walked.times == 1


def test_a_task_of_many_holds_only_its_own(warehouse):
    """Its segments and which delete files hit them; all else goes once to each executor, beside the job's function."""
    attempt = two_hits(warehouse)
    plan = replace(attempt.plan(), aborted=tuple(range(1000, 101_000)), columns=tuple(COLUMNS * 100))
    shared, first, (later,) = full_acid._tasks(plan, "/t", digests=True, together=1)
    assert len(first) == 3
    assert all(segment.action is not Action.COPY for task in first for segment in task.segments)
    assert max(len(pickle.dumps(task)) for task in (*first, later)) < 2 * KIB
    assert len(pickle.dumps(shared)) > 100 * KIB


def test_the_digests_of_chunks_go_as_their_sum(warehouse):
    """One for each chunk of a wide table would be more than Spark sends with a task."""
    attempt = two_hits(warehouse)
    plan = attempt.plan()
    _, _, (later,) = full_acid._tasks(plan, "/t", digests=True, together=1)
    parts = [
        ChunkResult(plan.names[0], 0, chunk, None, RowCounts(), digest=Digest(1, chunk, (chunk, 1)))
        for chunk in (2, 0, 1)
    ]
    (task,) = full_acid._with_parts([later], parts)
    assert [part.chunk for part in task.parts] == [0, 1, 2]
    assert {part.digest for part in task.parts} == {NO_DIGEST}
    assert task.digest == Digest(3, 3, (3, 3))
