"""
One judgement: what Initiator, `explain`, `enqueue`, `plan` and Worker say of a table or partition is the same, whatever
the catalog and the store tell of it.
"""

import json
import os
from dataclasses import replace
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compactor.acid.compaction import SUPPORTED, CompactionKind, LayoutVersion
from compactor.acid.listing import Listing
from compactor.acid.snapshot import resolve
from compactor.acid.write_ids import CompactorWriteIdList
from compactor.cli.commands.looking import plan as plan_module
from compactor.cli.commands.looking.plan import plan
from compactor.cli.commands.queueing import enqueue as enqueue_module
from compactor.cli.commands.queueing.enqueue import enqueue
from compactor.cli.root import cli
from compactor.cli.session import Session
from compactor.errors import RefusedError, UnreachableError
from compactor.metastore.db.database import Database
from compactor.metastore.model import (
    Candidate,
    CatalogColumn,
    CatalogPlace,
    Enqueued,
    Entity,
    PartitionFacts,
    QueueEntry,
    QueueState,
    TableFacts,
)
from compactor.planning.eligibility import REPLICATION_PENDING, why_not, why_nowhere
from compactor.planning.facts import NOT_STORED
from compactor.planning.insert_only.formats import TEXT_INPUT
from compactor.planning.picker import Skip
from compactor.reasons import Reason
from compactor.roles import eligibility, replication
from compactor.roles.eligibility import judge_all
from compactor.roles.initiator.rules import TableRules, thresholds_from
from compactor.roles.worker.entry_facts import look_up
from compactor.settings import ReaderSettings, ThresholdSettings
from compactor.status.daemons import Daemons
from compactor.status.judging import Found, judge, why_ineligible
from tests.unit.roles.test_places import move, move_partition
from tests.unit.roles.test_places_links import swap
from tests.unit.roles.world import World

INSERT_ONLY = {"transactional_properties": "insert_only"}
KEY, COLUMN = CatalogColumn("p", "int"), CatalogColumn("id", "int")
SAME = {Reason.DYNAMIC_PARTITION_ENTRY: Reason.PARTITION_UNSPECIFIED}
"""The Initiator's word for a write that names no partition."""
OF_ITSELF = frozenset({Reason.BELOW_THRESHOLDS, Reason.NOT_ENOUGH})
"""What is said of a table that may be compacted, and holds nothing."""


@st.composite
def tables(draw):
    """What a catalog may say of a table."""
    properties = st.dictionaries(
        st.sampled_from(
            [
                "transactional",
                "transactional_properties",
                REPLICATION_PENDING,
                "no_cleanup",
                "repl.source.for",
                "skip.header.line.count",
            ]
        ),
        st.sampled_from(["true", "TRUE", "false", "insert_only", "default", "", "0", "1"]),
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
        input_format=draw(st.sampled_from([None, "org.apache.hadoop.mapred.TextInputFormat"])),
        serde=None,
        sorted=draw(st.booleans()),
        parameters={"transactional": "true"} | draw(properties) if draw(st.booleans()) else draw(properties),
        database_parameters=draw(properties),
    )


partitions = st.builds(
    PartitionFacts, part_id=st.just(7), name=st.just("p=1"), location=st.sampled_from(["file:/w/t/p=1", None, ""])
)


class Stub(Session):
    """A session whose metastore holds one table, and at most one partition, which lie where `places` judge."""

    def __init__(self, table, partition, layout, places):
        super().__init__()
        self.places = places
        self.catalog = SimpleNamespace(
            find_table=lambda *_: table,
            find_partition=lambda _, name: partition if partition is not None and name == partition.name else None,
            partition_names=lambda _: ["p=1"],
            stored_as=lambda *_: NOT_STORED,
        )
        self.stub = SimpleNamespace(
            schema=SimpleNamespace(generation=SimpleNamespace(layout=layout)), catalog=self.catalog
        )
        self.form = "json"

    def database(self, **_):
        return self.stub

    settings = SimpleNamespace(host_name="here", readers=ReaderSettings())
    output = SimpleNamespace(say=lambda *_: None, show=lambda *_: None)


class Where:
    """In place of `Places`: everything lies where it may, or is refused for this reason; or a link leads there."""

    def __init__(self, reason):
        self.reason = reason

    def refusals(self, wanted, *, last_look=False):
        refused = self.reason not in {None, Reason.UNSAFE_LOCATION}
        return [RefusedError(self.reason, "there") if refused else None for _ in wanted]

    def root_of(self, _):
        return None

    def require_unlinked(self, _):
        if self.reason is Reason.UNSAFE_LOCATION:
            raise RefusedError(self.reason, "a link")


