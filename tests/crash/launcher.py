"""
Starts the daemon as `compactor run` does, and has the plug pulled at a step.

    python launcher.py CONFIG [--kill-at STEP] [--spark]

An observer of the steps kills the process with SIGKILL when the named one is passed. Without `--spark`, the engine's tasks run in this process: most of what can
be cut off has nothing to do with Spark.
"""

import argparse
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from compactor.daemon import Daemon
from compactor.settings import load_settings


class Inline:
    """Runs a job's tasks one after the other, here."""

    def run(self, job, function, tasks, *, progress=lambda _: None, cancelled=lambda: False):
        made = [function(task) for task in tasks]
        progress(1.0)
        return made

    def stop(self) -> None:
        return None


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("--kill-at")
    parser.add_argument("--spark", action="store_true")
    options = parser.parse_args()

    def observe(step: str, _: object) -> None:
        if step == options.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def read():
        return load_settings(options.config)

    return Daemon(read(), reload=read, observers=[observe], submitter=None if options.spark else Inline()).run()


if __name__ == "__main__":
    sys.exit(main())
