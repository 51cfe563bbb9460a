"""
The program that a live history runs beside Hive: the whole daemon, but that tasks run in its own process instead of on
Spark.

Tasks then take milliseconds, so more compactions and cleanings meet more statements. That Spark does the same is shown
by tests/spark and tests/cluster.
"""

import sys
from pathlib import Path

from compactor.daemon import Daemon
from compactor.settings import load_settings
from tests.compacting import InProcess


def main(config: Path) -> int:
    """A daemon, to its end."""
    return Daemon(load_settings(config), reload=lambda: load_settings(config), submitter=InProcess()).run()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
