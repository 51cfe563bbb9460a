"""The fragments of the change log: each has the form that towncrier puts together at a release."""

import re
import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
KINDS = [
    kind["directory"] for kind in tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["towncrier"]["type"]
]
NAME = re.compile(rf"[a-z0-9]+(-[a-z0-9]+){{0,3}}\.({'|'.join(KINDS)})(\.\d+)?\.md")


def faults(name: str, text: str) -> list[str]:
    """What is wrong with a fragment."""
    lines = text.splitlines()
    found = [] if NAME.fullmatch(name) else ["name"]
    if not (text.endswith("\n") and 1 <= len(lines) <= 4 and all(line and len(line) <= 120 for line in lines)):
        found.append("length")
    if any(re.match(r"#|[-*] |\d+\. ", line) for line in lines):
        found.append("form")
    return found


@pytest.mark.parametrize(
    ("name", "text", "wrong"),
    [
        ("root-links.security.md", "A root is followed.\n", []),
        ("root-links.fixed.2.md", "A root\nis followed.\n", []),
        ("root links.security.md", "A root is followed.\n", ["name"]),
        ("root-links.new.md", "A root is followed.\n", ["name"]),
        ("root-links.fixed.md", "# Roots\n- are followed\n", ["form"]),
        ("root-links.fixed.md", "A root\n" * 5, ["length"]),
        ("root-links.fixed.md", "A root" * 30 + "\n", ["length"]),
        ("root-links.fixed.md", "", ["length"]),
    ],
)
def test_a_fragment_of_another_form_is_found(name, text, wrong):
    """Whichever rule of `changelog.d/README.md` it breaks."""
    assert faults(name, text) == wrong


def test_all_fragments_have_the_form():
    """None is left out at a release, and none brings a heading of its own."""
    fragments = [path for path in (PROJECT / "changelog.d").iterdir() if path.name not in {"README.md", ".gitkeep"}]
    assert {
        path.name: found for path in fragments if (found := faults(path.name, path.read_text(encoding="utf-8")))
    } == {}
