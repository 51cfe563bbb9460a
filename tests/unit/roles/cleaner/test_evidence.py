"""
Evidence of refused verifications: seen by the Cleaner and by explain, kept for days, removed with a sweep of its
partition after that.
"""

import os

from compactor.status.items import DirectoryStanding
from compactor.status.judging import Found
from compactor.status.partition import inspect

NAME = ".evidence-compactor-9-0123abcd"
DAY = 24 * 3600


def keep(world, table, days, name=NAME):
    """As verification does: files in the staging directory's order, so many days old."""
    file = table.location / name / "out" / "base_0000004" / "bucket_00000"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x" * 100)
    at = world.services.now_ms() / 1000 - days * DAY
    os.utime(file, (at, at))


def test_the_cleaner_tells_and_removes_what_is_old(world, table):
    """Younger than `cleaner.keep_evidence_days`: counted in the sentence, left; older: gone with the sweep."""
    keep(world, table, 8)
    keep(world, table, 6, f"{NAME}-x")
    world.compact(table)
    assert f"1 directory of evidence (100 bytes, {NAME}-x) kept" in world.clean()
    assert [name for name in world.names(table.location) if name.startswith(".")] == [f"{NAME}-x"]
    world.assert_rows()


def test_it_may_be_kept_longer_or_not_at_all(world, table):
    """The setting decides."""
    world.configure(cleaner={"keep_evidence_days": 30})
    keep(world, table, 8)
    world.compact(table)
    assert "evidence" in world.clean()
    assert NAME in world.names(table.location)
    world.configure(cleaner={"keep_evidence_days": 0})
    for number in range(2):
        world.insert(table, [(number, "y")])
    world.compact(table)
    assert "evidence" not in world.clean()
    assert NAME not in world.names(table.location)


def test_an_empty_one_stays(world, table):
    """It may just be coming into being; its age isn't known."""
    (table.location / NAME).mkdir()
    world.compact(table)
    world.clean()
    assert NAME in world.names(table.location)


def test_explain_shows_it_with_its_size(world, table):
    """As an item of its own, that no query reads."""
    keep(world, table, 1)
    facts = world.services.catalog.find_table("db", "t")
    items = inspect(world.database, world.services.settings, world.services.places, Found(facts, None)).items
    (shown,) = [item for item in items if item.standing is DirectoryStanding.EVIDENCE]
    assert (shown.name, shown.files, shown.bytes, shown.input) == (NAME, 1, 100, False)
    assert "verification" in shown.note
