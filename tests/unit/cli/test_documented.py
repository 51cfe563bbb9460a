"""
What the pages say of the command line and the settings is so: every command, option and setting that they name exists,
and every command is told of.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from pydantic import BaseModel

from compactor.cli.root import COMMANDS, cli
from compactor.cli.session import Code
from compactor.roles import steps
from compactor.settings import Settings

PROJECT = Path(__file__).resolve().parents[3]
PAGES = sorted(
    [
        PROJECT / "README.md",
        *(PROJECT / "docs").rglob("*.md"),
        *(PROJECT / "deploy").rglob("*.sql"),
        *(PROJECT / "config").glob("*.yaml"),
    ]
)
CODE = re.compile(r"^```\w*\n(.*?)^```|^    (?! )([^\n]*)|`([^`\n]+)`", re.DOTALL | re.MULTILINE)
CALL = re.compile(r"(?:^|[|;(] *|\w=\S+ |/bin/)compactor (?=[a-z-])([^|;#)…—]*)")
SPARKS_OWN = {"spark.authenticate", "spark.remote", "spark.speculation"}
"""Settings of Spark's that have two parts, as ours."""
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
STEPS = {value for name, value in vars(steps).items() if name.isupper()}
"""Names of steps look like settings; so do Spark's own properties, which have three parts and more."""
SETTING = re.compile(r"`([a-z0-9_]+(?:\.[a-z0-9_]+)+)(?:: [^`]*)?`")


def code_of(text: str) -> Iterator[str]:
    """Lines of code blocks, and what stands between backquotes."""
    for fenced, indented, span in CODE.findall(text):
        yield from (fenced or indented or span).splitlines()


def calls_in(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Every call of ours, and its words up to a pipe, a comment or the end."""
    for line in code_of(page.read_text(encoding="utf-8")):
        for said in CALL.findall(line):
            try:
                words = shlex.split(said)
            except ValueError:
                words = said.split()
            if words:
                yield line, words


def mistake(words: list[str]) -> str | None:
    """What is wrong with a call, whose values may be placeholders; None: nothing."""
    command: click.Command = cli
    context = click.Context(cli)
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if word.startswith("-") and word != "-":
            name = word.partition("=")[0]
            option = next((found for found in command.get_params(context) if name in found.opts), None)
            if option is None:
                return f"{command.name} has no option {name}"
            if (
                isinstance(option, click.Option)
                and not option.is_flag
                and not option.count
                and "=" not in word
                and word != "--help"
                and waiting
            ):
                value = waiting.pop(0)
                if isinstance(option.type, click.Choice) and not set(value.split("|")) <= set(option.type.choices):
                    return f"{name} of {command.name} doesn't take {value}"
        elif isinstance(command, click.Group):
            if word not in command.list_commands(context):
                return f"{command.name} has no command {word}"
            found = command.get_command(context, word)
            assert found is not None
            command = found
    return None


NAMED = [(page, words) for page in PAGES for _, words in calls_in(page)]


def test_there_is_something_to_look_at():
    """The pages name many calls, and each kind of mistake in one is found."""
    assert len(NAMED) > 80
    assert mistake(["queue", "--sate", "working"]) == "queue has no option --sate"
    assert mistake(["queue", "--state", "wrking"]) == "--state of queue doesn't take wrking"
    assert mistake(["config", "chek"]) == "config has no command chek"
    assert mistake(["--config", "FILE", "enqueue", "DB.TABLE/k=v", "--type", "major", "-o", "json"]) is None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_every_call_that_a_page_names_is_one(page):
    """Command, options, and values of options that take only some."""
    wrong = [(" ".join(words), mistake(words)) for where, words in NAMED if where == page]
    assert [one for one in wrong if one[1] is not None] == []


def test_the_page_of_the_command_line_tells_of_every_command():
    """Also of those with verbs of their own, and of every exit code with the number it has."""
    text = (PROJECT / "docs" / "cli.md").read_text(encoding="utf-8")
    headings = " ".join(re.findall(r"^### (.*)$", text, re.MULTILINE))
    assert [name for name in COMMANDS if f"`compactor {name}" not in headings] == []
    codes = {int(number) for number in re.findall(r"^\| (\d+) \| ", text, re.MULTILINE)}
    assert codes == set(Code)


def sections() -> Iterator[tuple[list[str], str]]:
    """The commands in each heading of the page of the command line, and what is said of them."""
    text = (PROJECT / "docs" / "cli.md").read_text(encoding="utf-8")
    for section in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        heading = section.partition("\n")[0]
        if names := [name for name in re.findall(r"`compactor ([a-z-]+)", heading) if name in COMMANDS]:
            yield names, section


def options_of(command: click.Command | None) -> set[str]:
    """The long options of a command and of its verbs."""
    assert command is not None
    context = click.Context(command)
    verbs = command.commands.values() if isinstance(command, click.Group) else ()
    own = {name for option in command.get_params(context) for name in (*option.opts, *option.secondary_opts)}
    return {name for name in own if name.startswith("--")}.union(*map(options_of, verbs))


def test_the_page_of_the_command_line_tells_of_every_option():
    """
    In the section of its command, where no option stands that it hasn't, but in whole calls of others; what many have,
    at the top.
    """
    context, missing, unknown = click.Context(cli), [], []
    top = (PROJECT / "docs" / "cli.md").read_text(encoding="utf-8").partition("## Commands")[0]
    common = {*OPTION.findall(top), "--help"}
    for names, section in sections():
        theirs = set[str]().union(*(options_of(cli.get_command(context, name)) for name in names))
        heading, _, body = section.partition("\n")
        said = set(OPTION.findall(heading + re.sub(r"`compactor [^`]*`", "", body)))
        missing += [(names, option) for option in sorted(theirs - common - said)]
        unknown += [(names, option) for option in sorted(said - theirs)]
    assert (missing, unknown) == ([], [])


def settings_named() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for name in SETTING.findall(page.read_text(encoding="utf-8")):
            if (
                name.partition(".")[0] in Settings.model_fields
                and name not in STEPS
                and not name.endswith(".py")
                and not re.match(r"spark\.\w+\.", name)
                and name not in SPARKS_OWN
            ):
                yield str(page.relative_to(PROJECT)), name


def known(name: str) -> bool:
    model: type[BaseModel] | None = Settings
    for part in name.split("."):
        if model is None or part not in model.model_fields:
            return model is None
        kind = model.model_fields[part].annotation
        model = kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None
    return True


def test_every_setting_that_a_page_names_is_one():
    """`section.key`, wherever it stands between backquotes."""
    named = set(settings_named())
    assert len(named) > 60
    assert not known("worker.thread")
    assert sorted((page, name) for page, name in named if not known(name)) == []
