"""
A table's owner exchanges files under a compaction, on a local warehouse: nothing that only the daemon may read is
published, or given to the owner.
"""

import os

import pytest

from compactor.roles import steps


@pytest.fixture
def password(world):
    path = world.folder / "password"
    path.write_bytes(b"hunter2 " * 1000)
    path.chmod(0o600)
    return path


def published(table):
    return [path for base in table.location.glob("base_*") for path in base.iterdir()]


def test_an_input_that_became_a_link_is_not_published(world, password):
    """Between the listing and the tasks, with the same length and time."""
    table = world.table("t", rows=3, insert_only=True)
    victim = min(table.location.glob("delta_0000002*/0*"))
    found = victim.stat()
    password.write_bytes(password.read_bytes()[: found.st_size])
    os.utime(password, ns=(found.st_mtime_ns, found.st_mtime_ns))

    def swap():
        victim.unlink()
        victim.symlink_to(password)

    world.at_step[steps.WORKER_PLANNED] = swap
    assert "unknown-name" in world.compact(table)
    assert published(table) == []
    assert password.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "step", [steps.WORKER_LISTED, steps.WORKER_PLANNED, steps.WORKER_STAGED, steps.WORKER_RAN, steps.WORKER_VERIFIED]
)
def test_a_table_that_becomes_a_link_to_anothers(world, step):
    """
    Whichever step comes next: it is refused with the link's name, nothing at its target is read, written or removed,
    and nothing is published.
    """
    table, victim = world.table("t", rows=3), world.table("u", rows=3, database="other")
    away, before = world.folder / "away", world.names(victim.location)

    def swap():
        world.at_step.clear()
        table.location.rename(away)
        table.location.symlink_to(victim.location)

    world.at_step[step] = swap
    assert f"{table.location} is a symbolic link, which isn't followed" in world.compact(table)
    assert world.names(victim.location) == before
    assert list(away.glob("base_*")) == []


@pytest.mark.parametrize("what", ["link in the place of a file", "one file more", "another content"])
def test_staging_that_was_changed_is_not_given_to_the_owner(world, password, monkeypatch, what):
    """Between the last task and the adoption: the result is refused, before its files become the owner's."""
    from compactor.engine.staging.directory import Staging

    table = world.table("t", rows=3)
    mark = Staging.mark

    def then_change(staging, directory, marker, content):
        mark(staging, directory, marker, content)
        (out,) = table.location.glob(".compactor-*/out/base_*")
        match what:
            case "one file more":
                (out / "bucket_00099").write_bytes(b"x")
            case "another content":
                (out / "bucket_00000").write_bytes(b"x")
            case _:
                (out / "bucket_00000").unlink()
                (out / "bucket_00000").symlink_to(password)

    monkeypatch.setattr(Staging, "mark", then_change)
    said = world.compact(table)
    assert "unknown-name" in said or "verification-failed" in said
    assert published(table) == []
    assert password.stat().st_mode & 0o777 == 0o600
