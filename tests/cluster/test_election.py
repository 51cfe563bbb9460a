"""Election, membership and control state by a real ZooKeeper: never two leaders, whatever is cut, killed or stopped; and the same interface by the database."""

import gc
import importlib.util
import itertools
import json
import os
import subprocess
import threading
import time
from contextlib import contextmanager

import pytest
from kazoo.client import KazooClient

from compactor.coordination import Activity, ConflictError, Connection, Member, Role
from compactor.coordination.database import DatabaseCoordinator
from compactor.coordination.zookeeper import ZooKeeperCoordinator
from compactor.errors import CompactorError, OwnershipLostError, SettingsError, UnreachableError
from compactor.metastore.database import Database
from compactor.settings import ZooKeeper
from tests import forked
from tests.cluster.network import Relay
from tests.cluster.zookeeper_servers import zookeeper
from tests.needs import missing

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]
PATIENCE = 60.0
_numbers = itertools.count(1)


def until(done, what):
    deadline = time.monotonic() + PATIENCE
    while not (found := done()):
        assert time.monotonic() < deadline, f"not {what}"
        time.sleep(0.01)
    return found


def is_over(term):
    try:
        term.check()
    except OwnershipLostError:
        return True
    return False


class Party:
    """Coordinators of one root, closed at the end; each thread that watches says whether two led at the same time."""

    def __init__(self, hosts, **settings):
        self.settings = {"hosts": hosts, "root": f"/party-{next(_numbers)}", "session_timeout_seconds": 1.5, **settings}
        self.coordinators = []
        self.may_overlap = False
        self._over = threading.Event()
        self._two = []
        threading.Thread(target=self._watch, daemon=True).start()

    def join(self, name, hosts=None, **member):
        coordinator = ZooKeeperCoordinator(ZooKeeper(**(self.settings | ({"hosts": hosts} if hosts else {}))), 0.5)
        coordinator.join(Member(name, name, 1, "1", **member), Role)
        self.coordinators.append(coordinator)
        return coordinator

    def _watch(self):
        while not self._over.wait(0.005):
            # a term that was valid a moment ago is asked again: both must hold at one moment
            leaders = [(one, term) for one in list(self.coordinators) if (term := one.lead(Role.CLEANER))]
            if len(leaders) > 1 and all(one.lead(Role.CLEANER) for one, _ in leaders[:-1]):
                self._two.append(leaders)

    def close(self):
        self._over.set()
        for coordinator in self.coordinators:
            coordinator.close()
        assert self.may_overlap or not self._two, "two led at the same time"


@contextmanager
def party(servers, **settings):
    made = Party(servers if isinstance(servers, str) else servers.hosts, **settings)
    try:
        yield made
    finally:
        made.close()


def test_one_leads_and_the_next_succeeds_at_once(zookeeper_1):
    """A leader that leaves is succeeded without a time-out, with a larger epoch; a role that it resigns alone, too."""
    with party(zookeeper_1) as those:
        first = those.join("first")
        terms = {role: until(lambda role=role: first.lead(role), "led") for role in Role}
        second = those.join("second")
        until(lambda: len(second.present()) == 2, "both there")
        assert second.leading() == frozenset()
        first.resign(Role.INITIATOR)
        assert until(lambda: second.lead(Role.INITIATOR), "succeeded").epoch > terms[Role.INITIATOR].epoch
        with pytest.raises(OwnershipLostError):
            terms[Role.INITIATOR].check()
        terms[Role.CLEANER].check()
        first.close()
        assert until(lambda: second.lead(Role.CLEANER), "succeeded").epoch > terms[Role.CLEANER].epoch


