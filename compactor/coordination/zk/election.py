"""
The lines of candidates in ZooKeeper: one line per role, and the first candidate leads.

    <root>/leaders/<role>/<instance>-N   ephemeral, numbered: the lowest number leads; its creation transaction is the
    epoch
"""

from collections.abc import Iterable

from compactor.coordination.model import Member, Role
from compactor.coordination.zk.nodes import Nodes

LEADERS = "leaders"


def stand(nodes: Nodes, role: Role, me: Member, *, candidate: bool, again: bool) -> int | None:
    """
    Make sure that this daemon is in the line for a role exactly once, with a node of the present session; or not at all.

    Args:
        candidate: whether this daemon stands for the role.
        again: leave the present place, and go to the end of the line.

    Returns the epoch if this daemon is first, else None.
    """
    client, place = nodes.client, nodes.path(LEADERS, role)
    children = nodes.answer(client.get_children_async(place, watch=nodes.on_event))
    mine = None
    for name in (name for name in children if name.startswith(f"{me.instance}-")):
        stat = nodes.answer(client.exists_async(f"{place}/{name}"))
        if stat is not None and candidate and mine is None and not again and stat.ephemeralOwner == nodes.session_id:
            mine = (name, stat.czxid)
        elif stat is not None:  # of an ended session, a second one after a lost answer, or `again`
            nodes.remove(f"{place}/{name}")
    if not candidate:
        return None
    if mine is None:
        made = nodes.answer(
            client.create_async(f"{place}/{me.instance}-", me.host.encode(), ephemeral=True, sequence=True)
        )
        stat = nodes.answer(client.exists_async(made))
        children = nodes.answer(client.get_children_async(place, watch=nodes.on_event))
        if stat is None:
            return None
        mine = (made.rpartition("/")[2], stat.czxid)
    return int(mine[1]) if mine[0] == first(children) else None


def leaders(nodes: Nodes) -> dict[str, list[Role]]:
    """The roles that each instance leads."""
    leading: dict[str, list[Role]] = {}
    for role in Role:
        if (name := first(nodes.children(LEADERS, role))) is not None:
            leading.setdefault(name.rpartition("-")[0], []).append(role)
    return leading


def first(candidates: Iterable[str]) -> str | None:
    """The candidate with the lowest number."""
    return min(candidates, key=lambda name: (name.rpartition("-")[2], name), default=None)
