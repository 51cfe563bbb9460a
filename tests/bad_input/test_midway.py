"""
What changes while a compaction is at work: dropped, re-created, rewritten, truncated; full disks, forbidden
directories, what earlier attempts left.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from compactor.metastore.db.database import Database
from compactor.roles import steps
from compactor.spark.session.session import SparkSubmitter
from tests.bad_input import damage
from tests.bad_input.conftest import Scene
from tests.compacting import settings
from tests.demo.rows import CatalogRows
from tests.needs import missing
from tests.unit.roles.world import World

pytestmark = pytest.mark.spark
MOMENTS = (steps.WORKER_LOCKED, steps.WORKER_PLANNED, steps.WORKER_STAGED, steps.WORKER_RAN, steps.WORKER_VERIFIED)


def at(scene, step, action):
    """Do something once, when a step is passed."""

    def once():
        scene.world.at_step.clear()
        action()

    scene.world.at_step[step] = once


def assert_nothing_published(scene):
    """One failed or refused entry; no base, nothing hidden; no traceback's word in the message."""
    ((state, message),) = scene.world.ended()
    assert state in {"failed", "refused"}, message
    assert "\n" not in message
    assert "Traceback" not in message
    assert "Error:" not in message, message
    if scene.table.location.exists():
        assert [path.name for path in scene.table.location.iterdir() if path.name.startswith(("base_", "."))] == []
    scene.assert_nothing_left()
    return message


@pytest.mark.parametrize("moment", MOMENTS)
def test_dropped(scene, moment):
    """Catalog rows and directory gone: the entry says so; the directory isn't made again."""
    world, table = scene.world, scene.table

    def drop():
        CatalogRows(world.database).drop_table(table)
        shutil.rmtree(table.location)

    at(scene, moment, drop)
    scene.compact()
    message = assert_nothing_published(scene)
    assert (
        message.startswith(("input-changed: ", "location-missing: ", "cancelled"))
        or "gone" in message
        or "discarded" in message
    ), message
    assert not table.location.exists()
    scene.assert_others_go_on()


@pytest.mark.parametrize("moment", MOMENTS)
def test_recreated_under_the_same_name(scene, moment):
    """
    Another table now, in the same directory, with the same write ids: nothing of the old one is published into it.
    """
    world, table = scene.world, scene.table

    def recreate():
        catalog = CatalogRows(world.database)
        world.table("between", rows=0)
        catalog.drop_table(table)
        catalog.add_table(table)

    at(scene, moment, recreate)
    scene.compact()
    message = assert_nothing_published(scene)
    assert message == "input-changed: db.t was re-created or moved while it was compacted"
    scene.assert_untouched()
    scene.assert_others_go_on()


@pytest.mark.parametrize("moment", [steps.WORKER_LOCKED, steps.WORKER_STAGED, steps.WORKER_VERIFIED])
@pytest.mark.parametrize("how", ["longer", "same length", "other file", "deleted"])
def test_a_file_is_replaced(scene, moment, how):
    """Whoever does this to an ACID table is no ACID writer; found by length, time or absence."""
    path = scene.file()

    def replace():
        data = path.read_bytes()
        path.unlink()
        match how:
            case "longer":
                path.write_bytes(data + data)
            case "same length":
                path.write_bytes(data)
                os.utime(path, (1, 1))
            case "other file":
                shutil.copy(scene.file("delta_0000002_0000002_0000"), path)

    at(scene, moment, replace)
    sentence = scene.compact()
    if (
        moment == steps.WORKER_LOCKED and how != "other file"
    ):  # before it was listed: what is there counts (the longer file is good, it has the same tail)
        assert "published" in sentence
        return
    message = assert_nothing_published(scene)
    assert any(word in message for word in ("input-changed", "corrupt-file", "not-enough", "unknown-name")), message
    scene.assert_others_go_on()


def test_a_partition_is_rewritten(scene):
    """
    INSERT OVERWRITE through Hive, while the job runs: both stand; readers prefer the overwrite, with its higher write
    id.
    """
    world = scene.world

    def overwrite():
        with world.warehouse.begin() as txn:
            txn.overwrite(scene.table, [(7, "new")])

    at(scene, steps.WORKER_STAGED, overwrite)
    scene.compact()
    world.settle_time()
    world.assert_rows(scene.table)
    world.clean()
    world.assert_rows(scene.table)


