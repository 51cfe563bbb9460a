"""A restore, killed with SIGKILL before each of its changes: no row changes, and the next one ends as it would have."""

import signal

import pytest
import yaml
from sqlalchemy import update

from compactor.acid.names import TRASH_PREFIX
from compactor.metastore.db.database import Database
from tests.crash.restoring import restore
from tests.crash.scene import url_of
from tests.unit.roles.cleaner.quarantine.test_restore import visible
from tests.unit.roles.world import World

pytestmark = [pytest.mark.crash, pytest.mark.timeout(280)]
INPUTS = {"minor": 2, "major": 3}
"""Directories that a compaction replaces."""


def kept(world, name, kind):
    """A table with what was replaced in quarantine."""
    table = world.table(name, rows=2)
    if kind == "major":
        world.delete(table, 1)
        world.aborted_insert(table, [(9, "never")])
    world.compact(table, kind)
    world.clean()
    return table


def time_out(world):
    """So much time goes by that the dead restore's lock has timed out, and the Housekeeper has come."""
    schema = world.database.schema
    long_ago = 1
    world.hive.change(
        update(schema.txns)
        .where(schema.txns.c.txn_state == "o")
        .values(txn_last_heartbeat=long_ago, txn_started=long_ago)
    )
    world.hive.change(update(schema.hive_locks).values(hl_last_heartbeat=long_ago))
    world.housekeeper().run_once()


@pytest.mark.postgres
@pytest.mark.parametrize(("metastore", "kind"), [("postgres-4", "major"), ("postgres-3", "minor")])
def test_killed_before_any_change_the_next_one_goes_on(tmp_path, request, metastore, kind):
    """
    At each point a reader without a lock, which shares no code with the product, reads the same rows. Another restore is
    refused until the lock of the dead has timed out, and then ends as the first would have.
    """
    url, config = url_of(metastore, request, tmp_path), tmp_path / "compactor.yaml"
    config.write_text(yaml.safe_dump({"database": {"url": url}}), encoding="utf-8")
    with Database(url) as database:
        world = World(database, tmp_path)
        world.configure(cleaner={"quarantine_hours": 1}, housekeeper={"enabled": "always"})
        killed = []
        for changes in range(99):
            table = kept(world, f"t{changes}", kind)
            before, compacted = world.rows(table), visible(table)
            code, said = restore(config, f"db.{table.name}", changes=changes)
            assert world.rows(table) == before
            if code == 0:
                break
            assert code == -signal.SIGKILL, said
            killed.append(len(visible(table)))
            if changes == 1:
                assert restore(config, f"db.{table.name}")[0] == 4
                assert world.rows(table) == before
            time_out(world)
            code, said = restore(config, f"db.{table.name}")
            assert code == 0, said
            assert world.rows(table) == before
            assert compacted[0] not in visible(table)
            assert len(visible(table)) == INPUTS[kind]
            assert not list(table.location.glob(f"{TRASH_PREFIX}*-undo"))
            world.assert_rows(table)
        assert max(killed) == INPUTS[kind] + 1
        assert killed[-1] == INPUTS[kind]
