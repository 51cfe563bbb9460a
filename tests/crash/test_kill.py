"""
The daemon, killed with SIGKILL at each named step of Worker and Cleaner: the next start converges to the same end, and
no row changes.
"""

import re
import signal
import urllib.error
import urllib.request

import pytest
import yaml

from compactor.acid.compaction import CompactionKind
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.db.database import Database
from compactor.metastore.model import Entity
from compactor.roles import steps
from tests.crash import launcher
from tests.crash.scene import Scene, ended, send
from tests.metastore.databases import on

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]


def kill_and_converge(scene: Scene, step: str, *, spark: bool = False) -> None:
    killed = scene.start(kill_at=step, spark=spark)
    assert ended(killed) == -signal.SIGKILL, scene.said()[-4000:]
    scene.assert_rows()
    before = scene.starts()
    again = scene.start(spark=spark)
    scene.until(again, lambda: scene.starts() > before and scene.settled(), "settled")
    assert scene.drain(again) == 0
    scene.assert_rows()
    names = scene.names()
    assert len(names) == 1, names
    assert re.fullmatch(r"base_0000008(_v\d{7})?", names[0])


@pytest.mark.parametrize("step", [*steps.WORKER_STEPS, *steps.CLEANER_STEPS])
def test_killed_at_any_step_it_converges(scene, step):
    """One base with the same rows; nothing hidden, nothing in the queue; no compaction counts as failed."""
    kill_and_converge(scene, step)


SHARED = [
    steps.WORKER_LOCKED,
    steps.WORKER_STAGED,
    steps.WORKER_PUBLISHED,
    steps.WORKER_COMMITTED,
    steps.CLEANER_TRASHED,
]


@pytest.mark.parametrize(
    ("scene", "step"),
    [
        *(on(kind, step) for kind in ("postgres-4", "postgres-3", "mariadb-4") for step in SHARED),
        on("mariadb-3", steps.WORKER_PUBLISHED),
    ],
    indirect=["scene"],
)
def test_killed_on_a_shared_metastore_it_converges(scene, step):
    """There others could be alive: the dead one is known by its file, its transaction or lock times out."""
    kill_and_converge(scene, step)


NOTHING_BY_ITSELF = {"thresholds": {"delta_count": 1000, "delta_ratio": 1000.0, "aborted_count": 1000}}


@pytest.mark.parametrize(
    ("step", "waits"), [(steps.WORKER_COMMITTED, False), (steps.WORKER_COMMITTED, True), (steps.CLEANER_MARKED, True)]
)
def test_killed_between_two_parts_the_rest_is_done(scene, step, waits):
    """
    A compaction that somebody asked for, and that is too large for one: nobody else would look at the table, and all of
    it is done all the same.
    """
    rest_is_done(scene, step, waits=waits)


@pytest.mark.parametrize(
    ("scene", "step", "waits"),
    [
        *(on(kind, steps.WORKER_COMMITTED, False) for kind in ("postgres-4", "postgres-3")),
        *(on(kind, steps.CLEANER_MARKED, True) for kind in ("postgres-4", "postgres-3", "mariadb-4")),
    ],
    indirect=["scene"],
)
def test_killed_between_two_parts_on_a_shared_metastore(scene, step, waits):
    """As above, by the leader among several daemons."""
    rest_is_done(scene, step, waits=waits)


