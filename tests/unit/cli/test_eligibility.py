"""One judgement: what Initiator, `explain`, `enqueue`, `plan` and Worker say of a table or partition is the same, whatever the catalog tells of it."""

from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compactor.acid.compaction import SUPPORTED, CompactionKind, LayoutVersion
from compactor.acid.listing import Listing
from compactor.acid.snapshot import resolve
from compactor.acid.write_ids import CompactorWriteIdList
from compactor.cli import enqueue as enqueue_module
from compactor.cli import plan as plan_module
from compactor.cli.enqueue import enqueue
from compactor.cli.inspect import judge
from compactor.cli.lookup import Found
from compactor.cli.plan import plan
from compactor.cli.session import Session
from compactor.errors import RefusedError
from compactor.metastore.model import Candidate, Column, Enqueued, Entity, PartitionFacts, QueueEntry, QueueState, TableFacts
from compactor.planning.eligibility import REPLICATION_PENDING, why_not
from compactor.planning.picker import Skip, Thresholds
from compactor.reasons import Reason
from compactor.roles.looking_up import look_up
from compactor.roles.replication import why_not_compacted
from compactor.roles.rules import TableRules

KEY, COLUMN = Column("p", "int"), Column("id", "int")
SAME = {Reason.DYNAMIC_PARTITION_ENTRY: Reason.PARTITION_UNSPECIFIED}
"""The Initiator's word for a write that names no partition."""
OF_ITSELF = frozenset({Reason.BELOW_THRESHOLDS, Reason.NOT_ENOUGH})
"""What is said of a table that may be compacted, and holds nothing."""


@st.composite
def tables(draw):
    """What a catalog may say of a table."""
    properties = st.dictionaries(
        st.sampled_from(["transactional", "transactional_properties", REPLICATION_PENDING, "no_cleanup", "repl.source.for"]),
        st.sampled_from(["true", "TRUE", "false", "insert_only", "default", ""]),
    )
    partitioned = draw(st.booleans())
    return TableFacts(
        tbl_id=1,
        database="db",
        name="t",
        table_type=draw(st.sampled_from(["MANAGED_TABLE", "EXTERNAL_TABLE", "MATERIALIZED_VIEW"])),
        owner=None,
        location=draw(st.sampled_from(["file:/w/t", None, ""])),
        columns=(COLUMN,),
        partition_keys=(KEY,) if partitioned else (),
        input_format=None,
        serde=None,
        sorted=draw(st.booleans()),
        parameters={"transactional": "true"} | draw(properties) if draw(st.booleans()) else draw(properties),
        database_parameters=draw(properties),
    )


partitions = st.builds(PartitionFacts, part_id=st.just(7), name=st.just("p=1"), location=st.sampled_from(["file:/w/t/p=1", None, ""]))


class Stub(Session):
    """A session whose metastore holds one table, and at most one partition."""

    def __init__(self, table, partition, layout):
        super().__init__()
        self.catalog = SimpleNamespace(
            find_table=lambda *_: table,
            find_partition=lambda _, name: partition if partition is not None and name == partition.name else None,
            partition_names=lambda _: ["p=1"],
        )
        self.stub = SimpleNamespace(schema=SimpleNamespace(version=layout), catalog=self.catalog)
        self.form = "json"

    def database(self, **_):
        return self.stub

    settings = SimpleNamespace(host_name="here")
    output = SimpleNamespace(say=lambda *_: None, show=lambda *_: None)


ANYWHERE = SimpleNamespace(require_inside=lambda *_: None, require_alone=lambda *_: None)
"""Where a table lies is judged apart from what it is."""


def reason_of(action):
    """Why it is refused; None: it isn't."""
    try:
        action()
    except RefusedError as refusal:
        return refusal.reason
    return None


def judged(skip):
    """The reason of a skip that says that nothing can be compacted."""
    return SAME.get(skip.reason, skip.reason) if isinstance(skip, Skip) and skip.reason not in OF_ITSELF else None


@pytest.fixture
def stubs(monkeypatch):
    """Commands up to where they would do something."""
    for module in (enqueue_module, plan_module):
        monkeypatch.setattr(module, "Catalog", lambda database: database.catalog)
    accepted = Enqueued(1, True, QueueState.READY_FOR_CLEANING, "queued")
    monkeypatch.setattr(enqueue_module, "Queue", lambda _: SimpleNamespace(enqueue=lambda *_, **__: accepted))
    monkeypatch.setattr(plan_module, "Places", lambda *_: ANYWHERE)
    monkeypatch.setattr(plan_module, "Transactions", lambda _: SimpleNamespace(valid_txns=lambda: None, compactor_write_ids=lambda *_: None))
    made = SimpleNamespace(observe=lambda: None, plan=lambda: SimpleNamespace(warnings=()))
    monkeypatch.setattr(plan_module, "Compaction", lambda *_: made)
    monkeypatch.setattr(plan_module, "ConfiguredSubmitter", lambda _: None)
    monkeypatch.setattr(plan_module, "plan_view", lambda _: None)
    monkeypatch.setattr(plan_module, "replace", lambda made, **_: made)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables(), st.none() | partitions, st.sampled_from(sorted(SUPPORTED)), st.sampled_from(LayoutVersion))
def test_all_five_agree(stubs, table, partition, kind, layout):
    """Whether it may be compacted, and the reason why not."""
    partition = partition if table.partitioned else None
    name = partition.name if partition else None
    location = partition.location if partition else table.location
    wanted = why_not_compacted(table, name, location, kind, layout)
    expected = wanted.reason if wanted else None
    entity, session = Entity("db", "t", name), Stub(table, partition, layout)
    arguments = {"target": str(entity), "partition": None, "kind": kind.value, "properties": {}}

    asked = reason_of(lambda: enqueue.callback.__wrapped__(session, pool=None, wait=False, timeout=None, **arguments))
    planned = reason_of(lambda: plan.callback.__wrapped__(session, **arguments))
    services = SimpleNamespace(catalog=session.catalog, layout=layout, places=ANYWHERE)
    worked = reason_of(lambda: look_up(services, QueueEntry(1, entity, kind, QueueState.WORKING)))
    assert {asked, planned, worked} == {expected}

    any_kind = why_not_compacted(table, name, location, None, layout)
    candidate = Candidate(entity)
    initiated = judged(TableRules.of(table, Thresholds(), layout).skip(candidate, table, location))
    state = resolve(Listing((), ()), CompactorWriteIdList("db.t", 0), None, layout)
    moment = SimpleNamespace(layout=layout, now_ms=0, oldest_open_ms=None)
    explained = judged(judge(Found(table, partition), state, candidate, moment, Thresholds(), failing=False))
    assert {initiated, explained} == {any_kind.reason if any_kind else None}
    if expected is not any_kind and any_kind is None:
        assert kind is CompactionKind.MINOR  # Hive 3.1 has no minor compaction of insert-only tables, and the picker knows


@given(tables(), st.sampled_from(sorted(set(CompactionKind) - SUPPORTED)), st.sampled_from(LayoutVersion))
def test_kinds_that_we_do_not_do_are_never_eligible(table, kind, layout):
    """One set says which we do: it is also what is claimed."""
    assert why_not(table, "p=1", "file:/w/t", kind, layout) is not None
