"""What `compactor explain` prints about a table on a world, without what no two runs share."""

import re

import yaml
from click.testing import CliRunner

from compactor.cli.root import cli
from tests.unit.roles.drawn import Drawn

_VARIES = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"), "<time>"),
    (re.compile(r"[0-9a-f]{32}"), "<process>"),
)


def explained(drawn: Drawn, words: list[str]) -> list[str]:
    """The lines for people; an answer other than success begins with its exit code."""
    config = drawn.world.folder / "compactor.yaml"
    url = drawn.world.database.engine.url.render_as_string(hide_password=False)
    sections = {"database": {"url": url.replace("+psycopg", "")}, "host": "here", **drawn.sections}
    config.write_text(yaml.safe_dump(sections), encoding="utf-8")
    target = "/".join(["db.t", *words])
    result = CliRunner().invoke(cli, ["--config", str(config), "explain", target])
    text = (result.stdout + result.stderr).replace(str(drawn.world.folder / "warehouse"), "<warehouse>")
    for varying, name in _VARIES:
        text = varying.sub(name, text)
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return lines if result.exit_code == 0 else [f"exit {result.exit_code}", *lines]
