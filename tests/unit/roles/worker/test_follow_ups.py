"""A compaction that was too large for one: the worker queues part after part until all of it is done."""

import pytest
from structlog.testing import capture_logs

from compactor.errors import CompactorError, MutexHeldError, OutcomeUnknownError
from compactor.metastore.compaction_queue.follow_ups import FollowUp
from compactor.metastore.compaction_queue.urgency import URGENCY
from compactor.metastore.model import Entity, QueueState
from compactor.planning.document import PlanParts
from compactor.roles import steps
from compactor.roles.worker.follow_ups import FollowUps, follow_up_of
from tests.unit.roles.world import Clock


@pytest.mark.parametrize("kind", ["major", "minor"])
def test_parts_follow_each_other(any_world, kind):
    """
    Each is an entry of its own, after it was said what it was; the Cleaner comes in between or not at all; the rows
    stay.
    """
    world = any_world
    world.configure(limits={"deltas": 3})
    table = world.table(rows=8)
    before = world.rows(table)
    world.settle_time()
    assert world.enqueue(Entity("db", "t"), kind).accepted
    worker, said = world.worker(), []
    while (sentence := worker.run_once().sentence) != "nothing is queued" or world.services.queue.entries(
        QueueState.READY_FOR_CLEANING
    ):
        said.append(sentence)
        world.clean()
    assert "planned in" in said[0]
    assert "because 8 deltas are more than limits.deltas = 3; now a minor of 3 deltas, write ids 1 to 3" in said[0]
    assert world.rows(table) == before
    names = world.names(table.location)
    assert len(names) == 1
    assert names[0].startswith("base_0000008" if kind == "major" else "delta_0000001_0000008")
    assert {state for state, _ in world.ended()} == {"succeeded"}


