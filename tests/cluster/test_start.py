"""A daemon that is started before the ZooKeeper that its settings name."""

import json
import signal
from contextlib import closing

import pytest

from compactor.coordination import NOTHING_NEW
from tests.cluster.zookeeper_servers import Ensemble
from tests.deploy.service import ManagerSocket, running

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def test_ready_when_zookeeper_is_reached(tmp_path):
    """
    Until then the service manager hears what is waited for, not that it is ready, and the log says it once, however
    many threads wait; a reload changes nothing about that. Reached, it is ready and goes to work.
    """
    servers = Ensemble(tmp_path / "servers")
    zookeeper = {"hosts": servers.hosts, "session_timeout_seconds": 20}
    folder = tmp_path / "daemon"
    folder.mkdir()
    with (
        closing(ManagerSocket(tmp_path / "notify")) as manager,
        running(folder, {"NOTIFY_SOCKET": str(manager.path)}, zookeeper=zookeeper) as service,
    ):

        def heard(status):
            return service.until(
                manager.heard, lambda found: any(message.get("STATUS", "").startswith(status) for message in found)
            )

        def events():
            return [json.loads(line) for line in service.log.splitlines() if line.startswith("{")]

        waits = f"{NOTHING_NEW}: ZooKeeper {servers.hosts} can't be reached: Connection refused"
        found = heard(waits)
        service.process.send_signal(signal.SIGHUP)
        service.until(events, lambda found: any(event["event"] == "settings.reloaded" for event in found))
        assert not any({"READY", "RELOADING"} & message.keys() for message in found + manager.heard())
        said = [event for event in events() if event["event"].startswith(("zookeeper", "candidacy"))]
        assert [event["event"] for event in said] == ["zookeeper_connection.started", "candidacy.not_renewed"]
        try:
            servers.start()
            found = heard("queue: ")
            assert {"READY": "1"} in found
            assert not any("lost" in json.dumps(event) for event in events())
            assert service.stop() == 0
        finally:
            servers.stop()


def test_nothing_is_said_to_be_lost_at_a_start(tmp_path, zookeeper_1):
    """ZooKeeper is there: two lines about it, to whom it connects and that it is connected, and ready after that."""
    zookeeper = {"hosts": zookeeper_1.hosts, "root": "/start"}
    with (
        closing(ManagerSocket(tmp_path / "notify")) as manager,
        running(tmp_path, {"NOTIFY_SOCKET": str(manager.path)}, zookeeper=zookeeper) as service,
    ):
        service.until(manager.heard, lambda found: {"READY": "1"} in found)
        said = [json.loads(line) for line in service.log.splitlines() if line.startswith("{")]
        told = [(event["event"], event.get("connection")) for event in said if event["event"].startswith("zookeeper")]
        assert told == [("zookeeper_connection.started", None), ("zookeeper_connection.changed", "connected")]
        assert NOTHING_NEW not in service.log
        assert service.stop() == 0
