"""Asking for compactions: rows as Hive writes them, one of a kind at a time."""

import threading

import pytest
from sqlalchemy import insert

from compactor.errors import CompactorError, UsageError
from compactor.metastore.compaction_queue.properties import decode_properties, encode_properties
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.compaction_queue.requests import Request
from compactor.metastore.model import Entity
from tests.metastore.actor import P, T, run_all
from tests.metastore.entries import MAJOR, MINOR


def test_a_request_is_stored_as_hive_stores_it(database, hive):
    """
    State i, type a, names in lower case, properties in Hive's form; who asked and when on Hive 4; nothing else, but on
    Hive 3.1, which doesn't hold who asked, a person's urgency.
    """
    answer = Queue(database).enqueue(
        Entity("DB", "T", "p=A b"),
        MAJOR,
        properties={"a": "bc"},
        pool="x",
        initiator_id="edge-manual",
        initiator_version="1",
    )
    assert answer.accepted
    queue = database.schema.compaction_queue
    shared = (
        "cq_id",
        "cq_database",
        "cq_table",
        "cq_partition",
        "cq_state",
        "cq_type",
        "cq_tblproperties",
        "cq_worker_id",
        "cq_highest_write_id",
    )
    properties = "1:1:a2:bc" if database.schema.generation.layout == "hive-4" else "2:1:a2:bc17:compactor.urgency1:4"
    assert hive.rows(queue, *shared) == [(answer.id, "db", "t", "p=A b", "i", "a", properties, None, None)]
    if database.schema.generation.layout == "hive-4":
        ((enqueued, *rest),) = hive.rows(
            queue,
            "cq_enqueue_time",
            "cq_pool_name",
            "cq_initiator_id",
            "cq_initiator_version",
            "cq_retry_retention",
            "cq_txn_id",
        )
        assert rest == ["x", "edge-manual", "1", 0, None]
        assert abs(enqueued - database.read(database.now_ms)) < 60_000


@pytest.mark.parametrize(
    "properties", [{}, {"a": ""}, {"ключ": "雪😀", "b:1": "3:x"}, {"Location": "file:/w/x", "purge": "true"}]
)
def test_properties_come_back(database, properties):
    """
    Properties read back equal those asked for, whatever their characters: lengths count UTF-16 units as Java's do.
    """
    if not "".join(properties).isascii() and database.dialect.name == "MySQL":
        with pytest.raises(CompactorError, match="Incorrect string value"):  # Hive's script makes columns of latin1
            Queue(database).enqueue(T, MAJOR, properties=properties)
        return
    Queue(database).enqueue(T, MAJOR, properties=properties)
    assert Queue(database).entries()[0].properties == properties


def test_property_lengths_are_javas():
    """A character outside the basic plane counts as two; null values have length -1."""
    assert encode_properties({"😀": "x"}) == "1:2:😀1:x"
    assert decode_properties("2:1:a-1:1:b0:") == {"a": "", "b": ""}
    assert decode_properties("") == decode_properties(None) == decode_properties("0:") == {}


@pytest.mark.parametrize("broken", ["x", "1:", "1:5:ab", "2:1:a1:b"])
def test_broken_properties_do_not_stop_the_queue(database, hive, broken):
    """A row with properties that can't be read is an entry without properties."""
    hive.queued(tblproperties=broken)
    assert Queue(database).entries()[0].properties == {}


def test_properties_that_do_not_fit_are_refused(database):
    """Properties longer than their column are an error, not cut: cut ones would mean something else."""
    with pytest.raises(UsageError, match="2048"):
        Queue(database).enqueue(T, MAJOR, properties={"a": "x" * 2048})


@pytest.mark.parametrize("state", ["i", "w"])
def test_what_is_underway_is_not_queued_again(database, hive, state):
    """
    An entry initiated or working, of whatever kind, stands in the way of another for the same partition, and of no
    other partition.
    """
    standing = hive.queued("db.t/p=1", state=state, type="i")
    queue = Queue(database)
    answer = queue.enqueue(P, MAJOR)
    assert (answer.id, answer.accepted, answer.state.code) == (standing, False, state)
    assert queue.enqueue(T, MAJOR).accepted
    assert queue.enqueue(Entity("db", "t", "p=2"), MAJOR).accepted


@pytest.mark.parametrize("state", ["s", "f", "a", "c", "x"])
def test_what_has_ended_is_in_nobodys_way(database, hive, state):
    """Though it covered what a compaction would cover now."""
    _, write_id = hive.write()
    hive.queued(state=state, highest_write_id=write_id)
    assert Queue(database).enqueue(T, MAJOR).accepted


