"""
The connection to a real ZooKeeper: who is let in, refused and let in again, what is said of servers that aren't there,
and how long anybody waits for them.
"""

import contextlib
import gc
import importlib.util
import os
import re
import socket
import subprocess
import threading

import pytest
from structlog.testing import capture_logs

from compactor.coordination import Member, Role, open_coordinator
from compactor.coordination.zk.coordinator import ZooKeeperCoordinator
from compactor.errors import CompactorError, SettingsError, UnreachableError
from compactor.settings import Settings, ZooKeeper
from tests import forked
from tests.cluster.parties import PATIENCE, SHORT, is_over, party, until
from tests.cluster.zookeeper_servers import Ensemble, zookeeper
from tests.needs import missing

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # kazoo leaves sockets open when a handshake fails
def test_sasl_digest(tmp_path):
    """
    Servers that know users by JAAS: the right password leads, a wrong one is told apart from an unreachable server.
    """
    if importlib.util.find_spec("puresasl") is None:
        missing("the Python package pure-sasl isn't installed")
    jaas = tmp_path / "jaas.conf"
    jaas.write_text(
        'Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_compactor="geheim"; };\n',
        encoding="utf-8",
    )
    extra = {"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    with zookeeper(tmp_path / "servers", java=(f"-Djava.security.auth.login.config={jaas}",), extra=extra) as servers:
        with party(servers, auth="sasl-digest", user="compactor", password="geheim") as those:
            first = those.join("first")
            until(lambda: first.lead(Role.CLEANER), "led")
        wrong = ZooKeeperCoordinator(
            ZooKeeper(hosts=servers.hosts, auth="sasl-digest", user="compactor", password="falsch"), 0.5
        )
        with pytest.raises(SettingsError, match=r"^zookeeper\.user: ZooKeeper refused our user or password$"):
            wrong.connect()
        del wrong
        gc.collect()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # as above
def test_who_is_refused_by_sasl_for_a_while_comes_back(tmp_path, monkeypatch):
    """
    Servers that don't know us after a restart, as with a ticket that ran out: it is said once, and tried again and
    again without a thread too many. Once they know us we lead, in a new term and without a restart of ours; nothing of
    the old session is left, and who is refused can be closed.
    """
    if importlib.util.find_spec("puresasl") is None:
        missing("the Python package pure-sasl isn't installed")
    jaas = tmp_path / "jaas.conf"

    def known(password):
        jaas.write_text(
            f'Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required user_compactor="{password}"; }};\n',
            encoding="utf-8",
        )

    def restart(password):
        servers.kill(0)
        known(password)
        servers.start()

    known("geheim")
    extra = {"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    with (
        zookeeper(tmp_path / "servers", java=(f"-Djava.security.auth.login.config={jaas}",), extra=extra) as servers,
        party(servers, auth="sasl-digest", user="compactor", password="geheim", session_timeout_seconds=SHORT) as those,
        capture_logs() as said,
    ):
        before = threading.active_count()
        first = those.join("first")
        term = until(lambda: first.lead(Role.CLEANER), "led")
        with_one = threading.active_count()
        tried, begin = [], first._client.start_async
        monkeypatch.setattr(first._client, "start_async", lambda: tried.append(threading.active_count()) or begin())
        restart("anders")
        until(lambda: len(tried) > 9, "tried several times")
        assert max(tried) <= with_one
        assert first.why_not_start() == "nothing new is begun: ZooKeeper refused our user or password"
        assert [line["error"] for line in said if line["log_level"] == "error"] == [
            "ZooKeeper refused our user or password"
        ]
        assert is_over(term)
        restart("geheim")
        assert until(lambda: first.lead(Role.CLEANER), "led again").epoch > term.epoch
        assert is_over(term)
        until(lambda: [seen.member.host for seen in first.members()] == ["first"], "one of us there")
        until(lambda: len(first._nodes.children("leaders", Role.CLEANER)) == 1, "one of us in the line")
        assert threading.active_count() <= with_one
        tried.clear()
        restart("anders")
        until(lambda: tried, "refused again")
        first.close()
        until(lambda: threading.active_count() <= before, "ended")
    gc.collect()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # as above
def test_tls(tmp_path):
    """
    The servers' certificate and name are checked as the settings say, and ours is shown: another authority or name is
    refused, and so are we without ours.
    """

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=tmp_path)

    for name in ("server", "client", "other"):
        openssl(
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=somebody",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.pem",
        )
    (tmp_path / "both.pem").write_bytes((tmp_path / "server.key").read_bytes() + (tmp_path / "server.pem").read_bytes())
    extra = {
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": str(tmp_path / "both.pem"),
        "ssl.trustStore.location": str(tmp_path / "client.pem"),
    }
    with zookeeper(tmp_path / "servers", extra=extra, secure=True) as servers:
        files = {"cert_file": tmp_path / "client.pem", "key_file": tmp_path / "client.key"}
        hosts = f"127.0.0.1:{servers.secure_ports[0]}"
        with party(hosts, tls={"enabled": True, "ca_file": tmp_path / "server.pem", **files}) as those:
            first = those.join("first")
            until(lambda: first.lead(Role.CLEANER), "led")
        named = f"localhost:{servers.secure_ports[0]}"
        with party(
            named, tls={"enabled": True, "ca_file": tmp_path / "server.pem", "check_hostname": False, **files}
        ) as those:
            second = those.join("second")
            until(lambda: second.lead(Role.CLEANER), "led")
        for host, given in (
            (hosts, {"ca_file": tmp_path / "other.pem", **files}),
            (hosts, {"ca_file": tmp_path / "server.pem"}),
            (
                hosts,
                {
                    "ca_file": tmp_path / "server.pem",
                    "cert_file": tmp_path / "other.pem",
                    "key_file": tmp_path / "other.key",
                },
            ),
            (named, {"ca_file": tmp_path / "server.pem", **files}),
        ):
            assert refused(tmp_path, host, {"enabled": True, **given}) == "UnreachableError", (host, given)


