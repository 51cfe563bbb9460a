"""The listing of what lies there when a finished compaction is first observed (Hive 3.1)."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from compactor.acid.compaction import CompactionKind
from compactor.errors import RefusedError
from compactor.metastore.model import Entity, QueueEntry, QueueState
from compactor.reasons import Reason
from compactor.roles.cleaner import first_look
from compactor.roles.cleaner.first_look import look


class _Store:
    """A store in which these directories are there, and no other can be listed."""

    mounts = True

    def __init__(self, there, reason):
        self._there, self._reason = there, reason

    def list_tree(self, location):
        raise RefusedError(self._reason, f"{location} can't be listed")

    def exists(self, location):
        return location in self._there

    def directories(self, location):
        return ("p=2",) if location in self._there else ()


@pytest.mark.parametrize(
    ("there", "reason"),
    [
        (["/w/t"], Reason.LOCATION_MISSING),
        ([], Reason.LOCATION_MISSING),
        (["/w/t", "/w/t/p=1"], Reason.UNKNOWN_NAME),
    ],
    ids=["removed", "not mounted", "refused"],
)
def test_what_cannot_be_listed_is_listed_again(there, reason):
    """
    Also what was removed: it may be between the two steps of a rename. With an empty observation the entry would be
    cleaned once it can be listed, with nothing removed, and what was replaced would stay for good.
    """
    services, entry = _services(there, reason)
    assert look(services, [entry]) == {7: None}


def test_what_is_not_reached_in_time_is_told_apart(monkeypatch):
    """Nothing is wrong with it: its turn comes in the next cycle."""
    services, entry = _services(["/w/t"], Reason.LOCATION_MISSING)
    monkeypatch.setattr(first_look, "LOOK_SECONDS", 0.0)
    assert look(services, [entry]) == {}


def test_what_control_only_leaves_out_is_not_listed():
    """It is Hive's own Cleaner's."""
    services, entry = _services(["/w/t"], Reason.LOCATION_MISSING)
    assert look(services, [replace(entry, id=8, entity=Entity("hr", "t")), entry]) == {7: None}


def _services(there, reason):
    entry = QueueEntry(7, Entity("db", "t", "p=1"), CompactionKind.MAJOR, QueueState.READY_FOR_CLEANING)
    found = {entry.entity: (SimpleNamespace(location="/w/t"), SimpleNamespace(location="/w/t/p=1"))}
    services = SimpleNamespace(
        catalog=SimpleNamespace(facts_for=lambda _: found),
        storage=lambda _: _Store(there, reason),
        settings=SimpleNamespace(cleaner=SimpleNamespace(threads=1)),
        control=SimpleNamespace(includes=lambda database, _: database == "db"),
    )
    return services, entry