places = st.sampled_from([None, Reason.OUTSIDE_ROOTS, Reason.OVERLAPPING_LOCATION, Reason.UNSAFE_LOCATION]).map(Where)


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
    queue = SimpleNamespace(enqueue=lambda *_, **__: accepted, entry=lambda _: None)
    monkeypatch.setattr(enqueue_module, "Queue", lambda _: queue)
    monkeypatch.setattr(enqueue_module.control_records, "daemons", lambda _: Daemons())
    monkeypatch.setattr(
        plan_module,
        "Transactions",
        lambda _: SimpleNamespace(valid_txns=lambda: None, compactor_write_ids=lambda *_: None),
    )
    made = SimpleNamespace(observe=lambda: None, plan=lambda _: SimpleNamespace(warnings=()))
    monkeypatch.setattr(plan_module, "Compaction", lambda *_: made)
    monkeypatch.setattr(plan_module, "submitter_for", lambda _: None)
    monkeypatch.setattr(plan_module, "plan_view", lambda _: None)
    monkeypatch.setattr(plan_module, "replace", lambda made, **_: made)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables(), st.none() | partitions, st.sampled_from(SUPPORTED), st.sampled_from(LayoutVersion), places)
def test_all_five_agree(stubs, table, partition, kind, layout, places):  # noqa: PLR0917 - drawn by Hypothesis, in this order
    """Whether it may be compacted, and the reason why not."""
    partition = partition if table.partitioned else None
    place = CatalogPlace.of(table, partition)
    entity, session = Entity("db", "t", place.partition), Stub(table, partition, layout, places)
    arguments = {"target": str(entity), "partition": None, "kind": kind.value, "properties": {}}

    of_many = {"where": None, "worst": None, "yes": False}
    asked = reason_of(
        lambda: enqueue.callback.__wrapped__(session, pool=None, wait=False, timeout=None, **of_many, **arguments)
    )
    planned = reason_of(lambda: plan.callback.__wrapped__(session, **arguments))
    services = SimpleNamespace(catalog=session.catalog, layout=layout, places=places)
    worked = reason_of(lambda: look_up(services, QueueEntry(1, entity, kind, QueueState.WORKING)))

    (skip,) = judge_all(places, [place], layout)
    candidate = Candidate(entity)
    limits = thresholds_from(ThresholdSettings())
    rules = TableRules.of(table, limits, layout)
    initiated = judged(rules.skip(candidate, skip) or linked(places))
    state = resolve(Listing((), ()), CompactorWriteIdList("db.t", 0), None, layout)
    moment = SimpleNamespace(snapshot=SimpleNamespace(layout=layout), now_ms=0, oldest_open_ms=None)
    found = Found(table, partition)
    explained = judged(
        judge(found, state, candidate, moment, limits, ineligible=why_ineligible(places, [found], layout)[0])
    )
    assert initiated == explained
    if initiated is None and asked is not None:
        assert asked is Reason.UNSUPPORTED_KIND
        assert (
            kind is CompactionKind.MINOR
        )  # Hive 3.1 has no minor compaction of insert-only tables, and the picker knows
    elif asked is Reason.UNSUPPORTED_KIND:
        assert kind is CompactionKind.MINOR  # which is told before where it lies
    else:
        assert asked == initiated
    assert asked == planned == worked


def linked(places):
    """What the Initiator's listing says."""
    reason = reason_of(lambda: places.require_unlinked("file:/w/t"))
    return None if reason is None else Skip(reason, "a link")


@given(tables(), st.sampled_from(sorted(set(CompactionKind).difference(SUPPORTED))), st.sampled_from(LayoutVersion))
def test_kinds_that_we_do_not_do_are_never_eligible(table, kind, layout):
    """One set says which we do: it is also what is claimed."""
    assert why_not(table, kind, layout) is not None