def test_a_part_that_needs_room_waits_for_the_cleaner(world):
    """Its predecessor's inputs are still there: not before they are removed."""
    table = world.table(rows=4)
    size = sum(path.stat().st_size for path in table.location.glob("delta_*/bucket*"))
    world.configure(limits={"scratch_bytes": size * 3 // 5})
    world.settle_time()
    world.enqueue(Entity("db", "t"), "minor")
    worker = world.worker()
    assert "planned in 2 parts" in worker.run_once().sentence
    assert worker.run_once().sentence == "nothing is queued"
    world.clean()
    assert worker.run_once().sentence != "nothing is queued"
    world.assert_rows()


@pytest.mark.parametrize("queued", ["major", "minor"])
def test_what_somebody_else_queued_meanwhile(any_world, queued):
    """
    The rest isn't queued beside another entry of the same table. One that does as much is enough; after one that
    doesn't it is queued all the same.
    """
    world = any_world
    world.configure(limits={"deltas": 3})
    world.table(rows=8)
    world.settle_time()
    world.enqueue(Entity("db", "t"), "major")
    worker = world.worker()
    worker.run_once()
    world.enqueue(Entity("db", "t"), queued)
    housekeeper = world.housekeeper()
    housekeeper.run_once()
    assert [entry.kind.value for entry in world.services.queue.entries(QueueState.INITIATED)] == [queued]
    world.services.queue.cancel(2, "taken back")
    housekeeper.run_once()
    assert [entry.kind.value for entry in world.services.queue.entries(QueueState.INITIATED)] == (
        ["major"] if queued == "minor" else []
    )


@pytest.mark.parametrize("waits", [False, True])
def test_the_rest_outlives_its_worker(any_world, waits):
    """
    It died right after the commit of the first part: whoever keeps house queues the rest, as it was asked for, once;
    where it needs room not before the Cleaner came.
    """
    world = any_world
    table = world.table(rows=8)
    size = sum(path.stat().st_size for path in table.location.glob("delta_*/bucket*"))
    pool = "etl" if world.services.layout == "hive-4" else None
    world.configure(limits={"scratch_bytes": size * 3 // 5} if waits else {"deltas": 3}, worker={"pool": pool})
    world.settle_time()
    world.enqueue(
        Entity("db", "t"), "minor", properties={"orc.compress": "ZLIB"}, pool=pool, initiator_id="edge1-manual"
    )

    def dies():
        raise KeyboardInterrupt

    world.at_step[steps.WORKER_COMMITTED] = dies
    with pytest.raises(KeyboardInterrupt):
        world.worker().run_once()
    world.at_step.clear()
    assert world.states() == ["ready for cleaning"]
    if waits:
        assert "parts" not in world.housekeeper().run_once().sentence
        world.clean()
    housekeepers = [world.housekeeper(), world.housekeeper()]
    assert "queued what follows 1 part" in housekeepers[0].run_once().sentence
    (rest,) = world.services.queue.entries(QueueState.INITIATED)
    assert (rest.kind.value, dict(rest.properties), rest.initiator_id) == (
        "minor",
        {"orc.compress": "ZLIB"} | ({} if pool else {URGENCY: "4"}),
        "edge1-manual" if pool else None,
    )
    assert rest.pool == pool
    world.services.queue.cancel(rest.id, "not wanted")
    for housekeeper in housekeepers:
        housekeeper.run_once()
    assert world.services.queue.entries(QueueState.INITIATED) == []
    world.assert_rows()


def test_the_rest_of_a_part_whose_commit_was_not_answered(world, monkeypatch):
    """It turns out that it happened: what follows it is queued as after any other."""
    world.configure(limits={"deltas": 3})
    world.table(rows=8)
    queue = world.services.queue
    commit = queue.mark_compacted_and_commit

    def unanswered(*arguments, **more):
        commit(*arguments, **more)
        raise OutcomeUnknownError("the connection was lost while committing")

    world.settle_time()
    world.enqueue(Entity("db", "t"), "major")
    worker = world.worker()
    with monkeypatch.context() as patched:
        patched.setattr(queue, "mark_compacted_and_commit", unanswered, raising=False)
        assert worker.run_once().sentence.endswith("committed, though no answer came")
    assert "published" in worker.run_once().sentence
    world.assert_rows()


def test_properties_that_leave_no_room_for_the_note(world):
    """The part is committed all the same; the rest is left to whoever looks at the table next."""
    world.configure(limits={"deltas": 3})
    world.table(rows=8)
    world.settle_time()
    world.enqueue(Entity("db", "t"), "major", properties={"a": "x" * 2030})
    worker = world.worker()
    assert "now a minor of 3 deltas" in worker.run_once().sentence
    assert worker.run_once().sentence == "nothing is queued"
    world.assert_rows()


def test_a_rest_that_can_never_be_queued_is_told_once(world, monkeypatch):
    """A right that is missing doesn't pass by itself; that somebody else is at the mutex does, and is no news."""
    why = [MutexHeldError("another process"), CompactorError("permission denied"), CompactorError("permission denied")]

    def refuse(_entry_id):
        raise why.pop(0)

    monkeypatch.setattr(world.services.queue.follow_ups, "ask", refuse)
    continuing = FollowUps(world.services.queue)
    continuing.remember(1)
    with capture_logs() as lines:
        while why:
            assert continuing.go_on() == []
    assert [line["log_level"] for line in lines] == ["debug", "warning", "debug"]


def test_a_rest_that_waits_for_the_cleaner_holds_nobody_up(world, monkeypatch):
    """
    On Hive 4 a part that reaches the newest write id stands in the way of its own rest until it is cleaned: asked
    often, without the scheduler's mutex, and told once.
    """
    world.configure(limits={"deltas": 3})
    world.table(rows=8)
    world.settle_time()
    world.enqueue(Entity("db", "t"), "major")
    worker = world.worker()
    while worker.run_once().sentence != "nothing is queued":
        pass
    (part,) = (entry for entry in world.services.queue.follow_ups.noted(history=True))
    taken, mutex = [], world.services.database.mutex

    def noting(name, *arguments, **more):
        taken.append(name)
        return mutex(name, *arguments, **more)

    monkeypatch.setattr(world.services.database, "mutex", noting)
    continuing = FollowUps(world.services.queue)
    continuing.remember(part.id)
    with capture_logs() as lines:
        for _ in range(3):
            assert continuing.go_on() == []
    assert taken == []
    ((event, why),) = ((line["event"], line["why"]) for line in lines)
    assert event == "follow_up.postponed"
    assert f"compaction {part.id} is ready for cleaning" in why
    while world.services.queue.entries(QueueState.READY_FOR_CLEANING):
        world.clean()
    assert len(continuing.go_on()) == 1


def test_house_is_kept_though_rests_cannot_be_looked_for(world, monkeypatch):
    """That the history can't be read is said, once, and duties are done; once more when it could be read in between."""
    why = ["statement timeout", "statement timeout", "", "statement timeout"]

    def refuse(**_):
        if sentence := why.pop(0):
            raise CompactorError(sentence)
        return []

    monkeypatch.setattr(world.services.queue.follow_ups, "noted", refuse)
    housekeeper = world.housekeeper()
    with capture_logs() as lines:
        while why:
            housekeeper.run_once()
    levels = [line["log_level"] for line in lines if line.get("error") == "statement timeout"]
    assert levels == ["warning", "debug", "warning"]


def test_nobody_asks_for_a_rest(world):
    """The note is a commit's alone: a request that carries it loses it."""
    world.table(rows=4)
    world.enqueue(Entity("db", "t"), "major", properties={"compactor.follow-up": "now", "orc.compress": "ZSTD"})
    (entry,) = world.services.queue.entries()
    assert dict(entry.properties) == {"orc.compress": "ZSTD"}
    assert world.services.queue.follow_ups.noted(history=True) == []


def test_the_history_is_looked_through_now_and_then(world):
    """What was cleaned before anybody saw it wait is found at the first look, or ten minutes later at most."""
    table = world.table(rows=8)
    size = sum(path.stat().st_size for path in table.location.glob("delta_*/bucket*"))
    world.configure(limits={"scratch_bytes": size * 3 // 5})
    clock = Clock()
    continuing = FollowUps(world.services.queue, clock)
    continuing.find()
    world.settle_time()
    world.enqueue(Entity("db", "t"), "minor")
    world.worker().run_once()
    world.clean()
    continuing.find()
    assert continuing.go_on() == []
    clock.forward(600)
    continuing.find()
    assert len(continuing.go_on()) == 1


def test_what_a_part_left_below_is_found_after_a_restart(any_world):
    """The Cleaner forgets no commits of it: whoever starts anew looks there; when all is joined they are forgotten."""
    world = any_world
    table = world.table(rows=0)
    for number in range(8):
        world.insert(
            table, [(number, f"{row * 2654435761 % (1 << 32):x}" * 9) for row in range(300 if number < 2 else 1)]
        )
    world.configure(limits={"scratch_bytes": 6000})
    world.settle_time()
    world.enqueue(Entity("db", "t"), "minor")
    assert "now a minor of 6 deltas, write ids 3 to 8" in world.worker().run_once().sentence
    world.clean()
    assert [candidate.entity for candidate in world.services.initiating.candidates()] == [Entity("db", "t")]
    world.configure()
    world.compact(table, "minor")
    world.clean()
    assert [name[:21] for name in world.names(table.location)] == ["delta_0000001_0000008"]
    assert world.services.initiating.candidates() == []
    world.assert_rows()


@pytest.mark.parametrize("kind", ["major", "minor"])
def test_a_rest_that_was_left_to_an_entry_that_failed_is_found_again(any_world, kind):
    """Its note is struck out by then; what the parts didn't reach the Initiator knows from its commits."""
    world = any_world
    world.configure(limits={"deltas": 3})
    world.table(rows=8)
    world.settle_time()
    world.enqueue(Entity("db", "t"), kind)
    worker = world.worker()
    assert "now a minor of 3 deltas" in worker.run_once().sentence
    world.enqueue(Entity("db", "t"), "major")
    world.housekeeper().run_once()
    assert world.services.queue.follow_ups.noted(history=True) == []
    (stand_in,) = world.services.queue.entries(QueueState.INITIATED)
    world.services.queue.mark_failed(world.services.queue.claim("somebody", "1"), "broke")
    world.clean()
    world.housekeeper().run_once()
    assert world.services.queue.entries() == []
    assert world.services.queue.entry(stand_in.id).state is QueueState.FAILED
    assert [candidate.entity for candidate in world.services.initiating.candidates()] == [Entity("db", "t")]


def test_a_later_part_takes_nothing_from_readers_of_the_one_before(any_world):
    """
    Hive 3.1's names don't tell which compaction made a directory: when the earlier part is cleaned, the later one's
    inputs would look as obsolete as its own. There the later part, which ends at the same id, waits for that.
    """
    world = any_world
    world.configure(limits={"deltas": 5})
    table = world.table(rows=0)
    for number in range(8):
        world.insert(table, [(row, "v") for row in range(300 if number < 3 else 1)])
    before = world.hive.begin(age=0)
    world.settle_time()
    world.enqueue(Entity("db", "t"), "minor")
    worker = world.worker()
    assert "write ids 4 to 8" in worker.run_once().sentence
    cleaner = world.cleaner()
    assert "1 wait" in cleaner.run_once().sentence
    reader = world.hive.begin(age=0)
    read = {
        name
        for name in world.names(table.location)
        if name < "delta_0000004" or name.startswith("delta_0000004_0000008")
    }
    for _ in range(6):
        worker.run_once()
    world.hive.commit(before)
    for _ in range(3):
        world.settle_time()
        cleaner.run_once()
    assert read <= set(world.names(table.location))
    world.hive.commit(reader)
    while worker.run_once().sentence != "nothing is queued" or world.services.queue.entries():
        world.settle_time()
        world.clock.forward(3600)
        cleaner.run_once()
    assert [name[:21] for name in world.names(table.location)] == ["delta_0000001_0000008"]
    world.assert_rows()


@pytest.mark.parametrize(
    ("parts", "noted"),
    [
        (None, None),
        (PlanParts(1, "why", wait=False), None),
        (PlanParts(1, "why", wait=True), None),
        (PlanParts(2, "why", wait=False), FollowUp.NOW),
        (PlanParts(2, "why", wait=True), FollowUp.WHEN_CLEANED),
    ],
)
def test_what_is_noted(parts, noted):
    """Where no more than a part can be planned, another entry would only be refused."""
    assert follow_up_of(parts) is noted
