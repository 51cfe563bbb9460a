"""
A stream that readers pass over since it was rolled back beside Hive's own base: nothing is compacted there, and whoever
should know is told.
"""

from structlog.testing import capture_logs


def stranded(world):
    """
    Hive named its base after the watermark, 3, though the stream 3-4 isn't in it; then 4 was rolled back. Writers went
    on.
    """
    table = world.table(rows=2)
    world.compact(table)
    world.clean()
    batch = world.warehouse.stream(table, [[(10, "only here")], [(11, "ABORTED")]])
    batch.finish(0, commit=True)
    batch.finish(1, commit=False)
    batch.close()
    (base,) = table.location.glob("base_*")
    base.rename(base.with_name(base.name.replace("base_0000002", "base_0000003")))
    for number in range(4):
        world.insert(table, [(20 + number, "later")])
    world.settle_time()
    return table


def warnings(lines):
    return [line for line in lines if line["log_level"] == "warning"]


def test_it_is_told_once(any_world):
    """
    By the Initiator's log once, by its metrics each time, and to whoever asks by hand in the same words; nothing is
    removed.
    """
    world = any_world
    table = stranded(world)
    world.configure(initiator={"full_scan_seconds": 0.001, "interval_seconds": 0.001, "thresholds": {"delta_count": 2}})
    initiator = world.initiator()
    with capture_logs() as lines:
        for _ in range(3):
            assert "queued 0 of 1" in initiator.run_once().sentence
    (told,) = warnings(lines)
    assert told["event"] == "candidate.flagged"
    assert told["why"].startswith("delta_0000003_0000004 lies across base_0000003")
    assert "what was committed in write id 3 can't be read unless base_0000003" in told["why"]
    assert (told["db"], told["table"]) == ("db", "t")
    assert world.services.metrics.registry.get_sample_value("compactor_skips_total", {"reason": "stranded-stream"}) == 3
    assert f": refused: stranded-stream: db.t: {told['why']}" in world.compact(table)
    assert "delta_0000003_0000004" in world.names(table.location)
    assert "base_0000003" in " ".join(world.names(table.location))


def test_when_it_is_settled_compaction_goes_on(world):
    """Somebody moved the stream away; and a second one, later, is told again."""
    table = stranded(world)
    world.configure(initiator={"full_scan_seconds": 0.001, "interval_seconds": 0.001, "thresholds": {"delta_count": 2}})
    initiator = world.initiator()
    with capture_logs() as lines:
        initiator.run_once()
        (table.location / "delta_0000003_0000004").rename(world.folder / "aside")
        assert "queued 1 of 1" in initiator.run_once().sentence
        world.services.queue.cancel(world.services.queue.entries()[0].id, "not yet")
        (world.folder / "aside").rename(table.location / "delta_0000003_0000004")
        assert "queued 0 of 1" in initiator.run_once().sentence
    assert len(warnings(lines)) == 2
