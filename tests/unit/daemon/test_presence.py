"""What the metrics show of this daemon among the others."""

import threading
import time
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from compactor.coordination import Alone, Member, Role, SeenMember, not_led
from compactor.coordination.model import HELD, NOT_READY, SETTINGS
from compactor.coordination.sql.coordinator import DatabaseCoordinator
from compactor.daemon import presence as daemon_presence
from compactor.daemon.loops import make_loops
from compactor.daemon.presence import Board, Presence, describe, show
from compactor.errors import CompactorError, UnreachableError
from compactor.metrics import Metrics
from compactor.roles import steps
from compactor.roles.pauses import workers_of
from compactor.status.readiness import Readiness


def test_only_roles_that_somebody_stands_for_have_a_leader_or_none(world):
    """Where the Initiator is switched off everywhere nobody is to be woken because nobody leads it."""

    class Nobody(Alone):
        def lead(self, role):
            return None

    def leaders():
        value = world.services.metrics.registry.get_sample_value
        return {role.value: value("compactor_leader", {"role": role.value}) for role in Role}

    world.services.coordinator = Nobody()
    show(world.services.metrics, world.services)
    assert leaders() == {"initiator": 0, "cleaner": 0, "housekeeper": 0}
    world.configure(initiator={"enabled": False})
    show(world.services.metrics, world.services)
    assert leaders() == {"initiator": None, "cleaner": 0, "housekeeper": 0}


def test_without_zookeeper_the_latest_cycle_makes_the_leader(any_world):
    """Of every role, those included that have no mutex of Hive's: members, metrics and the daemon itself say the same."""

    def led_by(name):
        until = time.monotonic() + 20
        while daemons[name].leading() != frozenset(Role) and time.monotonic() < until:
            time.sleep(0.02)
        return {seen.member.host: set(seen.leads) for seen in daemons[name].members()}

    with (
        closing(DatabaseCoordinator(any_world.database, 0.2)) as first,
        closing(DatabaseCoordinator(any_world.database, 0.2)) as second,
    ):
        daemons = {"first": first, "second": second}
        for name, coordinator in daemons.items():
            coordinator.join(Member(name, name, 1, "1", tuple(Role)), Role)
        for name, coordinator in daemons.items():
            any_world.services.coordinator = coordinator
            for role in (any_world.initiator(), any_world.cleaner(), any_world.housekeeper()):
                role.run_once()
            assert led_by(name) == {host: set(Role) if host == name else set() for host in daemons}
            assert show(any_world.services.metrics, any_world.services) == frozenset(Role)


_MEMBERS = st.builds(
    lambda roles, leads, alive: SeenMember(Member("i", "h", 1, "1", roles), tuple(leads) if alive else (), 0, alive),
    st.lists(st.sampled_from([*(role.value for role in Role), "worker"]), unique=True).map(tuple),
    st.sets(st.sampled_from(Role)),
    st.booleans(),
)


@given(st.lists(_MEMBERS, max_size=4))
def test_each_role_is_led_or_has_a_reason(seen):
    """Nothing is said of a role that is led; of the others only what the members tell."""
    reasons = not_led(seen)
    alive = [one for one in seen if one.alive]
    for role in Role:
        candidates = sum(role.value in one.member.roles for one in alive)
        if any(role in one.leads for one in alive):
            assert role not in reasons
        elif not alive:
            assert reasons[role] == "no daemon is among the members"
        elif not candidates:
            assert reasons[role] == "it is switched off on every daemon"
        else:
            assert reasons[role].startswith(f"it is switched on on {candidates} daemon")


