"""What is shown of a metastore at a glance is read from each database."""

import json

from compactor.settings import Settings
from compactor.status.daemons import Daemons
from compactor.status.overview import Overview, troubles


def test_an_overview_is_read_from_each_database(database, hive):
    """One entry in each state, a rolled-back write and an open transaction: all is counted, and what is wrong is told."""
    hive.create_table("db.t")
    _, write_id = hive.write()
    hive.queued("db.t", state="i")
    hive.queued("db.t/p=1", state="w")
    hive.queued("db.t/p=2", state="r", highest_write_id=write_id)
    txn = hive.begin(age=3 * 86_400_000)
    settings = Settings(database={"url": "sqlite:////unused.db"}, cleaner={"quarantine_hours": 5})
    seen = Overview.read(database, Daemons(members=[]), settings)
    document = json.loads(json.dumps(seen.document()))
    assert [one["entries"] for one in document["queue"]] == [1, 1, 1]
    assert document["open_transactions"] == 1
    assert document["hive"]["schema"] == database.schema.schema_version
    found = {one.what: one.sentence for one in troubles(seen)}
    assert {"no-daemon", "silent-transaction"} <= found.keys()
    assert f"transaction {txn} of " in found["silent-transaction"]
