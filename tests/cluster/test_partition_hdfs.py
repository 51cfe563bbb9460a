"""
A daemon whose cable to HDFS is cut at a named step, NameNode and DataNodes at once, while ZooKeeper and the metastore's
database stay within reach.

It leads and has its claim, so nobody succeeds it: it must say what is wrong, leave nothing half-published, and go on
when the cable is back.
"""

import itertools
import signal

import pytest
from sqlalchemy import func

from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.model import QueueState
from compactor.roles import steps
from compactor.roles.worker import backoff
from compactor.storage.location import join
from compactor.storage.registry import storage_for
from tests.cluster.daemons import PATIENT_TIMES, Fleet, run
from tests.cluster.fencing import assert_as_if_one
from tests.cluster.mirror import fetch, put
from tests.cluster.network import SecondCable, UnavailableError
from tests.cluster.test_hdfs_failures import changed, visible
from tests.cluster.test_partition import away  # noqa: F401 - a fixture
from tests.crash.scene import ended, url_of
from tests.needs import missing

pytestmark = [pytest.mark.cluster, pytest.mark.postgres, pytest.mark.timeout(300)]
_roots = itertools.count(1)
RPC_SECONDS = 1
PAUSE_SECONDS = 0.5


def impatient(*arguments):
    """A daemon that tries again sooner what was given back."""
    backoff.FIRST_SECONDS = PAUSE_SECONDS
    run(*arguments)


class HdfsFleet(Fleet):
    """Daemons whose warehouse lies on HDFS; it was built here, and is read here."""

    body = staticmethod(impatient)
    times = PATIENT_TIMES

    def __init__(self, url, folder, zookeeper, location):
        super().__init__(url, folder, zookeeper)
        self.remote = join(location, "w")
        storage_for(location).mkdir(self.remote)
        put(folder / "warehouse", self.remote)
        schema = self.metastore.schema
        with self.database.transaction() as connection:
            for column in (schema.sds.c.location, schema.dbs.c.db_location_uri):
                for prefix in (f"file:{folder}/warehouse", f"{folder}/warehouse"):
                    connection.execute(
                        column.table.update()
                        .where(column.like(f"{prefix}%"))
                        .values({column: func.replace(column, prefix, self.remote)})
                    )
        self.place = join(self.remote, str(self.table.location.relative_to(folder / "warehouse")))

    def names(self):
        storage = storage_for(self.place)
        return sorted(
            {
                path.partition("/")[0]
                for path in (
                    *storage.directories(self.place),
                    *(file.path for file in storage.list_tree(self.place).files),
                )
            }
        )

    def assert_rows(self):
        fetch(self.place, self.table.location)
        super().assert_rows()


@pytest.fixture
def fleet(request, tmp_path, zookeeper_1, hdfs_directory):
    """A daemon's world: PostgreSQL, ZooKeeper, and a warehouse on HDFS."""
    section = {"hosts": zookeeper_1.hosts, "root": f"/partition-hdfs-{next(_roots)}", "session_timeout_seconds": 4}
    made = HdfsFleet(
        url_of(getattr(request, "param", "postgres-4"), request, tmp_path), tmp_path, section, hdfs_directory
    )
    yield made
    made.end()


@pytest.fixture
def cable(island):
    """To everything that listens on this machine's 127.0.0.1, as HDFS' servers do."""
    try:
        made = SecondCable(island).__enter__()
    except UnavailableError as error:
        missing(str(error))
    yield made
    made.__exit__(None, None, None)


@pytest.fixture
def start(island, cable, away, hdfs, tmp_path):  # noqa: F811
    """Starts a daemon whose client of HDFS is impatient, and that is watched from here by its address."""
    conf = changed(hdfs.conf, tmp_path / "impatient", {"dfs.client.failover.max.attempts": "1"})

    def daemon(name, **options):
        return away(
            name,
            hdfs={"conf_dir": str(conf), "rpc_timeout_seconds": RPC_SECONDS},
            http={"host": island.host, "port": 0},
            **options,
        )

    return daemon


@pytest.mark.parametrize(
    ("step", "how"),
    [
        *(
            (step, "cut")
            for step in (
                steps.WORKER_LISTED,
                steps.WORKER_STAGED,
                steps.WORKER_RAN,
                steps.WORKER_VERIFIED,
                steps.CLEANER_TRASHED,
            )
        ),
        *((step, "refuse") for step in (steps.WORKER_VERIFIED, steps.CLEANER_TRASHED)),
    ],
)
def test_cut_off_from_its_warehouse(fleet, cable, start, step, how):
    """
    Packets are lost, or refused: it says that HDFS can't be reached. What may have staged something keeps its claim as
    long as that can't be removed; what hasn't is given back at once, and tried again. Readers see nothing new. With the
    cable back it is compacted in another attempt; what was half removed is put back, and removed.
    """
    cut_mend(fleet, cable, start, step, how)


@pytest.mark.parametrize("fleet", ["postgres-3"], indirect=True)
def test_on_hive_3(fleet, cable, start):
    """Where the rename is the commit: cut off right before it, it is made once."""
    cut_mend(fleet, cable, start, steps.WORKER_VERIFIED, "cut")


def cut_mend(fleet, cable, start, step, how):
    only = start("only", stop_at=step)
    fleet.wait(only.stopped, f"stopped at {step}")
    before, seen = len(only.events()), visible(fleet.place)
    getattr(cable, how)()
    only.send(signal.SIGCONT)
    fleet.wait(lambda: told(only.events()[before:], step), "told")
    assert how == "refuse" or "No route" not in str(told(only.events()[before:], step)), (
        "packets weren't lost, but sent back"
    )
    assert visible(fleet.place) == seen
    (entry,) = Queue(fleet.metastore).entries()
    assert entry.state in {
        steps.CLEANER_TRASHED: {QueueState.READY_FOR_CLEANING},
        steps.WORKER_LISTED: {QueueState.INITIATED, QueueState.WORKING},
    }.get(step, {QueueState.WORKING})
    fleet.assert_rows()
    cable.mend()
    fleet.wait(fleet.settled, "settled")
    assert_as_if_one(fleet)
    only.send(signal.SIGTERM)
    assert ended(only.process) == 0, only.said()[-3000:]
    assert_as_if_one(fleet)


def told(events, step):
    """What the log says of the work that was begun when the cable was cut, once that has ended."""
    if step == steps.CLEANER_TRASHED:
        return [event["error"] for event in events if event["event"] == "cleaning.postponed"]
    said = "attempt.ended" if step == steps.WORKER_LISTED else "rollback.postponed"
    return [event["why"] for event in events if event["event"] == said]
