"""
Initiator: what is due is queued, once, with the most urgent first; what isn't has a reason; a bad table stops nobody.
"""

from types import SimpleNamespace

import pytest
from sqlalchemy import insert
from structlog.testing import capture_logs

from compactor.errors import RefusedError, UnreachableError
from compactor.metastore.compaction_queue.urgency import urgency_of
from compactor.metastore.model import Entity, QueueState
from compactor.reasons import Reason
from compactor.roles import eligibility, replication

T = Entity("db", "t")


def skips(world):
    samples = {}
    for family in world.services.metrics.registry.collect():
        if family.name == "compactor_skips":
            samples = {
                sample.labels["reason"]: sample.value
                for sample in family.samples
                if sample.name.endswith("_total") and sample.value
            }
    return samples


def test_a_table_with_many_deltas_is_queued(any_world):
    """Eleven deltas and no base: a major; a sentence, a row in the queue, and the reason in the metrics say so."""
    world = any_world
    world.table(rows=11)
    world.settle_time()
    assert world.initiator().run_once().sentence == "full scan: queued 1 of 1 candidates, 1 listed"
    (entry,) = world.services.queue.entries()
    assert (entry.entity, entry.state, entry.kind.value) == (T, QueueState.INITIATED, "major")
    assert (
        world.services.metrics.registry.get_sample_value(
            "compactor_picks_total", {"kind": "major", "reason": "delta-count"}
        )
        == 1
    )
    assert world.services.metrics.registry.get_sample_value("compactor_partitions_scanned_total") == 1


def test_nothing_is_queued_twice(world):
    """While an entry waits or is worked on, its partition is skipped, and looked at again in the next cycle."""
    world.table(rows=11)
    world.settle_time()
    initiator = world.initiator()
    initiator.run_once()
    assert initiator.run_once().sentence == "queued 0 of 1 candidates, 0 listed"
    assert skips(world) == {"already-queued": 1}
    assert len(world.services.queue.entries()) == 1


def test_below_the_thresholds_nothing_happens(world):
    """Ten deltas are not more than ten."""
    world.table(rows=10)
    world.settle_time()
    assert world.initiator().run_once().sentence == "full scan: queued 0 of 1 candidates, 1 listed"
    assert skips(world) == {"below-thresholds": 1}


def test_what_did_not_change_is_not_listed_again(world):
    """A second look at an unchanged partition needs no listing; a new write does."""
    table = world.table(rows=3)
    world.settle_time()
    world.configure(initiator={"full_scan_seconds": 0.001, "interval_seconds": 0.001})
    initiator = world.initiator()
    assert initiator.run_once().sentence.endswith("1 listed")
    assert initiator.run_once().sentence == "full scan: queued 0 of 1 candidates, 0 listed"
    world.insert(table, [(99, "x")])
    world.settle_time()
    assert initiator.run_once().sentence.endswith("1 listed")


def test_a_changed_threshold_is_noticed(world):
    """Lowering a table's property makes an unchanged partition due."""
    table = world.table(rows=3)
    world.settle_time()
    world.configure(initiator={"full_scan_seconds": 0.001, "interval_seconds": 0.001})
    initiator = world.initiator()
    initiator.run_once()
    world.warehouse.set_parameters(table, {"compactorthreshold.hive.compactor.delta.num.threshold": "2"})
    assert initiator.run_once().sentence == "full scan: queued 1 of 1 candidates, 1 listed"


def test_changed_settings_are_applied_in_the_next_cycle(world):
    """
    Settings that a running daemon takes over count at once, also for partitions that were left alone: nobody waits for
    the next full scan.
    """
    world.table(rows=3)
    world.settle_time()
    initiator = world.initiator()
    assert initiator.run_once().sentence == "full scan: queued 0 of 1 candidates, 1 listed"
    assert initiator.run_once().sentence == "queued 0 of 0 candidates, 0 listed"
    world.configure(initiator={"thresholds": {"delta_count": 2}})
    assert initiator.run_once().sentence == "full scan: queued 1 of 1 candidates, 1 listed"
    world.configure(initiator={"thresholds": {"delta_count": 2}, "interval_seconds": 7})
    assert not initiator.run_once().sentence.startswith("full scan")


def test_a_refusal_is_asked_anew_after_other_settings(world):
    """What a limit refused is requested again when the limit was raised, and only then."""
    world.table(rows=6)
    world.settle_time()
    few = {"thresholds": {"delta_count": 2}, "full_scan_seconds": 0.001, "interval_seconds": 0.001}
    world.configure(initiator=few, limits={"scratch_bytes": 1})
    initiator = world.initiator()
    assert initiator.run_once().sentence == "full scan: queued 1 of 1 candidates, 1 listed"
    world.worker().run_once()
    (entry,) = world.services.queue.history()
    assert entry.error_message.startswith("limit-exceeded: ")
    assert initiator.run_once().sentence.startswith("full scan: queued 0 of 1 candidates")
    world.configure(initiator=few)
    assert initiator.run_once().sentence == "full scan: queued 1 of 1 candidates, 1 listed"


