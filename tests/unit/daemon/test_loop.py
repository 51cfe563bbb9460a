"""The loop around a role: survives everything, says something only when it is new, knows when it is stuck."""

import threading
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from compactor.daemon.loop import RoleLoop
from compactor.daemon.loops import make_loops
from compactor.daemon.presence import Board
from compactor.errors import UnreachableError
from compactor.metrics import Metrics
from compactor.roles.cycle import Cycle, Phrase, Progress
from tests.unit.roles.tables import compacted
from tests.unit.roles.world import Clock

LONG = 60.0


class Script:
    """Plays given answers, the last one for ever; tells when all were played."""

    def __init__(self, *answers: str | Cycle | Exception) -> None:
        self.answers = list(answers)
        self.played = threading.Event()

    def __call__(self) -> Cycle:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if len(self.answers) == 1:
            self.played.set()
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Cycle) else Cycle.worked(answer)


def make(
    run_once: Callable[[], Cycle],
    metrics: Metrics,
    *,
    limit: float = LONG,
    interval: float = 0.001,
) -> RoleLoop:
    return RoleLoop("cleaner", "cleaner", run_once, interval=lambda: interval, limit=lambda: limit, metrics=metrics)


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(name, labels) or 0.0


@pytest.mark.parametrize("error", [UnreachableError("no metastore"), ValueError("a bug"), KeyError("x")])
def test_an_error_does_not_end_it(error):
    """Whatever a cycle raises, the next one comes; errors and successes are counted apart."""
    metrics = Metrics()
    script = Script(error, "cleaned 1", "done")
    loop = make(script, metrics)
    loop.start()
    assert script.played.wait(LONG)
    loop.stop()
    assert loop.join(LONG)
    assert loop.succeeded
    assert (
        value(
            metrics,
            "compactor_cycles_total",
            role="cleaner",
            outcome="unreachable" if isinstance(error, UnreachableError) else "error",
        )
        == 1
    )
    assert value(metrics, "compactor_cycles_total", role="cleaner", outcome="ok") >= 1
    assert value(metrics, "compactor_cycle_duration_seconds_count", role="cleaner") >= 2
    assert value(metrics, "compactor_last_cycle_timestamp_seconds", role="cleaner") > 0


@pytest.mark.parametrize("cycle", [Cycle.standby("stands by"), Cycle.held("waiting: everything is paused")])
def test_a_cycle_without_a_turn_is_alive_and_no_progress(cycle):
    """
    A cycle of a standby, or of a role that may begin nothing, is counted by itself and ends all failures, but is no
    cycle by which somebody could tell that the role gets on.
    """
    metrics = Metrics()
    loop = make(Script(UnreachableError("away"), cycle, Cycle.idle("nothing to clean")), metrics)
    assert value(metrics, "compactor_last_cycle_timestamp_seconds", role="cleaner") == 0
    loop._cycle()
    loop._cycle()
    assert loop.succeeded
    assert value(metrics, "compactor_cycles_total", role="cleaner", outcome="no-turn") == 1
    assert value(metrics, "compactor_cycles_total", role="cleaner", outcome="ok") == 0
    assert metrics.registry.get_sample_value("compactor_last_cycle_timestamp_seconds", {"role": "cleaner"}) == 0
    loop._cycle()
    assert value(metrics, "compactor_last_cycle_timestamp_seconds", role="cleaner") > 0


def test_after_failures_it_waits_longer():
    """Twice as long after each failure in a row, up to a limit; at once back to normal after a success."""
    loop = make(lambda: Cycle.worked("x"), Metrics(), interval=5)
    pauses = []
    for loop._failures in (1, 2, 3, 20):
        pauses.append(loop._pause(1))
    loop._failures = 0
    assert pauses == [5, 10, 20, 320]
    assert loop._pause(1) == 4
    assert loop._pause(9) == 0


def test_it_goes_on_at_once_while_there_is_work():
    """A worker that did something looks again without waiting for its interval."""
    script = Script(
        Cycle.worked("compacted a", again=True), Cycle.worked("compacted b", again=True), "nothing is queued"
    )
    loop = make(script, Metrics(), interval=3600)
    loop.start()
    assert script.played.wait(LONG)
    loop.stop()
    assert loop.join(LONG)


def test_waking_begins_a_cycle_now():
    """Nobody has to wait for the interval."""
    cycles = threading.Semaphore(0)

    def run_once() -> Cycle:
        cycles.release()
        return Cycle.worked("x")

    loop = make(run_once, Metrics(), interval=3600)
    loop.start()
    assert cycles.acquire(timeout=LONG)
    loop.wake()
    assert cycles.acquire(timeout=LONG)
    loop.stop()
    assert loop.join(LONG)


