"""
ZooKeeper by SASL with real tickets: whose our nodes are, who is elected, and what is said and done without a ticket,
with one that ran out, and by the wrong one.
"""

import gc
import importlib.util
import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from structlog.testing import capture_logs

from compactor.cli.root import cli
from compactor.coordination import Role
from tests.cluster.kdc import REALM
from tests.cluster.kerberos.secured import java
from tests.cluster.parties import is_over, party, until
from tests.cluster.zookeeper_servers import zookeeper
from tests.metastore.servers import UnavailableError
from tests.needs import missing

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnraisableExceptionWarning"
    ),  # kazoo leaves sockets open when a handshake fails
]
LIFE = 12
"""Seconds that a short ticket is valid."""
WHAT_TO_DO = "the process needs a valid ticket in its cache (KRB5CCNAME), and zookeeper.hosts must name hosts as the servers' principals do"
BY_TICKET = {"auth": "kerberos"}


@pytest.fixture(autouse=True)
def _sockets_closed():
    """What a failed handshake left open is closed in the test that left it."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def start(kdc):
    """
    Servers that take tickets for zookeeper/localhost, and know a principal by its first part and realm; more lines of
    zoo.cfg.
    """
    for module in ("puresasl", "kerberos"):
        if importlib.util.find_spec(module) is None:
            missing(f"the Python package {module} isn't installed (it is compiled: gcc, and Debian's libkrb5-dev)")
    keytab = kdc.keytab("zookeeper/localhost")
    jaas = kdc.folder / "jaas.conf"
    login = (
        f'useKeyTab=true keyTab="{keytab}" storeKey=true useTicketCache=false principal="zookeeper/localhost@{REALM}"'
    )
    jaas.write_text(f"Server {{ com.sun.security.auth.module.Krb5LoginModule required {login}; }};\n", encoding="utf-8")
    extra = {
        "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        "kerberos.removeHostFromPrincipal": "true",
    }

    def started(folder, **more):
        return zookeeper(folder, extra=extra | more, java=(f"-Djava.security.auth.login.config={jaas}", java(kdc)))

    return started


@pytest.fixture(scope="module")
def servers(start, tmp_path_factory):
    """One server, by the name in its principal; who has no ticket is anonymous there."""
    try:
        with start(tmp_path_factory.mktemp("zookeeper")) as started:
            yield SimpleNamespace(hosts=named(started), ensemble=started)
    except UnavailableError as error:
        missing(str(error))


def named(servers):
    return f"localhost:{servers.ports[0]}"


@pytest.fixture(scope="module")
def keytabs(kdc):
    """Of the daemons on two hosts, of somebody else, and of one whose tickets are short."""
    names = ("compactor/one", "compactor/two", "other/one")
    return {name: kdc.keytab(name) for name in names} | {
        "compactor/short": kdc.keytab("compactor/short", life=f"{LIFE} sec")
    }


@pytest.fixture
def log_in(realm, keytabs, tmp_path, monkeypatch):
    """Puts a ticket of this principal into a cache, which the process uses from now on; returns the cache."""

    def logged_in(principal):
        cache = tmp_path / principal.replace("/", "_")
        realm.login(principal, keytabs[principal], cache)
        monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
        return cache

    return logged_in


@pytest.fixture
def members(tmp_path):
    """What `compactor members` prints with these settings of ZooKeeper, and its exit code."""

    def printed(hosts, root="/compactor", **settings):
        section = {"hosts": hosts, "root": root, **settings}
        config = tmp_path / "cli.json"
        config.write_text(
            json.dumps({"database": {"url": f"sqlite:///{tmp_path}/none.db"}, "zookeeper": section}), encoding="utf-8"
        )
        answer = CliRunner().invoke(cli, ["--config", str(config), "-o", "tsv", "members"])
        return answer.exit_code, answer.output.rstrip("\n")

    return printed


def test_what_a_daemon_creates_is_its_principals(servers, log_in, members):
    """
    It leads, and every node below its root is its principal's alone: nobody without a ticket, or with another one,
    reads, writes, adds or deletes there.
    """
    log_in("compactor/one")
    with party(servers, **BY_TICKET) as those:
        first = those.join("first")
        until(lambda: first.lead(Role.CLEANER), "led")
        root = those.settings["root"]
        nodes = list(below(first._client, root))
        assert len(nodes) > 5
        for node in nodes:
            assert [(acl.id.scheme, acl.id.id, acl.acl_list) for acl in first._client.get_acls(node)[0]] == [
                ("sasl", f"compactor@{REALM}", ["ALL"])
            ], node
        code, said = members(servers.hosts, root, **BY_TICKET)
        assert (code, len(said.splitlines())) == (0, 2)
        log_in("other/one")
        for strangers in (None, {"mechanism": "GSSAPI"}):
            stranger = KazooClient(servers.hosts, sasl_options=strangers)
            stranger.start()
            for node in nodes:
                with pytest.raises(NoAuthError):
                    stranger.get(node)
                with pytest.raises(NoAuthError):
                    stranger.set(node, b"x")
                with pytest.raises(NoAuthError):
                    stranger.create(f"{node}/x", b"x")
                if node != root:  # that one lies in somebody else's, and can't be deleted with anything in it
                    with pytest.raises(NoAuthError):
                        stranger.delete(node)
            stranger.stop()
            stranger.close()
        assert members(servers.hosts, root, **BY_TICKET) == (
            2,
            f"error: zookeeper.auth: the ticket's principal isn't allowed to do that below {root}",
        )
        second = those.join("second")
        refused = f"nothing new is begun: ZooKeeper doesn't let us write below {root}: it belongs to another user"
        until(lambda: second.why_not_start() == refused, "told whose it is")
        assert second.lead(Role.CLEANER) is None


def below(client, node):
    yield node
    for child in client.get_children(node):
        yield from below(client, f"{node}/{child}")


def test_two_daemons_elect_one(servers, log_in):
    """
    Each with the ticket of its own host's principal, which the servers take for one user: the second stands by, and
    leads when the first has gone.
    """
    log_in("compactor/one")
    with party(servers, **BY_TICKET) as those:
        first = those.join("first")
        until(lambda: first.lead(Role.CLEANER), "led")
        log_in("compactor/two")
        second = those.join("second")
        until(lambda: {seen.member.host for seen in second.members()} == {"first", "second"}, "both there")
        assert second.lead(Role.CLEANER) is None
        epoch = first.lead(Role.CLEANER).epoch
        first.close()
        assert until(lambda: second.lead(Role.CLEANER), "succeeded").epoch > epoch


def test_without_a_ticket(servers, realm, members, tmp_path):
    """The command line and a daemon say in one line what is wanting, and what to do."""
    why = f"can't log in to ZooKeeper by Kerberos (No Kerberos credentials available (default cache: FILE:{tmp_path}/default)): {WHAT_TO_DO}"
    assert members(servers.hosts, **BY_TICKET) == (2, f"error: zookeeper.auth: {why}")
    with party(servers, **BY_TICKET) as those, capture_logs() as said:
        first = those.join("first")
        until(lambda: first.why_not_start() == f"nothing new is begun: {why}", "told")
    assert [line["error"] for line in said if line["log_level"] == "error"] == [why]


def test_by_another_name_than_the_principals(servers, log_in, members):
    """Hosts by address, where the servers' principals have names: the line tells which principal was looked for."""
    log_in("compactor/one")
    code, said = members(f"127.0.0.1:{servers.ensemble.ports[0]}", **BY_TICKET)
    assert code == 2
    assert said.startswith("error: zookeeper.auth: can't log in to ZooKeeper by Kerberos (Server zookeeper/127.0.0.1@")
    assert said.endswith(f"not found in Kerberos database): {WHAT_TO_DO}")


