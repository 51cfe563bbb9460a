"""The HTTP server: metrics, health, readiness."""

import socket
import struct
import urllib.error
import urllib.request

import pytest

from compactor.daemon.web import HttpAnswer, WebServer, check
from compactor.errors import SettingsError
from compactor.metrics import CONTENT_TYPE, Metrics


def get(server: WebServer, path: str) -> tuple[int, str]:
    host, port = server.address
    try:
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.fixture
def troubles():
    return {"healthy": [], "ready": []}


@pytest.fixture
def server(troubles):
    """A server on any free port."""
    endpoints = {
        "/metrics": lambda: HttpAnswer(Metrics().render(), content_type=CONTENT_TYPE),
        "/-/healthy": check(lambda: troubles["healthy"]),
        "/-/ready": check(lambda: troubles["ready"]),
    }
    web = WebServer("127.0.0.1", 0, endpoints)
    web.start()
    yield web
    web.close()


def test_metrics_are_served(server):
    """In Prometheus' text format."""
    code, text = get(server, "/metrics")
    assert code == 200
    assert "# TYPE compactor_build_info gauge" in text


@pytest.mark.parametrize(("path", "check"), [("/-/healthy", "healthy"), ("/-/ready", "ready")])
def test_a_check_tells_each_trouble(server, troubles, path, check):
    """200 OK when all is well, 503 and a line for each trouble otherwise."""
    assert get(server, path) == (200, "OK\n")
    troubles[check] += ["initiator has ended", "cleaner has not completed a cycle"]
    assert get(server, path) == (503, "initiator has ended\ncleaner has not completed a cycle\n")


def test_other_paths_are_not_there(server):
    """404 names what is."""
    assert get(server, "/x?y=1") == (404, "/metrics /-/healthy /-/ready\n")


def test_a_port_in_use_is_one_line(server):
    """The setting is named."""
    host, port = server.address
    with pytest.raises(
        SettingsError, match=r"http.host, http.port: can't listen on 127\.0\.0\.1:\d+: Address already in use"
    ):
        WebServer(host, port, {})


def test_who_hangs_up_is_no_news(server, capfd):
    """
    A scraper that gives up before the answer came leaves no traceback on the daemon's output; others are served as
    before.
    """
    for _ in range(5):
        with socket.create_connection(server.address) as there:
            there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            there.sendall(b"GET /metrics HTTP/1.1\r\n\r\n" * 50)
    assert get(server, "/metrics")[0] == 200
    server.close()
    assert "Traceback" not in capfd.readouterr().err
