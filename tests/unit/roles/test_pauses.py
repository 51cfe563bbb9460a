"""What is paused, drained or over its budget: who waits, who goes on, and that nothing is lost or left behind."""

import pytest

from compactor.control import Pause, Scope
from compactor.control.records import HOLDS, SPENT, Drain, with_drain, with_pause, without_pauses
from compactor.coordination import Alone
from compactor.daemon.queue_metrics import QueueMetrics
from compactor.errors import UnreachableError
from compactor.metastore.model import Entity
from compactor.roles import steps
from compactor.roles.cycle import Cycle
from compactor.roles.pauses import Pauses
from compactor.roles.worker.worker import IDLE


def pause(world, scope="all", **options):
    made = Pause(Scope.parse(scope), "why", "ann", 0, **options)
    world.services.coordinator.update(HOLDS, lambda data: with_pause(data, made, 0))
    world.services.control.judge(fresh=True)


def resume(world, scope="all"):
    world.services.coordinator.update(HOLDS, lambda data: without_pauses(data, frozenset({scope}), 0))
    world.services.control.judge(fresh=True)


def value(world, name, **labels):
    return world.services.metrics.registry.get_sample_value(f"compactor_{name}", labels)


def leftovers(table):
    return [path.name for path in table.location.iterdir() if path.name.startswith(".")]


@pytest.fixture
def tables(any_world):
    """Two tables with four deltas each, asked to be compacted; on each kind of metastore."""
    made = [any_world.table(name, rows=4, insert_only=True) for name in ("t", "u")]
    any_world.settle_time()
    for table in made:
        assert any_world.enqueue(Entity("db", table.name)).accepted
    return any_world, *made


def test_a_paused_table_waits_while_others_run(tables):
    """The next that may is taken; then the sentence says who paused what, and why; resumed, it goes."""
    world, _, _ = tables
    pause(world, "table:db.t")
    assert "of db.u: published" in world.worker().run_once().sentence
    waits = "waiting: db.t: table db.t is paused by ann until it is resumed: why"
    assert world.worker().run_once() == Cycle.held(waits)
    assert sorted(world.states()) == ["initiated", "ready for cleaning"]
    resume(world, "table:db.t")
    assert "of db.t: published" in world.worker().run_once().sentence
    assert world.worker().run_once() == IDLE


def test_everything_paused_nothing_is_asked(tables):
    """The queue isn't even looked at."""
    world, _, _ = tables
    pause(world)
    assert world.worker().run_once().sentence == "waiting: everything is paused by ann until it is resumed: why"
    assert world.states() == ["initiated", "initiated"]


def test_a_pause_between_look_and_claim_gives_the_entry_back(tables):
    """Nothing was listed, opened or staged; the entry is as it was, and waits."""
    world, table, _ = tables
    world.at_step[steps.WORKER_CLAIMED] = lambda: pause(world)
    assert "given back: paused: everything is paused by ann" in world.worker().run_once().sentence
    assert world.states() == ["initiated", "initiated"]
    assert world.passed == [steps.WORKER_CLAIMED]
    assert [entry.worker_id for entry in world.services.queue.entries()] == [None, None]
    assert leftovers(table) == []
    assert world.ended() == []
    assert world.worker().run_once().sentence.startswith("waiting: everything is paused")


def test_running_ones_are_finished(tables):
    """A pause without the wish to cancel stops nobody who has begun."""
    world, table, _ = tables
    worker = world.worker()

    def late():
        pause(world)
        Pauses(world.services, [worker.hold], lambda: None).run_once()

    world.at_step[steps.WORKER_PLANNED] = late
    assert "of db.t: published" in worker.run_once().sentence
    world.settle_time()
    world.assert_rows(table)


