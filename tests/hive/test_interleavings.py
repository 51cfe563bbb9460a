"""
Orders of events that once lost or doubled rows, each played on Hive's own TxnHandler, writers and readers, and our roles.

What random histories find by chance, if at all, stands here for good.
"""

import contextlib
import shutil

import pytest

from compactor.metastore.db.database import Database
from compactor.roles import steps
from compactor.roles.initiator.initiator import Initiator
from compactor.roles.worker import monitor, older_snapshots
from compactor.roles.worker.worker import Worker
from tests.hive.java import UnavailableError as NoJavaError
from tests.hive.lane.lane import Lane
from tests.hive.lane.model import Statement, Turns
from tests.hive.party import HiveError
from tests.hive.played.worker import RENAME, SteppedWorker, stand_before_renames
from tests.metastore.databases import parties, postgres  # noqa: F401 - fixtures
from tests.metastore.servers import UnavailableError, schema_script
from tests.needs import missing

pytestmark = [pytest.mark.hive, pytest.mark.postgres]
INSERT = Statement("insert")
BOTH = pytest.mark.parametrize("version", ["3.1.0", "4.0.0"])


@pytest.fixture
def lane_on(request, parties, tmp_path):  # noqa: F811 - a fixture
    """A function that makes a lane on the schema of a version."""
    with contextlib.ExitStack() as stack:

        def make(version):
            try:
                schema_script(version)
            except (UnavailableError, NoJavaError) as error:
                missing(str(error))
            server = request.getfixturevalue("postgres")
            url = server.borrow(version)
            stack.callback(server.give_back, version, url)
            database, turns = stack.enter_context(Database(url)), Turns()
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            patch.setattr(monitor, "LOOK_SECONDS", 3600.0)
            patch.setattr(older_snapshots, "time", turns)
            return Lane(database, parties(version, url), turns, tmp_path / "history", partitioned=False)

        yield make


def _work_on_both(lane):
    """Two workers, the second one's turn while the first stands before its last look; what each says."""
    world, said = lane.world, []
    other = world.new_services()

    def meanwhile():
        world.at_step.clear()
        lane.write(INSERT)
        world.settle_time()
        said.append(Worker(other, 2).run_once().sentence)

    world.at_step[steps.WORKER_VERIFIED] = meanwhile
    world.settle_time()
    said.append(Worker(world.services, 1).run_once().sentence)
    lane.check()
    return said


def _until_nothing_waits(lane):
    for _ in range(3):
        lane.world.clock.forward(3600)
        lane.work()
        lane.clean()
        lane.check()


@BOTH
@pytest.mark.timeout(0)
@pytest.mark.parametrize("guarded", [True, False], ids=["one after the other", "at once"])
def test_two_entries_of_one_table(lane_on, monkeypatch, version, guarded):
    """
    A client that names the database in capitals gets an entry of its own. The second one is claimed once the first has
    ended; were both worked on at once, the first to publish would win, and the other one's entry be given back.
    """
    lane = lane_on(version)
    if not guarded:
        monkeypatch.setattr("compactor.metastore.compaction_queue.claims.places_at_work", lambda *_: frozenset())
    for _ in range(3):
        lane.write(INSERT)
    lane.ask(0, True)
    lane.ask_in_capitals(0, False)
    second, first = _work_on_both(lane)
    if guarded:
        assert second == "nothing is queued"
        assert ": published base_" in first
    else:
        assert ": published delta_0000001_0000004" in second
        assert "given back: db.t: " in first
        assert "rolled back" not in second
    _until_nothing_waits(lane)
    assert not lane.world.services.queue.entries()


@pytest.mark.timeout(0)
def test_two_requests_at_once(lane_on):
    """Hive 4.0.1's compact() gives its mutex back before it commits: another one sees no entry yet, and makes one."""
    lane = lane_on("4.0.0")
    for _ in range(3):
        lane.write(INSERT)
    lane.ask_at_once(0, True)
    assert len(lane.world.services.queue.entries()) == 2
    second, _ = _work_on_both(lane)
    assert second == "nothing is queued"
    _until_nothing_waits(lane)


