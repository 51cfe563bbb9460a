"""
What the metastore's side costs where it is large: a million partitions, 100,000 entries, on PostgreSQL and MariaDB.

`BENCH_SCALE=50` takes a fiftieth of everything, for a quick look. Listing is left out: a store that answers at once
stands in for the real one.
"""

import gc
import json
import os
import resource
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from click.testing import CliRunner

from benchmarks import harness
from compactor.acid.listing import FileEntry, Listing
from compactor.cli.root import cli
from compactor.log import configure
from compactor.metastore.clean.ready import Cleaning
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.db.database import Database
from compactor.roles.initiator import initiator, judging
from compactor.roles.services import Services
from compactor.settings import Settings
from tests.metastore import large
from tests.metastore.mysql_server import MySQLServer
from tests.metastore.servers import postgres_server

PRODUCTS = ("postgres", "mariadb")
SIZE = large.Size(int(os.environ.get("BENCH_SCALE", "1")))
CHANGED = 10_000 // SIZE.cut
WORKERS = 64
CLAIMS = 6_400 // SIZE.cut
_FILES = [FileEntry("base_0000001/bucket_00000", 100 << 20), FileEntry("delta_0000002_0000002_0000/bucket_00000", 1)]
LISTING = Listing(tuple(_FILES), ("base_0000001", "delta_0000002_0000002_0000"))


def run() -> list[harness.Result]:
    """Measure all bars on both products, one after the other."""
    return [result for product in PRODUCTS for result in _of(product)]


def _of(product: str) -> Iterator[harness.Result]:
    with _server(product) as server:
        url = server.create("4.0.0")
        with Database(url) as database:
            large.fill(database, SIZE)
        # The Initiator's part comes first: it changes nothing but adds commits. Claims come last.
        scanned = harness.in_child("benchmarks.scale", "scan", url)
        cleaned = harness.in_child("benchmarks.scale", "clean", url)
        listed = harness.in_child("benchmarks.scale", "list", url)
        claimed = harness.in_child("benchmarks.scale", "claim", url)

    def named(name: str) -> str:
        return f"scale/{product}/{name}"

    rate = SIZE.partitions / scanned["first"]
    yield harness.at_least(named("first_scan"), rate, 8_000, "partitions/s", f"{scanned['first']:.1f} s")
    yield harness.at_most(named("next_scan"), scanned["next"], 5, "s", f"{CHANGED:,} changed")
    yield harness.at_most(named("memory"), scanned["mib"], 500, "MiB", f"{SIZE.partitions:,} partitions")
    detail = f"{SIZE.ready:,} ready, {cleaned['may_go']:.0f} may go"
    yield harness.at_most(named("cleaner"), cleaned["seconds"], 10, "s", detail)
    for command, bar in (("queue", 1), ("history", 1), ("why", 3 if product == "postgres" else 4)):
        yield harness.at_most(named(command), listed[command], bar, "s", f"{SIZE.queued + SIZE.ready:,} entries")
    detail = f"{WORKERS} workers, {2 * SIZE.queued:,} entries"
    yield harness.at_least(named("claims"), claimed["rate"], 300, "claims/s", detail)


@contextmanager
def _server(product: str) -> Iterator[Any]:
    if product == "postgres":
        with postgres_server() as server:
            yield server
        return
    mariadb = MySQLServer(product, "--innodb-buffer-pool-size=2G")
    try:
        mariadb.start()
        yield mariadb
    finally:
        mariadb.stop()


class _Answering:
    """A store in which every directory holds a base and a small delta."""

    def list_tree(self, _location: str) -> Listing:
        return LISTING


def _scan(url: str) -> dict[str, float]:
    settings = Settings(database={"url": url}, initiator={"interval_seconds": 0.001}, http={"enabled": False})
    services = Services.open(settings)
    ours = initiator.Initiator(services)
    gc.freeze()  # as the daemon does
    with patch.object(Services, "storage", lambda *_: _Answering()), patch.object(judging, "require_in_store"):
        first = harness.seconds(ours.run_once)
        large.commit(services.database, SIZE, CHANGED, SIZE.next_txn)
        following = harness.seconds(ours.run_once)
    services.close()
    return {"first": first, "next": following, "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def _clean(url: str) -> dict[str, float]:
    with Database(url) as database:
        cleaning, found = Cleaning(database), []
        cleaning.ready_for_cleaning()

        def cycle() -> None:
            found.extend(item for item in cleaning.ready_for_cleaning() if not item.blockers)
            for item in found:
                cleaning.write_ids(item)
                cleaning.mark_cleaner_start(item.entry)
                cleaning.mark_cleaned(item.entry)

        return {"seconds": harness.seconds(cycle), "may_go": len(found)}


def _list(url: str) -> dict[str, float]:
    commands = {"queue": ["queue", "--limit", "50"], "history": ["history"], "why": ["why", "--measure", "0"]}
    with harness.scratch() as folder:
        config = Path(folder, "config.yaml")
        config.write_text(json.dumps({"database": {"url": url}}))
        taken = {}
        for name, words in commands.items():
            CliRunner().invoke(cli, ["--config", str(config), *words[:1], "--help"])
            taken[name] = harness.seconds(
                lambda words=words: CliRunner().invoke(cli, ["--config", str(config), *words], catch_exceptions=False)
            )
    return taken


def _claim(url: str) -> dict[str, float]:
    with Database(
        url, connections=Settings(database={"url": url}, worker={"threads": WORKERS}).connections
    ) as database:
        first = SIZE.history + SIZE.ready + SIZE.queued + 1
        large.queue(database, SIZE, first, SIZE.queued)
        queue = Queue(database)
        together = threading.Barrier(WORKERS + 1)
        taken: list[int] = []

        def work(number: int) -> None:
            queue.claim(f"worker-{number}", "1")
            together.wait()
            claims = [queue.claim(f"worker-{number}", "1") for _ in range(CLAIMS // WORKERS)]
            taken.extend(entry.id for entry in claims if entry is not None)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(WORKERS)]
        for thread in threads:
            thread.start()
        together.wait()

        def to_the_end() -> None:
            for thread in threads:
                thread.join()

        seconds = harness.seconds(to_the_end)
        assert len(taken) == len(set(taken))
        return {"rate": len(taken) / seconds}


if __name__ == "__main__":
    configure("error", "console")
    print(json.dumps({"scan": _scan, "clean": _clean, "list": _list, "claim": _claim}[sys.argv[1]](sys.argv[2])))