@pytest.mark.parametrize(
    "step", [steps.WORKER_LOCKED, steps.WORKER_STATE_STORED, steps.WORKER_STAGED, steps.WORKER_VERIFIED]
)
def test_cancelled_by_a_pause_it_goes_back_into_the_queue(tables, step):
    """
    Undone and given back; no row, file, lock or transaction of it is left; resumed, it is compacted. Others go on.
    """
    world, table, _ = tables
    worker = world.worker()

    def now():
        world.at_step.clear()
        pause(world, "table:db.t", cancel=True)
        Pauses(world.services, [worker.hold], lambda: None).run_once()

    world.at_step[step] = now
    assert "of db.t: given back: paused: table db.t is paused" in worker.run_once().sentence
    assert world.states() == ["initiated", "initiated"]
    assert leftovers(table) == []
    assert world.services.locks.all() == []
    assert "of db.u: published" in worker.run_once().sentence
    resume(world, "table:db.t")
    assert "of db.t: published" in worker.run_once().sentence
    world.settle_time()
    world.assert_rows(table)


def test_metrics_tell_since_when_somebody_holds_it(world):
    """By which a forgotten pause or drain is found; a pause that ends by itself isn't forgotten."""
    holding = Pauses(world.services, [], lambda: None)
    holding.run_once()
    assert value(world, "drained_since_timestamp_seconds") == 0
    pause(world, "pool:etl")
    pause(world, "table:db.t", until_ms=world.services.now_ms() + 3_600_000)
    world.services.coordinator.update(HOLDS, lambda data: with_drain(data, Drain("here", "", "ann", 9_000)))
    holding.run_once()
    assert value(world, "paused", scope="table:db.t") == value(world, "paused", scope="pool:etl") == 1
    assert value(world, "paused_since_timestamp_seconds", scope="pool:etl") is not None
    assert value(world, "paused_since_timestamp_seconds", scope="table:db.t") is None
    assert value(world, "drained_since_timestamp_seconds") == 9


def test_a_clock_that_cannot_be_asked_is_as_good_as_control_state_that_cannot(world, monkeypatch):
    """Whether a pause is over can't be told without it: nothing is claimed, and the metric says so."""
    pause(world, "table:db.t", until_ms=world.services.now_ms() + 3_600_000)
    holding = Pauses(world.services, [], lambda: None)
    holding.run_once()
    assert value(world, "control_known") == 1

    def away():
        raise UnreachableError("the database is away")

    monkeypatch.setattr(world.services.control, "_now_ms", away)
    assert "can't be told" in holding.run_once().sentence
    assert value(world, "control_known") == 0


def test_a_drained_host_claims_nothing(world):
    """Until it is undone; queued things stay for others."""
    world.table(rows=4, insert_only=True)
    world.enqueue(Entity("db", "t"))
    world.services.coordinator.update(HOLDS, lambda data: with_drain(data, Drain("here", "new disks", "ann", 0)))
    assert world.worker().run_once().sentence == "waiting: host here is drained by ann: new disks"
    assert QueueMetrics(world.services).run_once().sentence.startswith("1 initiated")
    assert value(world, "held_entries", reason="drained") is None


def test_what_is_written_is_charged(tables):
    """
    To its budget, as many bytes as were published; used up, the next waits, with the time when there is room again.
    """
    world, _, _ = tables
    world.configure(control={"budgets": [{"name": "small", "tables": ["db.*"], "bytes_per_hour": 1}]})
    assert "of db.t: published" in world.worker().run_once().sentence
    (written,) = world.services.coordinator.read(SPENT).data["budgets"]["small"].values()
    assert written == value(world, "written_bytes_total")
    assert world.worker().run_once().sentence.startswith("waiting: db.u: budget small: ")
    Pauses(world.services, [], lambda: None).run_once()
    assert value(world, "budget_used_bytes", budget="small") == written


def spent(world, budget):
    """Bytes that count for a budget."""
    return sum(world.services.coordinator.read(SPENT).data["budgets"][budget].values())


def test_what_was_not_written_is_not_charged(tables):
    """Spark is away, and the entry is tried again and again: the budget is left for others."""
    world, _, _ = tables
    world.configure(control={"budgets": [{"name": "small", "bytes_per_hour": 1}]})
    charged = []

    def away(_):
        charged.append(spent(world, "small"))
        raise UnreachableError("Java isn't installed")

    world.submitter.before = away
    assert "given back" in world.worker().run_once().sentence
    assert charged[0] > 0
    assert spent(world, "small") == 0
    world.clock.forward(400)
    world.submitter.before = lambda _: None
    assert "published" in world.worker().run_once().sentence


