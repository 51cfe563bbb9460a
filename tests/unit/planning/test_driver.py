"""The memory of Spark's driver: estimated from the plan, and refused before anything starts."""

import pickle
from dataclasses import replace
from functools import partial

import pytest

from compactor.acid.columns import ColumnRule
from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.acid.row_id import Hit, RowKey, encode
from compactor.engine import full_acid
from compactor.errors import RefusedError
from compactor.planning import driver
from compactor.planning.document import Action, FileRole, FormatSpec, InputFile
from compactor.planning.driver import within_driver
from compactor.planning.facts import DeleteFacts, FileFacts, StripeFacts, TableSpec
from compactor.planning.plan import PreparedPlan, plan
from compactor.planning.segments import SegmentSource, Sizes
from compactor.planning.select import Selection
from compactor.reasons import Reason
from compactor.settings import Settings
from compactor.spark.resources import Resources, driver_memory

MIB, GIB, KIB = 1 << 20, 1 << 30, 1 << 10
ROWS = 400_000
SIZES = Sizes(8 * MIB, 128 * MIB)


def one_bucket(stripes, deletes, hit=lambda number: -1, aborted=(), columns=50):
    """A plan of one base of so many stripes of 64 MiB, all of them deleted from."""
    packed = encode(0, 0)
    facts = tuple(
        StripeFacts(
            number,
            ROWS,
            64 * MIB,
            RowKey(1, packed, number * ROWS),
            RowKey(1, packed, (number + 1) * ROWS - 1),
            True,
            (1, 1),
            (packed, packed),
            (1, 1),
            (0, 0),
            Hit.CERTAIN,
            1,
            128 * MIB,
            hit_by=hit(number),
        )
        for number in range(stripes)
    )
    base = InputFile("base_0000001/bucket_00000", stripes * 64 * MIB, 1, FileRole.BASE, "base_0000001", 0, 0, 1)
    names = [f"delete_delta_{number:07d}_{number:07d}_0000" for number in range(2, deletes + 2)]
    files = [
        InputFile(f"{name}/bucket_00000", 2000, 1, FileRole.DELETE_DELTA, name, 0, number, number, rows=1)
        for number, name in enumerate(names, 2)
    ]
    spec = TableSpec(
        "db.t", tuple((f"column_number_{number}", "decimal(20,4)") for number in range(columns)), ColumnRule.NAME
    )
    kind, last = CompactionKind.MAJOR, deletes + 2
    selection = Selection(
        spec, kind, kind, LayoutVersion.HIVE_4, last, 1, last, 99, "", (base,), tuple(files), (), tuple(aborted), ()
    )
    prepared = PreparedPlan(
        selection,
        {0: (SegmentSource(base, FileFacts(base.path, ROWS * stripes, True, facts)),)},
        tuple(SegmentSource(file, FileFacts(file.path, 1, True, ())) for file in files),
    )
    events = {0: DeleteFacts(0, tuple(file.path for file in files), stripes)}
    return plan(prepared, events, FormatSpec(), "hdfs://nn/warehouse/db/t/p=1", SIZES)


@pytest.mark.parametrize("deletes", [1000, 5000])
def test_a_terabyte_in_one_bucket_fits_the_driver_as_delivered(deletes):
    """
    Every delete file hits every other stripe, and 100,000 ids are aborted: no task has more than 2 KiB, and 1 GiB holds
    all of them.
    """
    every_other = int("01" * (deletes // 2), 2)
    made = one_bucket(16_384, deletes, lambda _: every_other, aborted=range(10_000, 110_000))
    shared, first, (later,) = full_acid._tasks(
        made, "hdfs://nn/warehouse/db/t/p=1/.c/tasks", digests=True, together=SIZES.chunk
    )
    assert len(first) == 8192
    assert max(len(pickle.dumps([task])) for task in first) <= 2 * KIB
    assert len(pickle.dumps((partial(full_acid.run_task, shared), first, later))) < 32 * MIB
    needed = within_driver(made, SIZES.chunk, GIB, "").prediction
    assert (needed.tasks, needed.driver_bytes < GIB) == (8192, True)


@pytest.mark.parametrize("one_by_one", [False, True])
def test_the_estimate_holds_what_is_sent(one_by_one):
    """The bytes of the tasks of the first job, pickled one by one as Spark has them: no more, and not a third."""
    made = replace(one_bucket(300, 40, lambda number: 1 << number % 40), one_by_one=one_by_one)
    _, first, _ = full_acid._tasks(made, "hdfs://nn/warehouse/db/t/p=1/.c/tasks", digests=True, together=SIZES.chunk)
    job, _, _ = driver._full_acid(made, SIZES.chunk)
    results = len(first) * (300 + 10 * len(made.columns))
    size = sum(len(pickle.dumps([task])) for task in first)
    assert job.tasks == len(first)
    assert size <= job.bytes - results <= 3 * size


def test_a_driver_that_is_too_small_is_refused():
    """With the figures, and what to set; the plan says what it takes."""
    made = one_bucket(2000, 10)
    with pytest.raises(
        RefusedError,
        match=r"db.t: 1000 tasks take about \d+ MiB of Spark's driver, which has 200: set "
        r"spark.driver.memory to at least 512m in spark.conf",
    ) as caught:
        within_driver(made, SIZES.chunk, 200 * MIB, "in spark.conf")
    assert caught.value.reason is Reason.LIMIT_EXCEEDED
    assert within_driver(made, SIZES.chunk, None, "").prediction.tasks == 1000


@pytest.mark.parametrize(
    ("spark", "asked", "memory", "mend"),
    [
        ({}, {}, GIB, "in spark.conf"),
        ({"conf": {"spark.driver.memory": "3g"}}, {"spark.driver.memory": "5g"}, 3 * GIB, "in spark.conf"),
        (
            {"mode": "submit", "conf": {"spark.driver.memory": "3g"}},
            {"spark.driver.memory": "5g"},
            5 * GIB,
            "in spark.conf, or for the table with compactor.spark.driver.memory",
        ),
        ({"conf": {"spark.driver.memory": "much"}}, {}, None, "in spark.conf"),
    ],
)
def test_the_memory_is_that_of_the_driver_that_runs_the_jobs(spark, asked, memory, mend):
    """The session's; or that of an application of its own, as the table or request asks."""
    settings = Settings(database={"url": "sqlite:////nowhere/m.db"}, host="h", spark=spark)
    found = driver_memory(settings, Resources(None, asked))
    assert (found.bytes, found.mend) == (memory, mend)


def test_planned_and_run_by_the_same_rule():
    """The chunks that tasks of their own recode are those that the estimate counts."""
    made = one_bucket(6, 2)
    (bucket,) = made.outputs[0].buckets
    size = sum(segment.bytes for segment in bucket.segments if segment.action is not Action.COPY)
    assert len(made.apart(bucket, size - 1)) == 3
    assert made.apart(bucket, size) == []
    assert replace(made, one_by_one=True).apart(bucket, 0) == []