def test_a_partition_that_was_moved_is_listed_again(world):
    """Another location in the catalog is a change, with no write at all."""
    table = world.table(rows=0, partition_keys=[("p", "int")])
    for partition in ("1", "2"):
        world.insert(table, [(1, "x")], (partition,))
    world.settle_time()
    world.configure(initiator={"full_scan_seconds": 0.001, "interval_seconds": 0.001})
    initiator = world.initiator()
    assert initiator.run_once().sentence == "full scan: queued 0 of 2 candidates, 2 listed"
    sds = world.database.schema.sds
    moved = table.location.parent / "elsewhere"
    (table.location / "p=1").rename(moved)
    world.hive.change(sds.update().where(sds.c.location.like("%/p=1")).values(location=f"file:{moved}"))
    assert initiator.run_once().sentence == "full scan: queued 0 of 2 candidates, 1 listed"


def test_many_candidates_are_judged_batch_by_batch(world, monkeypatch):
    """
    The size of a batch changes nothing: the most urgent of all is queued first, everything else is remembered, and one
    that is gone stops nobody.
    """
    monkeypatch.setattr("compactor.roles.initiator.initiator._AT_ONCE", 1)
    world.table("more", rows=12)
    world.table("most", rows=40)
    world.table("quiet", rows=2)
    txn = world.hive.begin()
    world.hive.touch(txn, "db.gone")
    world.hive.commit(txn)
    world.settle_time()
    world.configure(initiator={"full_scan_seconds": 0.001, "interval_seconds": 0.001})
    initiator = world.initiator()
    assert initiator.run_once().sentence == "full scan: queued 2 of 4 candidates, 3 listed"
    assert [entry.entity.table for entry in world.services.queue.entries()] == ["most", "more"]
    assert initiator.run_once().sentence == "full scan: queued 0 of 4 candidates, 0 listed"
    assert skips(world) == {"below-thresholds": 2, "already-queued": 2, "table-missing": 2}


def test_between_full_scans_only_new_writes_are_candidates(world):
    """An incremental look doesn't see what was written long before the last one."""
    world.table("old", rows=3)
    world.settle_time()
    initiator = world.initiator()
    assert "of 1 candidates" in initiator.run_once().sentence
    world.table("new", rows=3)
    assert initiator.run_once().sentence == "queued 0 of 1 candidates, 1 listed"


def test_a_table_that_is_only_inserted_into_itself_is_queued(any_world):
    """
    No component of such an INSERT is ever noted: its write ids tell, again and again until its directories were listed
    and judged.
    """
    world = any_world
    table = world.table(rows=3)
    world.settle_time()
    initiator = world.initiator()
    initiator.run_once()
    world.insert_into_itself(table, 9)
    assert initiator.run_once().sentence == "queued 1 of 1 candidates, 1 listed"
    assert initiator.run_once().sentence == "queued 0 of 1 candidates, 0 listed"
    assert ": published base_" in world.worker().run_once().sentence
    assert initiator.run_once().sentence == "queued 0 of 1 candidates, 1 listed"
    assert initiator.run_once().sentence == "queued 0 of 0 candidates, 0 listed"


def test_an_insert_into_itself_is_seen_behind_commits_that_are_known(world):
    """Commits of before, listed and left alone, are met again by a full scan: they don't hide the new write."""
    table = world.table(rows=3)
    world.settle_time()
    world.configure(initiator={"full_scan_seconds": 0.001, "interval_seconds": 0.001})
    initiator = world.initiator()
    assert initiator.run_once().sentence.endswith("1 listed")
    assert initiator.run_once().sentence.endswith("0 listed")
    world.insert_into_itself(table, 9)
    assert initiator.run_once().sentence == "full scan: queued 1 of 1 candidates, 1 listed"


def test_what_a_cycle_that_failed_had_found_is_found_again(world, monkeypatch):
    """It looked, and broke before anything was queued: the next one looks from where the last whole one did."""
    world.table("old", rows=3)
    world.settle_time()
    initiator = world.initiator()
    initiator.run_once()
    world.table("new", rows=12)
    world.settle_time()

    def lost(*_):
        raise UnreachableError("the metastore is away")

    with monkeypatch.context() as patched:
        patched.setattr(initiator, "_enqueue", lost)
        with pytest.raises(UnreachableError):
            initiator.run_once()
    world.settle_time()
    assert initiator.run_once().sentence.startswith("queued 1 of 1 candidates")


