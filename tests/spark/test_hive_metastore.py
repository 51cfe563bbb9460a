"""
The daemon's roles on what the real Hive left: its metastore in PostgreSQL, its warehouse, our Workers on Spark, our Cleaner.

Judged by the rows Hive printed, and by what Hive's own compactor made of the same requests: states, directory names, rows left in the metastore.
"""

import threading
from dataclasses import dataclass

import pytest
from sqlalchemy import select

from compactor.acid.compaction import CompactionKind
from compactor.demo.rows import MetastoreLedger
from compactor.metastore.database import Database
from compactor.metastore.model import Entity
from compactor.roles.cleaner import Cleaner
from compactor.roles.identity import Identity
from compactor.roles.services import Services
from compactor.roles.worker import IDLE, Worker
from tests.compacting import settings
from tests.fixtures import hive
from tests.metastore.conftest import postgres  # noqa: F401 - a fixture
from tests.reference.compare import read_directory

pytestmark = [pytest.mark.spark, pytest.mark.postgres]
OPEN_TXN = 97
NOT_IN_HIVE = {("types_tsltz", None), ("aborted_part", "dt=p3")}
"""Hive can't compact the one; the other is no partition of the catalog, and nobody here asks for it."""


@dataclass
class Outcome:
    """What one run over everything came to; rows by directory path."""

    kind: str
    warehouse: object
    database: Database
    before: dict
    while_held: dict  # after the Workers, the old transaction still open
    held: tuple  # the Cleaner's sentence then, and the files it must have left
    after: dict  # after the Cleaner
    said: list


@pytest.fixture(scope="module", params=["major", "minor"])
def outcome(request, tmp_path_factory, postgres, submitter):  # noqa: F811 - pytest finds fixtures by name
    """Restore, ask for everything, work with two Workers at once, clean with the old transaction open, end it, clean."""
    folder = tmp_path_factory.mktemp(f"hive-{request.param}")
    warehouse = hive.restore(folder)
    (folder / "alive").mkdir()
    with Database(postgres.restore(hive.metastore_sql("before", folder))) as database:
        chosen = settings(splice={"min_stripe_bytes": 1}, user="compactor")
        services = Services.over(database, chosen, identity=Identity("here", "compactor", folder / "alive"), submitter=submitter)
        ledger = MetastoreLedger(database)
        before = rows_now(ledger, warehouse)
        for table in hive.metastore("before").tables.values():
            for name, _, _ in table.directories:
                assert services.queue.enqueue(Entity(hive.DATABASE, table.name, name), CompactionKind(request.param)).accepted
        said = []
        workers = [threading.Thread(target=work, args=(Worker(services, number), said)) for number in (1, 2)]
        for thread in workers:
            thread.start()
        for thread in workers:
            thread.join()
        files = {path for path in warehouse.rglob("*") if path.is_file()}
        while_held = rows_now(ledger, warehouse)
        held = Cleaner(services).run_once(), files - {path for path in warehouse.rglob("*") if path.is_file()}
        ledger.abort(OPEN_TXN)
        cleaner = Cleaner(services)
        for _ in range(10):
            said.append(cleaner.run_once())
            if said[-1].startswith("nothing to clean"):
                break
        yield Outcome(request.param, warehouse, database, before, while_held, held, rows_now(ledger, warehouse), said)


def work(worker, said):
    while (line := worker.run_once()) != IDLE:
        said.append(line)


def rows_now(ledger, warehouse):
    """What a reader sees now, by directory; the builder's ledger, not the daemon, makes the snapshot from the metastore."""
    found = {}
    for table in hive.metastore("before").tables.values():
        snapshot = ledger.snapshot(hive.DATABASE, table.name)
        for _, path, _ in table.directories:
            found[path] = read_directory(warehouse / path, table.schema, snapshot, insert_only=table.insert_only)
    return found


def test_rows_are_the_same_before_and_after(outcome):
    """With the old transaction open, and after cleaning: every row, every ROW__ID."""
    assert outcome.while_held == outcome.before
    assert outcome.after == outcome.before


def test_an_open_transaction_holds_back_all_cleaning(outcome):
    """While the transaction that was open all along lives, no file goes, and the Cleaner's sentence names it."""
    said, gone = outcome.held
    assert gone == set()
    assert f"transaction {OPEN_TXN} " in said


def test_entries_end_as_they_did_in_hive(outcome):
    """Succeeded and refused as with Hive's own compactor, with the same highest write ids; the queue is empty."""
    schema = outcome.database.schema
    done = schema.completed_compactions.c
    with outcome.database.reading() as connection:
        ours = {
            (table, partition): (state, kind, high)
            for table, partition, state, kind, high in connection.execute(
                select(done.cc_table, done.cc_partition, done.cc_state, done.cc_type, done.cc_highest_write_id)
            )
        }
        assert connection.execute(select(schema.compaction_queue.c.cq_id)).all() == []
    theirs = {(row["CC_TABLE"], row["CC_PARTITION"]): row for row in hive_rows(outcome, "COMPLETED_COMPACTIONS")}
    for key in theirs.keys() - NOT_IN_HIVE:
        state, kind, high = ours[key]
        assert (state, kind) == (theirs[key]["CC_STATE"], theirs[key]["CC_TYPE"]), (key, outcome.said)
        if state == "s":
            assert high == int(theirs[key]["CC_HIGHEST_WRITE_ID"]), key
    assert ours["types_tsltz", None][0] == "s"


def test_directories_are_those_hive_left(outcome):
    """After cleaning, each directory holds what it held after Hive's own compactor and Cleaner, but for transaction numbers and file names."""
    ours = {str(path.parent.relative_to(outcome.warehouse)) for path in outcome.warehouse.rglob("*") if path.is_file()}
    listed = (hive.HERE / f"after-{outcome.kind}" / "files.tsv").read_text(encoding="utf-8").split("\n")
    theirs = {line.split("\t")[0].rpartition("/")[0] for line in listed if line}
    aside = ("fx.db/types_tsltz", "fx.db/odd_parts/k=ü雪/n=4")  # where Hive failed
    assert shortened(ours, aside) == shortened(theirs, aside)


def shortened(paths, aside):
    return {path.split("_v")[0] for path in paths if not path.startswith(aside)}


def test_the_metastore_forgets_what_hive_forgets(outcome):
    """COMPLETED_TXN_COMPONENTS keeps the same writes; of aborted and open ones nothing is left that Hive wouldn't keep."""
    schema = outcome.database.schema
    done, open_ones = schema.completed_txn_components.c, schema.txn_components.c
    with outcome.database.reading() as connection:
        kept = {tuple(row) for row in connection.execute(select(done.ctc_table, done.ctc_partition, done.ctc_writeid)) if row[0] != "types_tsltz"}
        left = {tuple(row) for row in connection.execute(select(open_ones.tc_table, open_ones.tc_partition, open_ones.tc_writeid))}
    theirs = {(row["CTC_TABLE"], row["CTC_PARTITION"], int(row["CTC_WRITEID"])) for row in hive_rows(outcome, "COMPLETED_TXN_COMPONENTS")}
    assert kept == {row for row in theirs if row[0] != "types_tsltz"}
    assert left <= {(row["TC_TABLE"], row["TC_PARTITION"], int(row["TC_WRITEID"])) for row in hive_rows(outcome, "TXN_COMPONENTS")}


def hive_rows(outcome, table):
    return hive.metastore(f"after-{outcome.kind}").rows[table]
