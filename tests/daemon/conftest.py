"""A PostgreSQL server for the metastores of these tests, and one Spark session for all of their daemons."""

from tests.metastore.databases import postgres  # noqa: F401 - a fixture
from tests.spark.conftest import submitter  # noqa: F401 - a fixture
