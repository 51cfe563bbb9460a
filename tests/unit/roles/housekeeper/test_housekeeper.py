"""Housekeeper: claims of the dead, and the duties that nobody else does."""

import pytest
from structlog.testing import capture_logs

from compactor.errors import MutexHeldError, RetryableError
from compactor.metastore.housekeeping import Duty, DutyFinding
from compactor.roles import steps
from compactor.roles.housekeeper.recovery import Recovery

DEAD = "compactor-here-" + "0" * 32 + "-1"


def test_an_embedded_metastore_gets_every_duty(world):
    """A silent transaction is timed out and then forgotten; the sentence counts."""
    txn = world.hive.begin(age=1_000_000)
    world.hive.write(age=10_000)
    assert "time-outs 1" in world.housekeeper().run_once().sentence
    assert world.services.transactions.state(txn).value in {"aborted", "absent"}


def test_every_duty_has_its_series_before_it_does_anything(world):
    """What was removed first is a step from 0."""
    world.housekeeper()
    value = world.services.metrics.registry.get_sample_value
    assert [value("compactor_housekeeping_rows_total", {"duty": duty.value}) for duty in Duty] == [0] * len(Duty)


def test_never_means_none(world):
    """Then only claims of the dead are looked at."""
    world.configure(housekeeper={"enabled": "never"})
    txn = world.hive.begin(age=1_000_000)
    assert world.housekeeper().run_once().sentence == "nothing to keep"
    assert world.services.transactions.state(txn).value == "open"


def test_a_duty_is_ours_for_a_day_once_nobody_did_it(world, monkeypatch):
    """What was found overdue stays ours though nothing is overdue after the first time."""
    done = []
    monkeypatch.setattr(world.services.housekeeping, "run", lambda duty, **_: done.append(duty) or 0, raising=False)
    answers = [{duty: DutyFinding(ours=duty is Duty.WRITE_SET, sentence="nobody does it") for duty in Duty}]
    monkeypatch.setattr(world.services.housekeeping, "who_does_it", lambda: answers[0], raising=False)
    housekeeper = world.housekeeper()
    housekeeper.run_once()
    answers[0] = {duty: DutyFinding(ours=False, sentence="done") for duty in Duty}
    housekeeper._looked -= 3600
    housekeeper.run_once()
    assert done == [Duty.WRITE_SET, Duty.WRITE_SET]
    housekeeper._ours_until[Duty.WRITE_SET] -= 25 * 3600
    housekeeper.run_once()
    assert done == [Duty.WRITE_SET, Duty.WRITE_SET]


def test_a_duty_that_fails_is_counted_each_time_and_told_once(world, monkeypatch):
    """A failure every minute would fill the log; another reason, or the same after a success, is told again."""

    def failing(duty, **_):
        if duty is Duty.HISTORY and errors and (error := errors.pop(0)) is not None:
            raise error
        return 0

    monkeypatch.setattr(world.services.housekeeping, "run", failing)
    errors = [
        RetryableError("deadlock"),
        RetryableError("deadlock"),
        RetryableError("time-out"),
        None,
        RetryableError("time-out"),
    ]
    housekeeper = world.housekeeper()
    with capture_logs() as lines:
        sentences = [housekeeper.run_once().sentence for _ in range(5)]
    told = [line["log_level"] for line in lines if line["event"] == "duty.failed"]
    assert told == ["warning", "debug", "warning", "warning"]
    assert sentences[0] == "history failed: deadlock"
    value = world.services.metrics.registry.get_sample_value
    assert value("compactor_housekeeping_failures_total", {"duty": "history"}) == 4
    assert value("compactor_housekeeping_failures_total", {"duty": "time-outs"}) == 0


def test_only_another_who_is_at_it_makes_a_duty_idle(world, monkeypatch):
    """
    That a mutex is another's is none of ours; a deadlock that comes again and again was taken for the same, and nobody
    was told.
    """
    housekeeping = world.services.housekeeping
    with monkeypatch.context() as patched:
        patched.setattr(world.database, "mutex", _raising(MutexHeldError("held")))
        assert housekeeping.run(Duty.TIME_OUTS) == 0
    monkeypatch.setattr(housekeeping, "time_outs", _raising(RetryableError("deadlock")))
    with pytest.raises(RetryableError, match="deadlock"):
        housekeeping.run(Duty.TIME_OUTS)


def _raising(error):
    def raising(*_: object, **__: object):
        raise error

    return raising


