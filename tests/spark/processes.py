"""
Processes of the tests with Spark: programs with a session of their own, and those of a session's driver, which leads a
process group with Spark's JVM in it.
"""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.needs import missing

ROOT = Path(__file__).parents[2]
_SECONDS = 60.0


def said_by(program, *arguments):
    """What a module of this package prints as its last line, from JSON; it runs by itself and must end well."""
    if shutil.which("java") is None:
        missing("Spark needs Java, which isn't installed")
    ran = subprocess.run(
        [sys.executable, "-m", f"tests.spark.{program}", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout.splitlines()[-1])


def group(leader):
    """The names of a process group's processes that aren't over, by their ids."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = entry.read_text(encoding="utf-8").partition("(")[2].rpartition(")")
        except OSError:
            continue
        state, _, its_group = rest.split()[:3]
        if int(its_group) == leader and state != "Z":
            found[int(entry.parent.name)] = name
    return found


def jvm(submitter):
    """The id of the JVM of a submitter's newest session."""
    (found,) = [pid for pid, name in group(submitter._sessions[-1].driver.pid).items() if name == "java"]
    return found


def gone(leader):
    """Nothing of a process group is left, or soon: the system takes killed processes away when it comes to it."""
    deadline = time.monotonic() + _SECONDS
    while group(leader) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert group(leader) == {}
