"""What commands print about a table on a world, without what no two runs share."""

import re

import yaml
from click.testing import CliRunner

from compactor.cli.root import cli
from tests.unit.roles.drawn import Drawn

_VARIES = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d (?:[A-Z]{3,5}|[+-]\d+)\b"), "<time>"),
    (re.compile(r"[0-9a-f]{32}"), "<process>"),
)


def explained(drawn: Drawn, words: list[str]) -> list[str]:
    """What `compactor explain` prints for people."""
    return asked(drawn, "explain", "/".join(["db.t", *words]))


def asked(drawn: Drawn, *command: str) -> list[str]:
    """The lines of an answer; one other than success begins with its exit code."""
    config = drawn.world.folder / "compactor.yaml"
    url = drawn.world.database.engine.url.render_as_string(hide_password=False)
    sections = {"database": {"url": url.replace("+psycopg", "")}, "host": "here", **drawn.sections}
    config.write_text(yaml.safe_dump(sections), encoding="utf-8")
    result = CliRunner().invoke(cli, ["--config", str(config), *command])
    text = (result.stdout + result.stderr).replace(str(drawn.world.folder / "warehouse"), "<warehouse>")
    for varying, name in _VARIES:
        text = varying.sub(name, text)
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return lines if result.exit_code == 0 else [f"exit {result.exit_code}", *lines]