@pytest.mark.timeout(0)
def test_a_compaction_opened_before_another_one_was_committed(lane_on, monkeypatch):
    """
    Its lists are taken after that commit, so it takes in the other's result; its transaction isn't above the other's
    CQ_NEXT_TXN_ID. A reader that began between the two commits keeps its files when the other's entry is cleaned, also
    where Hive keeps no MIN_HISTORY_LEVEL (metastore.txn.use.minhistory.level=false).
    """
    lane = lane_on("4.0.0")
    monkeypatch.setattr("compactor.metastore.compaction_queue.claims.places_at_work", lambda *_: frozenset())
    for _ in range(2):
        lane.write(INSERT)
    lane.ask(0, True)
    lane.work()
    lane.clean()
    for _ in range(2):
        lane.write(INSERT)
    lane.ask(0, False)
    first = SteppedWorker(lane.world, 1, (steps.WORKER_PUBLISHED,))
    assert first.start() == steps.WORKER_PUBLISHED
    lane.ask_in_capitals(0, True)
    second = SteppedWorker(lane.world, 2, (steps.WORKER_LOCKED,))
    assert second.start() == steps.WORKER_LOCKED
    assert first.go_on() is None
    lane.read()
    lane.hive.change(lane.hive.schema.min_history_level.delete())
    assert second.go_on() is None
    assert ": published base_" in second.sentence
    lane.clean()
    lane.check_readers()
    assert "cleaned 1 entry" in lane.told[-1]
    lane.read_no_more(0)
    _until_nothing_waits(lane)
    assert [path.name[:12] for path in lane.location.iterdir()] == ["base_0000004"]


@pytest.mark.timeout(0)
def test_a_worker_that_stood_still_before_its_rename(lane_on, monkeypatch):
    """
    On Hive 3.1, after its last look. Another one publishes what lies across its result: its rename finds no source, and
    its entry is given back.
    """
    lane = lane_on("3.1.0")
    monkeypatch.setattr("compactor.metastore.compaction_queue.claims.places_at_work", lambda *_: frozenset())
    stand_before_renames(monkeypatch)
    for _ in range(3):
        lane.write(INSERT)
    lane.ask(0, True)
    first, second = SteppedWorker(lane.world, 1, (RENAME,)), SteppedWorker(lane.world, 2, ())
    assert first.start() == RENAME
    lane.write(INSERT)
    lane.ask_in_capitals(0, False)
    assert second.start() is None
    assert ": published delta_0000001_0000004" in second.sentence
    assert first.go_on() is None
    assert ": given back: db.t: another compaction of the place has taken its files away" in first.sentence
    lane.check()
    _until_nothing_waits(lane)
    assert not lane.world.services.queue.entries()


def _with_a_reader_of_a_minor(lane):
    """A base, a minor that a first reader holds up, and a second reader, of the minor's result."""
    for _ in range(2):
        lane.write(INSERT)
    lane.ask(0, True)
    lane.work()
    lane.clean()
    lane.write(INSERT)
    lane.observe_minor(0)
    lane.check()


@pytest.mark.timeout(0)
def test_a_result_that_was_given_back(lane_on):
    """
    A worker dies between the rename and the mark, and its claim is given back. The cleaning of the minor waits for the
    first reader only: for it nothing counts that the base replaced, or the second reader would miss the minor's result.
    """
    lane = lane_on("3.1.0")
    _with_a_reader_of_a_minor(lane)
    lane.ask(0, True)
    lane.die()
    lane.read_no_more(0)
    lane.clean()
    assert lane.told[-1].startswith("cleaned 1 entry")
    lane.check()
    lane.work()
    lane.clean()
    assert "wait" in lane.told[-1]
    lane.read_no_more(0)
    lane.clean()
    assert [path.name for path in lane.location.iterdir()] == ["base_0000005"]


