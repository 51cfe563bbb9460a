"""The package of dialects that is kept apart, as pip installs it."""

import tomllib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "deploy" / "dialects"
PROJECT = tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(autouse=True)
def installed(tmp_path_factory, monkeypatch):
    """Metadata with the package's entry points; its code is on the path of all tests."""
    site = tmp_path_factory.mktemp("site")
    metadata = site / f"{PROJECT['name'].replace('-', '_')}-{PROJECT['version']}.dist-info"
    metadata.mkdir()
    lines = [
        line
        for group, points in PROJECT["entry-points"].items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.syspath_prepend(site)
