"""What the metrics show of this daemon among the others."""

from compactor.coordination import Alone, Role
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
