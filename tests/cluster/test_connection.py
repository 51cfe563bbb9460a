"""The connection to a real ZooKeeper: who is let in, refused and let in again, what is said of servers that aren't there, and how long anybody waits for them."""

import gc
import importlib.util
import os
import subprocess

import pytest

from compactor.coordination import Role
from compactor.coordination.zookeeper import ZooKeeperCoordinator
from compactor.errors import CompactorError, SettingsError, UnreachableError
from compactor.settings import ZooKeeper
from tests import forked
from tests.cluster.parties import PATIENCE, party, until
from tests.cluster.zookeeper_servers import zookeeper
from tests.needs import missing

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # kazoo leaves sockets open when a handshake fails
def test_sasl_digest(tmp_path):
    """Servers that know users by JAAS: the right password leads, a wrong one is told apart from an unreachable server."""
    if importlib.util.find_spec("puresasl") is None:
        missing("the Python package pure-sasl isn't installed")
    jaas = tmp_path / "jaas.conf"
    jaas.write_text('Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_compactor="geheim"; };\n', encoding="utf-8")
    extra = {"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    with zookeeper(tmp_path / "servers", java=(f"-Djava.security.auth.login.config={jaas}",), extra=extra) as servers:
        with party(servers, auth="sasl-digest", user="compactor", password="geheim") as those:
            first = those.join("first")
            until(lambda: first.lead(Role.CLEANER), "led")
        wrong = ZooKeeperCoordinator(ZooKeeper(hosts=servers.hosts, session_timeout_seconds=1, auth="sasl-digest", user="compactor", password="falsch"), 0.5)
        with pytest.raises((SettingsError, UnreachableError)):
            wrong.connect()
        del wrong
        gc.collect()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # as above
def test_who_is_refused_by_sasl_for_a_while_comes_back(tmp_path, capsys):
    """Servers that don't know us after a restart, as with a ticket that ran out: it is said, and once they know us again we lead, without a restart of ours."""
    if importlib.util.find_spec("puresasl") is None:
        missing("the Python package pure-sasl isn't installed")
    jaas = tmp_path / "jaas.conf"

    def known(password):
        jaas.write_text(f'Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required user_compactor="{password}"; }};\n', encoding="utf-8")

    known("geheim")
    extra = {"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    with (
        zookeeper(tmp_path / "servers", java=(f"-Djava.security.auth.login.config={jaas}",), extra=extra) as servers,
        party(servers, auth="sasl-digest", user="compactor", password="geheim") as those,
    ):
        first = those.join("first")
        until(lambda: first.lead(Role.CLEANER), "led")
        said = []
        for password in ("anders", "geheim"):
            servers.kill(0)
            known(password)
            servers.start()
            if password == "anders":
                until(lambda: said.append(capsys.readouterr().out) or "refused our user or password" in "".join(said), "said")
        until(lambda: first.lead(Role.CLEANER), "led again")
    gc.collect()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # as above
def test_tls(tmp_path):
    """The servers' certificate and name are checked as the settings say, and ours is shown: another authority or name is refused, and so are we without ours."""

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
        with party(named, tls={"enabled": True, "ca_file": tmp_path / "server.pem", "check_hostname": False, **files}) as those:
            second = those.join("second")
            until(lambda: second.lead(Role.CLEANER), "led")
        for host, given in (
            (hosts, {"ca_file": tmp_path / "other.pem", **files}),
            (hosts, {"ca_file": tmp_path / "server.pem"}),
            (hosts, {"ca_file": tmp_path / "server.pem", "cert_file": tmp_path / "other.pem", "key_file": tmp_path / "other.key"}),
            (named, {"ca_file": tmp_path / "server.pem", **files}),
        ):
            assert refused(tmp_path, host, {"enabled": True, **given}) == "UnreachableError", (host, given)


def refused(folder, hosts, tls):
    """What a process says that tries to connect; one of its own, since kazoo leaves sockets open when a handshake fails."""
    out = folder / "out"
    out.unlink(missing_ok=True)
    trying = forked.start(_connect, hosts, tls, environment=dict(os.environ), folder=folder, out=out, err=folder / "err")
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
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1 can't be reached"):
        nobody.connect()
