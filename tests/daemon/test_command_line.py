"""
The command line and a daemon, each in processes of their own, on the metastore that Hive 4.0.1 left in PostgreSQL.
"""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from compactor.metastore.model import QueueState
from tests import forked
from tests.daemon.lab import OPEN_TXN, PATIENCE, SECTIONS, Lab, printed, until

pytestmark = [pytest.mark.postgres, pytest.mark.spark]

SETTINGS = SECTIONS | {
    "log": {"format": "json", "level": "info"},
    "spark": {"master": "local[1]", "conf": {"spark.ui.enabled": False}},
}


@dataclass
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


class Site:
    """A restored lab with a settings file; `run` is one command."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.config = lab.folder / "compactor.yaml"
        self.config.write_text(yaml.safe_dump(SETTINGS | {"database": {"url": lab.url}}), encoding="utf-8")
        self.log = lab.folder / "log"

    @property
    def environment(self):
        return {name: value for name, value in os.environ.items() if not name.startswith("COMPACTOR_")} | {
            "TMPDIR": str(self.lab.folder),
            "NO_COLOR": "1",
        }

    def run(self, *arguments, form="json"):
        done = forked.command(
            ["--config", str(self.config), "--output", form, *arguments],
            environment=self.environment,
            folder=self.lab.folder,
        )
        assert "Traceback" not in done.stderr
        return Answer(done.returncode, done.stdout, done.stderr)

    def start(self):
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "compactor.cli", "--config", str(self.config), "run"]
            return subprocess.Popen(
                command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.lab.folder,
            )


@pytest.fixture
def site(tmp_path, postgres):
    lab = Lab.restore(postgres, tmp_path)
    yield Site(lab)
    lab.close()


def test_from_request_to_history(site):
    """
    Look, ask, wait, look again: while no daemon runs a request waits; then it is compacted, held back by transaction
    97, cleaned when that has ended.

    Exit codes: 0 done, 1 failed, 3 nothing to do, 4 refused, 5 unreachable.
    """
    lab = site.lab
    target = "fx.part_acid/dt=2024-01-01"
    before = lab.files()
    explained = site.run("explain", target)
    assert (explained.code, explained.err) == (0, "")
    assert site.run("explain", "fx.part_acid").code == 0
    planned = site.run("plan", target)
    assert planned.code == 0
    assert "base_0000006" in planned.out
    assert site.run("plan", "fx.part_acid/dt=2024-01-03").code == 3
    assert lab.files() == before
    assert not lab.queue.entries()

    asked = site.run("enqueue", target)
    assert (asked.code, asked.json["state"]) == (0, "initiated")
    assert site.run("enqueue", target).code == 3
    late = site.run("enqueue", target, "--wait", "--timeout", "0.1")
    assert late.code == 1
    assert "no daemon has workers (compactor run, with worker.threads)" in late.err
    nothing = site.run("enqueue", "fx.nothing")
    assert (nothing.code, nothing.out) == (4, ""), nothing
    assert [(entry["id"], entry["state"]) for entry in site.run("queue").json] == [(asked.json["id"], "initiated")]

    daemon = site.start()
    try:
        waited = site.run("enqueue", target, "--wait")
        assert (waited.code, waited.json["state"], waited.json["highest_write_id"]) == (0, "ready for cleaning", 6), (
            waited.err
        )
        odd = site.run("enqueue", "fx.odd_parts", "--partition", "k=c/d/n=2", "--type", "minor", "--wait")
        assert (odd.code, odd.json["state"]) == (0, "ready for cleaning"), odd.err
        refused = site.run("enqueue", "fx.part_acid/dt=2024-01-03", "--wait")
        assert (refused.code, refused.json["state"]) == (4, "refused")
        assert refused.json["message"].startswith("not-enough-to-compact: ")
        assert [entry["state"] for entry in site.run("queue").json] == ["ready for cleaning"] * 2
        held = site.run("explain", target, form="table")
        assert held.code == 0
        assert f"transaction {OPEN_TXN} of lab@" in held.out
        assert site.run("plan", target).code == 3
        lab.hive.abort(OPEN_TXN)
        until(lambda: not lab.queue.entries(), "cleaned")
        assert daemon.poll() is None
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(PATIENCE) == 0
    finally:
        if daemon.poll() is None:
            os.killpg(daemon.pid, signal.SIGKILL)
            daemon.wait()
    history = site.run("history").json
    assert sorted((entry["entity"], entry["kind"], entry["state"]) for entry in history) == [
        ("fx.odd_parts/k=c%2Fd/n=2", "minor", "succeeded"),
        ("fx.part_acid/dt=2024-01-01", "major", "succeeded"),
        ("fx.part_acid/dt=2024-01-03", "major", "refused"),
    ]
    assert site.run("queue").json == []
    lines = [json.loads(line) for line in site.log.read_text(encoding="utf-8").splitlines() if line.startswith("{")]
    assert lines[-1]["event"] == "daemon.stopped"
    assert not [line for line in lines if line["level"] in {"error", "critical"}]
    assert {entry.state for entry in lab.history().values()} == {QueueState.SUCCEEDED, QueueState.REFUSED}
    for table in ("part_acid", "odd_parts"):
        assert lab.rows(table) == printed(table)


def test_no_metastore_is_one_line(site):
    """Exit code 5 and one line on stderr, for the daemon too."""
    port = site.lab.url.rpartition(":")[2].partition("/")[0]
    broken = Path(site.config).read_text(encoding="utf-8").replace(f":{port}/", ":1/")
    site.config.write_text(broken, encoding="utf-8")
    for command in (["queue"], ["run"]):
        answer = site.run(*command)
        assert answer.code == 5
        assert len([line for line in answer.err.splitlines() if not line.startswith("{")]) == 1, answer.err
