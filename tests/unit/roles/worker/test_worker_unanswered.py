"""Worker: a metastore or file system that goes away is waited for, and a commit without an answer is looked up."""

import pytest

from compactor.errors import OutcomeUnknownError, RetryableError, UnreachableError
from compactor.metastore.compaction_queue.commits import committed
from compactor.metastore.db.sql import fitting
from compactor.roles import steps
from compactor.roles.housekeeper.recovery import ROUND_SECONDS, Recovery
from tests.metastore.actor import T
from tests.unit.roles.tables import hidden


def test_a_metastore_that_goes_away_is_waited_for(world, table, monkeypatch):
    """The job broke and the metastore doesn't answer: the entry is kept; settled when it answers again."""
    worker = world.worker()
    away = [True]
    abort = world.services.transactions.abort

    def sometimes(*arguments, **options):
        if away[0]:
            raise UnreachableError("no metastore")
        return abort(*arguments, **options)

    def broken(_: object) -> None:
        raise RetryableError("Spark's JVM died")

    monkeypatch.setattr(world.services.transactions, "abort", sometimes, raising=False)
    world.submitter.before = broken
    world.settle_time()
    world.enqueue(T)
    for pause in (5, 10):
        assert worker.run_once().sentence.endswith(
            f"compaction 1 of db.t has ended and can't be undone yet: no metastore; next try in {pause} s"
        )
        assert world.states() == ["working"]
        assert hidden(table) == []
        world.clock.forward(pause)
    away[0] = False
    assert "given back: Spark's JVM died" in worker.run_once().sentence
    assert world.states() == ["initiated"]


def test_a_schema_that_is_upgraded_meanwhile_costs_no_entry(any_world):
    """
    Tables that are gone while Hive's schema is upgraded are a metastore that doesn't answer, and the sentence says what
    to do: the attempt is undone afterwards, and its entry goes back.
    """
    world = any_world
    table = world.table(rows=4, insert_only=True)
    names, txns = world.names(table.location), world.database.schema.txns
    quoted = world.database.engine.dialect.identifier_preparer.format_table(txns)

    def rename(old: str, new: str) -> None:
        with world.database.transaction() as connection:
            connection.exec_driver_sql(f"ALTER TABLE {old} RENAME TO {new}")

    world.at_step[steps.WORKER_STATE_STORED] = lambda: rename(quoted, "txns_of_before")
    world.settle_time()
    world.enqueue(T)
    worker = world.worker()
    sentence = worker.run_once().sentence
    world.at_step.clear()
    rename("txns_of_before", quoted)
    if "can't be undone yet" in sentence:
        world.clock.forward(5)
        sentence = worker.run_once().sentence
    assert ": given back: " in sentence
    assert "as after an upgrade of Hive's schema" in sentence
    assert world.states() == ["initiated"]
    assert world.names(table.location) == names


def test_a_file_system_that_goes_away_is_waited_for(any_world, monkeypatch):
    """
    It isn't mounted any more when the result should be committed, and the commit fails: what was published stays marked
    until it is seen and removed.
    """
    world = any_world
    table = world.table(rows=4, insert_only=True)
    names = world.names(table.location)

    def broken(*_: object, **__: object) -> None:
        raise RetryableError("no commit")

    world.at_step[steps.WORKER_RAN if world.services.layout != "hive-4" else steps.WORKER_PUBLISHED] = world.unmount
    monkeypatch.setattr(world.services.queue, "mark_compacted_and_commit", broken, raising=False)
    world.settle_time()
    world.enqueue(T)
    worker = world.worker()
    for pause in (5, 10):
        assert worker.run_once().sentence.endswith(f"is the file system mounted?; next try in {pause} s")
        assert world.states() == ["working"]
        world.clock.forward(pause)
    world.mount()
    assert ": given back: " in worker.run_once().sentence
    assert world.names(table.location) == names
    assert world.components() <= {"c"}


@pytest.mark.parametrize("happened", [True, False])
def test_a_commit_without_an_answer_is_looked_up(any_world, monkeypatch, happened):
    """
    The commit was sent and no answer came: when it happened the result stays, when it didn't everything is undone.
    """
    world = any_world
    table = world.table(rows=4, insert_only=True)
    queue = world.services.queue
    commit = queue.mark_compacted_and_commit

    def unanswered(*arguments, **more):
        if happened:
            commit(*arguments, **more)
        raise OutcomeUnknownError("the connection was lost while committing")

    monkeypatch.setattr(queue, "mark_compacted_and_commit", unanswered, raising=False)
    sentence = world.compact(table)
    bases = [name for name in world.names(table.location) if name.startswith("base_")]
    if happened:
        assert sentence.endswith("committed, though no answer came")
        assert world.states() == ["ready for cleaning"]
        assert len(bases) == 1
    elif world.services.layout == "hive-4":
        assert "given back: the connection was lost while committing" in sentence
        assert bases == []
    else:  # the rename was the commit: the next attempt only calls the Cleaner
        assert (
            "published, but not marked; given back for the rest: the connection was lost while committing" in sentence
        )
        assert world.states() == ["initiated"]
        assert len(bases) == 1
        monkeypatch.undo()
        assert "left to the Cleaner" in world.worker().run_once().sentence
    world.settle_time()
    world.assert_rows()


