"""`make demo` as users run it: the real daemon, the real Spark."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

COMMAND = [sys.executable, "-m", "tests.demo", "-o", "json", "--rows", "1600"]


@pytest.fixture
def temporary(tmp_path):
    """Everything temporary goes here, so that what is left behind is seen."""
    (tmp_path / "tmp").mkdir()
    return tmp_path / "tmp"


def environment(temporary):
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("COMPACTOR_")},
        "TMPDIR": str(temporary),
    }


def heeding_interrupts():
    """A shell that starts us in the background has us ignore INT, and so has whoever we start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def left(temporary):
    """Whatever lies in the temporary directory, and processes whose command line names it."""
    directories = [path.name for path in temporary.iterdir()]
    running = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if str(temporary).encode() in (entry / "cmdline").read_bytes():
                running.append(entry.name)
        except OSError:
            continue
    return directories, running


def test_every_table_is_compacted_cleaned_and_unchanged(temporary, tmp_path):
    """
    Each of the seven ends as one directory with the same rows and ROW__IDs; the picture is drawn; nothing is left
    behind.
    """
    done = subprocess.run(
        [*COMMAND, "--svg", str(tmp_path / "picture.svg"), "--timeout", "240"],
        env=environment(temporary),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    tables = json.loads(done.stdout)["tables"]
    assert len(tables) == 7
    for table in tables:
        assert table["same"] is True
        assert table["rows_before"] == table["rows_after"] > 0
        assert table["directories_before"] > table["directories_after"] == 1
    for said in (
        "Worker: claimed",
        "Spark: running",
        "verifying",
        "publishing",
        "Cleaner: waiting",
        "cleaned",
        "time-outs 1",
    ):
        assert said in done.stderr
    assert (tmp_path / "picture.svg").read_text(encoding="utf-8").startswith("<svg")
    assert left(temporary) == ([], [])


def test_ctrl_c_leaves_nothing_running(temporary):
    """
    Interrupted while Spark starts, it ends with 130, and neither a process nor a file is left: no demo, no session's
    files, no sign of life of the daemon.
    """
    how = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, "preexec_fn": heeding_interrupts}
    with subprocess.Popen(COMMAND, env=environment(temporary), **how) as demo:
        assert demo.stderr is not None
        for line in demo.stderr:
            if "Spark: running" in line:
                break
        demo.send_signal(signal.SIGINT)
        demo.stderr.read()
        assert demo.wait(60) == 130
    deadline = time.monotonic() + 10
    while left(temporary) != ([], []) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left(temporary) == ([], [])
