"""
Listing 2,000 partitions of two directories each on HDFS, as many at a time as the Initiator lists: a NameNode and a
DataNode on this machine.
"""

import statistics
from concurrent.futures import ThreadPoolExecutor

from benchmarks import harness
from compactor.acid.names import base_name, delta_name
from compactor.settings.roles import InitiatorSettings
from compactor.settings.stores import Hdfs
from compactor.storage.location import join
from compactor.storage.registry import StorageOptions, configure, storage_for
from tests.cluster.hadoop.servers import HadoopServer

PARTITIONS = 2000
ROUNDS = 5


def build(top: str, count: int) -> list[str]:
    """
    Make the partitions, each with a base and a delta of one empty file (an empty file has no block to wait for);
    returns their locations.
    """
    storage = storage_for(top)
    storage.mkdir(top)
    made = [join(top, f"k={number}") for number in range(count)]

    def fill(partition: str) -> None:
        storage.mkdir(partition)
        for name in (base_name(1), delta_name(2, 2, 0)):
            storage.mkdir(join(partition, name))
            storage.write_small(join(partition, name, "bucket_00000"), b"")

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(fill, made))
    return made


def measure(count: int) -> tuple[float, int]:
    """Median of the seconds that listing all takes, and how many files were found."""
    with harness.scratch() as folder, HadoopServer("hdfs", folder, 1) as server:
        configure(StorageOptions(hdfs=Hdfs(conf_dir=server.conf)))
        partitions = build(f"{server.root}/warehouse/t", count)
        storage = storage_for(server.root)
        found = 0

        def look() -> None:
            nonlocal found
            with ThreadPoolExecutor(InitiatorSettings().listing_threads) as pool:
                found = sum(len(listing.files) for listing in pool.map(storage.list_tree, partitions))

        return statistics.median(harness.seconds(look) for _ in range(ROUNDS)), found


def run() -> list[harness.Result]:
    """Measure the bar."""
    took, files = measure(PARTITIONS)
    return [
        harness.at_most(
            "hdfs_listing",
            took,
            1.0,
            "s",
            f"{PARTITIONS} partitions, {files} files, {InitiatorSettings().listing_threads} at a time",
        )
    ]
