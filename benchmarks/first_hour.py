"""
From nothing to an answer: `init`, `doctor` and `report`, as commands, on a metastore of 20,000 partitions; and what the
shortest command takes.
"""

import statistics
import subprocess
import sys
from pathlib import Path
from xml.sax.saxutils import escape

from sqlalchemy import make_url

from benchmarks import harness
from benchmarks.initiator import PARTITIONS, build
from compactor.log import configure
from tests.metastore.servers import postgres_server

COMMAND = Path(sys.executable).with_name("compactor")
ROUNDS = 5


def hive_site(folder: Path, url: str) -> Path:
    """A Hive's file that tells where its metastore's database and its warehouse are."""
    place = make_url(url)
    properties = {
        "javax.jdo.option.ConnectionURL": f"jdbc:postgresql://{place.host}:{place.port}/{place.database}",
        "javax.jdo.option.ConnectionUserName": place.username or "",
        "hive.metastore.warehouse.dir": f"file:{folder / 'warehouse'}",
    }
    lines = (
        f"<property><name>{name}</name><value>{escape(value)}</value></property>" for name, value in properties.items()
    )
    file = folder / "hive-site.xml"
    file.write_text(f"<configuration>{''.join(lines)}</configuration>")
    return file


def seconds(folder: Path, *words: str, codes: tuple[int, ...] = (0,)) -> float:
    """
    Time of one command.

    Raises:
        RuntimeError: it ended with another code than one of these.
    """
    done: list[subprocess.CompletedProcess[str]] = []

    def run() -> None:
        done.append(subprocess.run([COMMAND, *words], cwd=folder, capture_output=True, text=True, check=False))

    took = harness.seconds(run)
    if done[0].returncode not in codes:
        raise RuntimeError(f"{' '.join(words)} ended with {done[0].returncode}: {done[0].stdout}{done[0].stderr}")
    return took


def run() -> list[harness.Result]:
    """Measure both bars."""
    configure("error", "console")
    with postgres_server() as server, harness.scratch() as folder:
        url = server.create("4.0.0")
        build(folder, url, PARTITIONS)
        made = ["init", "--hive-site", str(hive_site(folder, url))]
        took = {
            "init": seconds(folder, *made),
            "doctor": seconds(folder, "--config", "compactor.yaml", "doctor", codes=(0, 1)),  # 1: something to mend
            "report": seconds(folder, "--config", "compactor.yaml", "report"),
        }
        shortest = statistics.median(seconds(folder, "--help") for _ in range(ROUNDS))
    detail = ", ".join(f"{name} {one:.1f} s" for name, one in took.items())
    return [
        harness.at_most("first_hour", sum(took.values()), 30, "s", f"{PARTITIONS:,} partitions: {detail}"),
        harness.at_most("first_hour/help", shortest, 0.3, "s", f"median of {ROUNDS}"),
    ]