def test_a_stuck_loop_is_trouble():
    """A cycle that takes longer than its limit is told with its age; a stopped loop is none."""
    go = threading.Event()
    began = threading.Event()

    def run_once() -> Cycle:
        began.set()
        go.wait(LONG)
        return Cycle.worked("x")

    loop = make(run_once, Metrics(), limit=-1)
    loop.start()
    assert began.wait(LONG)
    assert "cleaner has neither completed a cycle nor got on in one for" in (loop.trouble() or "")
    loop.stop()
    go.set()
    assert loop.join(LONG)
    assert loop.trouble() is None


def test_a_cycle_that_gets_on_is_not_stuck():
    """
    However long it takes: the limit counts from what its role did last, in whatever thread; a single call that hangs is
    found.
    """
    clock = Clock()
    progress = Progress(clock)
    go, began = threading.Event(), threading.Event()

    def run_once() -> Cycle:
        began.set()
        go.wait(LONG)
        return Cycle.worked("x")

    loop = RoleLoop(
        "cleaner", "cleaner", run_once, interval=lambda: 1.0, limit=lambda: 100.0, metrics=Metrics(), progress=progress
    )
    loop.start()
    assert began.wait(LONG)
    for _ in range(5):
        clock.forward(90)
        assert loop.trouble() is None
        assert loop.slack() == 10
        helper = threading.Thread(target=progress.made)
        helper.start()
        helper.join(LONG)
    clock.forward(101)
    assert loop.trouble() == "cleaner has neither completed a cycle nor got on in one for 101 s (limit 100 s)"
    assert loop.slack() == 0
    loop.stop()
    go.set()
    assert loop.join(LONG)


@pytest.mark.parametrize("name", ["initiator", "cleaner", "housekeeper"])
def test_what_a_role_did_reaches_its_own_loop(world, name):
    """Each role that may be at it for long tells the loop it runs in, and no other."""
    compacted(world)
    world.settle_time()
    loops = make_loops(world.services, world.services.metrics, Board(), lambda: None)[0]
    for loop in loops.values():
        loop._progress._at = 0.0
    loops[name]._run_once()
    assert [loop.name for loop in loops.values() if loop._progress._at] == [name]


def test_how_long_it_may_still_take_is_told_before_it_is_too_late():
    """
    Seconds until it counts as stuck; 0 when it does, or has ended; its limit before it starts and once it is stopped.
    """
    go, began = threading.Event(), threading.Event()

    def run_once() -> Cycle:
        began.set()
        go.wait(LONG)
        return Cycle.worked("x")

    loop = make(run_once, Metrics(), limit=1000)
    assert loop.slack() == 1000
    assert loop.trouble() is None
    loop.start()
    assert began.wait(LONG)
    assert 900 < loop.slack() <= 1000
    loop._progress._at -= 1000
    assert loop.slack() == 0
    loop.stop()
    go.set()
    assert loop.join(LONG)
    assert loop.slack() == 1000


def test_only_what_is_new_is_said_at_info():
    """
    A cycle that tells the same as the one before, whatever its sentence counts, goes to debug: a wait of days would fill
    the log otherwise.
    """

    def waits(txn: int, age: str) -> Cycle:
        return Cycle.worked(Phrase(f"1 wait: transaction {txn}, open for {age}", txn))

    script = Script(waits(97, "59 s"), waits(97, "2 min"), waits(97, "3 h"), waits(98, "3 h"), "done", "done")
    with capture_logs() as lines:
        loop = make(script, Metrics())
        for _ in range(6):
            loop._cycle()
    assert [line["log_level"] for line in lines] == ["info", "debug", "debug", "info", "info", "debug"]


def test_what_was_told_once_for_all_is_not_said_again():
    """Eleven threads that wait for the same need no eleven lines: the cycle knows it, or the loop is told so."""
    elsewhere = False
    script = Script(Cycle.held("waiting: for all", told=True), "nothing is queued", "late", "later")
    with capture_logs() as lines:
        loop = RoleLoop(
            "worker-1",
            "worker",
            script,
            interval=lambda: 0.0,
            limit=lambda: LONG,
            metrics=Metrics(),
            told=lambda: elsewhere,
        )
        loop._cycle()
        assert loop.sentence == "waiting: for all"
        loop._cycle()
        elsewhere = True
        loop._cycle()
        elsewhere = False
        loop._cycle()
    assert [line["log_level"] for line in lines] == ["debug", "info", "debug", "info"]


def test_an_error_that_goes_on_is_said_once():
    """Also when it counts for how long a store is away."""

    def away(store: str, seconds: float) -> UnreachableError:
        return UnreachableError(f"{store} is away since {seconds} s", store=store)

    script = Script(away("hdfs://nn", 5), away("hdfs://nn", 10.5), away("s3a://lake", 5), UnreachableError("refused"))
    with capture_logs() as lines:
        loop = make(script, Metrics())
        for _ in range(4):
            loop._cycle()
    assert [line["log_level"] for line in lines] == ["warning", "debug", "warning", "warning"]
