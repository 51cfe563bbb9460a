"""The manual pages in docs/man: those of the commands, complete, valid, and in the wheel."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from compactor.cli.root import cli
from compactor.cli.session import Code
from docs.man.__main__ import FOLDER, exit_codes
from tests.needs import missing

PROJECT = Path(__file__).resolve().parents[2]
WRITTEN = {file.name: file.read_text(encoding="ascii") for file in sorted(FOLDER.glob("*.1"))}


def command_of(page: str) -> tuple[click.Command, click.Context]:
    """The command that a page is about, found by its name."""
    command: click.Command = cli
    context = click.Context(cli)
    for word in page.removesuffix(".1").split("-")[1:]:
        assert isinstance(command, click.Group)
        found = command.get_command(context, word)
        assert found is not None
        command = found
    return command, context


def rendered(page: str) -> str:
    """What a reader of the page sees, on one line; a warning of groff fails."""
    if shutil.which("groff") is None:
        missing("groff isn't installed (Debian: apt-get install groff-base)")
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-P-cbou", "-rLL=1000n", str(FOLDER / page)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == "", page
    return " ".join(done.stdout.split())


def test_the_pages_are_those_of_the_commands():
    """
    Nobody changed a command without its page; else `make man` is due. In a process of its own: click keeps the names of
    a command's help option from the first look at it.
    """
    program = "import json; from docs.man.__main__ import pages; print(json.dumps(pages()))"
    made = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert json.loads(made.stdout) == WRITTEN


@pytest.mark.parametrize("page", WRITTEN)
def test_a_page_tells_all_of_its_command(page):
    """Usage, each option and each verb, with hyphens that can be copied, and every exit code."""
    text = rendered(page)
    command, context = command_of(page)
    name = page.removesuffix(".1")
    assert f"{name} - " in text
    for parameter in command.get_params(context):
        if isinstance(parameter, click.Option):
            assert all(re.search(rf"(?<![\w-]){option}(?![\w-])", text) for option in parameter.opts), parameter.name
        else:
            assert parameter.make_metavar(context) in text
    if isinstance(command, click.Group):
        for verb in command.list_commands(context):
            assert f"{name}-{verb}.1" in WRITTEN
            assert f"{name}-{verb}(1)" in text
    assert {int(code) for code, _ in exit_codes()} == set(Code)
    assert all(f"{code} {said}" in text for code, said in exit_codes())


def test_the_wheel_has_every_page():
    """Where `man` looks beside a program's own directory."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    (pattern,) = project["tool"]["setuptools"]["data-files"]["share/man/man1"]
    assert sorted(file.name for file in PROJECT.glob(pattern)) == list(WRITTEN)
