"""
Random SQL on a living Hive while our daemon compacts and cleans: Hive reads what the model says, at every moment
(docs/testing.md).
"""

import pytest

from tests.counts import count

pytestmark = [pytest.mark.live, pytest.mark.timeout(0)]

LEFT_TO_HIVE = {
    "blackouts": [
        {
            "name": "left to Hive",
            "tables": [*(f"*.*{digit}" for digit in "02468"), "*.*_twin"],
            "start": "00:00",
            "end": "24:00",
        }
    ]
}
"""Every second table: else our workers, which need no job, come first nearly always."""
ENOUGH = 60
"""After so many statements each has compacted something."""


@pytest.fixture
def length(request):
    """Seed, statements, hours as asked for."""
    option = request.config.getoption
    return option("--live-seed"), option("--live-statements"), option("--live-hours")


@pytest.mark.xdist_group("hive-4")
def test_hive_4_beside_our_daemon(pair, length):
    """Hive 4.0.1, our daemon alone compacts."""
    seed, statements, hours = length
    _alone(pair("4").histories("beside our daemon", seed, statements * 3 // 5, hours))


@pytest.mark.xdist_group("hive-4")
def test_hive_4_beside_both(pair, length, ascii_values):
    """Hive 4.0.1, its own Initiator, Worker and Cleaner compact too."""
    seed, statements, hours = length
    both = pair("4")
    manifests = both.compactor.hold(
        "delete", r"/-tmp\.", times=1_000_000, fails=True
    )  # its Cleaner would lose rows of an INSERT (test_manifests.py)
    both.compactor.threads("initiator", "worker", "cleaner")
    try:
        with both.daemon.told(windows=LEFT_TO_HIVE):
            _both_compact(
                both.histories(
                    "beside our daemon and its own",
                    seed + 1000,
                    statements * 2 // 5,
                    hours,
                    values=ascii_values,
                    both=True,
                )
            )
    finally:
        both.compactor.threads()
        count("manifests of running INSERTs that Hive 4's own Cleaner wanted to remove", len(set(manifests.met())))
        manifests.release()


@pytest.mark.mariadb
@pytest.mark.xdist_group("hive-3")
def test_hive_4_on_mariadb(pair, length, ascii_values):
    """Hive 4.0.1 with its metastore on MariaDB, in Latin 1 as people have it; our daemon alone compacts."""
    seed, statements, hours = length
    found = pair("4", "mariadb").histories(
        "on MariaDB, beside our daemon", seed + 4000, statements // 5, hours, values=ascii_values
    )
    _alone(found)


@pytest.mark.xdist_group("hive-3")
def test_hive_3_beside_our_daemon(pair, length):
    """Hive 3.1.3, our daemon alone compacts."""
    seed, statements, hours = length
    _alone(pair("3").histories("beside our daemon", seed + 2000, statements // 5, hours))


@pytest.mark.xdist_group("hive-3")
def test_hive_3_beside_both(pair, length, ascii_values):
    """Hive 3.1.3, its own threads compact too."""
    seed, statements, hours = length
    both = pair("3")
    both.compactor.threads("initiator", "worker", "cleaner")
    try:
        with both.daemon.told(windows=LEFT_TO_HIVE):
            _both_compact(
                both.histories(
                    "beside our daemon and its own",
                    seed + 3000,
                    statements // 10,
                    hours,
                    values=ascii_values,
                    forgets=True,
                    both=True,
                )
            )
    finally:
        both.compactor.threads()


def _alone(counts):
    if counts["statements"] >= ENOUGH:
        assert counts["compactions s"], counts
        assert counts["refused though it might have run"] <= counts["statements"] // 5, counts


def _both_compact(counts):
    compacted = counts["compactions s"], counts["compactions by Hive s"]
    assert all(compacted) or counts["statements"] < ENOUGH, f"ours and Hive's: {compacted}"
    _alone(counts)
