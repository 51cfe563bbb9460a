"""Random small lives: what is compacted, cleaned and restored reads the same at every step, or is refused untouched."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import event, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from compactor.errors import RefusedError
from tests import strategies
from tests.metastore.databases import kinds, metastore
from tests.unit.roles.cleaner.quarantine.test_restore import tree, undoing
from tests.unit.roles.world import World


def lead(world, table, life):
    for number, word in enumerate(life):
        rows = [(10 * number + n, word) for n in range(3)]
        match word:
            case "insert":
                world.insert(table, rows)
            case "delete":
                with world.warehouse.begin() as txn:
                    txn.delete(table, lambda row, number=number: row[0] % 3 == number % 3)
            case "aborted":
                world.aborted_insert(table, rows)
            case "overwrite":
                with world.warehouse.begin() as txn:
                    txn.overwrite(table, rows)


def disturb(world, table, word):
    match word:
        case "insert":
            world.insert(table, [(900, "late")])
        case "aborted":
            world.aborted_insert(table, [(901, "late")])
        case "open":
            world.warehouse.begin().insert(table, [(902, "late")])


@pytest.mark.parametrize("kind", kinds(["sqlite", "postgres-3"]))
@given(
    lives=st.lists(st.tuples(strategies.small_lives(), st.sampled_from(["major", "minor"])), min_size=1, max_size=2),
    disturbance=st.sampled_from(["", "", "insert", "aborted", "open"]),
    killed_after=st.none() | st.integers(0, 4),
)
@hypothesis_settings(max_examples=10)
def test_a_restore_is_exact_or_refused(request, kind, lives, disturbance, killed_after):
    """
    With two compactions the newest that can be undone is, then the one before. Whatever is refused changes nothing;
    after a disturbance everything is.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        metastore(kind, request, Path(folder)) as database,
    ):
        world = World(database, Path(folder))
        world.configure(cleaner={"quarantine_hours": 1})
        table = world.table(rows=1)
        for life, asked in lives:
            lead(world, table, life)
            world.compact(table, asked)
            world.clean()
        disturb(world, table, disturbance)
        before = world.rows(table)
        world.assert_rows()
        seen = []
        world.at_step = dict.fromkeys(("opened", "moved", "taken"), lambda: seen.append(world.rows(table)))
        if killed_after is not None:
            counted = iter(range(99))

            def killed():
                if next(counted) == killed_after:
                    raise KeyboardInterrupt

            cut = undoing(world, table, passed=lambda _: killed())
            for kept in cut[1]:
                with_suppressed(cut[0], kept)
            assert world.rows(table) == before
        for _ in lives:
            work, everything = undoing(world, table)
            for kept in everything:
                untouched = tree(table.location)
                try:
                    work.run(kept)
                except RefusedError:
                    if killed_after is None:
                        assert tree(table.location) == untouched
                    event("refused")
                else:
                    event("restored")
                    assert not disturbance
                assert world.rows(table) == before
        assert all(rows == before for rows in seen)
        world.at_step.clear()
        world.clean()
        assert world.rows(table) == before


def with_suppressed(work, kept):
    """A run that may be killed or refused."""
    try:
        work.run(kept)
    except (KeyboardInterrupt, RefusedError):
        return


def test_the_property_is_not_empty(world):
    """The plainest life is restored: the property above says something."""
    world.configure(cleaner={"quarantine_hours": 1})
    table = world.table(rows=1)
    lead(world, table, ["insert", "delete"])
    world.compact(table)
    world.clean()
    work, (kept,) = undoing(world, table)
    assert work.run(kept).away.startswith("base_")
