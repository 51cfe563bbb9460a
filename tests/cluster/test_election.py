"""
Election, membership and control state by a real ZooKeeper: never two leaders, whatever is cut, killed or stopped; and
the same interface by the database.
"""

import json
import threading

import pytest
from kazoo.client import KazooClient

from compactor.coordination import Activity, ConflictError, Connection, Member, Role
from compactor.coordination.sql.coordinator import DatabaseCoordinator
from compactor.coordination.zk.coordinator import ZooKeeperCoordinator
from compactor.errors import OwnershipLostError, SettingsError, UnreachableError
from compactor.metastore.db.database import Database
from compactor.settings import ZooKeeper
from tests.cluster.network import Relay
from tests.cluster.parties import NUMBERS, PATIENCE, SHORT, UNDISTURBED, is_over, party, until
from tests.cluster.zookeeper_servers import zookeeper

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


def test_one_leads_and_the_next_succeeds_at_once(zookeeper_1):
    """A leader that leaves is succeeded without a time-out, with a larger epoch; a role that it resigns alone, too."""
    with party(zookeeper_1) as those:
        first = those.join("first")
        terms = {role: until(lambda role=role: first.lead(role), "led") for role in Role}
        second = those.join("second")
        until(lambda: len(second.present() or ()) == 2, "both there")
        assert second.leading() == frozenset()
        first.resign(Role.INITIATOR)
        assert until(lambda: second.lead(Role.INITIATOR), "succeeded").epoch > terms[Role.INITIATOR].epoch
        with pytest.raises(OwnershipLostError):
            terms[Role.INITIATOR].check()
        terms[Role.CLEANER].check()
        first.close()
        assert until(lambda: second.lead(Role.CLEANER), "succeeded").epoch > terms[Role.CLEANER].epoch


def test_who_leaves_lets_go_before_others_can_lead(zookeeper_1, monkeypatch):
    """
    The session, with its place in the line, is given back when the terms are over, and no new one begins: the next one
    leads before our client hears that it ended.
    """
    with party(zookeeper_1) as those:
        first = those.join("first")
        terms = [until(lambda role=role: first.lead(role), "led") for role in Role]
        end, seen = first._link.end, []

        def end_and_look(seconds):
            seen.append((all(is_over(term) for term in terms), [first.lead(role) for role in Role], first.leading()))
            end(seconds)

        monkeypatch.setattr(first._link, "end", end_and_look)
        first.close()
        assert seen == [(True, [None] * len(Role), frozenset())]


def test_stepping_back_lets_another_lead(zookeeper_1):
    """A leader that can't do its work goes to the end of the line; alone in the line it leads again, in a new term."""
    with party(zookeeper_1) as those:
        first = those.join("first")
        term = until(lambda: first.lead(Role.CLEANER), "led")
        first.step_back(Role.CLEANER)
        assert is_over(term)
        assert until(lambda: first.lead(Role.CLEANER), "leads again").epoch > term.epoch
        second = those.join("second")
        until(lambda: len(second.present() or ()) == 2, "both there")
        first.step_back(Role.CLEANER)
        until(lambda: second.lead(Role.CLEANER), "succeeded")
        first.step_back(Role.CLEANER)
        second.step_back(Role.CLEANER)
        until(lambda: first.lead(Role.CLEANER), "back")


def test_an_expired_session_is_noticed(zookeeper_1):
    """
    A second client with the same id ends the session: the term is over for good, the other leads, and the first stands
    in line again.
    """
    with Relay(zookeeper_1.ports[0]) as relay, party(zookeeper_1) as those:
        those.may_overlap = True  # nobody waits for the time-out of a session that somebody else ends; the database's mutex keeps the two apart
        first = those.join("first", f"127.0.0.1:{relay.port}")
        term = until(lambda: first.lead(Role.CLEANER), "led")
        second = those.join("second")
        until(lambda: len(second.present() or ()) == 2, "both there")
        stolen = first._client.client_id
        relay.cut()  # else the first might take its session back before the thief ends it
        thief = KazooClient(hosts=zookeeper_1.hosts, client_id=stolen)
        thief.start(PATIENCE)
        assert thief.client_id == stolen
        thief.stop()
        thief.close()
        until(lambda: second.lead(Role.CLEANER), "succeeded")
        relay.mend()
        until(lambda: is_over(term), "noticed")
        until(lambda: len(second.present() or ()) == 2, "back")
        assert first.lead(Role.CLEANER) is None
        second.resign(Role.CLEANER)
        until(lambda: first.lead(Role.CLEANER), "leads again")
        assert is_over(term)


