"""What the metrics show of this daemon among the others."""

import time
from contextlib import closing

from compactor.coordination import Alone, Member, Role
from compactor.coordination.sql.coordinator import DatabaseCoordinator
from compactor.daemon.presence import show


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
        closing(DatabaseCoordinator(any_world.database, 0.02)) as first,
        closing(DatabaseCoordinator(any_world.database, 0.02)) as second,
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