def test_stepping_back_lets_another_lead(zookeeper_1):
    """A leader that can't do its work goes to the end of the line; alone in the line it leads again, in a new term."""
    with party(zookeeper_1) as those:
        first = those.join("first")
        term = until(lambda: first.lead(Role.CLEANER), "led")
        first.step_back(Role.CLEANER)
        assert is_over(term)
        assert until(lambda: first.lead(Role.CLEANER), "leads again").epoch > term.epoch
        second = those.join("second")
        until(lambda: len(second.present()) == 2, "both there")
        first.step_back(Role.CLEANER)
        until(lambda: second.lead(Role.CLEANER), "succeeded")
        first.step_back(Role.CLEANER)
        second.step_back(Role.CLEANER)
        until(lambda: first.lead(Role.CLEANER), "back")


def test_an_expired_session_is_noticed(zookeeper_1):
    """A second client with the same id ends the session: the term is over for good, the other leads, and the first stands in line again."""
    with party(zookeeper_1) as those:
        those.may_overlap = True  # nobody waits for the time-out of a session that somebody else ends; the database's mutex keeps the two apart
        first = those.join("first")
        term = until(lambda: first.lead(Role.CLEANER), "led")
        second = those.join("second")
        until(lambda: len(second.present()) == 2, "both there")
        thief = KazooClient(hosts=zookeeper_1.hosts, client_id=first._client.client_id)
        thief.start()
        thief.stop()
        thief.close()
        until(lambda: second.lead(Role.CLEANER), "succeeded")
        until(lambda: is_over(term), "noticed")
        until(lambda: len(second.present()) == 2, "back")
        assert first.lead(Role.CLEANER) is None
        second.resign(Role.CLEANER)
        until(lambda: first.lead(Role.CLEANER), "leads again")
        assert is_over(term)


def test_cut_off_it_lets_go_before_the_other_begins(zookeeper_1):
    """Without any word from the network: SUSPENDED or LOST within the session time-out, nothing new is begun, the term is over; mended it stands in line."""
    with Relay(zookeeper_1.ports[0]) as relay, party(zookeeper_1) as those:
        first = those.join("first", f"127.0.0.1:{relay.port}")
        term = until(lambda: first.lead(Role.CLEANER), "led")
        second = those.join("second")
        until(lambda: len(second.present()) == 2, "both there")
        relay.cut()
        until(lambda: first.connection is Connection.LOST, "lost")
        assert first.why_not_start() == "nothing new is begun: the connection to zookeeper is lost"
        with pytest.raises(OwnershipLostError):
            term.check()
        until(lambda: second.lead(Role.CLEANER), "succeeded")
        with pytest.raises(UnreachableError):
            first.members()
        relay.mend()
        until(lambda: first.connection is Connection.CONNECTED and len(second.present()) == 2, "back")
        assert first.lead(Role.CLEANER) is None


def test_suspended_it_ends_what_it_began_and_begins_nothing(tmp_path):
    """The only server is killed: the connection is suspended at once, and nothing new may be begun. A term goes on until the session may be over; lost, it is let go."""
    with zookeeper(tmp_path / "servers") as servers, party(servers, session_timeout_seconds=8) as those:
        first = those.join("first")
        term = until(lambda: first.lead(Role.CLEANER), "led")
        servers.kill(0)
        until(lambda: first.connection is Connection.SUSPENDED, "suspended")
        assert first.why_not_start() == "nothing new is begun: the connection to zookeeper is suspended"
        assert first.lead(Role.CLEANER) is None
        term.check()
        until(lambda: first.connection is Connection.LOST, "lost")
        assert first.why_not_start() == "nothing new is begun: the connection to zookeeper is lost"
        assert is_over(term)
        assert first.leading() == frozenset()
        servers.start_one(0)
        until(lambda: first.lead(Role.CLEANER), "leads again")


