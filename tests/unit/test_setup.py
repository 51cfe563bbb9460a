"""`deploy/setup`, which makes a machine ready for the other targets."""

import os
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYTHON = """#!/bin/sh
# Stands in for every Python: it installs nothing, and `-m venv` makes an environment with pip.
if [ "$2" = venv ]; then
  mkdir -p .venv/bin .venv/lib/python3.11/site-packages/pip-23.dist-info
  cp "$0" .venv/bin/python
  touch .venv/lib/python3.11/site-packages/pip-23.dist-info/RECORD
elif [ "$2" = pip ]; then
  test -e .venv/lib/python3.11/site-packages/pip-23.dist-info/RECORD
fi
"""


def test_every_package_is_told():
    """CONTRIBUTING.md names each Debian package that the script may install."""
    packages = re.findall(r"\becho ([a-z0-9.-]+) ;;", (ROOT / "deploy" / "setup").read_text(encoding="utf-8"))
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert len(packages) > 15
    assert [name for name in packages if f"`{name}`" not in page] == []


def test_an_environment_without_pip_is_completed(tmp_path):
    """After a kill while the environment was made, the next call adds what is lacking, and ends well."""
    (tmp_path / "deploy").mkdir()
    shutil.copy(ROOT / "deploy/setup", tmp_path / "deploy/setup")
    for name in ("requirements-lint.lock", "pyproject.toml"):
        (tmp_path / name).touch()
    for python in (tmp_path / "bin/python3", tmp_path / ".venv/bin/python"):
        python.parent.mkdir(parents=True)
        python.write_text(PYTHON)
        python.chmod(0o755)
    (tmp_path / ".venv/lib/python3.11/site-packages/pip").mkdir(parents=True)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    subprocess.run([tmp_path / "deploy/setup", "lint"], check=True, env={**os.environ, "PATH": path})
    assert list((tmp_path / ".venv").glob(".installed-*"))