def test_cut_off_it_lets_go_before_the_other_begins(zookeeper_1):
    """
    Without any word from the network: SUSPENDED or LOST within the session time-out, nothing new is begun, the term is
    over; mended it stands in line.
    """
    with Relay(zookeeper_1.ports[0]) as relay, party(zookeeper_1, session_timeout_seconds=SHORT) as those:
        first = those.join("first", f"127.0.0.1:{relay.port}")
        term = until(lambda: first.lead(Role.CLEANER), "led")
        second = those.join("second", session_timeout_seconds=UNDISTURBED)
        until(lambda: len(second.present() or ()) == 2, "both there")
        relay.cut()
        until(lambda: first.connection is Connection.LOST, "lost")
        assert first.why_not_start() == "nothing new is begun: the connection to zookeeper is lost"
        with pytest.raises(OwnershipLostError):
            term.check()
        until(lambda: second.lead(Role.CLEANER), "succeeded")
        with pytest.raises(UnreachableError):
            first.members()
        relay.mend()
        until(lambda: first.connection is Connection.CONNECTED and len(second.present() or ()) == 2, "back")
        assert first.lead(Role.CLEANER) is None


def test_a_session_shorter_than_asked_for_counts(tmp_path):
    """
    The servers grant less than the settings say: a leader that is cut off lets go within what was granted, before the
    other begins.
    """
    granted = 3000
    with (
        zookeeper(tmp_path / "servers", extra={"maxSessionTimeout": str(granted)}) as servers,
        Relay(servers.ports[0]) as relay,
        party(servers, session_timeout_seconds=600) as those,
    ):
        first = those.join("first", f"127.0.0.1:{relay.port}")
        term = until(lambda: first.lead(Role.CLEANER), "led")
        second = those.join("second")
        until(lambda: second.connection is Connection.CONNECTED, "both there")
        relay.cut()
        until(lambda: second.lead(Role.CLEANER), "succeeded")
        assert is_over(term)
        assert first.connection is Connection.LOST


def test_suspended_it_ends_what_it_began_and_begins_nothing(tmp_path):
    """
    The only server is killed: the connection is suspended at once, and nothing new may be begun. A term goes on until
    the session may be over; lost, it is let go.
    """
    with zookeeper(tmp_path / "servers") as servers, party(servers, session_timeout_seconds=12) as those:
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
    """
    The ensemble's leader is killed: sessions go on with the others. Two of three gone: nobody leads, nothing is begun;
    with a quorum again one leads.
    """
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
            until(
                lambda: (zookeeper_3.mode((number + 1) % 3), zookeeper_3.mode((number + 2) % 3)).count("leader") == 1,
                "a new leader among the servers",
            )
            assert until(lambda: first.lead(Role.CLEANER), "leads").epoch >= term.epoch
        finally:
            zookeeper_3.resume(number)


@pytest.fixture(params=["zookeeper", pytest.param("database", marks=pytest.mark.postgres)])
def make(request):
    """Makes coordinators of one place, by ZooKeeper or by PostgreSQL."""
    made, databases = [], []
    if request.param == "zookeeper":
        settings = ZooKeeper(
            hosts=request.getfixturevalue("zookeeper_1").hosts,
            root=f"/party-{next(NUMBERS)}",
            session_timeout_seconds=UNDISTURBED,
        )
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
    """
    Whoever read an older version doesn't write over a newer one; who watches is told; a key may lie below another.
    """
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
    """
    Fields that this version doesn't know are ignored and kept, in members' records and in control state; missing ones
    are empty.
    """
    newer, older = make(), make()
    newer.join(
        Member(
            "n" * 32,
            "new-host",
            7,
            "9.0",
            ("cleaner", "worker"),
            (Activity("worker-1", True, "a table", "worker.ran"),),
            {"zone": {"name": "b"}},
        ),
        [],
    )
    seen = until(lambda: next(iter(older.members()), None), "seen")
    assert seen.member.extra["zone"] == {"name": "b"}
    assert (seen.member.host, seen.member.pid, seen.member.version, seen.alive) == ("new-host", 7, "9.0", True)
    assert seen.member.doing[0].what == "a table"
    newer.write("pause", {"all": {"reason": "upgrade", "approved_by": "ann"}, "schema": 2}, None)
    older.update("pause", lambda data: {**data, "all": {**data["all"], "reason": "still upgrading"}})
    assert newer.read("pause").data == {"all": {"reason": "still upgrading", "approved_by": "ann"}, "schema": 2}
    assert Member.of({"instance": "x", "roles": "odd", "doing": [3, {"name": "a", "since": 5}]}) == Member(
        "x", "", 0, "unknown", (), (Activity("a"),)
    )


def test_what_each_is_doing_is_told(make):
    """A report arrives with the next heartbeat."""
    one, other = make(), make()
    one.join(Member("one", "one", 1, "1"), [])
    one.report([Activity("cleaner", True, "db.t", "cleaner.trashed")])
    until(
        lambda: (
            [seen.member.doing for seen in other.members()] == [(Activity("cleaner", True, "db.t", "cleaner.trashed"),)]
        ),
        "told",
    )
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