def test_what_a_daemon_knows_is_in_its_record(world):
    """By which settings it goes, as they are now, and why it doesn't do its work: no other process can know that."""
    works = {"worker-1": False}
    failed = ["the latest cycle of worker-1 failed, or there was none yet"]
    world.services.coordinator = coordinator = Alone()
    coordinator.join(describe(world.services, ["cleaner"]), ())
    (first,) = coordinator.members()
    presence = Presence(world.services, {}, Board(), (), lambda: Readiness.of(world.services, works))
    assert (first.member.extra[NOT_READY], first.member.extra[HELD]) == (["starting"], "starting")
    assert first.member.extra[SETTINGS] == world.services.settings.fingerprints()
    world.configure(windows={"time_zone": "Europe/Vienna"})
    presence.run_once()
    (told,) = coordinator.members()
    assert (told.member.extra[NOT_READY], told.member.extra[HELD]) == (failed, "")
    assert workers_of([told]) == ()
    before, now = first.member.extra[SETTINGS], told.member.extra[SETTINGS]
    assert {name for name in now if now[name] != before[name]} == {"windows"}
    works["worker-1"] = True
    world.services.backoff.cannot_begin(UnreachableError("no Java"))
    presence.run_once()
    (told,) = coordinator.members()
    assert told.member.extra[NOT_READY] == ["1 given back in a row, the latest: no Java"]
    (workers,) = workers_of([replace(told, member=replace(told.member, roles=("worker",)))])
    assert workers.held == "1 given back in a row, the latest: no Java"


def test_a_role_that_nobody_leads_is_logged_once(world, monkeypatch):
    """From the second look on, with the reason; again when the reason is another one, and when the role is led."""

    class Told(Alone):
        def members(self):
            if roles is None:
                raise CompactorError("no answer")
            return [SeenMember(Member("i", "h", 1, "1", roles), leads, 0)]

    def logged():
        with capture_logs() as events:
            for _ in range(3):
                presence.run_once()
        return [(one["event"], one["role"], one.get("why")) for one in events if one["event"].startswith("role.")]

    monkeypatch.setattr(daemon_presence, "_LOOK_SECONDS", 0.0)
    world.services.coordinator = Told()
    presence = Presence(world.services, {}, Board(), (), Readiness)
    roles, leads = ("cleaner", "housekeeper"), (Role.CLEANER, Role.HOUSEKEEPER)
    assert logged() == [("role.not_led", "initiator", "it is switched off on every daemon")]
    assert logged() == []
    leads = (Role.HOUSEKEEPER,)
    presence.run_once()
    leads = (Role.CLEANER, Role.HOUSEKEEPER)
    assert logged() == []
    roles, leads = tuple(Role), tuple(Role)
    assert logged() == [("role.led", "initiator", None)]
    roles = None
    assert logged() == [("role.not_led", role.value, "it can't be told: none doesn't answer") for role in Role]


def test_a_step_is_shown_at_the_loop_that_it_belongs_to():
    """A cleaning has a thread of its own, and is the Cleaner's; any other step is that of the loop whose thread it is."""
    board = Board()
    for thread, step in (("worker-1", steps.WORKER_LISTED), ("anything", steps.CLEANER_DELETED)):
        noting = threading.Thread(target=board.note, args=(step, "db.t"), name=thread)
        noting.start()
        noting.join()
    for name, step in (("worker-1", steps.WORKER_LISTED), ("cleaner", steps.CLEANER_DELETED), ("worker-2", None)):
        assert board.activity(SimpleNamespace(name=name, busy=True)).step == step


def test_only_what_needs_the_coordinator_is_silent_while_it_can_not_be_used(world):
    """The coordinator says once why it can't be used. The other daemons are told of the loops of roles."""
    loops, _ = make_loops(world.services, Metrics(), Board(), lambda: None)
    world.services.coordinator = SimpleNamespace(why_not_start=lambda: "ZooKeeper is away")
    assert {name for name, loop in loops.items() if loop._told()} == {"control", "members"}
    workers = {name for name, loop in loops.items() if loop.role == "worker"}
    assert workers
    assert set(loops["members"]._run_once.__self__._shown) == {"initiator", "cleaner", "housekeeper", *workers}