def test_claims_of_a_dead_process_are_given_back(any_world):
    """Its staging directory goes first; the entry is free afterwards."""
    world = any_world
    table = world.table(rows=1)
    services = world.services
    entry = world.hive.queued("db.t", state="w", worker_id=DEAD, start=services.now_ms())
    staging = table.location / f".compactor-{entry}-abcd"
    (staging / "out").mkdir(parents=True)
    (services.identity._path("0" * 32)).touch()
    assert world.housekeeper().run_once().sentence.startswith("gave back 1 claim of dead workers")
    assert world.states() == ["initiated"]
    assert not staging.exists()
    assert not services.identity._path("0" * 32).exists()


def test_a_dead_attempt_whose_directory_is_not_there_stays_known_as_aborted(world):
    """
    What it published may come back with the file system or the partition: the row that marks it stays for the cleaning
    of aborts.
    """
    table = world.table(rows=1)
    txn = world.hive.begin(kind=3)
    world.hive.touch(txn, "db.t", operation="c", write_id=1)
    world.hive.queued("db.t", state="w", worker_id=DEAD, start=world.services.now_ms(), txn_id=txn, highest_write_id=1)
    (world.services.identity._path("0" * 32)).touch()
    table.location.rename(table.location.with_name("elsewhere"))
    assert len(Recovery(world.services).give_back_claims_of_the_dead()) == 1
    assert world.services.transactions.state(txn).value == "aborted"
    assert world.hive.rows(world.database.schema.txn_components, "tc_txnid") == [(txn,)]


@pytest.mark.parametrize("keys", [None, [("p", "int")]])
def test_a_dead_attempt_on_a_file_system_that_is_not_mounted_keeps_its_claim(any_world, keys):
    """
    Its staging directory would come back with the file system, and with it the source for a rename: nobody else gets
    the entry before it is removed.
    """
    world = any_world
    table = world.table(rows=0, partition_keys=keys or [])
    world.insert(table, [(1, "x")], ("1",) if keys else None)
    location = table.location / "p=1" if keys else table.location
    now = world.services.now_ms()
    entry = world.hive.queued("db.t/p=1" if keys else "db.t", state="w", worker_id=DEAD, start=now, highest_write_id=1)
    (location / f".compactor-{entry}-abcd" / "out").mkdir(parents=True)
    (world.services.identity._path("0" * 32)).touch()
    warehouse = world.folder / "warehouse"
    warehouse.rename(world.folder / "elsewhere")
    warehouse.mkdir()
    housekeeper = world.housekeeper()
    for _ in range(2):
        assert "gave back" not in housekeeper.run_once().sentence
        assert world.states() == ["working"]
    warehouse.rmdir()
    (world.folder / "elsewhere").rename(warehouse)
    assert housekeeper.run_once().sentence.startswith("gave back 1 claim of dead workers")
    assert not list(location.glob(".compactor-*"))


def test_a_dead_attempt_that_had_stored_nothing_is_given_back_unseen(world):
    """
    Before the highest write id is stored nothing is staged: that its directory can't be seen is for the next worker to
    say.
    """
    world.table(rows=1)
    world.hive.queued("db.t", state="w", worker_id=DEAD, start=world.services.now_ms())
    (world.services.identity._path("0" * 32)).touch()
    (world.folder / "warehouse").rename(world.folder / "elsewhere")
    assert len(Recovery(world.services).give_back_claims_of_the_dead()) == 1


def test_a_transaction_that_a_dead_worker_had_not_stored_is_ended(world):
    """
    It died between opening its transaction and storing it with its entry: found by the name that it gave, and the file
    of its instance goes last.
    """
    world.table(rows=4, insert_only=True)
    trace = world.services.identity._path("0" * 32)
    world.hive.queued("db.t", state="w", worker_id=DEAD, start=world.services.now_ms())
    trace.touch()
    txn = world.services.transactions.open_compaction("u", "here", agent=DEAD)
    assert world.housekeeper().run_once().sentence.startswith("gave back 1 claim")
    assert world.services.transactions.state(txn).value in {"aborted", "absent"}
    assert not trace.exists()


def test_a_worker_opens_its_transaction_under_its_own_name(world):
    """That is how the transaction is found when it dies."""
    table = world.table(rows=4, insert_only=True)
    opened = []
    world.at_step[steps.WORKER_TXN_OPENED] = lambda: opened.extend(world.services.transactions.open_compactions())
    world.compact(table)
    assert [open_one.agent for open_one in opened] == [world.worker().worker_id]


def test_a_stored_transaction_is_left_to_the_clearing_of_its_entry(world, monkeypatch):
    """Its staging directory goes before its transaction: while the one can't be removed the other stays open."""
    world.table(rows=4, insert_only=True)
    txn = world.services.transactions.open_compaction("u", "here", agent=DEAD)
    world.hive.queued("db.t", state="w", worker_id=DEAD, start=world.services.now_ms(), txn_id=txn, highest_write_id=4)
    monkeypatch.setattr(Recovery, "clear", lambda *_: False)
    assert Recovery(world.services).give_back_claims_of_the_dead() == []
    assert world.services.transactions.state(txn).value == "open"


