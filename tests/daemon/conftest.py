"""A PostgreSQL server for the metastores of these tests, and one Spark session for all of their daemons."""

import pytest

from tests.metastore.conftest import postgres  # noqa: F401 - a fixture
from tests.metastore.servers import UnavailableError, schema_script
from tests.needs import missing
from tests.spark.conftest import submitter  # noqa: F401 - a fixture


@pytest.fixture(scope="session")
def schemas():
    """Hive's schema scripts can be had."""
    try:
        return schema_script("3.1.0")
    except UnavailableError as error:
        missing(str(error))