@pytest.mark.parametrize(
    ("parameters", "options", "reason"),
    [
        ({"no_auto_compaction": "true"}, {}, "auto-compaction-off"),
        ({"NO_AUTO_COMPACTION": "TRUE"}, {}, "auto-compaction-off"),
        ({"hive.repl.first.inc.pending": "true"}, {}, "replication-pending"),
    ],
)
def test_properties_keep_the_initiator_away(world, parameters, options, reason):
    """Without a look at the directory, and with the reason counted."""
    world.table(rows=11, parameters=parameters, **options)
    world.settle_time()
    assert world.initiator().run_once().sentence == "full scan: queued 0 of 1 candidates, 0 listed"
    assert skips(world) == {reason: 1}


def test_a_sorted_table_is_skipped(world):
    """It would only be refused by the Worker, again and again."""
    table = world.table(rows=11)
    schema = world.database.schema
    facts = world.services.catalog.find_table("db", "t")
    assert facts is not None
    sd_id = world.hive.rows(schema.tbls, "sd_id", where=schema.tbls.c.tbl_id == facts.tbl_id)[0][0]
    world.hive.change(insert(schema.sort_cols).values(sd_id=sd_id, column_name="id", order=1, integer_idx=0))
    world.settle_time()
    world.initiator().run_once()
    assert skips(world) == {"sorted-table": 1}
    assert table.location.exists()


def test_a_table_that_is_gone_is_skipped(world):
    """Rows of a dropped table that nobody cleaned up: no error, no row in the history."""
    txn = world.hive.begin()
    world.hive.touch(txn, "db.gone")
    world.hive.commit(txn)
    world.settle_time()
    world.initiator().run_once()
    assert skips(world) == {"table-missing": 1}
    assert world.ended() == []


def test_a_partitioned_table_is_judged_by_partition(world):
    """Only the partition that is due is queued."""
    table = world.table(rows=0, partition_keys=[("p", "int")])
    for number in range(11):
        world.insert(table, [(number, "x")], ("1",))
    world.insert(table, [(1, "x")], ("2",))
    world.settle_time()
    world.initiator().run_once()
    assert [entry.entity for entry in world.services.queue.entries()] == [Entity("db", "t", "p=1")]


def test_a_bad_table_does_not_stop_the_others(world):
    """A directory that nobody can explain: recorded as not initiated, once, while the other table is queued."""
    bad = world.table("bad", rows=11)
    world.table("good", rows=11)
    (bad.location / "delta_what").mkdir()
    (bad.location / "delta_what" / "x").write_bytes(b"x")
    world.settle_time()
    initiator = world.initiator()
    assert initiator.run_once().sentence == "full scan: queued 1 of 2 candidates, 2 listed"
    assert [entry.entity.table for entry in world.services.queue.entries()] == ["good"]
    ((state, message),) = world.ended()
    assert state == "did not initiate"
    assert message is not None
    assert message.startswith("unknown-name: directory 'delta_what'")
    initiator.run_once()
    assert len(world.ended()) == 1


def test_a_bad_property_is_an_error_of_its_table(world):
    """A threshold that is no number: the row in the history names the property."""
    world.table(rows=11, parameters={"compactorthreshold.hive.compactor.delta.num.threshold": "many"})
    world.settle_time()
    assert (
        world.initiator().run_once().sentence == "full scan: queued 0 of 1 candidates, 1 listed, 1 could not be judged"
    )
    assert "compactorthreshold.hive.compactor.delta.num.threshold is 'many'" in (world.ended()[0][1] or "")
    assert "UsageError" not in (world.ended()[0][1] or "")


def test_hdfs_is_asked_of_a_source_of_replication_when_it_is_due(world, monkeypatch):
    """
    Whether files can be handed to change management isn't asked of what stays as it is; where it can't be asked,
    nothing is queued, and the next cycle asks again.
    """
    asked = []

    def require(location):
        asked.append(location)
        if len(asked) == 1:
            raise UnreachableError("Hive's change management: no answer")
        if len(asked) == 2:
            raise RefusedError(Reason.REPLICATION_SOURCE, "the root isn't there")

    monkeypatch.setattr(replication, "why_not_recycled", lambda _: None)
    monkeypatch.setattr(eligibility, "change_management", lambda: SimpleNamespace(require=require))
    world.warehouse.create_database("db", {"repl.source.for": "policy"})
    due = world.table("due", rows=12)
    world.table("small", rows=1)
    world.table("other", rows=12, database="elsewhere")
    world.settle_time()
    initiator = world.initiator()
    assert (
        initiator.run_once().sentence
        == "full scan: queued 1 of 3 candidates, 3 listed, 1 could not be judged (Hive's change management: no answer)"
    )
    assert initiator.run_once().sentence.startswith("queued 0 of ")
    assert world.ended() == [("did not initiate", "replication-source: the root isn't there")]
    assert initiator.run_once().sentence.startswith("queued 1 of ")
    assert [location.removeprefix("file:") for location in asked] == [str(due.location)] * 3