def test_what_a_broken_job_had_written_stays_charged(tables):
    """
    As much of the prediction as its tasks had ended, and of a result that was staged what it holds: the cluster's disks
    have borne it.
    """
    world, _, _ = tables
    world.configure(control={"budgets": [{"name": "large", "bytes_per_hour": 1 << 40}]})
    charged, run = [], world.submitter.run

    def broken(job, function, tasks, *, progress, **how):
        charged.append(spent(world, "large"))
        progress(0.25)
        raise UnreachableError("Spark's JVM died")

    world.submitter.run = broken
    assert "given back" in world.worker().run_once().sentence
    assert spent(world, "large") == charged[0] // 4
    world.submitter.run = run
    world.clock.forward(400)

    def break_off():
        raise UnreachableError("no answer")

    world.at_step[steps.WORKER_VERIFIED] = break_off
    assert "given back" in world.worker().run_once().sentence
    del world.at_step[steps.WORKER_VERIFIED]
    staged = spent(world, "large") - charged[0] // 4
    world.clock.forward(400)
    before = value(world, "written_bytes_total") or 0
    assert "published" in world.worker().run_once().sentence
    assert staged == value(world, "written_bytes_total") - before > 0


def test_one_at_a_time(tables):
    """While one is being worked on, wherever, the other waits."""
    world, _, _ = tables
    world.configure(control={"budgets": [{"name": "one", "jobs": 1}]})
    other = world.services.queue.claim("compactor-elsewhere-1", "1")
    assert world.worker().run_once().sentence == "waiting: db.u: budget one allows 1 at a time, being worked on: 1"
    world.services.queue.give_back(other)
    assert "published" in world.worker().run_once().sentence


def test_the_initiator_queues_nothing_that_is_paused(any_world):
    """
    It isn't listed either; others are queued; after the pause the next cycle looks at everything, and misses nothing.
    """
    world = any_world
    for name in ("t", "u"):
        world.table(name, rows=11)
    world.settle_time()
    pause(world, "table:db.t")
    initiator = world.initiator()
    assert initiator.run_once().sentence == "full scan: queued 1 of 2 candidates, 1 listed"
    assert value(world, "skips_total", reason="paused") == 1
    assert "queued 0" in initiator.run_once().sentence
    resume(world, "table:db.t")
    assert initiator.run_once().sentence == "full scan: queued 1 of 2 candidates, 1 listed"
    assert not initiator.run_once().sentence.startswith("full scan")


def test_a_write_that_only_its_id_tells_of_waits_for_the_end_of_a_pause(world):
    """
    An INSERT into a table from which it reads has no commit that a full scan would find: it is kept until the table was
    listed.
    """
    table = world.table(rows=3)
    world.settle_time()
    initiator = world.initiator()
    initiator.run_once()
    world.insert_into_itself(table, 9)
    pause(world, "table:db.t")
    for _ in range(2):
        assert initiator.run_once().sentence == "queued 0 of 1 candidates, 0 listed"
    resume(world, "table:db.t")
    assert initiator.run_once().sentence == "full scan: queued 1 of 1 candidates, 1 listed"


def test_hives_initiator_misses_nothing_that_was_paused(world):
    """
    Hive 4's Initiator looks at what was committed since the start of the last cycle that AUX_TABLE names. While tables are
    passed over that start isn't stored, also not by a later cycle without candidates; afterwards it is.
    """
    world.table(rows=3)
    world.settle_time()
    pause(world, "table:db.t")
    initiator = world.initiator()
    for _ in range(2):
        initiator.run_once()
    assert world.services.initiating.last_cycle_ms() is None
    resume(world, "table:db.t")
    initiator.run_once()
    assert world.services.initiating.last_cycle_ms() is not None


