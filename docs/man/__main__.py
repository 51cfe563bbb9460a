"""
`make man`: writes the manual pages beside this file, one for each command, from what click knows of it.

The wheel puts them into share/man/man1. A test checks that they are those of the commands.
"""

import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click

from compactor.cli.root import cli

FOLDER = Path(__file__).parent
REFERENCE = FOLDER.parent / "cli.md"
ENVIRONMENT = (
    ("COMPACTOR_CONFIG", "The settings file, unless --config names one."),
    ("COMPACTOR_SECTION__KEY", "One setting, over the file's, such as COMPACTOR_WORKER__THREADS=4."),
    ("NO_COLOR", "No colours on a terminal."),
)
_LINE = 80
_SENTENCE = 200
"""Characters of the first sentence, which click would cut off at 45."""


def pages() -> dict[str, str]:
    """The text of each page, by the name of its file."""
    commands = list(_commands(_context(cli, "compactor")))
    names = [context.command_path.replace(" ", "-") for context in commands]
    return {
        f"{name}.1": _page(name, context, [other for other in names if _is_near(name, other)])
        for name, context in zip(names, commands, strict=True)
    }


def _commands(context: click.Context) -> Iterator[click.Context]:
    """The command and all below it."""
    yield context
    for name, command in _verbs(context):
        yield from _commands(_context(command, name, context))


def _context(command: click.Command, name: str, parent: click.Context | None = None) -> click.Context:
    return click.Context(command, info_name=name, parent=parent, **command.context_settings)


def _verbs(context: click.Context) -> Iterator[tuple[str, click.Command]]:
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            if (command := context.command.get_command(context, name)) is not None and not command.hidden:
                yield name, command


def _is_near(name: str, other: str) -> bool:
    """Whether a page refers to another: to the ones above it, and to those directly below."""
    return name.startswith(f"{other}-") or (other.startswith(f"{name}-") and "-" not in other[len(name) + 1 :])


def _page(name: str, context: click.Context, near: list[str]) -> str:
    command = context.command
    options = [one for one in command.get_params(context) if isinstance(one, click.Option) and not one.hidden]
    usage = " ".join(command.collect_usage_pieces(context))
    records = [record for option in options if (record := option.get_help_record(context)) is not None]
    verbs = [(verb, below.get_short_help_str(_SENTENCE)) for verb, below in _verbs(context)]
    parts = [
        f'.TH {_plain(name.upper())} 1 "" compactor "Compaction of Hive ACID tables"',
        ".nh",
        ".ad l",
        *_section("NAME", [_text(f"{name} - {command.get_short_help_str(_SENTENCE).rstrip('.')}")]),
        *_section("SYNOPSIS", [f".B {_plain(context.command_path)}", _plain(usage)]),
        *_section("DESCRIPTION", _paragraphs(command.help or "")),
        *_section("COMMANDS", _items([(_bold(verb), said) for verb, said in verbs])),
        *_section("OPTIONS", _items([(_option(names), said) for names, said in records])),
        *_section("ENVIRONMENT", _items([(_bold(variable), said) for variable, said in ENVIRONMENT])),
        *_section("EXIT STATUS", _items([(_bold(code), said) for code, said in exit_codes()])),
        *_section("SEE ALSO", [",\n".join(f"{_bold(one)}(1)" for one in near)]),
    ]
    return "\n".join(parts) + "\n"


def exit_codes() -> list[tuple[str, str]]:
    """The exit codes with what they mean, as docs/cli.md lists them."""
    return re.findall(r"^\| (\d+) \| (.*) \|$", REFERENCE.read_text(encoding="utf-8"), re.MULTILINE)


def _section(title: str, lines: list[str]) -> list[str]:
    return [f".SH {title}", *lines] if lines else []


def _items(items: list[tuple[str, str]]) -> list[str]:
    return [line for head, said in items for line in (".TP", head, _text(said))]


def _paragraphs(text: str) -> list[str]:
    """A docstring's paragraphs, refilled by the reader's terminal."""
    found = [_text(" ".join(part.split())) for part in re.split(r"\n\s*\n", inspect.cleandoc(text))]
    return [line for number, part in enumerate(found) for line in ([".PP"] if number else []) + [part]]


def _option(names: str) -> str:
    """`-o, --output [json]`: what is typed as it stands is bold, what stands for a value is not."""
    return re.sub(r"(?<![\w-])(-{1,2}\w[\w-]*)|([^-]+|-)", lambda found: _word(found[1], found[2]), names)


def _word(typed: str | None, other: str | None) -> str:
    return _bold(typed) if typed is not None else _plain(other or "")


def _text(words: str) -> str:
    """A sentence, with what stands between backquotes in bold."""
    parts = re.split(r"`([^`]+)`", words)
    line = "".join(_bold(part) if number % 2 else _plain(part) for number, part in enumerate(parts))
    lines = textwrap.wrap(line, _LINE, break_long_words=False, break_on_hyphens=False)
    return "\n".join(f"\\&{one}" if one.startswith(".") else one for one in lines)


def _bold(word: str) -> str:
    return f"\\fB{_plain(word)}\\fR"


def _plain(text: str) -> str:
    """Text that roff leaves as it is, in ASCII: a hyphen stays one that can be copied."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    escaped = escaped.replace("^", "\\(ha").replace("~", "\\(ti").replace('"', "\\(dq")
    return "".join(char if char.isascii() else f"\\[u{ord(char):04X}]" for char in escaped)


def write() -> None:
    """Replace all pages."""
    for old in FOLDER.glob("*.1"):
        old.unlink()
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="ascii")


if __name__ == "__main__":
    write()
