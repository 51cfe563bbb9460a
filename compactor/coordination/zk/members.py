"""
Members in ZooKeeper: writes this daemon's record, and reads those of all daemons.

    <root>/members/<instance>            ephemeral: a member's record
"""

import json

from kazoo.exceptions import NoAuthError, NoNodeError

from compactor.coordination.model import Member, SeenMember
from compactor.coordination.zk.election import leaders
from compactor.coordination.zk.nodes import Nodes, loaded

MEMBERS = "members"


def announce(nodes: Nodes, me: Member, heartbeat_seconds: float) -> None:
    """
    Write this daemon's record.

    Args:
        heartbeat_seconds: longest time until it is written again.
    """
    client, path = nodes.client, nodes.path(MEMBERS, me.instance)
    data = json.dumps({**me.record(), "heartbeat_seconds": heartbeat_seconds}).encode()
    stat = nodes.answer(client.exists_async(path))
    if stat is not None and stat.ephemeralOwner != nodes.session_id:
        nodes.remove(path)
        stat = None
    if stat is None:
        nodes.answer(client.create_async(path, data, ephemeral=True))
    else:
        nodes.answer(client.set_async(path, data))


def members(nodes: Nodes) -> list[SeenMember]:
    """All members, sorted by host and process; raises kazoo's errors."""
    leading = leaders(nodes)
    found = []
    for name in nodes.children(MEMBERS):
        try:
            data, stat = nodes.answer(nodes.client.get_async(nodes.path(MEMBERS, name)))
        except NoNodeError:
            continue
        found.append((Member.of({**loaded(data), "instance": name}), int(stat.mtime)))
    now = _now_ms(nodes) or max((heard for _, heard in found), default=0)
    seen = [SeenMember(member, tuple(leading.get(member.instance, ())), max(0, now - heard)) for member, heard in found]
    return sorted(seen, key=lambda one: (one.member.host, one.member.pid, one.member.instance))


def _now_ms(nodes: Nodes) -> int:
    """ZooKeeper's clock in ms, taken from the creation of a short-lived node; 0 where creating is forbidden."""
    try:
        path = nodes.answer(
            nodes.client.create_async(nodes.path("clock-"), ephemeral=True, sequence=True, makepath=True)
        )
    except NoAuthError:
        return 0
    stat = nodes.answer(nodes.client.exists_async(path))
    nodes.remove(path)
    return int(stat.ctime) if stat is not None else 0