@pytest.mark.postgres
def test_transactions_of_the_living_and_of_others_stay_open(tmp_path, request):
    """
    Of a living process of this machine, of another machine, of one that nothing is known about, of Hive's workers, and
    whatever isn't a compaction.
    """
    from tests.metastore.databases import metastore
    from tests.unit.roles.world import World

    with metastore("postgres-4", request, tmp_path) as database:
        world = World(database, tmp_path)
        transactions = world.services.transactions
        with world.new_services().identity as alive:
            unknown = "compactor-here-" + "2" * 32 + "-1"
            agents = (
                alive.worker_id(1),
                world.services.identity.worker_id(1),
                "compactor-there-" + "1" * 32 + "-1",
                unknown,
                "edge1-26",
                "compactor",
            )
            stay = [transactions.open_compaction("u", "here", agent=agent) for agent in agents]
            dead = transactions.open_compaction("u", "here", agent=DEAD)
            world.services.identity._path("0" * 32).touch()
            query = world.hive.begin()
            txns = database.schema.txns
            world.hive.change(txns.update().where(txns.c.txn_id == query).values(txn_agent_info=DEAD))
            Recovery(world.services).give_back_claims_of_the_dead()
            assert [transactions.state(txn).value for txn in (*stay, query)] == ["open"] * 7
            assert transactions.state(dead).value == "aborted"


@pytest.mark.postgres
def test_claims_of_the_living_and_of_others_stay(tmp_path, request):
    """A living process of this machine, one of another machine, and Hive's own workers keep what they claimed."""
    from tests.metastore.databases import metastore
    from tests.unit.roles.world import World

    with metastore("postgres-4", request, tmp_path) as database:
        world = World(database, tmp_path)
        with world.new_services().identity as alive:
            now = world.services.now_ms()
            for worker in (alive.worker_id(1), "compactor-there-" + "1" * 32 + "-1", "edge1-26"):
                world.hive.queued(f"db.{worker[:12].replace('-', '_')}", state="w", worker_id=worker, start=now)
            assert Recovery(world.services).give_back_claims_of_the_dead() == []
            assert world.states() == ["working"] * 3


def test_what_cannot_be_cleared_up_stays_claimed(world, monkeypatch):
    """While the staging directory can't be removed, nobody else may have the entry."""
    table = world.table(rows=1)
    entry = world.hive.queued("db.t", state="w", worker_id=DEAD, start=world.services.now_ms())
    (table.location / f".compactor-{entry}-abcd").mkdir()

    def broken(*_: object) -> None:
        raise OSError("read-only file system")

    monkeypatch.setattr("compactor.roles.fence.remove_hidden", broken)
    assert Recovery(world.services).give_back_claims_of_the_dead() == []
    assert world.states() == ["working"]


def test_the_watch_counts_the_queue(world):
    """Depth by state and kind, and the age of the oldest; states that are empty show 0."""
    from compactor.daemon.queue_metrics import QueueMetrics

    now = world.services.now_ms()
    world.hive.queued("db.a", enqueue_time=now - 60_000)
    world.hive.queued("db.b", state="w", type="i", worker_id="x", start=now - 5_000)
    assert QueueMetrics(world.services).run_once().sentence == "1 initiated, 1 working, 0 ready for cleaning"
    value = world.services.metrics.registry.get_sample_value
    assert value("compactor_queue_entries", {"state": "initiated", "kind": "major"}) == 1
    assert value("compactor_queue_entries", {"state": "working", "kind": "minor"}) == 1
    assert value("compactor_queue_entries", {"state": "ready-for-cleaning", "kind": "minor"}) == 0
    assert 60 <= (value("compactor_queue_oldest_age_seconds", {"state": "initiated"}) or 0) < 90


def test_a_rebalance_that_cant_be_looked_for_stops_no_duty(world, monkeypatch):
    """The refusal of rebalances is no duty of Hive's: it is tried again in the next cycle, and the rest goes on."""

    def fails(kind):
        raise RetryableError("no answer")

    monkeypatch.setattr(world.services.queue, "waiting", fails)
    txn = world.hive.begin(age=1_000_000)
    world.hive.write(age=10_000)
    keeper = world.housekeeper()
    with capture_logs() as logs:
        assert "time-outs 1" in keeper.run_once().sentence
        keeper.run_once()
    assert world.services.transactions.state(txn).value in {"aborted", "absent"}
    assert [line["log_level"] for line in logs if line["event"] == "rebalances.not_read"] == ["warning", "debug"]
