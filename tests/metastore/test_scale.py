"""No statement that asks for a few rows reads a whole table: told by the servers' own plans, at a fiftieth of the size."""

import json

import pytest
from sqlalchemy import delete, event, insert

from compactor.acid.write_ids import ValidTxnList
from compactor.metastore.candidates import Initiating
from compactor.metastore.catalog import Catalog
from compactor.metastore.clean.aborts import Aborts
from compactor.metastore.clean.ready import Cleaning
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.model import Entity
from compactor.metastore.txn.transactions import Transactions
from compactor.shared import Freshness
from tests.metastore import large
from tests.metastore.actor import Hive
from tests.metastore.databases import kinds, mariadb, metastore, postgres  # noqa: F401 - fixtures

SIZE = large.Size(50)
LARGE = {"TBLS", "SDS", "PARTITIONS", "TXNS", "TXN_COMPONENTS", "COMPLETED_TXN_COMPONENTS", "TXN_TO_WRITE_ID"}
PARTITION = Entity("scale_1", "t_1", "p=7")


@pytest.fixture(scope="module", params=kinds(["postgres-4", "mariadb-4"]))
def filled(request, tmp_path_factory):
    """A metastore with a fiftieth of a large warehouse, counted by its server."""
    with metastore(request.param, request, tmp_path_factory.mktemp("filled")) as database:
        large.fill(database, SIZE)
        yield database


def whole_tables(database, work, among=frozenset(LARGE)):
    """Those of the large tables that the statements of `work` read as a whole, each with its statement."""
    seen = []

    def note(_connection, _cursor, statement, parameters, _context, _many):
        seen.append((statement, parameters))

    event.listen(database.engine, "before_cursor_execute", note)
    try:
        work()
    finally:
        event.remove(database.engine, "before_cursor_execute", note)
    asked = [(statement, given) for statement, given in seen if any(name in statement for name in among)]
    assert asked, "nothing was asked of a large table"
    found = []
    with database.transaction() as connection:
        for statement, given in asked:
            if statement.lstrip().startswith(("SELECT", "DELETE", "UPDATE", "WITH")):
                found += [(name, statement) for name in read_whole(database, connection, statement, given)]
    return [(name, statement) for name, statement in found if name in among]


def read_whole(database, connection, statement, given):
    """The large tables that the server would read from end to end for a statement."""
    if database.engine.dialect.name == "postgresql":
        plan = plan_of_postgres(connection, statement, given)
        return [node["Relation Name"] for node in nodes(plan) if node["Node Type"] == "Seq Scan"]
    rows = connection.exec_driver_sql(f"EXPLAIN {statement}", given).mappings()
    return [row["table"].upper() for row in rows if row["type"] in {"ALL", "index"} and row["table"]]


def plan_of_postgres(connection, statement, given):
    """The topmost node of the plan of PostgreSQL for a statement."""
    (plan,) = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement}", given).scalars()
    return (json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"]


def nodes(plan):
    """A node of a plan of PostgreSQL's, and all below it."""
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


def clean_one(database):
    """What a cycle does for an entry that may be cleaned, after it has judged them all."""
    cleaning = Cleaning(database)
    queue = Queue(database)
    entry = queue.entries(limit=1)[0]
    cleaning.mark_cleaned(entry)


def read_one(database):
    """The write ids of one table."""
    Transactions(database).valid_write_ids("scale_1.t_1", ValidTxnList(SIZE.next_txn))


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda database: Catalog(database).facts_for([PARTITION]), id="facts"),
        pytest.param(lambda database: Catalog(database).places_for([PARTITION]), id="places"),
        pytest.param(lambda database: Catalog(database).find_table("scale_1", "t_1"), id="table"),
        pytest.param(clean_one, id="cleaning"),
        pytest.param(read_one, id="write-ids"),
    ],
)
def test_few_rows_are_found_by_an_index(filled, work):
    """Look-ups of one table or partition, and the end of its cleaning, read no large table from end to end."""
    assert whole_tables(filled, lambda: work(filled)) == []


def test_one_reading_of_the_queue_serves_many_claims(filled):
    """A claim after the first finds its entry by its id, however many entries wait or are ready for cleaning."""
    queue = Queue(filled)
    first = queue.claim("worker-1", "1")
    taken = []
    read = whole_tables(filled, lambda: taken.append(queue.claim("worker-2", "1")), {"COMPACTION_QUEUE"})
    assert first.id != taken[0].id
    assert read == []


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda database: Cleaning(database).writing(PARTITION), id="writers"),
        pytest.param(lambda database: Aborts(database).lists(PARTITION.whole_table()), id="aborts"),
    ],
)
def test_what_open_transactions_wrote_is_found_by_their_ids(filled, work):
    """No index leads to those that are open; from there on one leads to their components and write ids."""
    assert {name for name, _ in whole_tables(filled, lambda: work(filled))} <= {"TXNS"}


def test_a_look_counts_only_what_was_written_since(filled):
    """
    COMPLETED_TXN_COMPONENTS is read once from end to end for what was written since; its commits are counted by name.
    """
    initiating = Initiating(filled)
    first = SIZE.next_txn
    large.commit(filled, SIZE, 20, first)
    large.analyse(filled)
    read = [
        text
        for name, text in whole_tables(
            filled, lambda: initiating.look(first, aborted_count=1000, aborted_age_ms=10**9).whole()
        )
        if name == "COMPLETED_TXN_COMPONENTS"
    ]
    assert len(read) == 1
    assert "DISTINCT" in read[0]


