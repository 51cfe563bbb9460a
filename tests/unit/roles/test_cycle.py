"""What a cycle did: two cycles between which only time has passed tell the same, though their sentences count it."""

import itertools

import pytest
from sqlalchemy import update

from compactor.errors import UnreachableError
from compactor.metastore.model import Entity
from compactor.roles import steps
from compactor.roles.cycle import Cycle, Phrase
from tests.unit.roles.cleaner.test_cleaner import moved_by_a_rename
from tests.unit.roles.stores import Stores
from tests.unit.roles.tables import compacted


def waiting_for_a_reader(world):
    """The Cleaner, for a transaction whose age it tells."""
    world.hive.begin(user="ann", host="edge2", age=60_000)
    compacted(world)
    return world.cleaner().run_once


def retaining(world):
    """The Cleaner, for the end of the retention."""
    world.configure(cleaner={"retention_seconds": 1000})
    compacted(world)
    return world.cleaner().run_once


def listing(world):
    """The Cleaner, for a lock; it tells for how much longer at most."""
    compacted(world)
    world.services.cleaning.ready_for_cleaning()
    world.hive.lock("db.t")
    return world.cleaner().run_once


def renaming(world):
    """The Cleaner, for the end of a rename."""
    cleaner, (first, _) = moved_by_a_rename(world, "p=2")
    first()
    return cleaner.run_once


def given_back(world):
    """A worker, for the next try of an entry that needs what is unreachable."""
    world.table(rows=4, insert_only=True)
    world.settle_time()
    world.enqueue(Entity("db", "t"))
    world.at_step[steps.WORKER_LISTED] = _no_spark
    worker = world.worker()
    worker.run_once()
    return worker.run_once


def _no_spark():
    raise UnreachableError("no Spark")


@pytest.mark.parametrize("waits", [waiting_for_a_reader, retaining, listing, renaming, given_back])
def test_a_wait_tells_the_same_for_as_long_as_it_lasts(world, monkeypatch, waits):
    """Ages, and times that are left, are no news."""
    run_once = waits(world)
    world.settle_time()
    first = run_once()
    now_ms = world.database.now_ms
    monkeypatch.setattr(world.database, "now_ms", lambda connection: now_ms(connection) + 90_000)
    monkeypatch.setattr(world.services.database, "now_ms", world.database.now_ms)
    txns = world.database.schema.txns
    world.hive.change(update(txns).values(txn_started=txns.c.txn_started - 90_000))
    world.clock.forward(3)
    second = run_once()
    assert first.sentence != second.sentence
    assert first.phrase.news == second.phrase.news


class Away(Stores):
    """Each call finds the store away for longer."""

    seconds = itertools.count(5)

    def require(self, name, location):
        for away in self.away:
            if f"/{away}/" in f"{location}/":
                raise UnreachableError(f"{away} is away since {next(self.seconds)} s", store=away)


@pytest.mark.parametrize("role", ["initiator", "cleaner", "worker"])
def test_a_store_that_is_away_is_told_once(world, monkeypatch, role):
    """For all that a role does there, and whatever each error says of the time."""
    stores = Away(monkeypatch)
    world.configure(initiator={"thresholds": {"delta_count": 1}})
    compacted(world)
    world.table("u", rows=4, insert_only=True)
    world.settle_time()
    cleaner, initiator, worker = world.cleaner(), world.initiator(), world.worker()
    if role == "worker":
        world.enqueue(Entity("db", "u"))
        world.at_step[steps.WORKER_RAN] = lambda: stores.away.add("db.db")
        worker.run_once()
        first = worker.run_once()
        world.clock.forward(6)
        second = worker.run_once()
    else:
        stores.away.add("db.db")
        run_once = {"initiator": initiator, "cleaner": cleaner}[role].run_once
        run_once()  # the Initiator's first cycle is a full scan
        first, second = run_once(), run_once()
    assert "away since" in first.sentence
    assert first.sentence != second.sentence
    assert first.phrase.news == second.phrase.news


def test_another_transaction_or_store_is_news():
    """What differs beside the time, does."""
    waits = [Phrase("1 wait: open for 5 s", 97), Phrase("1 wait: open for 6 s", 97), Phrase("1 wait: open for 6 s", 98)]
    said = [Cycle.worked(Phrase.joined([phrase.after("a "), Phrase("b")], "; ")).phrase for phrase in waits]
    assert [phrase.text for phrase in said[:2]] == ["a 1 wait: open for 5 s; b", "a 1 wait: open for 6 s; b"]
    assert said[0].news == said[1].news != said[2].news
    assert Phrase("x").news != Phrase("y").news