def _after_two_rounds(world):
    """Whose claims the Housekeeper gives back, first at once, then a round later."""
    recovery, found = Recovery(world.services, clock=world.clock), []
    for _ in range(2):
        found.append([entry.id for entry in recovery.give_back_claims_of_nobody()])
        world.clock.forward(ROUND_SECONDS)
    return [*found, [entry.id for entry in recovery.give_back_claims_of_nobody()]]


def test_a_claim_without_an_answer_is_given_back(any_world, monkeypatch):
    """
    The claim was committed and no answer came, so no worker knows of it. The Housekeeper of the same daemon gives it
    back a round later, and not one that a worker works on, or has still to undo.
    """
    world = any_world
    table = world.table(rows=4, insert_only=True)
    queue = world.services.queue
    claim = queue.claim

    def unanswered(*arguments, **options):
        claim(*arguments, **options)
        raise OutcomeUnknownError("the connection was lost while committing")

    world.settle_time()
    world.enqueue(T)
    with monkeypatch.context() as patch:
        patch.setattr(queue, "claim", unanswered, raising=False)
        with pytest.raises(OutcomeUnknownError):
            world.worker().run_once()
    assert world.states() == ["working"]
    assert _after_two_rounds(world) == [[], [1], []]
    assert world.states() == ["initiated"]
    held = []
    world.at_step[steps.WORKER_VERIFIED] = lambda: held.extend(_after_two_rounds(world))
    assert ": published " in world.worker().run_once().sentence
    assert held == [[], [], []]
    assert any(name.startswith("base_") for name in world.names(table.location))


def test_a_commit_that_the_database_has_lost_blocks_no_table(any_world):
    """The database came back without the last commit: the claim stands again, and no worker has it in hand."""
    world = any_world
    table = world.table(rows=4, insert_only=True)
    queued, txns = world.database.schema.compaction_queue, world.database.schema.txns
    before = []
    world.at_step[steps.WORKER_PUBLISHED] = lambda: before.append(world.services.queue.entry(1))
    world.compact(table)
    (entry,) = before
    values = {"cq_state": "w", "cq_worker_id": entry.worker_id, "cq_next_txn_id": None, "cq_commit_time": None}
    world.hive.change(queued.update().values(fitting(queued, values)))
    if world.services.layout == "hive-4":
        world.hive.change(txns.update().where(txns.c.txn_id == entry.txn_id).values(txn_state="o"))
    assert world.states() == ["working"]
    assert _after_two_rounds(world) == [[], [1], []]
    assert world.states() == ["initiated"]
    world.settle_time()
    assert "1" in world.worker().run_once().sentence
    world.assert_rows()


def forgotten(world, txn_id):
    """Housekeeping has purged the transaction: it was over and had no components."""
    txns = world.database.schema.txns
    world.hive.change(txns.delete().where(txns.c.txn_id == txn_id))


@pytest.mark.parametrize("end", ["mark_refused", "mark_failed", "mark_cleaned"])
def test_a_commit_without_an_answer_is_known_by_what_it_wrote(world, table, monkeypatch, end):
    """
    Meanwhile the Cleaner ended the entry, in whichever way, and the transaction is forgotten: the row still shows that
    it was committed.
    """
    services = world.services
    commit = services.queue.mark_compacted_and_commit

    def unanswered(*arguments, **more):
        commit(*arguments, **more)
        (entry,) = services.queue.entries()
        services.cleaning.mark_cleaned(entry) if end == "mark_cleaned" else getattr(services.queue, end)(
            entry, "no_cleanup"
        )
        forgotten(world, entry.txn_id)
        raise OutcomeUnknownError("the connection was lost while committing")

    monkeypatch.setattr(services.queue, "mark_compacted_and_commit", unanswered, raising=False)
    worker = world.worker()
    world.settle_time()
    world.enqueue(T)
    assert worker.run_once().sentence.endswith("committed, though no answer came")
    assert [name for name in world.names(table.location) if name.startswith("base_")]
    assert worker.run_once().sentence == "nothing is queued"


def test_a_refusal_by_the_next_worker_is_no_sign_of_a_commit(world, table):
    """
    It took the entry over and refused it before it stored a transaction of its own: the row still names ours, which was
    never committed.
    """
    world.settle_time()
    world.enqueue(T)
    entry = world.services.queue.claim("compactor-here-1", version="1")
    txn_id = world.services.transactions.open_compaction("u", "here")
    world.services.queue.set_compactor_state(entry, txn_id, 4, "u")
    world.services.queue.mark_refused(entry, "table-missing: gone for a moment")
    ended = world.services.queue.entry(entry.id)
    assert (ended.state.value, ended.txn_id) == ("refused", txn_id)
    assert not committed(ended, txn_id)


def test_when_entry_and_transaction_are_forgotten_the_worker_goes_on(world, table, monkeypatch):
    """
    Nothing tells how the commit ended, and there is no entry left to give to anybody: the result stays, and the worker
    isn't stuck.
    """
    services, schema = world.services, world.database.schema
    commit = services.queue.mark_compacted_and_commit

    def unanswered(*arguments, **more):
        commit(*arguments, **more)
        forgotten(world, services.queue.entries()[0].txn_id)
        world.hive.change(schema.compaction_queue.delete())
        raise OutcomeUnknownError("the connection was lost while committing")

    monkeypatch.setattr(services.queue, "mark_compacted_and_commit", unanswered, raising=False)
    worker = world.worker()
    world.settle_time()
    world.enqueue(T)
    assert ": lost: " in worker.run_once().sentence
    assert [name for name in world.names(table.location) if name.startswith("base_")]
    assert worker.run_once().sentence == "nothing is queued"