def test_a_look_reads_the_commits_of_what_it_asks_for_alone(filled):
    """Of two tables with the same partitions, asked for one of each: two rows, not four; so however many there are."""
    rows = []

    def count(_connection, cursor, statement, _parameters, _context, _many):
        if "max(" in statement and "CTC_WRITEID" in statement:
            rows.append(cursor.rowcount)

    asked = [Entity("scale_1", f"t_{1 + 20 * number}", f"p={7 + number}") for number in range(5)]
    initiating = Initiating(filled)
    event.listen(filled.engine, "after_cursor_execute", count)
    try:
        found = initiating.look(SIZE.next_txn + 10_000, also=asked, aborted_count=1000, aborted_age_ms=10**9).whole()
    finally:
        event.remove(filled.engine, "after_cursor_execute", count)
    assert {candidate.entity for candidate in found.candidates} >= set(asked)
    assert sum(rows) == len(found.candidates)


@pytest.mark.mariadb
@pytest.mark.parametrize("filled", ["mariadb-4"], indirect=True)
def test_components_come_before_their_transactions(filled):
    """
    Of all transactions few are aborted, of those with components most. By itself the server would begin with the
    transactions and look for the components of each, which takes several times as long.
    """
    initiating, plans = Initiating(filled), []

    def note(connection, _cursor, statement, parameters, _context, _many):
        if "TXN_COMPONENTS` INNER JOIN" in statement and not statement.startswith("EXPLAIN"):
            rows = connection.exec_driver_sql(f"EXPLAIN {statement}", parameters).mappings()
            plans.append([row["table"].upper() for row in rows])

    event.listen(filled.engine, "before_cursor_execute", note)
    try:
        initiating.look(SIZE.next_txn, aborted_count=1000, aborted_age_ms=10**9).whole()
    finally:
        event.remove(filled.engine, "before_cursor_execute", note)
    assert plans
    assert all(plan == ["TXN_COMPONENTS", "TXNS"] for plan in plans)


@pytest.fixture
def grown(request, tmp_path):
    """
    A metastore on PostgreSQL in which 2,000 partitions of one table were written, and failed, since the server counted
    an empty table: it keeps the room of what was there before.
    """
    names = [f"p={number}" for number in range(2000)]
    with metastore("postgres-4", request, tmp_path) as database:
        hive, schema = Hive(database), database.schema
        hive.add_partitions(hive.create_table(keys=(("p", "int"),)), names)
        commits = [
            {
                "ctc_txnid": 10,
                "ctc_database": "db",
                "ctc_table": "t",
                "ctc_partition": name,
                "ctc_writeid": 1,
                "ctc_update_delete": "N",
            }
            for name in names
        ]
        ended = [
            {
                "cc_id": number,
                "cc_database": "db",
                "cc_table": "t",
                "cc_partition": name,
                "cc_state": "f",
                "cc_type": "a",
            }
            for number, name in enumerate(names)
        ]
        filled = (schema.completed_txn_components, commits), (schema.completed_compactions, ended)
        for table, rows in filled:
            hive.change(insert(table).values(rows))
            hive.change(delete(table))
        with database.outside_transactions() as connection:
            connection.exec_driver_sql("ANALYZE")
        for table, rows in filled:
            hive.change(insert(table).values(rows))
        yield database


@pytest.mark.postgres
def test_statistics_of_yesterday_make_no_search_quadratic(grown):
    """Each of many partitions of one table is searched for by all parts of its name, whatever the server believes."""
    conditions = []

    def note(connection, _cursor, statement, parameters, _context, _many):
        kind = next((column for column in ("CTC_PARTITION", "CC_PARTITION") if f'"{column}"' in statement), None)
        if kind and statement.startswith("SELECT") and ("unnest(" in statement or "EXISTS" in statement):
            plan = plan_of_postgres(connection, statement, parameters)
            told = [str(node.get("Index Cond", "")) for node in nodes(plan)]
            conditions.append((kind, any(kind in one for one in told), "IS NULL" in statement))

    initiating = Initiating(grown)
    event.listen(grown.engine, "before_cursor_execute", note)
    try:
        found = initiating.look(1, aborted_count=1000, aborted_age_ms=10**9).whole()
    finally:
        event.remove(grown.engine, "before_cursor_execute", note)
    assert len(found.candidates) == 2000
    assert {kind for kind, *_ in conditions} == {"CTC_PARTITION", "CC_PARTITION"}
    assert all(searched for kind, searched, null in conditions if not (null and kind == "CC_PARTITION"))


def test_what_failed_last_is_found_by_its_name(filled):
    """Hive's 4.x have an index by which a newer compaction is found: the history isn't sorted in each cycle."""
    read = whole_tables(
        filled,
        lambda: Initiating(filled).look(SIZE.next_txn, aborted_count=1000, aborted_age_ms=10**9),
        {"COMPLETED_COMPACTIONS"},
    )
    assert [text for _, text in read if "max(" in text] == []


def test_claims_share_one_reading_of_the_queue(filled, monkeypatch):
    """However many entries wait, and though their order isn't that of an index: the waiting ones are read once."""
    monkeypatch.setattr("compactor.metastore.compaction_queue.window._FRESHNESS", Freshness(1e9))
    seen = []

    def note(_connection, _cursor, statement, _parameters, _context, _many):
        if statement.startswith("SELECT") and "ORDER BY" in statement:
            seen.append(statement)

    queue = Queue(filled)
    event.listen(filled.engine, "before_cursor_execute", note)
    try:
        claimed = {queue.claim("w", "1").id for _ in range(300)}
    finally:
        event.remove(filled.engine, "before_cursor_execute", note)
    assert (len(claimed), len(seen)) == (300, 1)
