"""
Names of partitions as Hive stored them: found as candidates, met by locks, forgotten after cleaning; what is stored is
what real Hives were seen to store.
"""

import pytest

from compactor.errors import RefusedError
from compactor.metastore.candidates import Initiating
from compactor.metastore.catalog import Catalog
from compactor.metastore.clean.readers import read_readers
from compactor.metastore.clean.ready import Cleaning
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.model import Entity
from compactor.metastore.partition_names import folded, is_plain, locked_by_3, locked_by_4, spellings
from compactor.metastore.txn.locks import Locks
from tests.metastore.actor import Hive
from tests.metastore.ready import compacted

STORED = [  # as catalogued, a static partition on 3.1.3, on 4.0.1
    ("p=ABC", "p=abc", "p=ABC"),
    ("t=10%3A00", "t=10%3a00", "t=10%253A00"),
    ("k=A b/n=7", "k=a b/n=7", "k=A b/n=7"),
    ("dt=2024-01-01", "dt=2024-01-01", "dt=2024-01-01"),
    ("k=e%3Df%25%3A%23%22%27", "k=e%3df%25%3a%23%22%27", "k=e%253Df%2525%253A%2523%2522%2527"),
    ("k=ü雪", "k=ü雪", "k=ü雪"),
    ("k=Ü", "k=ü", "k=Ü"),
    ("k=Köln", "k=köln", "k=Köln"),
    ("k=Koln", "k=koln", "k=Koln"),
    ("k=café €", "k=café €", "k=café €"),
    ("p=__HIVE_DEFAULT_PARTITION__", "p=__hive_default_partition__", "p=__HIVE_DEFAULT_PARTITION__"),
]


def catalogued(database):
    """The names that the columns hold, which Hive's script for one product makes of latin1."""
    everywhere = database.dialect.name != "MySQL"
    return [name for name, *_ in STORED if everywhere or "雪" not in name]


def stored(name, database):
    """What a static write to the partition leaves in TXN_COMPONENTS and HIVE_LOCKS."""
    return database.schema.generation.stored_as(name)[-1]


@pytest.mark.parametrize(("name", "on_3", "on_4"), STORED)
def test_what_each_hive_stores(name, on_3, on_4):
    """Both spellings are known of a name, and all of them fold to one."""
    assert (locked_by_3(name), locked_by_4(name)) == (on_3, on_4)
    assert set(spellings(name)) == {name, on_3, on_4}
    assert len({folded(spelling) for spelling in spellings(name)}) == 1


@pytest.mark.hive
def test_hive_stores_what_is_said_here(shared_database, real_hive):
    """The real handler, asked for a lock on a static partition, notes the write under that name."""
    real_hive.add_partitions(real_hive.create_table(keys=(("k", "string"),)), catalogued(shared_database))
    for name in catalogued(shared_database):
        txn_id = real_hive.begin()
        real_hive.touch(txn_id, "db.t", name)
        components = shared_database.schema.txn_components
        rows = real_hive.rows(components, "tc_partition", where=components.c.tc_txnid == txn_id)
        assert rows == [(stored(name, shared_database),)]


@pytest.mark.hive
def test_our_locks_and_hives_wait_for_each_other(shared_database, real_hive):
    """
    The real handler lets an exclusive lock on a static partition wait for ours; ours is refused while Hive holds one;
    on another partition neither is.
    """
    names = catalogued(shared_database)
    real_hive.add_partitions(real_hive.create_table(keys=(("k", "string"),)), names)
    locks = Locks(shared_database)
    for name, other in zip(names, names[1:] + names[:1], strict=True):
        entity = Entity("db", "t", name)
        ours = locks.acquire_shared(entity, 0, "ann", "edge")
        elsewhere = real_hive.lock("db.t", other, kind="e")
        assert real_hive.held(elsewhere)
        real_hive.unlock(elsewhere)
        theirs = real_hive.lock("db.t", name, kind="e")
        assert not real_hive.held(theirs)
        locks.release(ours)
        assert real_hive.held(theirs)
        with pytest.raises(RefusedError, match="is locked"):
            locks.acquire_shared(entity, 0, "ann", "edge")
        locks.release(locks.acquire_shared(Entity("db", "t", other), 0, "ann", "edge"))
        real_hive.unlock(theirs)


@pytest.fixture
def hive(database):
    """Puts names there as they are given: as a real Hive has stored them."""
    return Hive(database)


@pytest.mark.parametrize(
    ("name", "plain"),
    [("dt=2024-01-01/h=7", True), ("p=ABC", True), ("p=abc", False), ("p=a%3Ab", False), ("P=1", True)],
)
def test_plain_names_mean_one_partition(name, plain):
    """Nothing else is stored as dates, numbers and capitals are; lower case and escapes may be another's."""
    assert is_plain(name) is plain


