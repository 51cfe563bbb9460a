"""Identity: worker ids that Hive doesn't take back, and proof of life."""

import os
import signal
import subprocess
import sys

import pytest

from compactor.metastore.worker_ids import WorkerOwner, parse_worker_id
from compactor.roles.identity import Identity


def test_a_worker_id_never_starts_with_the_host():
    """A metastore that starts takes back every entry `LIKE '<its host>%'`."""
    worker_id = Identity("edge1", "hive").worker_id(3)
    assert not worker_id.startswith("edge1")
    assert worker_id.startswith("compactor-edge1-")
    assert worker_id.endswith("-3")


@pytest.mark.parametrize("host", ["edge", "edge-1", "a.b-c.example", "x" * 200])
def test_a_worker_id_can_be_taken_apart(host):
    """Hosts may hold dashes; at most 128 characters fit into the column."""
    identity = Identity(host, "hive")
    worker_id = identity.worker_id(12)
    assert len(worker_id) <= 128
    assert parse_worker_id(worker_id) == WorkerOwner(host[:64], identity.instance, "12")


@pytest.mark.parametrize(
    "worker_id", [None, "", "edge1-42", "compactor-edge1", "compactor-edge1-1-2", "edge1-compactor-" + "0" * 32 + "-1"]
)
def test_foreign_worker_ids_are_not_ours(worker_id):
    """Hive's own workers have no such id: nothing is decided about them."""
    assert parse_worker_id(worker_id) is None
    assert not Identity("edge1", "hive").is_dead(worker_id)


def test_a_living_instance_is_not_dead(tmp_path):
    """
    While it holds its file, nobody takes its claims; after a clean end nothing is known (there is nothing to take).
    """
    first, second = Identity("h", "u", tmp_path), Identity("h", "u", tmp_path)
    with first:
        assert not second.is_dead(first.worker_id(1))
        assert not first.is_dead(first.worker_id(1))
        assert first.is_mine(first.worker_id(1))
        assert not second.is_mine(first.worker_id(1))
    assert not second.is_dead(first.worker_id(1))
    assert list(tmp_path.iterdir()) == []


def test_a_killed_instance_is_dead(tmp_path):
    """SIGKILL leaves the file with its lock free: that is the proof. Afterwards it can be forgotten."""
    code = (
        "import sys, pathlib, time; from compactor.roles.identity import Identity; i = Identity('h', 'u', pathlib.Path(sys.argv[1])); i.__enter__(); "
        "print(i.worker_id(1), flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        worker_id = process.stdout.readline().strip()
        me, elsewhere = Identity("h", "u", tmp_path), Identity("other", "u", tmp_path)
        assert not me.is_dead(worker_id)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert me.is_dead(worker_id)
    assert not elsewhere.is_dead(worker_id)
    me.forget(worker_id)
    assert not me.is_dead(worker_id)
    assert list(tmp_path.iterdir()) == []
