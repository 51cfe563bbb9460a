"""
Members in ZooKeeper: writes this daemon's record, and reads those of all daemons.

    <root>/members/<instance>            ephemeral: a member's record
"""

import json

from kazoo.exceptions import NoAuthError, NoNodeError

from compactor.coordination.base import elapsed
from compactor.coordination.model import Member, SeenMember
from compactor.coordination.zk.election import leaders
from compactor.coordination.zk.nodes import Nodes, loaded

MEMBERS = "members"


class Registry:
    """
    The records of all members.

    Args:
        heartbeat_seconds: longest time between two writes of this daemon's record.
    """

    def __init__(self, nodes: Nodes, heartbeat_seconds: float) -> None:
        self._nodes = nodes
        self._seconds = heartbeat_seconds
        self._announced: tuple[float, Member | None] = (0.0, None)

    def begin(self) -> None:
        """Start a new session: the record of this daemon went away with the old session."""
        self._announced = (0.0, None)

    def announce(self, me: Member) -> None:
        """Write this daemon's record when it is due or has changed."""
        if me == self._announced[1] and elapsed() - self._announced[0] < self._seconds:
            return
        nodes, client = self._nodes, self._nodes.client
        path, data = (
            nodes.path(MEMBERS, me.instance),
            json.dumps({**me.record(), "heartbeat_seconds": self._seconds}).encode(),
        )
        began = elapsed()
        stat = nodes.answer(client.exists_async(path))
        if stat is not None and stat.ephemeralOwner != nodes.session_id:
            nodes.remove(path)
            stat = None
        if stat is None:
            nodes.answer(client.create_async(path, data, ephemeral=True))
        else:
            nodes.answer(client.set_async(path, data))
        self._announced = (began, me)

    def members(self) -> list[SeenMember]:
        """All members, sorted by host and process; raises kazoo's errors."""
        nodes = self._nodes
        leading = leaders(nodes)
        found = []
        for name in nodes.children(MEMBERS):
            try:
                data, stat = nodes.answer(nodes.client.get_async(nodes.path(MEMBERS, name)))
            except NoNodeError:
                continue
            found.append((Member.of({**loaded(data), "instance": name}), int(stat.mtime)))
        now = self._now_ms() or max((heard for _, heard in found), default=0)
        seen = [
            SeenMember(member, tuple(leading.get(member.instance, ())), max(0, now - heard)) for member, heard in found
        ]
        return sorted(seen, key=lambda one: (one.member.host, one.member.pid, one.member.instance))

    def present(self) -> frozenset[str]:
        """The instances of all members; raises kazoo's errors."""
        return frozenset(self._nodes.children(MEMBERS))

    def _now_ms(self) -> int:
        """ZooKeeper's clock in ms, taken from the creation of a short-lived node; 0 where creating is forbidden."""
        nodes = self._nodes
        try:
            path = nodes.answer(
                nodes.client.create_async(nodes.path("clock-"), ephemeral=True, sequence=True, makepath=True)
            )
        except NoAuthError:
            return 0
        stat = nodes.answer(nodes.client.exists_async(path))
        nodes.remove(path)
        return int(stat.ctime) if stat is not None else 0
