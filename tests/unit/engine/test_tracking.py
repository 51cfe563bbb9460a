"""Where an application can be looked at, by what the queue has room for of its id."""

import pytest

from compactor.spark.application.tracking import tracking_url
from tests.compacting import settings


@pytest.mark.parametrize(
    ("application", "url"),
    [
        ("application_1700000000000_0042", "https://rm/application_1700000000000_0042"),
        ("app-20260101000000-0001", "https://rm/app-20260101000000-0001"),
        ("spark-0123456789abcdef0123456789abcdef"[:32], None),
        ("42.a1b2c3d4", None),
        (None, None),
    ],
)
def test_a_link_or_none(application, url):
    """
    The id of Kubernetes has 38 characters, the queue's column 32: no link rather than one that leads nowhere. A job's
    key is no application.
    """
    assert tracking_url(settings(spark={"tracking_url": "https://rm/{id}"}), application) == url
