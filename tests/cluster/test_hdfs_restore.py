"""
A restore on a real HDFS: ended, and killed before one of its changes. The rows are the same by a reader that shares no
code with us.
"""

import signal

import pytest
import yaml

from compactor.acid.names import is_hidden
from compactor.metastore.db.database import Database
from compactor.storage.location import join
from compactor.storage.registry import configured, storage_for
from tests.cluster.test_hdfs_compaction import HdfsWorld
from tests.crash.restoring import restore
from tests.crash.scene import url_of
from tests.crash.test_kill_restore import time_out

pytestmark = [pytest.mark.cluster, pytest.mark.postgres, pytest.mark.timeout(600)]
KILLED_AFTER = (3, 6, 7, 8, None)
"""
Changes: the place for the result and its manifest, four moves back, the result; then what is empty goes, and the place
gets another name.
"""


@pytest.fixture
def url(tmp_path, request):
    """Of a metastore of Hive 4 on PostgreSQL: the restores are other processes."""
    return url_of("postgres-4", request, tmp_path)


def test_killed_or_not_it_ends_with_the_same_rows(url, tmp_path, hdfs_directory):
    """They are the same after the kill, too; what was replaced is there, and the place for the result has gone."""
    config = tmp_path / "compactor.yaml"
    hdfs = {"conf_dir": str(configured().hdfs.conf_dir)}
    config.write_text(yaml.safe_dump({"database": {"url": url}, "hdfs": hdfs}), encoding="utf-8")
    with Database(url) as database:
        world = HdfsWorld(database, tmp_path)
        tables = [world.table(f"t{number}", rows=3) for number in range(len(KILLED_AFTER))]
        for table in tables:
            world.delete(table, 1)
        world.move(hdfs_directory)
        world.services = world.new_services(hdfs=hdfs, cleaner={"quarantine_hours": 1})
        for table in tables:
            assert ": published " in world.compact(table)
        world.clean()
        for changes, table in zip(KILLED_AFTER, tables, strict=True):
            before = world.rows(table)
            if changes is not None:
                code, said = restore(config, f"db.{table.name}", changes=changes)
                assert code == -signal.SIGKILL, said
                world.bring_back()
                assert world.rows(table) == before
                time_out(world)
            code, said = restore(config, f"db.{table.name}")
            assert code == 0, said
            world.bring_back()
            assert world.rows(table) == before
            location = join(world.remote, "db.db", table.name)
            names = storage_for(location).directories(location)
            assert len([name for name in names if not is_hidden(name)]) == 4
            assert not any(name.endswith("-undo") for name in names)
