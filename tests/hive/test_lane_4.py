"""The fast lane on Hive 4.0.1: a file of its own, for files are what the workers of a suite divide among them."""

import pytest

from tests.hive.histories import play
from tests.hive.played.histories import play_all
from tests.metastore.databases import parties, postgres  # noqa: F401 - fixtures

pytestmark = [pytest.mark.hive, pytest.mark.postgres]


@pytest.mark.timeout(0)
def test_every_snapshot_reads_its_rows(request, parties, tmp_path):  # noqa: F811 - a fixture
    """
    Whatever Hive's writers and our roles do, in whatever order: every snapshot reads its rows, by Hive's own reader.
    """
    play("4.0.0", request, parties, tmp_path)


@pytest.mark.timeout(0)
def test_the_models_histories_are_played(request, parties, tmp_path):  # noqa: F811 - a fixture
    """After each action of the protocol's model, done by Hive and our roles, every reader sees the model's rows."""
    play_all("4.0.0", request, parties, tmp_path)
