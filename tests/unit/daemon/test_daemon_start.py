"""A daemon starts, whatever its predecessor left and wherever that lies."""

import threading

from compactor.daemon import Daemon
from compactor.metastore.db.database import Database
from compactor.metastore.model import Entity
from compactor.roles.housekeeper.recovery import Recovery
from compactor.settings import Settings
from tests.metastore.actor import Hive
from tests.unit.roles.world import Barrier, Inline

DEAD = "compactor-here-" + "0" * 32 + "-1"
LONG = 60.0


def test_a_store_that_is_away_does_not_delay_the_start(tmp_path, monkeypatch):
    """
    A claim of the dead whose clearing up hangs: the service manager hears of the start, all other threads work, and the
    claim is given back when it goes on.
    """
    url = f"sqlite:///{tmp_path}/metastore.db"
    with Database(url, create=True) as database:
        Hive(database).queued("db.t", state="w", worker_id=DEAD, start=1)
    hangs, freed, watched = Barrier(), threading.Event(), threading.Event()
    clear = Recovery.clear
    monkeypatch.setattr(Recovery, "clear", lambda recovery, entry: hangs() or clear(recovery, entry))

    def observe(step, about):
        if step == "recovery.freed":
            assert about.entity == Entity("db", "t")
            freed.set()
        if step == "initiator.queued":
            watched.set()

    settings = Settings(
        database={"url": url}, host="here", user="compactor", http={"enabled": False}, worker={"threads": 0}
    )
    daemon = Daemon(settings, submitter=Inline(), observers=[observe], configure_log=False)
    daemon.start()
    try:
        assert hangs.reached.wait(LONG)
        assert watched.wait(LONG)
        assert daemon.troubles() == []
        hangs.go.set()
        assert freed.wait(LONG)
    finally:
        hangs.go.set()
        assert daemon.stop()