def test_what_is_ready_for_cleaning_at_the_same_write_id_is_not_queued_again_on_hive_4(database, hive):
    """
    Ready for cleaning at what a compaction would cover now: nothing to do on 4.x; 3.1 doesn't look. After another write
    it is accepted.
    """
    _, write_id = hive.write()
    hive.queued(state="r", highest_write_id=write_id)
    queue = Queue(database)
    assert queue.enqueue(T, MAJOR).accepted is (database.schema.generation.layout != "hive-4")
    hive.write()
    if database.schema.generation.layout == "hive-4":
        assert queue.enqueue(T, MAJOR).accepted


def test_many_requests_at_once_get_an_answer_each(database, hive):
    """
    In one call: new ones are queued with ids in their order, the second of two alike points to the first, standing ones
    to what stands.
    """
    standing = hive.queued("db.t/p=1")
    others = [Entity("db", "t", f"p={number}") for number in range(10, 2010)]
    answers = Queue(database).enqueue_all(
        [Request(T, MAJOR), Request(P, MINOR), Request(T, MINOR), *(Request(other, MINOR) for other in others)]
    )
    assert [answer.accepted for answer in answers[:3]] == [True, False, False]
    assert (answers[1].id, answers[2].id) == (standing, answers[0].id)
    assert [answer.id for answer in answers[3:]] == list(range(answers[0].id + 1, answers[0].id + 2001))
    assert len(Queue(database).entries()) == 2002


def test_a_preview_tells_what_would_be_refused(database, hive):
    """With the same answers as the call itself gives a moment later, and nothing is queued by it."""
    _, write_id = hive.write()
    hive.queued("db.t", state="r", highest_write_id=write_id)
    hive.queued("db.t/p=1", state="w")
    hive.queued("db.t/p=2", state="r", highest_write_id=write_id - 1)
    requests = [Request(Entity("db", "t", partition), MAJOR) for partition in (None, "p=1", "p=2", "p=3")]
    queue = Queue(database)
    before = queue.entries()
    told = queue.preview(requests)
    assert queue.entries() == before
    answers = queue.enqueue_all(requests)
    assert told == {request.entity: one for request, one in zip(requests, answers, strict=True) if not one.accepted}
    assert len(told) == (2 if database.schema.generation.layout == "hive-4" else 1)
    with pytest.raises(UsageError, match="2048"):
        queue.preview([Request(T, MAJOR, properties={"a": "x" * 2048})])


def test_without_requests_nothing_is_asked(database):
    """No mutex is taken, and there are no answers."""
    assert Queue(database).enqueue_all([]) == []


def test_ids_are_hives_counter(database, hive):
    """The next id of Hive's own counter is taken and bumped; a refusal burns none."""
    first = hive.queued("db.x")
    queue = Queue(database)
    assert queue.enqueue(T, MAJOR).id == first + 1
    assert not queue.enqueue(T, MAJOR).accepted
    assert hive.queued("db.y") == first + 2


def test_two_who_ask_at_once_queue_one(shared_database):
    """Of many threads asking for the same at the same moment one is accepted."""
    start = threading.Barrier(6)
    answers = []

    def ask():
        start.wait()
        answers.append(Queue(shared_database).enqueue(T, MAJOR))

    run_all([ask] * 6)
    assert sum(answer.accepted for answer in answers) == 1
    assert len({answer.id for answer in answers}) == 1


def test_inserting_beside_hive_keeps_its_ids_apart(database, hive):
    """A row inserted by Hive between two of ours gets an id of its own."""
    queue = Queue(database)
    ids = [queue.enqueue(Entity("db", "a"), MAJOR).id, hive.queued("db.b"), queue.enqueue(Entity("db", "c"), MAJOR).id]
    assert ids == sorted(set(ids))
    hive.change(insert(database.schema.aux_table).values(mt_key1="other", mt_key2=0))


def test_who_queued_is_told(database, hive):
    """Of queue and history together, with the newest; what was queued earlier, or by none that is noted, isn't."""
    queue = Queue(database)
    now = database.read(database.now_ms)
    for number, (name, age) in enumerate((("a-1", 10), ("a-1", 900), ("b-2", 90_000), (None, 10), ("c-3", 20))):
        values = {"initiator_id": name, "enqueue_time": now - age * 1000}
        (hive.queued if number % 2 else hive.finished)(f"db.t{number}", **values)
    expected = (
        {"a-1": (2, now - 10_000), "c-3": (1, now - 20_000)} if database.schema.generation.layout == "hive-4" else None
    )
    assert queue.initiators(1_000_000) == expected
