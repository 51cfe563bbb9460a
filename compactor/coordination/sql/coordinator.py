"""
Coordination by the metastore's database alone.

There is no election: every daemon tries its cycles, and Hive's mutex row lets one daemon at a time through. Members and
control state are in the compactor's own table; the database clock measures the age of a heartbeat.
"""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from compactor.coordination.base import Changed, Coordinator, elapsed
from compactor.coordination.model import Connection, Member, Role, SeenMember, Term, Value
from compactor.coordination.sql.table import StateTable
from compactor.durations import DAY_MS
from compactor.errors import CompactorError
from compactor.log import get_logger
from compactor.metastore.db.database import Database

_log = get_logger(__name__)
MEMBERS = "members"
CONTROL = "control"
_MISSED = 3
"""Heartbeats that a member may miss before it counts as dead."""
_FORGET_MS = DAY_MS


class DatabaseCoordinator(Coordinator):
    """
    Coordinates through the table `COMPACTOR_STATE` of the metastore's database.

    Args:
        database: the database with the table.
        heartbeat_seconds: time between two heartbeats, which also check whether watched keys changed.
    """

    by = "database"

    def __init__(self, database: Database, heartbeat_seconds: float) -> None:
        super().__init__()
        self._database = database
        self._table = StateTable(database)
        self._seconds = heartbeat_seconds
        self._acted: dict[Role, float] = {}
        self._troubled = ""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    # Connecting, joining, leaving

    def connect(self) -> None:
        self._database.connect()

    def join(self, me: Member, candidate_for: Iterable[Role], changed: Changed = lambda: None) -> None:  # noqa: ARG002 - the mutex elects
        self.connect()
        self._me = me
        self._beat()
        self._thread = threading.Thread(target=self._run, name="membership", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is None or self._me is None:
            return
        thread.join(self._seconds)
        try:
            self._table.remove(f"{MEMBERS}/{self._me.instance}")
        except CompactorError as error:
            _log.debug("membership.not_ended", error=str(error), detail="the membership ends by itself")

    @property
    def connection(self) -> Connection:
        """Always CONNECTED: a step that needs the database fails by itself when the database is unreachable."""
        return Connection.CONNECTED

    # Leadership

    def lead(self, role: Role) -> Term | None:
        return Term(role, 0)

    def leading(self) -> frozenset[Role]:
        """The roles whose latest cycle this daemon did."""
        me = self._me
        try:
            return frozenset(
                role for seen in self.members() if me and seen.member.instance == me.instance for role in seen.leads
            )
        except CompactorError:
            return frozenset()

    def resign(self, role: Role) -> None:
        """There is no candidature to withdraw."""

    def acted(self, role: Role) -> None:
        with self._lock:
            self._acted[role] = elapsed()

    # Members

    def members(self) -> list[SeenMember]:
        now, rows = self._table.below(MEMBERS)
        seen, latest = [], dict[Role, tuple[float, str]]()
        for _, record, updated in rows:
            member, age = Member.of(record), max(0, now - updated)
            limit = _MISSED * _number(record.get("heartbeat_seconds"), self._seconds) * 1000
            seen.append(SeenMember(member, (), age, alive=age <= limit))
            acted = record.get("acted_ms_ago")
            for role in Role:
                ago = acted.get(role.value) if isinstance(acted, Mapping) else None
                if (
                    seen[-1].alive
                    and isinstance(ago, int | float)
                    and (role not in latest or ago + age < latest[role][0])
                ):
                    latest[role] = (ago + age, member.instance)
        leading = {
            instance: tuple(role for role, (_, holder) in latest.items() if holder == instance)
            for _, instance in latest.values()
        }
        seen = [replace(one, leads=leading.get(one.member.instance, ())) for one in seen]
        return sorted(seen, key=lambda one: (one.member.host, one.member.pid, one.member.instance))

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            self._beat()
            try:
                self._call_watchers(self._read_versions)
            except CompactorError as error:
                _log.debug("control_state.not_read", error=str(error))

    def _beat(self) -> None:
        with self._lock:
            me, acted = self._me, {role.value: round((elapsed() - at) * 1000) for role, at in self._acted.items()}
        assert me is not None
        try:
            self._table.make()
            self._table.put(
                f"{MEMBERS}/{me.instance}", {**me.record(), "heartbeat_seconds": self._seconds, "acted_ms_ago": acted}
            )
            self._table.remove_silent(MEMBERS, _FORGET_MS)
        except Exception as error:
            self._complain(str(error))
        else:
            self._troubled = ""

    def _complain(self, why: str) -> None:
        if why != self._troubled:
            _log.warning(
                "membership.not_renewed", error=why, detail="other daemons don't see this one; it works all the same"
            )
        self._troubled = why

    # Control state

    def read(self, key: str) -> Value | None:
        return self._table.read(f"{CONTROL}/{key}")

    def write(self, key: str, data: Mapping[str, Any], version: int | None) -> Value:
        self._table.make()
        return self._table.compare_and_set(f"{CONTROL}/{key}", data, version)

    def _read_versions(self, keys: Iterable[str]) -> Mapping[str, int | None]:
        versions = self._table.versions([f"{CONTROL}/{key}" for key in keys])
        return {key.removeprefix(f"{CONTROL}/"): version for key, version in versions.items()}


def _number(value: object, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) and value > 0 else otherwise
