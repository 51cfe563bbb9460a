"""One Spark session for all tests of the process."""

import pytest

from compactor.errors import UnreachableError
from compactor.spark.java import require_java
from compactor.spark.session.session import SparkSubmitter
from tests.compacting import settings
from tests.needs import missing


@pytest.fixture(scope="session")
def submitter():
    """The real submitter on two local cores; a failed task is tried again."""
    try:
        require_java()
    except UnreachableError as error:
        missing(str(error))
    found = SparkSubmitter(settings(spark={"master": "local[2,4]"}))
    yield found
    found.stop()