def test_a_directory_of_the_results_name_appears(scene):
    """Never merged into, never replaced: the entry fails and both directories' owners keep theirs."""
    world = scene.world

    def occupy():
        (entry,) = world.services.queue.entries()
        place = scene.table.location / f"base_0000004_v{entry.txn_id:07d}"
        place.mkdir()
        (place / "bucket_00000").write_text("somebody's")

    at(scene, steps.WORKER_VERIFIED, occupy)
    scene.compact()
    ((state, message),) = world.ended()
    assert state == "failed"
    assert "base_0000004_v" in message
    assert "\n" not in message
    assert [path for path in scene.table.location.iterdir() if path.name.startswith(".")] == []


def test_a_symbolic_link_appears(scene, tmp_path):
    """Listing refuses it; clearing up doesn't need to."""
    (tmp_path / "elsewhere").mkdir()
    link = scene.table.location / "link"
    at(scene, steps.WORKER_RAN, lambda: link.symlink_to(tmp_path / "elsewhere"))
    scene.compact()
    message = assert_nothing_published(scene)
    assert "link" in message
    scene.assert_others_go_on()


def test_tampered_output_is_kept_as_evidence_and_said_so(scene):
    """
    A bit changes in what was staged: not published; the directory aside is named in the message; readers pass it over.
    """
    world = scene.world

    def tamper():
        (path,) = scene.table.location.glob(".compactor-*/out/base_*/bucket_00000")
        damage.flip(path, path.stat().st_size - 10)

    at(scene, steps.WORKER_RAN, tamper)
    scene.compact()
    (evidence,) = [path.name for path in scene.table.location.iterdir() if path.name.startswith(".")]
    ((state, message),) = world.ended()
    assert state == "failed"
    assert message.startswith("verification-failed: ")
    assert message.endswith(f"kept aside: {evidence}")
    shutil.rmtree(scene.table.location / evidence)
    scene.assert_untouched()
    scene.assert_others_go_on()