def test_a_missing_directory_is_an_error_of_its_table(world):
    """A table whose directory is gone: recorded, not fatal."""
    table = world.table(rows=1)
    table.location.rename(table.location.with_name("elsewhere"))
    world.settle_time()
    world.initiator().run_once()
    assert len(world.ended()) == 1


def test_what_failed_too_often_is_left_alone(world):
    """Two failures in a row: recorded, and not queued."""
    world.table(rows=11)
    for _ in range(2):
        world.enqueue(T)
        entry = world.services.queue.claim("w-1", "1")
        assert entry is not None
        world.services.queue.mark_failed(entry, "broken")
    world.settle_time()
    world.initiator().run_once()
    assert skips(world) == {"failed-too-often": 1}
    assert world.services.queue.entries() == []
    assert world.ended()[0] == ("did not initiate", "failed-too-often: the last 2 compactions failed")


def test_the_most_urgent_is_queued_first(world):
    """The queue is worked on in the order of its ids: the higher score gets the lower one."""
    wide = world.table("wide", rows=0)
    for number in range(40):
        world.insert(wide, [(number, "x")])
    world.table("narrow", rows=11)
    world.settle_time()
    world.initiator().run_once()
    first, second = world.services.queue.entries()
    assert (first.entity.table, second.entity.table) == ("wide", "narrow")


def test_what_passes_its_threshold_farther_is_claimed_first(world):
    """Though it was queued by a later cycle: 80 deltas are eight times the threshold, 11 hardly more than it."""
    world.table("early", rows=11)
    world.settle_time()
    world.initiator().run_once()
    late = world.table("late", rows=0)
    for number in range(80):
        world.insert(late, [(number, "x")])
    world.settle_time()
    world.initiator().run_once()
    entries = world.services.queue.entries()
    assert [(entry.entity.table, urgency_of(entry)) for entry in entries] == [("early", 0), ("late", 3)]
    assert world.services.queue.claim("w-1", "1").entity.table == "late"


def test_the_pool_comes_from_the_table(world):
    """hive.compactor.worker.pool decides who works on it."""
    world.table(rows=11, parameters={"hive.compactor.worker.pool": "night"})
    world.settle_time()
    world.initiator().run_once()
    assert [entry.pool for entry in world.services.queue.entries()] == ["night"]


def test_a_pool_that_is_too_long_holds_up_no_other_table(world):
    """The queue keeps as much of its name as fits; `enqueue --pool` refuses such a name."""
    world.table("long", rows=11, parameters={"hive.compactor.worker.pool": "x" * 200})
    world.table("other", rows=11)
    world.settle_time()
    world.initiator().run_once()
    assert {entry.entity.table: entry.pool for entry in world.services.queue.entries()} == {
        "long": "x" * 128,
        "other": None,
    }


def test_a_timed_out_claim_is_given_back(world):
    """What a worker of another machine claimed a day ago is free again."""
    now = world.services.now_ms()
    world.hive.queued("db.t", state="w", worker_id="compactor-there-" + "0" * 32 + "-1", start=now - 25 * 3_600_000)
    world.hive.queued("db.u", state="w", worker_id="compactor-there-" + "0" * 32 + "-1", start=now - 3_600_000)
    assert world.initiator().run_once().sentence.endswith("1 timed-out claim given back")
    assert world.states() == ["initiated", "working"]


def test_the_last_cycle_is_stored_for_hive(world):
    """AUX_TABLE carries the start of the last completed cycle, where Hive's own Initiator looks for it."""
    before = world.services.now_ms()
    world.initiator().run_once()
    assert (world.services.initiating.last_cycle_ms() or 0) >= before


@pytest.mark.parametrize(("kind", "told"), [(0, True), (2, False)])
def test_a_query_that_has_been_open_for_days_is_no_writer(world, kind, told):
    """What a fresh writer holds back doesn't wait for a transaction that only reads: nobody is warned of that one."""
    table = world.table(rows=2)
    world.hive.begin(age=3 * 86_400_000, kind=kind)
    with world.warehouse.begin() as txn:
        txn.insert(table, [(9, "x")], None)
        world.settle_time()
        with capture_logs() as lines:
            world.initiator().run_once()
    assert any("a writer has been open for 72 h" in line.get("why", "") for line in lines) is told
