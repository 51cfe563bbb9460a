"""Refusals: what was refused for its files is not asked for again before they change, and everything else is."""

import pytest
from sqlalchemy import update

from compactor.metastore.model import Entity, QueueState
from compactor.reasons import Reason
from compactor.roles.initiator.scan_state import REPEAT_MS

T = Entity("db", "t")


@pytest.fixture
def world(any_world):
    """Hive 3.1 has neither a state nor a message for a refusal."""
    return any_world


@pytest.fixture
def due(world):
    """Eleven deltas, one of which can't be read; every look is a full one."""
    table = world.table(rows=11)
    next(table.location.glob("delta_0000003*/bucket_*")).write_bytes(b"this is no ORC file")
    world.configure(initiator={"full_scan_seconds": 0.001, "interval_seconds": 0.001})
    world.settle_time()
    return table


def test_what_was_refused_for_its_files_is_not_asked_for_again(world, due):
    """
    One refusal, however often the Initiator looks; with the reason in its metrics. A write asks again, and so do a day
    and a request by hand.
    """
    initiator, worker = world.initiator(), world.worker()
    assert initiator.run_once().sentence.startswith("full scan: queued 1 of 1")
    assert "refused: corrupt-file: " in worker.run_once().sentence
    for _ in range(3):
        assert initiator.run_once().sentence.startswith("full scan: queued 0 of 1")
    samples = world.services.metrics.registry
    assert (samples.get_sample_value("compactor_skips_total", {"reason": "corrupt-file"}) or 0) == 3
    assert world.enqueue(T).accepted
    assert "refused: corrupt-file: " in worker.run_once().sentence
    assert initiator.run_once().sentence.startswith("full scan: queued 0 of 1")
    world.insert(due, [(99, "x")])
    world.settle_time()
    assert initiator.run_once().sentence.startswith("full scan: queued 1 of 1")
    worker.run_once()
    assert initiator.run_once().sentence.startswith("full scan: queued 0 of 1")
    initiator._refusals.begin(world.services.now_ms() + REPEAT_MS)
    assert initiator.run_once().sentence.startswith("full scan: queued 1 of 1")


def test_a_property_that_can_not_be_meant_is_asked_for_again_when_it_was_mended(world):
    """One refusal until the property is another one; statistics, which Hive keeps beside it, count for nothing."""
    table = world.table(rows=11, parameters={"compactor.spark.executor.memory": "much"})
    world.configure(initiator={"full_scan_seconds": 0.001, "interval_seconds": 0.001})
    world.settle_time()
    initiator, worker, params = world.initiator(), world.worker(), world.database.schema.table_params
    assert initiator.run_once().sentence.startswith("full scan: queued 1 of 1")
    assert "refused: bad-property: " in worker.run_once().sentence
    ((number,),) = world.hive.rows(world.database.schema.tbls, "tbl_id")
    world.hive.change(params.insert().values(tbl_id=number, param_key="numRows", param_value="7"))
    for _ in range(3):
        assert initiator.run_once().sentence.startswith("full scan: queued 0 of 1")
    spark = params.c.param_key == "compactor.spark.executor.memory"
    world.hive.change(update(params).where(spark).values(param_value="1g"))
    assert initiator.run_once().sentence.startswith("full scan: queued 1 of 1")
    assert "published base_" in worker.run_once().sentence
    world.assert_rows(table)


@pytest.mark.parametrize("end", ["failed", "locked", "cancelled"])
def test_what_ended_otherwise_is_asked_for_again(world, due, end):
    """A failure (until there were too many), a refusal that passes by itself, a request that was taken back."""
    initiator, queue = world.initiator(), world.services.queue
    initiator.run_once()
    if end == "cancelled":
        queue.cancel(1, "by hand")
    else:
        entry = queue.claim("x-1", version="1")
        queue.mark_failed(entry, "corrupt-file: seen while it ran") if end == "failed" else queue.mark_refused(
            entry, "lock-not-acquired: a DROP waits"
        )
    assert initiator.run_once().sentence.startswith("full scan: queued 1 of 1")


def test_another_initiator_asks_once(world, due):
    """The memory is the process's own: after a restart it is asked once more."""
    world.initiator().run_once()
    world.services.queue.mark_refused(world.services.queue.claim("x-1", version="1"), f"{Reason.CORRUPT_FILE.value}: x")
    again = world.initiator()
    assert again.run_once().sentence.startswith("full scan: queued 1 of 1")
    world.services.queue.mark_refused(world.services.queue.claim("x-1", version="1"), f"{Reason.CORRUPT_FILE.value}: x")
    assert again.run_once().sentence.startswith("full scan: queued 0 of 1")


def test_refusals_and_cancellations_are_no_failures(world, due):
    """
    Two of each, and two failures: only these keep the table from being queued, and `history` tells one from the other.
    """
    queue, entity = world.services.queue, T
    for end in (queue.mark_refused, queue.mark_aborted):
        for _ in range(2):
            assert world.enqueue(entity).accepted
            end(queue.claim("x-1", version="1"), "open-side-file: x")
    assert queue.cancel(world.enqueue(entity).id, "by hand")
    assert [state for state, _ in world.ended()] == ["aborted", "aborted", "aborted", "refused", "refused"]
    assert queue.history(QueueState.REFUSED, limit=1)[0].error_message == "open-side-file: x"
    assert world.initiator().run_once().sentence.startswith("full scan: queued 1 of 1")
    for _ in range(2):
        queue.mark_failed(queue.claim("x-1", version="1"), "broke")
        world.enqueue(entity)
    assert queue.history(QueueState.FAILED)[0].error_message == "broke"
    queue.cancel(queue.entries()[0].id, "by hand")
    assert world.initiator().run_once().sentence.startswith("full scan: queued 0 of 1")
    assert (
        world.services.metrics.registry.get_sample_value("compactor_skips_total", {"reason": "failed-too-often"}) == 1
    )