def test_what_an_earlier_attempt_left_is_cleared(scene):
    """A staging directory of the same entry, cut off: the next attempt succeeds, and the Cleaner leaves none."""
    world = scene.world
    for name in (".compactor-1-deadbeef", ".compactor-77-cafe"):
        (scene.table.location / name / "tasks" / "x").mkdir(parents=True)
        (scene.table.location / name / "tasks" / "x" / "bucket_00000").write_text("half")
    assert "published base_0000004" in scene.compact()
    world.clean()
    assert world.ended() == [("succeeded", None)]
    assert [path.name for path in scene.table.location.iterdir() if path.name.startswith(".")] == []
    world.assert_rows(scene.table)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 256 KiB, given back afterwards."""
    place = tmp_path / "small"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if made.returncode:
        missing(f"a small file system can't be mounted here: {made.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def tight(tmp_path, small_disk, submitter):
    """A table on the small file system; the metastore is elsewhere."""
    with Database(f"sqlite:///{tmp_path}/metastore.db", create=True) as database:
        world = World(database, tmp_path)
        world.warehouse.root = small_disk
        world.submitter = submitter
        world.services = world.new_services()
        table = world.warehouse.create_table("db", "t", [("id", "int"), ("v", "string")])
        for number in range(3):
            world.insert(table, [(1000 * number + row, f"{row * 2654435761 % (1 << 32):x}") for row in range(5)])
        yield Scene(world)


def test_disk_full(tight, small_disk):
    """
    While tasks write: one failed entry with `disk-full`, nothing left of the attempt, everything readable; with room
    again it succeeds.
    """
    scene, world, table = tight, tight.world, tight.table
    free = shutil.disk_usage(small_disk).free

    def fill():
        (small_disk / "ballast").write_bytes(bytes(shutil.disk_usage(small_disk).free))

    scene.remember()
    at(scene, steps.WORKER_STAGED, fill)
    scene.compact()
    scene.assert_ended("failed", "disk-full", "free some space", str(small_disk))
    scene.assert_untouched()
    (small_disk / "ballast").unlink()
    assert shutil.disk_usage(small_disk).free >= free - 16384
    assert "published base_" in scene.compact()
    world.settle_time()
    world.assert_rows(table)


def test_no_room_before_anything_is_written(tight, small_disk):
    """
    The entry waits in the queue and says what it needs and what there is; nothing is left of the attempt; with room
    again it succeeds by itself.
    """
    scene, world, table = tight, tight.world, tight.table
    scene.remember()
    (small_disk / "ballast").write_bytes(bytes(shutil.disk_usage(small_disk).free))
    sentence = scene.compact()
    assert "given back: disk-full: db.t: a major of all would write about " in sentence
    assert f"{table.location} leaves 0" in sentence
    assert (world.states(), world.ended()) == (["initiated"], [])
    assert scene.files() == scene.before["files"]
    (small_disk / "ballast").unlink()
    world.clock.forward(10)
    assert "published base_" in world.worker().run_once().sentence
    world.settle_time()
    world.assert_rows(table)


def test_a_directory_that_the_daemon_may_not_write(scene):
    """One refused or failed entry that says what is needed; nothing else. For root, which may write anywhere else, an immutable directory."""
    place = scene.table.location
    if os.geteuid():
        place.chmod(0o555)
    else:
        made = subprocess.run(["chattr", "+i", str(place)], capture_output=True, text=True, check=False)
        if made.returncode:
            missing(f"no directory can be made immutable here: {made.stderr.strip()}")
    try:
        scene.compact()
        ((state, message),) = scene.world.ended()
        assert state in {"failed", "refused"}
        assert message.startswith("permission-denied: "), message
        assert str(place) in message
        assert "needs read and write access" in message
        scene.assert_untouched()
        scene.assert_others_go_on()
    finally:
        if os.geteuid():
            place.chmod(0o755)
        else:
            subprocess.run(["chattr", "-i", str(place)], check=True)


def test_a_file_system_that_is_read_only_for_a_while(scene):
    """As a store that is away: the entry is given back and counts no failure; it is compacted once the file system takes writes again."""
    place = scene.table.location
    for command in (["mount", "--bind", str(place), str(place)], ["mount", "-o", "remount,ro,bind", str(place)]):
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            missing(f"nothing can be mounted here: {made.stderr.strip()}")
    try:
        sentence = scene.compact()
        assert "given back" in sentence
        assert "Read-only file system" in sentence
        assert (scene.world.states(), scene.world.ended()) == (["initiated"], [])
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
    scene.world.clock.forward(600)
    assert "published base_" in scene.world.worker().run_once().sentence
    scene.world.settle_time()
    scene.world.assert_rows(scene.table)


@pytest.mark.parametrize("how", ["JAVA_HOME", "PATH"])
def test_java_missing(scene, monkeypatch, tmp_path, how):
    """The worker says what to install or set, and claims nothing; with Java there, it goes on."""
    world = scene.world
    good, monkeypatched = world.services.submitter, SparkSubmitter(settings())
    with monkeypatch.context() as patch:
        if how == "JAVA_HOME":
            patch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
        else:
            patch.delenv("JAVA_HOME", raising=False)
            patch.setenv("PATH", str(tmp_path))
        world.services.submitter = monkeypatched
        sentence = scene.compact()
    assert sentence.startswith("waiting: ")
    assert "Spark needs Java 17 or newer" in sentence
    assert "\n" not in sentence
    assert (world.ended(), world.states()) == ([], ["initiated"])
    assert not [name for name in world.names(scene.table.location) if name.startswith(("base_", "."))]
    world.services.submitter = good
    world.clock.forward(10)
    assert "published base_" in world.worker().run_once().sentence


def test_a_directory_that_is_gone(scene):
    """The catalog knows the table, the file system doesn't."""
    aside = Path(f"{scene.table.location}-aside")
    scene.table.location.rename(aside)
    scene.compact()
    ((state, message),) = scene.world.ended()
    assert state == "refused"
    assert "db.t" in message
    assert str(scene.table.location) in message
    aside.rename(scene.table.location)
    scene.assert_untouched()
    scene.assert_others_go_on()
