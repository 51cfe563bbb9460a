"""What is left running on a YARN with Kerberos is ended by whoever has the keytab, without any ticket."""

import os
import threading
import time

import pytest

from compactor.engine import left_over
from compactor.engine.left_over import by_keytab, end_on_yarn
from compactor.engine.submit import BrokenDownError, JobName
from compactor.engine.submit_mode import ApplicationSubmitter
from compactor.errors import CompactorError, UnreachableError
from compactor.storage.registry import storage_for
from tests.cluster.kerberos.test_kerberos_yarn import cluster, directory, yarn_server  # noqa: F401 - fixtures
from tests.cluster.test_spark_yarn import PATIENCE, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def test_what_is_left_is_ended_by_keytab(cluster, directory, monkeypatch, capsys):  # noqa: F811 - the fixtures
    """Without a keytab the command is refused, which is told with what to do; with it YARN confirms."""
    given = cluster.settings(mode="submit", **cluster.login)
    submitter = ApplicationSubmitter(given)
    place = f"{directory}/.compactor-71-a"
    storage_for(place).mkdir(place)
    job, failure = JobName("left", "71.a", place=place), []

    def run():
        try:
            failure.append(submitter.run(job, time.sleep, [PATIENCE]))
        except CompactorError as error:
            failure.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        until(lambda: submitter.application(job), "there")
        with monkeypatch.context() as patch:
            patch.setattr(left_over, "_CLI_SECONDS", 20)
            assert end_on_yarn([job.key], None, os.environ) == []
        assert "set spark.principal and spark.keytab" in capsys.readouterr().out
        assert end_on_yarn([job.key], None, os.environ | by_keytab(given.spark)) == [submitter.application(job)]
        thread.join(PATIENCE)
        assert [type(one) for one in failure] in ([BrokenDownError], [UnreachableError])
    finally:
        submitter.stop()