def rest_is_done(scene: Scene, step: str, *, waits: bool) -> None:
    size = sum(path.stat().st_size for path in scene.table.location.glob("d*/bucket*"))
    changed = yaml.safe_load(scene.config.read_text(encoding="utf-8"))
    changed["initiator"] |= NOTHING_BY_ITSELF
    changed["limits"] = {"scratch_bytes": size * 3 // 5} if waits else {"deltas": 3}
    scene.config.write_text(yaml.safe_dump(changed), encoding="utf-8")
    with Database(scene.url) as database:
        assert Queue(database).enqueue(Entity("db", "t"), CompactionKind.MAJOR, initiator_id="here-manual").accepted
    killed = scene.start(kill_at=step)
    assert ended(killed) == -signal.SIGKILL, scene.said()[-4000:]
    assert len(scene.names()) > 1
    changed["limits"] = {}
    scene.config.write_text(yaml.safe_dump(changed), encoding="utf-8")
    before = scene.starts()
    again = scene.start()
    scene.until(
        again,
        lambda: scene.starts() > before and scene.settled() and len(scene.names()) == 1,
        "settled as one directory",
    )
    assert scene.drain(again) == 0
    scene.assert_rows()


@pytest.mark.spark
def test_killed_while_spark_works(scene):
    """With a real session: its JVM and Python workers end with the daemon, what they wrote is removed."""
    scene.unhurried()
    kill_and_converge(scene, steps.WORKER_RAN, spark=True)


def test_term_drains(scene):
    """Ends with 0, says so, and leaves nothing claimed and no sign of life."""
    process = scene.start()
    scene.until(process, scene.settled, "settled")
    assert scene.drain(process) == 0
    assert scene.events()[-1]["event"] == "daemon.stopped"
    assert not list(scene.folder.glob("compactor-*.alive"))


def test_two_interrupts_leave_at_once(scene):
    """130, whatever is running; the next start converges."""
    process = scene.start(hold_at=steps.WORKER_STAGED)
    scene.until(process, (scene.folder / launcher.HELD).exists, "at work")
    while process.exitcode is None:
        send(process, signal.SIGINT)
        process.join(0.01)
    assert process.exitcode == 130
    again = scene.start()
    scene.until(again, scene.settled, "settled")
    assert scene.drain(again) == 0
    scene.assert_rows()


def test_hup_takes_over_what_it_can(scene):
    """The log names the changed keys and those that need a restart; a mistake changes nothing."""
    process = scene.start()
    scene.until(process, lambda: scene.starts() == 1, "started")
    changed = yaml.safe_load(scene.config.read_text(encoding="utf-8"))
    changed["cleaner"]["interval_seconds"] = 0.3
    changed["worker"]["threads"] = 1
    scene.config.write_text(yaml.safe_dump(changed), encoding="utf-8")
    send(process, signal.SIGHUP)
    scene.until(process, lambda: any(event["event"] == "restart.required" for event in scene.events()), "reloaded")
    (reloaded,) = [event for event in scene.events() if event["event"] == "settings.reloaded"]
    assert reloaded["changed"] == ["cleaner.interval_seconds"]
    scene.config.write_text("database: 5", encoding="utf-8")
    send(process, signal.SIGHUP)
    scene.until(
        process, lambda: any(event["event"] == "settings.not_reloaded" for event in scene.events()), "refused to reload"
    )
    assert scene.drain(process) == 0


def test_hup_includes_what_was_left_alone(scene):
    """While `control.only` names another database nothing is done; with HUP and a wider list all is, without a restart."""
    changed = yaml.safe_load(scene.config.read_text(encoding="utf-8"))
    changed["initiator"]["full_scan_seconds"] = 3600
    scene.config.write_text(yaml.safe_dump(changed | {"control": {"only": ["other.*"]}}), encoding="utf-8")
    before = scene.names()
    process = scene.start()

    def cycles() -> int:
        return sum(event.get("step") == steps.INITIATOR_QUEUED for event in scene.events())

    scene.until(process, lambda: cycles() >= 3, "passed over")
    assert {event["reason"] for event in scene.events() if event["event"] == "candidate.skipped"} == {"not-included"}
    assert scene.names() == before
    scene.config.write_text(yaml.safe_dump(changed | {"control": {"only": ["other.*", "db.*"]}}), encoding="utf-8")
    send(process, signal.SIGHUP)
    scene.until(process, scene.settled, "settled")
    assert len(scene.names()) == 1
    assert scene.drain(process) == 0
    scene.assert_rows()


def test_health_and_readiness(scene):
    """200 on both once all roles completed a cycle; the metrics show the queue."""
    process = scene.start()
    scene.until(process, scene.settled, "settled")
    port = scene.port()

    def get(path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    scene.until(process, lambda: get("/-/ready") == 200, "ready")
    assert get("/-/healthy") == 200
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    assert 'compactor_jobs_total{kind="major",outcome="compacted"} 1.0' in text
    assert scene.drain(process) == 0