@pytest.mark.parametrize(
    ("parameters", "input_format", "layout", "eligible"),
    [
        ({"skip.header.line.count": "1"}, "orc", LayoutVersion.HIVE_3, False),
        ({"skip.footer.line.count": "2"}, "orc", LayoutVersion.HIVE_3, False),
        ({"skip.header.line.count": "0"}, "orc", LayoutVersion.HIVE_3, True),
        ({"skip.header.line.count": "1"}, "orc", LayoutVersion.HIVE_4, True),
        (INSERT_ONLY | {"skip.header.line.count": "1"}, "parquet", LayoutVersion.HIVE_3, False),
        (INSERT_ONLY | {"skip.header.line.count": "1"}, TEXT_INPUT, LayoutVersion.HIVE_3, True),
    ],
)
def test_rows_that_hive_3_skips_stay_in_their_files(parameters, input_format, layout, eligible):
    """
    Hive 3.1 leaves out the first rows of each file, whatever its format (HIVE-24827): no compaction of it, but of text,
    whose files then stay as they are.
    """
    parameters = {"transactional": "true"} | parameters
    table = TableFacts(1, "db", "t", "MANAGED_TABLE", None, "file:/w/t", (COLUMN,), (), input_format, None)
    skip = why_not(replace(table, parameters=parameters), CompactionKind.MAJOR, layout)
    assert (skip and skip.reason) == (None if eligible else Reason.UNSUPPORTED_FORMAT)


@pytest.mark.parametrize(
    ("key", "value", "refused"),
    [
        ("orc.schema.evolution.case.sensitive", "False", set(LayoutVersion)),
        ("orc.schema.evolution.case.sensitive", " true", set()),
        ("orc.force.positional.evolution.level", "2", {LayoutVersion.HIVE_4}),
        ("orc.proleptic.gregorian.default", "true", {LayoutVersion.HIVE_4}),
        ("orc.force.positional.evolution", "true", set()),
        ("orc.compress", "NONE", set()),
    ],
)
@pytest.mark.parametrize("layout", list(LayoutVersion))
def test_a_property_that_readers_follow_and_we_do_not(key, value, refused, layout):
    """
    Hive hands its readers a table's properties: one that the release's ORC knows, and by which they find other values
    than we do, is refused.
    """
    table = TableFacts(1, "db", "t", "MANAGED_TABLE", None, "file:/w/t", (COLUMN,), (), None, None)
    for told in (
        {"parameters": {"transactional": "true", key: value}},
        {"parameters": {"transactional": "true"}, "serde_parameters": {key: value}},
    ):
        skip = why_not(replace(table, **told), CompactionKind.MAJOR, layout)
        assert (skip and skip.reason) == (Reason.BAD_PROPERTY if layout in refused else None)


def _lies_at(world, victim, table):
    move(world, table.name, f"file:{victim.location}")


def _lies_inside(world, victim, table):
    move(world, victim.name, f"file:{table.location}/inside")


def _lies_around(world, victim, table):
    move(world, table.name, f"file:{victim.location.parent}")


def _lies_outside(world, _, table):
    outside = world.folder / "outside"
    table.location.rename(outside)
    move(world, table.name, f"file:{outside}")


def _is_a_link(world, victim, table):
    swap(world, table.location, victim)


def _has_another_partition_inside(world, victim, table):
    move_partition(world, "p=2", f"file:{table.location}/p=1/q")


def _is_a_source_without_a_root(world, victim, table):
    """`hdfs.change_management_root` is set, and isn't there: only HDFS tells."""
    schema = world.database.schema
    ((number,),) = world.hive.rows(schema.dbs, "db_id", where=schema.dbs.c.name == "db")
    world.hive.change(
        schema.database_params.insert().values(db_id=number, param_key="repl.source.for", param_value="policy")
    )


class NoRoot:
    """In place of HDFS."""

    def require(self, location):
        raise RefusedError(Reason.REPLICATION_SOURCE, f"hdfs://nn/cmroot isn't there, for {location}")


