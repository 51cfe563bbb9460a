"""A look that is read in parts finds what one does that is read as a whole, and what the rows say."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import delete

from compactor.metastore.candidates import Initiating, Left
from compactor.metastore.candidates import aborts as aborts_module
from compactor.metastore.candidates import look as look_module
from compactor.metastore.model import Entity, QueueState
from tests.metastore.actor import Hive
from tests.metastore.databases import kinds, mariadb, metastore, postgres  # noqa: F401 - fixtures
from tests.strategies import entities, writes

COVERED = 2
"""The highest write id of each entry that is ready for cleaning."""


@pytest.fixture(scope="module", params=kinds(["sqlite", "postgres-4", "postgres-3", "mariadb-4", "mariadb-3"]))
def hive(request, tmp_path_factory):
    """A client of a metastore whose catalog has some of the tables and partitions."""
    with metastore(request.param, request, tmp_path_factory.mktemp("lived")) as database:
        found = Hive(database)
        for name in ("a.t", "b.u"):
            found.add_partitions(found.create_table(name, keys=(("p", "string"),)), ["p=1", "p=a", "p=A", "p=a%3Ab"])
        found.create_table("a.v")
        yield found


def forget(hive):
    """Forget all that was written and queued; transactions stay, for their ids go on."""
    schema = hive.schema
    for table in (
        schema.completed_txn_components,
        schema.txn_components,
        schema.txn_to_write_id,
        schema.next_write_id,
        schema.compaction_queue,
    ):
        hive.change(delete(table))


def live(hive, life):
    """Have it happen; returns the write ids of committed and of aborted writes for each table and partition."""
    committed, aborted = {}, {}
    for kind, entity in life:
        match kind:
            case "commit":
                committed.setdefault(entity, []).append(hive.write(entity.full_name, entity.partition)[1])
            case "abort":
                aborted.setdefault(entity, []).append(hive.fail_write(entity.full_name, entity.partition)[1])
            case "queue":
                hive.queued(str(entity))
            case "ready":
                hive.queued(str(entity), state="r", highest_write_id=COVERED)
    return committed, aborted


@given(writes(), writes(), st.lists(entities(), unique=True, max_size=4), st.integers(0, 3))
@settings(max_examples=10, deadline=None)
def test_parts_are_the_whole(hive, life, later, left, count):
    """Of everything, and of what was written since, however small the parts, and whatever a cycle before has left."""
    forget(hive)
    live(hive, life)
    bounds = {"aborted_count": count, "aborted_age_ms": 10**12}
    initiating = Initiating(hive.database)
    first = initiating.look(None, **bounds)
    live(hive, later)
    for since in (None, first.reached):
        asked = {"also": left, "handed_out": first.handed_out, **bounds}
        whole = initiating.look(since, **asked).whole()
        found = {candidate.entity: candidate for candidate in whole.candidates}
        for at_once in (1, 3):
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(look_module, "_AT_ONCE", at_once)
                patched.setattr(aborts_module, "_SOME", at_once)
                parts = list(initiating.look(since, **asked).parts(Left(left)))
            told = [candidate for part in parts for candidate in part.candidates]
            assert {candidate.entity: candidate for candidate in told} == found
            assert len(told) == len(found)
            first_told = [entity for entity in left if entity in found]
            assert [candidate.entity for candidate in told[: len(first_told)]] == first_told
            assert frozenset[Entity]().union(*(part.unnamed for part in parts)) == whole.unnamed


@given(writes(), st.integers(0, 3))
@settings(max_examples=10, deadline=None)
def test_a_look_at_everything_says_what_the_rows_say(hive, life, count):
    """Of names that mean one partition only: newest write, how many commits and aborts, and what the queue has."""
    forget(hive)
    committed, aborted = live(hive, life)
    queued = {(kind, entity) for kind, entity in life if kind in {"queue", "ready"}}
    expected = {}
    for entity in committed.keys() | aborted.keys():
        covered = COVERED if ("ready", entity) in queued else 0
        ids, gone = committed.get(entity, []), [number for number in aborted.get(entity, []) if number > covered]
        if (ids or len(gone) > count) and entity.partition in {None, "p=1", "p=2"}:
            active = QueueState.INITIATED if ("queue", entity) in queued else None
            expected[entity] = (max(ids, default=0), len(ids), len(gone), active, covered or None)
    look = Initiating(hive.database).look(None, aborted_count=count, aborted_age_ms=10**12)
    found = {
        one.entity: (one.newest_write_id, one.commits, one.aborted_count, one.active, one.ready_for_cleaning_hwm)
        for part in look.parts(Left())
        for one in part.candidates
        if one.entity.partition in {None, "p=1", "p=2"}
    }
    assert found == expected
