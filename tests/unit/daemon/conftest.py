"""The worlds of the roles' tests, for the loops around the roles."""

from tests.unit.roles.conftest import any_world, impatient, mariadb, postgres, table, world, world_3  # noqa: F401 - fixtures