def refused(folder, hosts, tls):
    """
    What a process says that tries to connect; one of its own, since kazoo leaves sockets open when a handshake fails.
    """
    out = folder / "out"
    out.unlink(missing_ok=True)
    trying = forked.start(
        _connect, hosts, tls, environment=dict(os.environ), folder=folder, out=out, err=folder / "err"
    )
    trying.join(PATIENCE)
    assert trying.exitcode == 0
    return out.read_text(encoding="utf-8").strip()


def _connect(hosts, tls):
    coordinator = ZooKeeperCoordinator(ZooKeeper(hosts=hosts, session_timeout_seconds=1, tls=tls), 0.5)
    try:
        coordinator.connect()
    except CompactorError as error:
        print(type(error).__name__, flush=True)
    os._exit(0)


def test_nobody_there_is_one_clear_error():
    """Nothing listens: unreachable, naming the hosts."""
    nobody = ZooKeeperCoordinator(ZooKeeper(hosts="127.0.0.1:1", session_timeout_seconds=1), 0.5)
    with pytest.raises(UnreachableError, match=r"^ZooKeeper 127\.0\.0\.1:1 can't be reached: Connection refused$"):
        nobody.connect()


def test_names_that_nobody_has_are_told():
    """
    A name that isn't known, and one that can't be: both are named, by who looks and by who joins; kazoo's thread ends
    by the second one.
    """
    for hosts, why in (
        ("nobody.invalid:2181", "Cannot resolve nobody.invalid"),
        ("a..b:2181", "label empty or too long"),
    ):
        settings = ZooKeeper(hosts=hosts, session_timeout_seconds=6)
        with pytest.raises(UnreachableError, match=f"^ZooKeeper {re.escape(hosts)} can't be reached: .*{why}"):
            ZooKeeperCoordinator(settings, 0.5).connect()
        member = ZooKeeperCoordinator(settings, 0.1)
        member.join(Member("one", "one", 1, "1"), Role)
        until(lambda member=member, why=why: why in member.why_not_start(), "told")
        member.close()


def test_a_host_that_is_off_takes_only_its_share():
    """
    Packets to the first of two servers are lost: the other is asked within the session time-out, which would be over
    otherwise.
    """
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as full,
        socket.create_server(("127.0.0.1", 0)) as other,
        contextlib.ExitStack() as queue,
    ):
        for _ in range(2):  # as many as it holds; what comes after isn't answered
            waiting = queue.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        hosts = ",".join(f"127.0.0.1:{one.getsockname()[1]}" for one in (full, other))
        coordinator = ZooKeeperCoordinator(ZooKeeper(hosts=hosts, session_timeout_seconds=12), 0.5)
        coordinator._client.set_hosts(hosts, randomize_hosts=False)
        asked = threading.Event()

        def answer():
            with other.accept()[0]:
                asked.set()

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(UnreachableError):
            coordinator.connect()
        assert asked.is_set()


def test_a_member_that_finds_nobody_says_so_once_and_waits(tmp_path):
    """
    Servers that are started later: it says to whom it connects, and once why it can't; nothing is asked, and nothing
    kept to be asked, until they are there.
    """
    servers = Ensemble(tmp_path / "servers")
    with capture_logs() as said, party(servers.hosts, session_timeout_seconds=SHORT) as those:
        first = those.join("first")
        until(lambda: any(line["log_level"] == "error" for line in said), "said")
        assert not first.reached
        assert (
            first.why_not_start()
            == f"nothing new is begun: ZooKeeper {servers.hosts} can't be reached: Connection refused"
        )
        assert first.present() is None
        assert not first._client._queue
        try:
            servers.start()
            until(lambda: first.lead(Role.CLEANER), "led")
            assert first.reached
            assert first.why_not_start() is None
            told = [
                (line["log_level"], line["event"])
                for line in said
                if "log_level" in line and line["log_level"] != "debug"
            ]
            assert told[:2] == [
                ("info", "zookeeper_connection.started"),
                ("error", "candidacy.not_renewed"),
            ]
            assert {event for _, event in told[2:]} == {"zookeeper_connection.changed"}
        finally:
            those.close()
            those.coordinators.clear()
            servers.stop()


def test_who_only_looks_waits_a_few_seconds():
    """However long members' sessions are; a shorter one counts."""
    for session, waits in ((600, 5), (20, 5), (2, 2)):
        settings = Settings(
            database={"url": "sqlite:////nowhere"},
            zookeeper={"hosts": "127.0.0.1:1", "session_timeout_seconds": session},
        )
        assert open_coordinator(settings, lambda: None, patience_seconds=5)._link.timeout == waits
        assert open_coordinator(settings, lambda: None)._link.timeout == session
