"""What the service manager hears: from the real daemon, over a real datagram socket."""

import os
import signal
import socket
import time
from contextlib import closing

import pytest
from structlog.testing import capture_logs

from compactor.daemon.notify import ServiceManager
from tests.deploy.service import ManagerSocket, running


@pytest.fixture
def manager(tmp_path):
    with closing(ManagerSocket(tmp_path / "notify")) as there:
        yield there


def connected(manager, watchdog_seconds=None):
    environment = {"NOTIFY_SOCKET": str(manager.path)}
    if watchdog_seconds is not None:
        environment |= {"WATCHDOG_USEC": str(round(watchdog_seconds * 1e6)), "WATCHDOG_PID": str(os.getpid())}
    return ServiceManager.from_environment(environment)


def test_the_daemons_life_as_the_manager_hears_it(manager, tmp_path):
    """
    Ready once its roles run, a status that tells the queue, signs of life, a reload between RELOADING and READY, and
    how long the end may take.
    """
    with running(tmp_path, {"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "600000"}) as service:
        heard = service.until(
            manager.heard, lambda found: any(message.get("STATUS", "").startswith("queue: ") for message in found)
        )
        assert heard[0] == {"READY": "1"}
        assert [message["STATUS"] for message in heard if "STATUS" in message][
            -1
        ] == "queue: 0 initiated, 0 working, 0 ready for cleaning"
        service.until(manager.heard, lambda found: sum("WATCHDOG" in message for message in found) >= 3)
        before, began = len(manager.heard()), time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        service.process.send_signal(signal.SIGHUP)
        service.until(manager.heard, lambda found: {"READY": "1"} in found[before:])
        later = [message for message in manager.heard()[before:] if not {"WATCHDOG", "STATUS"} & message.keys()]
        assert list(later[0]) == ["RELOADING", "MONOTONIC_USEC"]
        assert began <= int(later[0]["MONOTONIC_USEC"]) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        assert later[1] == {"READY": "1"}
        assert service.stop() == 0
        last = next(message for message in manager.heard() if "STOPPING" in message)
        assert last == {"STOPPING": "1", "EXTEND_TIMEOUT_USEC": str((7 + 120 + 30) * 1_000_000), "STATUS": "draining"}


def test_trouble_ends_the_signs_of_life(manager):
    """
    One thread that hasn't completed its cycle is enough: the manager hears why, and no WATCHDOG any more; when it is
    over they come again.
    """
    there = connected(manager, 1e-6)
    there.report((), "fine")
    there.report(["cleaner has not completed a cycle for 9000 s (limit 3615 s)"], "fine")
    there.report(["cleaner has not completed a cycle for 9000 s (limit 3615 s)"], "fine")
    there.report((), "fine")
    assert manager.heard() == [
        {"WATCHDOG": "1", "STATUS": "fine"},
        {"STATUS": "cleaner has not completed a cycle for 9000 s (limit 3615 s)"},
        {"WATCHDOG": "1", "STATUS": "fine"},
    ]


def test_signs_of_life_come_no_more_often_than_needed(manager):
    """Three in one WatchdogSec; the main thread asks twice a second."""
    there = connected(manager, 3600)
    for _ in range(5):
        there.report((), "fine")
    assert manager.heard() == [{"WATCHDOG": "1", "STATUS": "fine"}]


def test_the_watchdog_of_another_process_is_not_ours(manager):
    """WATCHDOG_PID names who was asked."""
    there = ServiceManager.from_environment(
        {"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1"}
    )
    there.report((), "fine")
    assert manager.heard() == [{"STATUS": "fine"}]


def test_children_do_not_inherit_the_socket():
    """Spark's JVM is started with our environment; what was meant for us is gone from it."""
    environment = {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1", "HOME": "/"}
    ServiceManager.from_environment(environment)
    assert environment == {"HOME": "/"}


def test_an_abstract_address():
    """`@name` is what containers get."""
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as there:
        name = f"compactor-test-{os.getpid()}"
        there.bind(f"\0{name}")
        there.settimeout(10)
        ServiceManager(f"@{name}").ready()
        assert there.recv(100) == b"READY=1"


@pytest.mark.parametrize(("address", "complaints"), [("/nowhere/at/all", 1), ("vsock:2:1234", 1), ("", 0), (None, 0)])
def test_nobody_listens(address, complaints):
    """
    A manager that can't be told is no reason to stop: it is logged once, however much there is to say, and not at all
    where there is no manager.
    """
    there = ServiceManager.from_environment(
        {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1"} if address is not None else {}
    )
    with capture_logs() as said:
        there.ready()
        there.report((), "fine")
        there.reloading()
        there.stopping(1)
    assert [(event["log_level"], event["notification"]) for event in said] == [("warning", "READY=1")] * complaints


@pytest.mark.parametrize("address", ["", None])
def test_without_a_manager_no_socket_is_opened(address, monkeypatch):
    """Nothing is sent to anywhere, not even to an address that is empty."""

    def never(*_, **__):
        raise AssertionError("a socket was made")

    there = ServiceManager.from_environment({"NOTIFY_SOCKET": address} if address is not None else {})
    monkeypatch.setattr(socket, "socket", never)
    there.ready()
    there.stopping(1)


def test_a_status_is_one_line(manager):
    """Whatever an error's text holds, it can't forge another line of the protocol."""
    connected(manager).report(["broken\nREADY=1"], "")
    assert manager.heard() == [{"STATUS": "broken READY=1"}]
