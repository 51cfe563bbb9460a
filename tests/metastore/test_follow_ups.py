"""What follows a part: noted by its commit, asked for once, whoever asks and wherever the row is by then."""

import pytest
from sqlalchemy import update

from compactor.metastore.clean.ready import Cleaning
from compactor.metastore.compaction_queue.follow_ups import FollowUp, noted
from compactor.metastore.compaction_queue.properties import decode_properties, with_property, without_property
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.compaction_queue.requests import PROPERTIES_LIMIT
from compactor.metastore.model import Entity, QueueState
from tests.metastore.actor import T, run_all
from tests.metastore.entries import MAJOR, MINOR, working

FOLLOW_UP = "compactor.follow-up"


def part(database, follow_up, entity=T):
    """A part that is committed; returns its id."""
    entry, txn_id = working(database, entity)
    Queue(database).mark_compacted_and_commit(entry, entry.worker_id, txn_id, follow_up)
    return entry.id


def cleaned(database, entry_id):
    Cleaning(database).mark_cleaned(Queue(database).entry(entry_id))


def initiated(database):
    return [(entry.entity, entry.kind) for entry in Queue(database).entries(QueueState.INITIATED)]


def test_the_rest_is_asked_for_once(database):
    """Noted with the commit; queued and struck out in one transaction; then there is nothing more to do."""
    first, queue = part(database, FollowUp.NOW), Queue(database)
    assert [entry.id for entry in queue.follow_ups.noted(history=False)] == [first]
    answer, settled = queue.follow_ups.ask(first)
    assert (answer.accepted, settled) == (True, True)
    assert queue.entry(first).properties == {}
    assert queue.follow_ups.ask(first) == (None, True)
    assert queue.follow_ups.noted(history=True) == []
    assert initiated(database) == [(T, MAJOR)]


def test_where_it_needs_the_room_the_cleaner_comes_first(database):
    """
    The note goes into the history with its row, as Hive's Cleaner takes it there, and is found and struck out there.
    """
    first, queue = part(database, FollowUp.WHEN_CLEANED), Queue(database)
    assert queue.follow_ups.ask(first) == (None, False)
    cleaned(database, first)
    assert queue.follow_ups.noted(history=False) == []
    assert [entry.id for entry in queue.follow_ups.noted(history=True)] == [first]
    answer, settled = queue.follow_ups.ask(first)
    assert (answer.accepted, settled) == (True, True)
    assert queue.follow_ups.noted(history=True) == []
    assert queue.entry(first).state is QueueState.SUCCEEDED


@pytest.mark.parametrize(("other", "enough"), [(MAJOR, True), (MINOR, False)])
def test_what_is_in_the_way(database, monkeypatch, other, enough):
    """An entry that does as much settles it; another one has it wait, and then no mutex is asked for."""
    first, queue = part(database, FollowUp.NOW), Queue(database)
    assert queue.enqueue(T, other).accepted
    if not enough:
        monkeypatch.setattr(database, "mutex", lambda *_: 1 / 0)
    answer, settled = queue.follow_ups.ask(first)
    assert (answer.accepted, settled) == (False, enough)
    assert (FOLLOW_UP in queue.entry(first).properties) is not enough


@pytest.mark.parametrize("text", [None, "1:4:note19:compactor.follow-up"])
def test_who_was_stopped_asks_for_nothing_a_second_time(database, monkeypatch, text):
    """
    Between its look and its turn another asked, and that entry is over by now; whatever else the row's properties hold,
    such as the note's own name.
    """
    entry, txn_id = working(database)
    queue, table = Queue(database), database.schema.compaction_queue
    database.write(
        lambda connection: connection.execute(
            update(table).where(table.c.cq_id == entry.id).values(cq_tblproperties=text)
        )
    )
    queue.mark_compacted_and_commit(entry, entry.worker_id, txn_id, FollowUp.NOW)
    look = queue.follow_ups._in_the_way

    def stopped(connection, request):
        answer, _ = Queue(database).follow_ups.ask(entry.id)
        assert Queue(database).cancel(answer.id, "not wanted")
        return look(connection, request)

    monkeypatch.setattr(queue.follow_ups, "_in_the_way", stopped)
    assert queue.follow_ups.ask(entry.id) == (None, False)
    assert initiated(database) == []
    assert queue.follow_ups.ask(entry.id) == (None, True)


def test_nothing_is_noted_where_nothing_follows(database):
    """The only part, and one whose row's properties can't be read or leave no room."""
    queue = Queue(database)
    assert FOLLOW_UP not in queue.entry(part(database, None)).properties
    for number, text in enumerate(["2:1:a1:b", f"1:1:a{PROPERTIES_LIMIT - 10}:{'x' * (PROPERTIES_LIMIT - 10)}"]):
        entry, txn_id = working(database, Entity("db", "t", f"p={number}"))
        column = database.schema.compaction_queue.c
        database.write(
            lambda connection, entry=entry, column=column, text=text: connection.execute(
                update(database.schema.compaction_queue).where(column.cq_id == entry.id).values(cq_tblproperties=text)
            )
        )
        queue.mark_compacted_and_commit(entry, entry.worker_id, txn_id, FollowUp.NOW)
        assert queue.entry(entry.id).state is QueueState.READY_FOR_CLEANING
    assert queue.follow_ups.noted(history=True) == []


def test_of_many_who_ask_one_does(shared_database):
    """While the Cleaner moves the row into the history, too."""
    for number in range(4):
        one_race(shared_database, Entity("db", "t", f"p={number}"))
    assert Queue(shared_database).follow_ups.noted(history=True) == []


def one_race(database, entity):
    first, queue = part(database, FollowUp.NOW, entity), Queue(database)
    answers = []
    run_all(
        [*[lambda: answers.append(queue.follow_ups.ask(first)) for _ in range(3)], lambda: cleaned(database, first)]
    )
    if not any(
        answer is not None and answer.accepted for answer, _ in answers
    ):  # each met the row while it moved: the next look settles it
        answers.append(queue.follow_ups.ask(first))
    assert sum(answer is not None and answer.accepted for answer, _ in answers) == 1
    assert initiated(database).count((entity, MAJOR)) == 1


@pytest.mark.parametrize(
    ("text", "with_note"),
    [
        (None, "1:19:compactor.follow-up3:now"),
        ("1:1:a-1:", "2:1:a-1:19:compactor.follow-up3:now"),
        ("1:2:😀1:x", "2:2:😀1:x19:compactor.follow-up3:now"),
        ("2:19:compactor.follow-up12:when-cleaned1:a1:b", "2:1:a1:b19:compactor.follow-up3:now"),
    ],
)
def test_other_properties_stay_as_they_stand(text, with_note):
    """Null values too, which reading alone doesn't tell from empty ones."""
    assert noted(text, FollowUp.NOW) == with_note
    assert decode_properties(with_note)[FOLLOW_UP] == "now"
    assert without_property(with_note, FOLLOW_UP) == (None if text is None else without_property(text, FOLLOW_UP))
    assert with_property(with_note, FOLLOW_UP, "now") == with_note


@pytest.mark.parametrize("text", ["x", "1:", "1:5:ab", "2:1:a1:b"])
def test_what_can_not_be_read_is_not_noted_in(text):
    """It would be lost."""
    assert noted(text, FollowUp.NOW) is None
