"""Compactions that would exceed a limit: divided, and readers see the same rows after each part and at the end."""

import pytest

from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.engine import full_acid
from compactor.errors import RefusedError
from compactor.planning.limits import EVENT_BYTES, SPILLED_BYTES
from compactor.reasons import Reason
from compactor.storage.base import Room
from compactor.storage.local_fs.driver import LocalStorage
from tests.compacting import KIB, Attempt, compact, settings
from tests.demo.ledger import MemoryLedger
from tests.demo.warehouse import Warehouse
from tests.reference.compare import read_table

MAJOR, MINOR = CompactionKind.MAJOR, CompactionKind.MINOR
COLUMNS = [("id", "int"), ("v", "string")]


def rows(first, count):
    return [(first + i, f"{(first + i) * 2654435761 % (1 << 32):x}" * 4) for i in range(count)]


def large(warehouse, files=2, count=5000, **how):
    """Some large files, every third row of which is deleted by several later statements."""
    table = warehouse.create_table("db", "t", COLUMNS, **how)
    for number in range(files):
        with warehouse.begin() as txn:
            txn.insert(table, rows(number * count, count))
    for rest in (0, 1, 2):
        with warehouse.begin() as txn:
            txn.delete(table, lambda row, rest=rest: row[0] % 9 == rest * 3)
    return table


def few_events(events, **limits):
    """As much memory as so many delete events need."""
    return settings(
        splice={"min_stripe_bytes": KIB},
        recode={"target_stripe_bytes": 1 << 20},
        limits={"task_memory_bytes": events * EVENT_BYTES} | limits,
    )


def until_whole(warehouse, table, kind, **how):
    """Compact part by part, as the queue would have it done; returns how many parts there were."""
    for number in range(1, 50):
        try:
            attempt, _ = compact(warehouse, table, kind, attempt=f"part{number}", **how)
        except RefusedError as error:
            if error.reason is Reason.NOT_ENOUGH:  # of what is left
                return number - 1
            raise
        parts = attempt.plan().parts
        if parts is None or parts.total == 1:
            return number
    raise AssertionError("it doesn't come to an end")


def chunks(plan):
    return [
        {segment.chunk for segment in bucket.segments if segment.chunk >= 0}
        for output in plan.outputs
        for bucket in output.buckets
    ]


def test_rows_are_recoded_in_chunks_that_fit_into_memory(warehouse):
    """More delete events than a task may hold: a chunk for each file, said in the plan; the same rows."""
    table = large(warehouse)
    whole = Attempt(warehouse, table).plan()
    attempt, _ = compact(warehouse, table, settings=few_events(2000), attempt="b")
    plan = attempt.plan()
    assert [len(found) for found in chunks(whole)] == [1]
    assert [len(found) for found in chunks(plan)] == [2]
    (said,) = plan.warnings
    assert said.startswith(
        "bucket_00000 is planned in 2 chunks instead of 1 because its 3334 delete events don't fit into the memory of one task: 2000 do"
    )


def test_delete_events_are_joined_in_passes(warehouse):
    """A minor's delete side: as many events, all of them once, whatever fits into memory at a time."""
    table = large(warehouse)
    attempt, published = compact(warehouse, table, MINOR, settings=few_events(500))
    assert any(
        "joined in 7 passes because a task may hold 500 of its 3334" in warning for warning in attempt.plan().warnings
    )
    assert len(published.directories) == 2
    compact(warehouse, table, MAJOR, attempt="b")


def test_a_stripe_that_can_not_be_divided_uses_the_disk(warehouse, monkeypatch):
    """Its events beyond memory go to temporary files; the same rows."""
    monkeypatch.setattr("compactor.engine.delete_files.FEWEST_EVENTS", 100)
    table = large(warehouse, files=1)
    attempt, _ = compact(warehouse, table, settings=few_events(100))
    assert any("a chunk that can't be divided has 1667 delete events" in warning for warning in attempt.plan().warnings)


def test_and_is_refused_where_there_is_not_enough_disk_either(warehouse):
    """One line with the figures, and nothing is written."""
    table = large(warehouse, files=1)
    attempt = Attempt(warehouse, table, settings=few_events(100, task_scratch_bytes=1000 * SPILLED_BYTES))
    before = attempt.names()
    with pytest.raises(
        RefusedError, match=r"1667 delete events; a task may hold 100 in memory .* or 1000 on disk"
    ) as caught:
        attempt.stage()
    assert caught.value.reason is Reason.LIMIT_EXCEEDED
    assert attempt.names() == before