@pytest.mark.parametrize(
    ("lies", "reason"),
    [
        (_lies_at, "overlapping-location"),
        (_lies_inside, "overlapping-location"),
        (_lies_around, "overlapping-location"),
        (_lies_outside, "outside-roots"),
        (_is_a_link, "unsafe-location"),
        (_has_another_partition_inside, "overlapping-location"),
        (_is_a_source_without_a_root, "replication-source"),
    ],
)
def test_what_lies_wrong_is_refused_by_all_five(tmp_path, monkeypatch, lies, reason):
    """
    Nothing is queued, neither by the Initiator nor by hand; what Hive queued is refused; and `explain` gives one
    answer.
    """
    monkeypatch.setattr(replication, "why_not_recycled", lambda _: None)
    monkeypatch.setattr(eligibility, "change_management", NoRoot)
    for name in [name for name in os.environ if name.startswith("COMPACTOR_")]:
        monkeypatch.delenv(name)
    config = tmp_path / "compactor.yaml"
    config.write_text(f"database:\n  url: sqlite:///{tmp_path}/metastore.db\nhost: here\n", encoding="utf-8")
    parted = lies is _has_another_partition_inside
    with Database(f"sqlite:///{tmp_path}/metastore.db", create=True) as database:
        world = World(database, tmp_path)
        victim, table = (
            world.table("victim", rows=1),
            world.table(rows=0, partition_keys=[("p", "int")] if parted else []),
        )
        for number in range(12):
            world.insert(table, [(number, "x")], ("1",) if parted else None)
        if parted:
            world.insert(table, [(1, "x")], ("2",))
        lies(world, victim, table)
        world.settle_time()
        initiated = world.initiator().run_once().sentence
        assert world.states() == []
        entity = Entity("db", "t", "p=1" if parted else None)
        told = [message.partition(": ")[0] for state, message in world.ended() if state == "did not initiate"]
        world.enqueue(entity)
        assert f"refused: {reason}: " in world.worker().run_once().sentence
        why = world.ended()[0][1].partition(": ")[2]
    assert "queued 0 of" in initiated
    assert set(told) == {reason}

    def run(*arguments):
        return CliRunner().invoke(cli, ["--config", str(config), "--output", "json", *arguments])

    answer = run("explain", str(entity))
    if lies is _lies_around:  # what is there can't be drawn
        assert (answer.exit_code, answer.stderr) == (4, f"error: {why}\n")
    else:
        explained = json.loads(answer.stdout)
        assert (explained["verdict"]["due"], explained["verdict"]["reason"]) == (False, reason)
        assert explained["verdict"]["explanation"] == explained["compaction"]["message"] == why
        assert (explained["compaction"]["possible"], explained["compaction"]["reason"]) == (False, reason)
        drawn = " ".join(CliRunner().invoke(cli, ["--config", str(config), "explain", str(entity)]).stdout.split())
        assert (
            drawn.count(f"not due, and a compaction now would be refused ({reason}): ")
            == drawn.count(f"({reason}): ")
            == 1
        )
    for command in ("plan", "enqueue"):
        refused = run(command, str(entity))
        assert (refused.exit_code, refused.stderr) == (4, f"error: {why}\n")
    assert json.loads(run("queue").stdout) == []
    if parted:
        assert {row["reason"] for row in json.loads(run("explain", "db.t").stdout)} == {reason}


def test_explain_says_what_it_could_not_ask(tmp_path, monkeypatch):
    """
    HDFS is away, or there is no Java: a table of a replication source is drawn all the same, and so are its partitions.
    """
    away = SimpleNamespace(require=lambda _: (_ for _ in ()).throw(UnreachableError("JAVA_HOME names no Java")))
    monkeypatch.setattr(replication, "why_not_recycled", lambda _: None)
    monkeypatch.setattr(eligibility, "change_management", lambda: away)
    config = tmp_path / "compactor.yaml"
    config.write_text(f"database:\n  url: sqlite:///{tmp_path}/metastore.db\n", encoding="utf-8")
    with Database(f"sqlite:///{tmp_path}/metastore.db", create=True) as database:
        world = World(database, tmp_path)
        world.table(rows=3)
        world.insert(world.table("parted", rows=0, partition_keys=[("p", "int")]), [(1, "x")], ("1",))
        _is_a_source_without_a_root(world, None, None)
    for arguments in (["db.t"], ["db.parted"]):
        answer = CliRunner().invoke(cli, ["--config", str(config), "explain", *arguments])
        assert answer.exit_code == 0, answer.output
        said = " ".join(answer.stdout.replace("│", " ").split())
        assert "change management can take its files isn't known" in said
        assert "JAVA_HOME names no Java" in said


@pytest.mark.parametrize("partition", [None, "p=1"])
def test_a_place_is_needed(partition):
    """What the catalog has no location for is named, with its partition; nothing is guessed."""
    table = SimpleNamespace(full_name="db.t")
    found = why_nowhere(table, partition, "")
    assert (found.reason, "db.t/p=1" in found.explanation) == (Reason.UNSUPPORTED_STORE, partition is not None)
    assert why_nowhere(table, partition, "file:/t") is None