def test_a_pause_while_the_initiator_looks(world):
    """What it was about to queue isn't queued, and is looked at again."""
    world.table(rows=11)
    world.settle_time()
    world.at_step[steps.INITIATOR_LISTED] = lambda: pause(world)
    initiator = world.initiator()
    assert initiator.run_once().sentence == "full scan: queued 0 of 1 candidates, 1 listed"
    assert world.states() == []
    world.at_step.clear()
    resume(world)
    assert "queued 1 of 1" in initiator.run_once().sentence


def test_the_cleaner_goes_on_unless_it_is_paused_too(tables):
    """It only frees space; with the wish it leaves compacted and aborted things alone, and says why."""
    world, table, _ = tables
    world.worker().run_once()
    world.configure(initiator={"thresholds": {"aborted_count": 0}})
    other = world.table("v", rows=1, insert_only=True)
    world.aborted_insert(other, [(9, "x")])
    pause(world, "database:db", cleaner=True)
    said = world.clean()
    assert said.startswith("2 wait: db.t (compaction 1): database db is paused by ann")
    assert len(world.names(other.location)) == 2
    assert value(world, "cleaner_blocked_entries", reason="paused") == 2
    pause(world, "database:db")
    assert "cleaned 1 entry" in world.clean()
    assert len(world.names(other.location)) == 1
    assert len([name for name in world.names(table.location) if name.startswith("delta")]) == 0


class Silent(Alone):
    """Nobody answers."""

    def read(self, key):
        raise UnreachableError("nobody answers")


def test_what_cannot_be_told_stops_everybody_who_begins_something(tables):
    """
    Never read: workers don't claim, the Initiator doesn't queue, the Cleaner doesn't clean; all of them say so, and
    none fails.
    """
    world, _, _ = tables
    world.services.coordinator = Silent()
    assert world.worker().run_once().sentence == "waiting: it can't be told what is paused: nobody answers"
    assert world.initiator().run_once().sentence == "nothing is queued: it can't be told what is paused: nobody answers"
    holding = Pauses(world.services, [], lambda: None)
    assert holding.run_once().sentence == "nothing is claimed: it can't be told what is paused: nobody answers"
    assert value(world, "control_known") == 0
    world.services.coordinator = Alone()
    assert holding.run_once().sentence == "nothing is paused"
    assert value(world, "control_known") == 1
    assert "published" in world.worker().run_once().sentence
    world.services.coordinator = Silent()
    world.services.settings = world.services.settings.model_copy(
        update={"control": world.services.settings.control.model_copy(update={"trust_seconds": 0})}
    )
    world.services.control.judge(fresh=True)
    assert "1 wait: db.t (compaction 1): it can't be told" in world.clean()


def test_metrics_show_what_is_paused_and_who_waits(world):
    """
    One series for each pause, gone with it; entries that wait on purpose don't make the queue look old; whoever waited
    is woken.
    """
    world.table(rows=4, insert_only=True)
    world.enqueue(Entity("db", "t"))
    world.hive.change(world.database.schema.compaction_queue.update().values(cq_enqueue_time=1))
    woken = []
    holding = Pauses(world.services, [], lambda: woken.append(True))
    assert holding.run_once().sentence == "nothing is paused"
    QueueMetrics(world.services).run_once()
    assert value(world, "queue_oldest_age_seconds", state="initiated") > 0
    pause(world, "pool:etl")
    pause(world, "table:db.t")
    assert (
        holding.run_once().sentence
        == "pool etl is paused by ann until it is resumed: why; table db.t is paused by ann until it is resumed: why"
    )
    QueueMetrics(world.services).run_once()
    assert value(world, "paused", scope="pool:etl") == value(world, "paused", scope="table:db.t") == 1
    assert value(world, "held_entries", reason="paused") == 1
    assert value(world, "queue_oldest_age_seconds", state="initiated") == 0
    resume(world, "table:db.t")
    holding.run_once()
    holding.run_once()
    assert value(world, "paused", scope="table:db.t") is None
    assert len(woken) == 3
