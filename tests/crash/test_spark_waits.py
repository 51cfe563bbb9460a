"""
TERM to a daemon whose Spark never comes, as while YARN's queue is full: it ends in time, and nothing is lost or left.
"""

import signal

import pytest
import yaml

from compactor.roles import steps
from tests import fake_spark
from tests.crash.scene import SETTINGS, ended, given_back_and_compacted, send

pytestmark = [pytest.mark.crash, pytest.mark.timeout(240)]


def test_a_daemon_that_waits_for_spark_drains(scene, tmp_path, monkeypatch):
    """The start is ended, and the entry, which no worker had claimed before Spark was there, is compacted later."""
    monkeypatch.setenv("SPARK_HOME", str(fake_spark.install(tmp_path / "spark")))
    monkeypatch.setenv("FAKE_SPARK", "wait")
    scene.config.write_text(
        yaml.safe_dump(SETTINGS | {"database": {"url": scene.url}, "drain": {"timeout_seconds": 0.1}}), encoding="utf-8"
    )
    process = scene.start(spark=True)
    scene.until(process, lambda: list(scene.folder.glob("compactor-spark-*")), "waiting for Spark")
    send(process, signal.SIGTERM)
    assert ended(process) == 0
    assert not any(event.get("step") == steps.WORKER_CLAIMED for event in scene.events())
    given_back_and_compacted(scene)