def test_servers_die_and_the_leader_stays_one(zookeeper_3):
    """The ensemble's leader is killed: sessions go on with the others. Two of three gone: nobody leads, nothing is begun; with a quorum again one leads."""
    with party(zookeeper_3, session_timeout_seconds=4) as those:
        first, second = those.join("first"), those.join("second")
        until(lambda: any(one.lead(Role.CLEANER) for one in (first, second)), "led")
        zookeeper_3.kill(zookeeper_3.leader())
        until(lambda: all(one.connection is Connection.CONNECTED for one in (first, second)), "connected to the others")
        until(lambda: sum(one.lead(Role.CLEANER) is not None for one in (first, second)) == 1, "one leads")
        gone = zookeeper_3.leader()
        zookeeper_3.kill(gone)
        until(lambda: all(one.why_not_start() for one in (first, second)), "nothing new")
        until(lambda: not any(one.lead(Role.CLEANER) or one.leading() for one in (first, second)), "nobody leads")
        zookeeper_3.start_one(gone)
        until(lambda: sum(one.lead(Role.CLEANER) is not None for one in (first, second)) == 1, "one leads again")


def test_a_stopped_server_is_left(zookeeper_3):
    """SIGSTOP of one server: its clients go to the others within their session."""
    with party(zookeeper_3, session_timeout_seconds=4) as those:
        number = zookeeper_3.leader()
        first = those.join("first", zookeeper_3.hosts)
        term = until(lambda: first.lead(Role.CLEANER), "led")
        zookeeper_3.pause(number)
        try:
            until(lambda: (zookeeper_3.mode((number + 1) % 3), zookeeper_3.mode((number + 2) % 3)).count("leader") == 1, "a new leader among the servers")
            assert until(lambda: first.lead(Role.CLEANER), "leads").epoch >= term.epoch
        finally:
            zookeeper_3.resume(number)


@pytest.fixture(params=["zookeeper", pytest.param("database", marks=pytest.mark.postgres)])
def make(request):
    """Makes coordinators of one place, by ZooKeeper or by PostgreSQL."""
    made, databases = [], []
    if request.param == "zookeeper":
        settings = ZooKeeper(hosts=request.getfixturevalue("zookeeper_1").hosts, root=f"/party-{next(_numbers)}", session_timeout_seconds=2)
    else:
        url = request.getfixturevalue("postgres").create("4.0.0")

    def another():
        if request.param == "zookeeper":
            made.append(ZooKeeperCoordinator(settings, 0.2))
        else:
            databases.append(Database(url))
            made.append(DatabaseCoordinator(databases[-1], 0.2))
        made[-1].connect()
        return made[-1]

    yield another
    for coordinator in made:
        coordinator.close()
    for database in databases:
        database.close()


def test_control_state_is_compared_and_set(make):
    """Whoever read an older version doesn't write over a newer one; who watches is told; a key may lie below another."""
    one, other = make(), make()
    one.join(Member("one", "one", 1, "1"), [])
    until(one.present, "joined")
    assert one.read("pause/pools") is None
    told = threading.Event()
    one.watch("pause/pools", told.set)
    first = other.write("pause/pools", {"etl": "until monday"}, None)
    assert told.wait(PATIENCE)
    assert one.read("pause/pools") == first
    with pytest.raises(ConflictError):
        one.write("pause/pools", {}, None)
    second = one.write("pause/pools", {"etl": "for ever"}, first.version)
    with pytest.raises(ConflictError):
        other.write("pause/pools", {}, first.version)
    assert other.read("pause/pools") == second
    assert other.write("pause", {"all": True}, None).data == one.read("pause").data
    with pytest.raises(ConflictError):
        other.write("never/written", {}, 3)


def test_ten_writers_at_once_lose_nothing(make):
    """Each update reads, changes and writes again until nobody came in between."""
    coordinators = [make() for _ in range(3)]
    coordinators[0].write("count", {"n": 0}, None)

    def add(coordinator):
        for _ in range(5):
            coordinator.update("count", lambda data: {**data, "n": data["n"] + 1})

    threads = [threading.Thread(target=add, args=(coordinator,)) for coordinator in coordinators]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert coordinators[0].read("count").data == {"n": 15}


