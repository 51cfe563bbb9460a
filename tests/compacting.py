"""
How tests run the engine: over a built warehouse, through any submitter, with Hive's commit protocol on the ledger.
"""

import contextlib
import functools
import pickle
from dataclasses import dataclass, field, replace

from compactor.acid.columns import column_rule
from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.acid.write_ids import CompactorWriteIdList, ValidTxnList, ValidWriteIdList
from compactor.engine.compaction import Compaction
from compactor.engine.request import CompactionRequest
from compactor.errors import CancelledError, CompactorError
from compactor.metastore.model import CatalogColumn, Entity, QueueEntry, QueueState, TableFacts
from compactor.planning.facts import StoredAs
from compactor.settings import Settings
from compactor.spark.results import run_partition
from compactor.storage.registry import storage_for
from tests.reference.compare import expected_rows, read_table

KIB = 1024
ORC_INPUT = "org.apache.hadoop.hive.ql.io.orc.OrcInputFormat"
TEXT_INPUT = "org.apache.hadoop.mapred.TextInputFormat"
LINES = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"


class NothingRuns:
    """What a submitter is asked besides running jobs, for those that have nothing running in between."""

    cold = False

    def application(self, job):
        return None

    def end(self, job):
        return None

    def end_left_over(self, keys, application):
        return None

    def stop(self):
        return None


class InProcess(NothingRuns):
    """
    A submitter that calls the functions here and now; they, tasks and results are pickled as on their way to an executor
    and back.
    """

    def run(self, job, function, tasks, *, progress=lambda _: None, cancelled=lambda: False):
        results = []
        function = pickle.loads(pickle.dumps(function))
        for number, task in enumerate(tasks):
            if cancelled():
                raise CancelledError(f"{job.name} was cancelled")
            (result,) = run_partition(function, [pickle.loads(pickle.dumps(task))])
            if isinstance(result, CompactorError):
                raise result
            results.append(pickle.loads(pickle.dumps(result)))
            progress((number + 1) / len(tasks))
        return results


def settings(**sections):
    """Settings for tests: no database is opened; small stripes count as full ones where a test says so."""
    return Settings(database={"url": "sqlite:////nowhere/metastore.db"}, host="testhost", **sections)


def facts_of(table, *, database=None, location=None, text=None):
    """
    What the catalog would say about a table of the builder, or about one of the fixtures: those don't know where they
    are and how they are stored.
    """
    text = table.file_format != "orc" if text is None else text
    return TableFacts(
        tbl_id=1,
        database=database or table.database,
        name=table.name,
        table_type="MANAGED_TABLE",
        owner="hive",
        location=f"file:{location or table.location}",
        columns=tuple(CatalogColumn(*one) for one in table.columns),
        partition_keys=tuple(CatalogColumn(*one) for one in table.partition_keys),
        input_format=TEXT_INPUT if text else ORC_INPUT,
        serde=LINES if text else None,
        buckets=table.buckets,
        bucket_columns=table.bucket_columns,
        parameters=dict(table.parameters),
    )


def stored_as(facts):
    """How the catalog would say that the files are read."""
    return StoredAs(facts.input_format, facts.serde, tuple(facts.parameters.items()))


@dataclass(eq=False)
class Attempt:
    """One compaction of one directory of a built table, step by step."""

    warehouse: object
    table: object
    kind: CompactionKind = CompactionKind.MAJOR
    partition: str | None = None
    submitter: object = field(default_factory=InProcess)
    settings: Settings = field(default_factory=settings)
    entry_id: int = 1
    attempt: str = "a"
    properties: dict = field(default_factory=dict)
    pool: str | None = None
    run_as: str | None = None
    storage: object = None

    def __post_init__(self):
        ledger = self.warehouse.ledger
        hive_4 = ledger.layout is LayoutVersion.HIVE_4
        self.location = self.table.directories[self.partition].location
        self.txn = ledger.open() if hive_4 else None
        snapshot = self.warehouse.compactor_snapshot(self.table)
        self.request = CompactionRequest(
            entry=QueueEntry(
                self.entry_id,
                Entity(self.table.database, self.table.name, self.partition),
                self.kind,
                QueueState.WORKING,
                properties=self.properties,
                pool=self.pool,
                run_as=self.run_as,
            ),
            attempt=self.attempt,
            table=facts_of(self.table),
            location=f"file:{self.location}",
            layout=ledger.layout,
            write_ids=CompactorWriteIdList.parse(snapshot.write_ids),
            txns=ValidTxnList.parse(snapshot.txns) if hive_4 else None,
            visibility_txn=self.txn,
            host="testhost",
            columns_by=column_rule(self.settings.readers.orc_columns, ledger.layout, {}),
            stored=stored_as(facts_of(self.table)),
        )
        storage = self.storage or storage_for(str(self.location))
        self.compaction = Compaction(self.request, storage, self.submitter, self.settings)

    def read_with(self, **how):
        """Change how the catalog says that the files are read."""
        self.request = replace(self.request, stored=replace(self.request.stored, **how))
        self.compaction.request = self.request

    @functools.cache  # noqa: B019 - as long as the test
    def plan(self):
        """The plan, made once."""
        return self.compaction.plan(self.compaction.observe())

    def stage(self, **how):
        self.staged = self.compaction.stage(self.plan(), **how)
        return self.staged

    def verify(self):
        self.verified = self.compaction.verify(self.staged)

    def publish(self, guard=lambda: None):
        return self.compaction.publish(self.verified, guard)

    def run(self):
        """Everything up to the commit; returns what was published."""
        self.stage()
        self.verify()
        published = self.publish()
        self.commit()
        return published

    def commit(self):
        if self.txn is not None:
            self.warehouse.ledger.commit(self.txn)
        self.compaction.discard()

    def abort(self):
        if self.txn is not None:
            self.warehouse.ledger.abort(self.txn)

    def names(self):
        """What is in the directory now."""
        return sorted(path.name for path in self.location.iterdir())