@pytest.fixture
def odd(database, hive):
    """A table with partitions whose names are stored otherwise on one of the Hives."""
    names = catalogued(database)
    hive.add_partitions(hive.create_table(keys=(("k", "string"),)), names)
    return names


def test_every_partition_that_is_asked_for_is_found(database, odd):
    """Alone or with others, of one table or of several, with what is no ASCII, whatever the columns' character set."""
    catalog = Catalog(database)
    entities = [Entity("db", "t", name) for name in odd]
    for asked in (entities, entities[-2:], entities[5:6], [*entities, Entity("db", "absent", odd[-1])]):
        wanted = {one for one in asked if one.table == "t"}
        assert catalog.places_for(asked).keys() == wanted
        assert catalog.facts_for(asked).keys() == wanted
    table = catalog.find_table("db", "t")
    assert sorted(place.partition for place in catalog.places_of(table)) == sorted(odd)


def test_static_writes_are_candidates_of_their_partition(database, hive, odd):
    """Each write is found under the catalog's name, first seen, seen lately, or asked for."""
    for name in odd:
        hive.write("db.t", stored(name, database))
        hive.fail_write("db.t", stored(name, database))
    initiating = Initiating(database)
    for look in (
        initiating.look(None),
        initiating.look(1),
        initiating.look(10_000, also=[Entity("db", "t", name) for name in odd]),
    ):
        assert {(found.entity.partition, found.commits, found.aborted_count) for found in look.whole().candidates} == {
            (name, 1, 1) for name in odd
        }


def test_all_that_may_be_meant_are_candidates(database, hive):
    """
    `p=abc` on Hive 3.1 may stand for any of three; what was stored of one under two names is counted together, and what
    is in no catalog keeps its name.
    """
    hive.add_partitions(hive.create_table(keys=(("p", "string"),)), ["p=ABC", "p=Abc", "p=abc"])
    for name in ("p=ABC", "p=abc", "p=gone"):
        hive.write("db.t", name)
    found = {candidate.entity.partition: candidate.commits for candidate in Initiating(database).candidates()}
    assert found == {"p=ABC": 2, "p=Abc": 1, "p=abc": 1, "p=gone": 1}


def test_locks_meet_however_the_name_is_stored(database, hive, odd):
    """
    Hive's exclusive lock on a static partition bars ours, and keeps the Cleaner waiting; another partition's doesn't.
    """
    locks = Locks(database)
    for name in odd:
        entity = Entity("db", "t", name)
        lock = hive.lock("db.t", stored(name, database), kind="e")
        with pytest.raises(RefusedError, match="is locked"):
            locks.acquire_shared(entity, 0, "ann", "edge")
        assert [held.lock_id for held in locks.held(entity)] == [lock]
        assert [
            held.lock_id
            for held in database.read(lambda connection: read_readers(connection, database)).locks_on(entity)
        ] == [lock]
        assert locks.held(Entity("db", "t", "k=other")) == []
        hive.unlock(lock)


def test_our_lock_has_the_name_that_hive_compares(database, odd):
    """
    A DROP PARTITION waits for it: Hive looks for the name as its own lock() stores it. Heartbeat and release are of the
    whole.
    """
    locks = Locks(database)
    for name in odd:
        number = locks.acquire_shared(Entity("db", "t", name), 0, "ann", "edge")
        rows = {held.partition for held in locks.all() if held.lock_id == number}
        assert rows == {name, stored(name, database)}
        locks.heartbeat(number)
        locks.release(number)
    assert locks.all() == []


def test_commits_under_other_names_are_forgotten(database, hive, odd):
    """Hive 3.1 leaves them for ever. Only those up to what was covered go, and none of another partition."""
    for name in odd:
        hive.write("db.t", stored(name, database))
    hive.write("db.t", "k=other")
    for name in odd:
        Cleaning(database).mark_cleaned(
            Queue(database).entry(compacted(database, hive, f"db.t/{name}", write_id=99)[0])
        )
    assert hive.rows(database.schema.completed_txn_components, "ctc_partition") == [("k=other",)]


def test_commits_that_may_be_another_partitions_stay(database, hive):
    """Forgotten with the first that is cleaned, the other would never be looked at again."""
    hive.add_partitions(
        hive.create_table(keys=(("p", "string"),)), ["p=ABC", "p=abc", "p=a%3Ab", "p=a%253Ab", "p=Ü", "p=ü"]
    )
    for name in ("p=abc", "p=ABC", "p=a%253Ab", "p=ü", "p=Ü"):
        hive.write("db.t", name)
    for name in ("p=abc", "p=a%253Ab", "p=ABC", "p=ü", "p=Ü"):
        Cleaning(database).mark_cleaned(
            Queue(database).entry(compacted(database, hive, f"db.t/{name}", write_id=99)[0])
        )
    left = {name for (name,) in hive.rows(database.schema.completed_txn_components, "ctc_partition")}
    assert left == ({"p=a%253Ab"} if database.schema.generation.layout == "hive-4" else {"p=abc", "p=ü"})