def test_old_and_new_versions_read_each_other(make):
    """Fields that this version doesn't know are ignored and kept, in members' records and in control state; missing ones are empty."""
    newer, older = make(), make()
    newer.join(
        Member("n" * 32, "new-host", 7, "9.0", ("cleaner", "worker"), (Activity("worker-1", True, "a table", "worker.ran"),), {"zone": {"name": "b"}}), []
    )
    seen = until(lambda: next(iter(older.members()), None), "seen")
    assert seen.member.extra["zone"] == {"name": "b"}
    assert (seen.member.host, seen.member.pid, seen.member.version, seen.alive) == ("new-host", 7, "9.0", True)
    assert seen.member.doing[0].what == "a table"
    newer.write("pause", {"all": {"reason": "upgrade", "approved_by": "ann"}, "schema": 2}, None)
    older.update("pause", lambda data: {**data, "all": {**data["all"], "reason": "still upgrading"}})
    assert newer.read("pause").data == {"all": {"reason": "still upgrading", "approved_by": "ann"}, "schema": 2}
    assert Member.of({"instance": "x", "roles": "odd", "doing": [3, {"name": "a", "since": 5}]}) == Member("x", "", 0, "unknown", (), (Activity("a"),))


def test_what_each_is_doing_is_told(make):
    """A report arrives with the next heartbeat."""
    one, other = make(), make()
    one.join(Member("one", "one", 1, "1"), [])
    one.report([Activity("cleaner", True, "db.t", "cleaner.trashed")])
    until(lambda: [seen.member.doing for seen in other.members()] == [(Activity("cleaner", True, "db.t", "cleaner.trashed"),)], "told")
    assert all(seen.heartbeat_age_ms < 30_000 for seen in other.members())


def test_who_leaves_is_gone(make):
    """Leaving is told at once; nobody waits for a time-out."""
    one, other = make(), make()
    one.join(Member("one", "one", 1, "1"), [])
    until(lambda: other.present() == {"one"}, "there")
    one.close()
    assert other.present() == frozenset()


def test_digest_keeps_strangers_out(zookeeper_1, tmp_path):
    """What we create can be read and written by our user only, or read by all where that is set."""
    secret = tmp_path / "password"
    secret.write_text("geheim\n", encoding="utf-8")
    ours = {"auth": "digest", "user": "compactor", "password_file": secret}
    with party(zookeeper_1, **ours) as those:
        first = those.join("first")
        until(lambda: first.lead(Role.CLEANER), "led")
        first.write("pause", {"all": True}, None)
        stranger = ZooKeeperCoordinator(ZooKeeper(hosts=zookeeper_1.hosts, root=those.settings["root"]), 0.5)
        stranger.connect()
        for forbidden in (stranger.members, lambda: stranger.read("pause"), lambda: stranger.write("pause", {}, None)):
            with pytest.raises(SettingsError, match="isn't allowed"):
                forbidden()
        stranger.close()
    with party(zookeeper_1, **ours, world_readable=True) as those:
        first = those.join("first")
        until(lambda: first.lead(Role.CLEANER), "led")
        reader = ZooKeeperCoordinator(ZooKeeper(hosts=zookeeper_1.hosts, root=those.settings["root"]), 0.5)
        reader.connect()
        assert [seen.member.host for seen in reader.members()] == ["first"]
        with pytest.raises(SettingsError, match="isn't allowed"):
            reader.write("pause", {}, None)
        reader.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # as above
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


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # kazoo leaves sockets open when a handshake fails
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


def test_records_are_plain_json(zookeeper_1):
    """Anybody can read them with ZooKeeper's own client."""
    with party(zookeeper_1) as those:
        first = those.join("first")
        until(lambda: first.lead(Role.CLEANER), "led")
        client = KazooClient(hosts=zookeeper_1.hosts)
        client.start()
        data, _ = client.get(f"{those.settings['root']}/members/first")
        client.stop()
        client.close()
        assert json.loads(data)["host"] == "first"