def test_a_ticket_that_runs_out_and_is_renewed(servers, realm, log_in, members):
    """
    Who is connected goes on without a valid ticket. When the server was away they are not let in, with one line, nor is
    the command line; with a new ticket in the cache they lead again, in a new term, without a restart of theirs.
    """
    cache = log_in("compactor/short")
    with party(servers, **BY_TICKET) as those, capture_logs() as said:
        first = those.join("first")
        term = until(lambda: first.lead(Role.CLEANER), "led")
        until(lambda: not realm.valid(cache), "expired")
        term.check()
        servers.ensemble.kill(0)
        servers.ensemble.start()
        why = f"can't log in to ZooKeeper by Kerberos (Ticket expired): {WHAT_TO_DO}"
        until(lambda: first.why_not_start() == f"nothing new is begun: {why}", "told")
        assert is_over(term)
        assert members(servers.hosts, **BY_TICKET) == (2, f"error: zookeeper.auth: {why}")
        log_in("compactor/short")
        assert until(lambda: first.lead(Role.CLEANER), "led again").epoch > term.epoch
        assert is_over(term)
        until(lambda: [seen.member.host for seen in first.members()] == ["first"], "one of us there")
    errors = [line["error"] for line in said if line["log_level"] == "error"]
    assert errors[-1] == why  # the library may first give no reason, "(Success)"
    assert all(error.replace("(Success)", "(Ticket expired)") == why for error in errors)


def test_servers_that_let_in_nobody_else(start, log_in, members, tmp_path):
    """
    With `sessionRequireClientSASLAuth` a ticket leads, and who comes without SASL is told by which settings to come, on
    the command line and as a daemon.
    """
    log_in("compactor/one")
    with start(tmp_path / "zookeeper", sessionRequireClientSASLAuth="true") as strict:
        with party(named(strict), **BY_TICKET) as those:
            first = those.join("first")
            until(lambda: first.lead(Role.CLEANER), "led")
            assert members(named(strict), those.settings["root"], **BY_TICKET)[0] == 0
        why = "these ZooKeeper servers let in only clients that log in by SASL: zookeeper.auth must be kerberos or sasl-digest"
        assert members(named(strict)) == (2, f"error: {why}")
        with party(named(strict)) as those, capture_logs() as said:
            second = those.join("second")
            until(lambda: second.why_not_start() == f"nothing new is begun: {why}", "told")
        assert {line["error"] for line in said if line["log_level"] == "error"} == {why}