@pytest.mark.timeout(0)
def test_a_write_id_without_a_file(lane_on):
    """A DELETE that hits nothing lies between the minor and a major: the major's name reaches no higher for it."""
    lane = lane_on("3.1.0")
    _with_a_reader_of_a_minor(lane)
    lane.write_nothing(0)
    lane.ask(0, True)
    lane.work()
    lane.clean()
    lane.read_no_more(0)
    lane.clean()
    assert "cleaned 1 entry" in lane.told[-1]
    lane.check()
    lane.read_no_more(0)
    _until_nothing_waits(lane)
    assert [path.name for path in lane.location.iterdir()] == ["base_0000005"]


@pytest.mark.timeout(0)
def test_a_living_worker_of_hives_over_its_time(lane_on):
    """Its claim is given back with its transaction: its own commit is refused, and what it wrote stays invisible."""
    lane = lane_on("4.0.0")
    for _ in range(3):
        lane.write(INSERT)
    lane.ask(0, False)
    txn = lane.hive_claims(hours=3)
    lane.world.configure(worker={"timeout_hours": 2}, initiator={"thresholds": {"delta_count": 1000}})
    lane.party.call("heartbeat", {"txnid": txn})
    assert "1 timed-out claim given back" in Initiator(lane.world.services).run_once().sentence
    lane.work()
    assert ": published " in lane.told[-1]
    ours = next(lane.location.glob("delta_0000001_0000003_v*"))
    shutil.copytree(ours, lane.location / f"delta_0000001_0000003_v{txn:07d}")
    queued = lane.hive.schema.compaction_queue
    lane.hive.change(queued.update().values(cq_state="r", cq_worker_id=None))  # Hive's markCompacted
    with pytest.raises(HiveError, match="TxnAborted"):
        lane.hive.commit(txn)
    lane.check()


@pytest.mark.timeout(0)
def test_a_worker_of_hives_whose_claim_hive_took_back(lane_on):
    """Hive ends no transaction with it. Ours publishes nothing beside that worker, and compacts once it has ended."""
    lane = lane_on("4.0.0")
    for _ in range(3):
        lane.write(INSERT)
    lane.ask(0, False)
    txn = lane.hive_claims(hours=30)
    lane.party.call("revokeTimedoutWorkers", 86_400_000)
    lane.work()
    assert f"a compaction in {txn} of the same place is at work" in lane.told[-1]
    assert not list(lane.location.glob("*_v*"))
    lane.hive.abort(txn)
    lane.world.clock.forward(3600)
    lane.work()
    assert ": published " in lane.told[-1]
    lane.check()


@pytest.mark.timeout(0)
@pytest.mark.parametrize("ask", [Lane.ask, Lane.ask_in_capitals], ids=["as catalogued", "in capitals"])
def test_a_materialized_view_is_told_of_compactions(lane_on, ask):
    """
    Before Hive 4 builds a view from what changed, it asks whether a source was compacted since: deleted rows are gone
    then. It hears of ours while they are queued, and from the history once the Cleaner has forgotten the DELETE; also
    where a client wrote the database's name in capitals.
    """
    lane = lane_on("4.0.0")
    lane.write(INSERT)
    txns, (write_ids,) = lane.hive.snapshot("db.t")
    view = {"catName": "hive", "dbName": "db", "tblName": "mv", "tablesUsed": ["db.t"]}
    view["validTxnList"] = f"{txns.split(':')[0]}${write_ids}"

    def told():
        asked = lane.party.call("getMaterializationInvalidationInfo", view, lane.hive.snapshot()[0])
        return asked["sourceTablesUpdateDeleteModified"], asked["sourceTablesCompacted"]

    assert told() == (False, False)
    lane.write(INSERT)
    assert told() == (False, False)
    lane.write(Statement("delete"))
    assert told() == (True, False)
    ask(lane, 0, True)
    lane.work()
    assert told() == (True, True)
    lane.clean()
    assert not lane.world.services.queue.entries()
    assert told() == (False, True)