@pytest.mark.parametrize("kind", [MAJOR, MINOR])
@pytest.mark.parametrize("deltas", [2, 3, 4, 5])
@pytest.mark.parametrize("layout", LayoutVersion)
def test_parts_by_number_of_deltas_end_where_the_whole_does(tmp_path, layout, kind, deltas):
    """
    However few deltas a part may take, after the last one there are as few directories as after the whole, with the
    same rows.
    """
    warehouse = Warehouse(tmp_path / "warehouse", MemoryLedger(layout))
    table = large(warehouse, files=6, count=40)
    before = read_table(warehouse, table)
    number = until_whole(warehouse, table, kind, settings=settings(limits={"deltas": deltas}))
    assert number > 1
    assert read_table(warehouse, table) == before
    state = Attempt(warehouse, table, kind, attempt="end", settings=settings()).compaction.observe()
    assert len(state.deltas) <= (0 if kind is MAJOR else 2)
    assert (state.base is not None) == (kind is MAJOR or layout is LayoutVersion.HIVE_3)


def test_insert_only_tables_in_parts(warehouse):
    """Whole files, too, are carried over some directories at a time."""
    table = warehouse.create_table("db", "t", COLUMNS, insert_only=True)
    for number in range(7):
        with warehouse.begin() as txn:
            txn.insert(table, rows(number * 10, 10))
    assert until_whole(warehouse, table, MAJOR, settings=settings(limits={"deltas": 3})) > 2


def room(monkeypatch, size=None, names=None):
    monkeypatch.setattr(LocalStorage, "room", lambda self, location: Room(size, names, "the file system"))


def test_chunks_that_are_small_together_are_one_task(warehouse):
    """Tasks of their own would write each stripe twice, and a second job would join them."""
    attempt = Attempt(warehouse, large(warehouse), settings=few_events(2000))
    plan = attempt.plan()
    size = sum(segment.bytes for segment in plan.outputs[0].buckets[0].segments)
    for together, counts in ((size, (1, 0)), (size - 1, (2, 1))):
        _, *found = full_acid._tasks(plan, attempt.compaction._staging.tasks, digests=True, together=together)
        assert tuple(map(len, found)) == counts


def test_without_room_for_chunks_beside_each_other_a_bucket_is_one_task(warehouse, monkeypatch):
    """What is recoded apart exists twice for a while; where that is too much, it isn't; the plan says why."""
    table = large(warehouse)
    how = few_events(2000)
    needed = Attempt(warehouse, table, settings=how).plan().bytes_needed
    room(monkeypatch, needed - 1)
    attempt, _ = compact(warehouse, table, settings=how, attempt="b")
    plan = attempt.plan()
    assert plan.one_by_one
    assert plan.warnings[-1].startswith(
        f"one task for each bucket instead of 2 chunks side by side because the result needs about {needed} bytes, {needed - 1}"
    )


def test_too_few_names_for_chunks(warehouse, monkeypatch):
    """A quota of files and directories, likewise."""
    table = large(warehouse)
    how = few_events(2000)
    needed = Attempt(warehouse, table, settings=how).plan().names_needed
    room(monkeypatch, names=needed - 1)
    attempt, _ = compact(warehouse, table, settings=how, attempt="b")
    assert attempt.plan().one_by_one


def test_without_room_for_the_base_its_deltas_are_joined(warehouse, monkeypatch):
    """
    A major that can't be written beside its inputs becomes a minor of what fits, and says that the rest must wait for
    room.
    """
    table = large(warehouse, files=3)
    compact(warehouse, table)
    for number in range(3):
        with warehouse.begin() as txn:
            txn.insert(table, rows(100_000 + number * 10, 10))
    deltas = sum(path.stat().st_size for path in table.location.glob("delta_000000[789]*/*"))
    room(monkeypatch, 2 * deltas)
    attempt, published = compact(warehouse, table, attempt="b")
    plan = attempt.plan()
    assert (plan.requested, plan.kind) == (MAJOR, MINOR)
    assert published.directories == (f"delta_0000007_0000009_v{attempt.txn:07d}",)
    assert plan.parts.wait


def test_a_limit_of_ones_own_on_what_is_written(warehouse):
    """`limits.scratch_bytes` counts where the file system would have more; the refusal names it."""
    attempt = Attempt(warehouse, large(warehouse), settings=settings(limits={"scratch_bytes": 1000}))
    before = attempt.names()
    with pytest.raises(RefusedError, match=r"limits\.scratch_bytes at .* leaves 1000") as caught:
        attempt.plan()
    assert caught.value.reason is Reason.LIMIT_EXCEEDED
    assert attempt.names() == before
