"""The systemd unit: understood by systemd as it is written, closed, and patient enough for the drain."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from compactor.daemon import daemon
from compactor.errors import RefusedError, SettingsError
from compactor.settings.model import DrainSettings
from tests import forked
from tests.deploy.service import DEPLOY
from tests.needs import missing

pytestmark = pytest.mark.deploy
UNIT = DEPLOY / "systemd" / "compactor.service"
PASSWORD = DEPLOY / "systemd" / "password.conf"
MOST_EXPOSED = 20
"""
Tenths of systemd's exposure level; 0 is closed, 100 open. What is left: the network, and that files we make are
readable.
"""


@pytest.fixture
def systemd_analyze(tmp_path):
    """Runs systemd-analyze in a folder that holds the unit, its program replaced by one that is there."""
    if shutil.which("systemd-analyze") is None:
        missing("systemd-analyze isn't installed (Debian: apt-get install systemd)")
    program = tmp_path / "bin" / "compactor"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (tmp_path / "compactor.service").write_text(UNIT.read_text().replace("/opt/compactor/bin", str(program.parent)))

    def run(*arguments: str):
        environment = os.environ | {"LC_ALL": "C", "SYSTEMD_UNIT_PATH": f"{tmp_path}:"}
        done = subprocess.run(
            ["systemd-analyze", *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment,
            check=False,
            timeout=60,
        )
        return done.returncode, done.stdout + done.stderr

    return run


def add(folder: Path, drop_in: str) -> None:
    target = folder / "compactor.service.d" / "password.conf"
    target.parent.mkdir()
    target.write_text(drop_in)


def test_systemd_understands_every_line(systemd_analyze):
    """`verify` prints nothing. Its exit code says nothing: it is 0 for unknown keys too."""
    assert systemd_analyze("verify", "./compactor.service") == (0, "")


def test_systemd_understands_the_drop_in(systemd_analyze, tmp_path):
    """With the password's drop-in it prints nothing either."""
    add(tmp_path, PASSWORD.read_text())
    assert systemd_analyze("verify", "./compactor.service") == (0, "")


@pytest.mark.parametrize("where", ["unit", "drop-in"])
def test_a_key_that_systemd_does_not_know_is_found(systemd_analyze, tmp_path, where):
    """The two tests above can fail: a misspelt key is printed, in the unit and in a drop-in."""
    if where == "unit":
        unit = tmp_path / "compactor.service"
        unit.write_text(unit.read_text().replace("WatchdogSec=", "WatchDogSeconds="))
    else:
        add(tmp_path, PASSWORD.read_text().replace("LoadCredential=", "LoadCredentials="))
    _, said = systemd_analyze("verify", "./compactor.service")
    assert "Unknown key" in said


def test_the_unit_is_closed(systemd_analyze):
    """Systemd's own judgement of what the service could still do."""
    code, said = systemd_analyze(
        "security", "--offline=yes", f"--threshold={MOST_EXPOSED}", "--no-pager", "./compactor.service"
    )
    assert code == 0, said


def settings_of(unit: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in unit.read_text().splitlines() if re.match(r"[A-Z]\w+=", line))


def test_the_end_has_time_for_the_drain():
    """
    Systemd's patience exceeds the drain, the cancellation and the end of Spark; KillMode spares Spark's JVM the TERM.
    """
    unit = settings_of(UNIT)
    minutes = re.fullmatch(r"(\d+)min", unit["TimeoutStopSec"])
    assert minutes is not None
    assert int(minutes[1]) * 60 > DrainSettings().timeout_seconds + daemon._CANCEL_SECONDS + daemon._CLOSE_SECONDS
    assert (unit["KillMode"], unit["Type"]) == ("mixed", "notify")
    assert "WatchdogSec" in unit


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"worker": {"threads": "many"}}, "worker.threads"),
        ({"wroker": {"threads": 1}}, "wroker"),
        ({"database": {"url": "postgresql://hive@db/metastore", "password_file": "gone"}}, "database.password_file"),
    ],
)
def test_a_wrong_setting_ends_the_restarts(tmp_path, wrong, said):
    """
    The daemon itself ends with what RestartPreventExitStatus names, and one line; a command before it would be started
    again every 30 seconds for ever.
    """
    unit = settings_of(UNIT)
    assert not [name for name in unit if name.startswith("Exec") and name not in {"ExecStart", "ExecReload"}]
    assert {SettingsError.exit_code, RefusedError.exit_code} == set(map(int, unit["RestartPreventExitStatus"].split()))
    config = tmp_path / "compactor.yaml"
    config.write_text(yaml.safe_dump({"database": {"url": "sqlite:///none.db"}, "http": {"enabled": False}} | wrong))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COMPACTOR_")} | {
        "TMPDIR": str(tmp_path)
    }
    done = forked.command(["--config", str(config), "run"], environment=environment, folder=tmp_path)
    assert done.returncode == SettingsError.exit_code
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