def directory_compaction(
    location,
    columns,
    *,
    kind=CompactionKind.MAJOR,
    layout=LayoutVersion.HIVE_4,
    write_ids="db.t:900:9223372036854775807::",
    txn=1000,
    orc_columns="auto",
    splice=None,
):
    """
    A compaction of a directory that no warehouse made: files by other writers. All of it counts as committed, up to
    write id 900.
    """
    hive_4 = layout is LayoutVersion.HIVE_4
    facts = TableFacts(
        tbl_id=1,
        database="db",
        name="t",
        table_type="MANAGED_TABLE",
        owner="hive",
        location=f"file:{location}",
        columns=tuple(CatalogColumn(*one) for one in columns),
        partition_keys=(),
        input_format=ORC_INPUT,
        serde=None,
        buckets=0,
        bucket_columns=(),
        parameters={"transactional": "true", "transactional_properties": "default"},
    )
    request = CompactionRequest(
        entry=QueueEntry(1, Entity("db", "t"), kind, QueueState.WORKING),
        attempt="a",
        table=facts,
        location=f"file:{location}",
        layout=layout,
        write_ids=CompactorWriteIdList.from_reader(ValidWriteIdList.parse(write_ids)),
        txns=ValidTxnList.parse(f"{txn}:{txn}:{txn}:") if hive_4 else None,
        visibility_txn=txn if hive_4 else None,
        host="testhost",
        columns_by=column_rule(orc_columns, layout, {}),
    )
    return Compaction(
        request, storage_for(str(location)), InProcess(), settings(splice=splice or {"min_stripe_bytes": 1})
    )


def insert_only_compaction(location, stored, *, submitter=None, **sections):
    """A compaction of an insert-only table's directory that no warehouse made: files by other writers."""
    made = directory_compaction(location, [("a", "int")])
    parameters = {"transactional": "true", "transactional_properties": "insert_only"}
    request = replace(made.request, table=replace(made.request.table, parameters=parameters), stored=stored)
    return Compaction(request, storage_for(str(location)), submitter or InProcess(), settings(**sections))


def deltas_of(location, files):
    """Lay files out as the deltas of an insert-only table; the paths, relative to the location."""
    paths = []
    for number, data in enumerate(files, 1):
        path = location / f"delta_{number:07d}_{number:07d}_0000" / "000000_0"
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        paths.append(str(path.relative_to(location)))
    return paths


def go_through(compaction, guard=lambda: None):
    """All steps of a compaction; returns what was published."""
    plan = compaction.plan(compaction.observe())
    return compaction.publish(compaction.verify(compaction.stage(plan)), guard)


def compact_directory(location, columns, **how):
    """One whole such compaction."""
    compaction = directory_compaction(location, columns, **how)
    try:
        return go_through(compaction)
    finally:
        compaction.discard()


def compact(warehouse, table, kind=CompactionKind.MAJOR, **how):
    """
    One whole compaction; the rows that a reader sees are what they were, before and after, for new and old snapshots.
    """
    before = read_table(warehouse, table)
    assert before == expected_rows(warehouse, table)
    old = warehouse.snapshot(table)
    attempt = Attempt(warehouse, table, kind, **how)
    published = attempt.run()
    assert read_table(warehouse, table) == before, "a new reader sees other rows"
    if warehouse.ledger.layout is LayoutVersion.HIVE_4:
        assert read_table(warehouse, table, old) == before, "a reader from before sees other rows"
    return attempt, published


@contextlib.contextmanager
def unchanged(attempt):
    """The directory is the same afterwards, hidden leftovers of an undone attempt aside."""
    before = attempt.names()
    yield
    assert [name for name in attempt.names() if not name.startswith(".")] == [
        name for name in before if not name.startswith(".")
    ]
