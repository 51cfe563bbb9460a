"""An insert-only table that ALTER TABLE makes full ACID, which Hive 4 takes at any time: what readers find stays."""

import pytest

from compactor.roles import steps


def made_full_acid(world):
    """Hive 4's ALTER TABLE … SET TBLPROPERTIES ('transactional_properties'='default')."""
    params = world.database.schema.table_params
    world.hive.change(params.delete().where(params.c.param_key == "transactional_properties"))


@pytest.mark.parametrize("step", [steps.WORKER_PLANNED, steps.WORKER_STATE_STORED, steps.WORKER_VERIFIED])
def test_no_result_of_the_former_kind_is_published(world, table, step):
    """Hive reads no rows of a full ACID table in a compaction's base whose files have no key columns."""
    before = world.names(table.location)
    world.at_step[step] = lambda: made_full_acid(world)
    said = world.compact(table)
    assert "input-changed: db.t was made full ACID while it was compacted" in said
    assert world.names(table.location) == before


@pytest.mark.parametrize("kind", ["major", "minor"])
def test_results_of_the_former_kind_are_left_alone(world, table, kind):
    """Of a compaction before the ALTER TABLE Hive reads nothing, and its own next one would leave the rows out."""
    world.compact(table, kind)
    world.clean()
    made_full_acid(world)
    world.insert(table, [(9, "x")])
    before = world.names(table.location)
    assert "refused: unknown-name" in world.compact(table)
    world.clean()
    assert world.names(table.location) == before
