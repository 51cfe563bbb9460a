"""
Writes a command's answer: as a table for people, as JSON, YAML or TSV for programs.

A command makes one `View` and knows nothing of formats; `--output` chooses the format of its `Output` once. Data goes to
stdout, messages go to stderr.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

import click
import yaml
from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.status import Status
from rich.table import Table
from rich.text import Text

Record = Mapping[str, object]

WIDEST = 100_000  # characters; lines are folded only for a terminal
_BETWEEN: Final = 3
"""Characters between two columns of a table."""


class Format(StrEnum):
    """The values of `--output`."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    TSV = "tsv"


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """
    One column of a listing.

    Args:
        key: the record's key; also the heading in TSV.
        title: the heading for people.
        right: whether the column is aligned right, as numbers are.
        show: makes the text of a table's cell from the record's value; programs get the value itself.
        people, programs: whether the column is in tables, and in TSV.
        less: columns with the highest number are left out first where a terminal is too narrow; 0: never.
        whole: makes the text of a table's cell from the whole record; None: `show` does.
        folds: a sentence, which is folded down to so many characters, but not within a name, before other columns are
            left out; 0: a name or another text that is folded only where a whole line is too short for it.
    """

    key: str
    title: str
    right: bool = False
    show: Callable[[object], str] = str
    people: bool = True
    programs: bool = True
    less: int = 0
    whole: Callable[[Record], str] | None = None
    folds: int = 0

    def text(self, record: Record) -> str:
        """The text of a table's cell; empty for a missing value."""
        if self.whole is not None:
            return self.whole(record)
        value = record.get(self.key)
        return "" if value is None else self.show(value)


@dataclass(frozen=True, slots=True)
class View:
    """
    One answer, in the forms that an `Output` may need.

    Args:
        columns, records: the answer as rows, for TSV and, unless there is a picture, for the table.
        document: the answer as one JSON value; None: the records.
        picture: draws the answer for people, instead of a table.
        empty: printed to stderr when there are no records, no picture and no document.
        footer: printed to stderr below the table or picture.
    """

    columns: Sequence[OutputColumn]
    records: Sequence[Record]
    document: object = None
    picture: Callable[[], RenderableType] | None = None
    empty: str = "nothing to show"
    footer: str = ""

    def value(self) -> object:
        """The value that JSON and YAML show."""
        return list(self.records) if self.document is None else self.document


@dataclass(frozen=True, slots=True)
class Output:
    r"""
    Writes views to stdout in one format; `say` writes messages to stderr in every format.

    - `table`, `wide`: tables and pictures, drawn by rich; in colour on a terminal unless NO_COLOR is set. Where the
      terminal is too narrow for all columns of a `table`, sentences are folded, then columns that matter less are left
      out, then sentences and long names stand below each row.
    - `json`: one value, indented, in UTF-8. `yaml`: one document.
    - `tsv`: a heading and one line per record. Tab, newline, carriage return and backslash are written \t, \n, \r, \\;
      a missing value is an empty cell.
    """

    form: Format

    def show(self, view: View) -> None:
        """Write one answer to stdout."""
        match self.form:
            case Format.JSON:
                click.echo(json.dumps(view.value(), indent=2, ensure_ascii=False, default=str))
            case Format.YAML:
                plain = json.loads(json.dumps(view.value(), default=str))
                click.echo(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=WIDEST), nl=False)
            case Format.TSV:
                keys = [column.key for column in view.columns if column.programs]
                click.echo("\t".join(keys))
                for record in view.records:
                    click.echo("\t".join(tsv_cell(record.get(key)) for key in keys))
            case _:
                self._draw(view)
        if not view.records and view.picture is None and view.document is None:
            self.say(view.empty)

    def _draw(self, view: View) -> None:
        if view.picture is not None:
            draw(view.picture())
        elif view.records:
            drawn, left = (_wide if self.form is Format.WIDE else fitted)(view.columns, view.records)
            draw(drawn)
            if left:
                self.say(f"{left}; -o wide shows all")
        if view.footer:
            self.say(view.footer)

    def say(self, sentence: str) -> None:
        """Write a one-line message to stderr."""
        click.echo(sentence, err=True)

    def separate(self, moment: str) -> None:
        """Begin the picture of this moment, where pictures of one thing follow each other and stdout is no terminal."""
        match self.form:
            case Format.TABLE | Format.WIDE:
                click.echo(moment)
            case Format.YAML:
                click.echo(f"--- # {moment}")
            case _:
                self.say(moment)

    @contextmanager
    def busy(self, sentence: str) -> Iterator[Callable[[str], None]]:
        """Show that the command is at work: a spinner on a terminal, else one line per change of the sentence."""
        console = Console(stderr=True, markup=False, highlight=False)
        if console.is_terminal:
            with Status(sentence, console=console) as status:
                yield status.update
            return
        last = ""

        def tell(text: str) -> None:
            nonlocal last
            if text != last:
                self.say(text)
                last = text

        tell(sentence)
        yield tell


def part_of_picture(columns: Sequence[OutputColumn], records: Sequence[Record]) -> RenderableType:
    """A table that fits the terminal; one line below it names the columns that are left out."""
    drawn, left = fitted(columns, records)
    return Group(drawn, Text(f"{left}; a wider terminal shows them", style="dim")) if left else drawn


def _wide(columns: Sequence[OutputColumn], records: Sequence[Record]) -> tuple[RenderableType, str]:
    """As `fitted`, with all columns side by side."""
    shown, width = _filled(columns, records), _console().width
    return _table(shown, records, _widths([_size(column, records, width) for column in shown], width)), ""


def fitted(columns: Sequence[OutputColumn], records: Sequence[Record]) -> tuple[RenderableType, str]:
    """
    A table that fits the terminal, and a sentence that names the columns left out of it, empty where none is.

    A name is folded only where it is longer than a line of the terminal. Where stdout is no terminal, nothing is folded
    or left out.
    """
    shown, console = _filled(columns, records), _console()
    if not console.is_terminal:
        return _table(shown, records), ""
    sizes = {column: _size(column, records, console.width) for column in shown}
    below: list[OutputColumn] = []
    while True:
        beside = [column for column in shown if column not in below]
        while (widths := _widths([sizes[column] for column in beside], console.width)) is None and (
            least := max(beside, key=lambda column: column.less)
        ).less:
            beside.remove(least)
        if widths is not None:
            break
        texts = [column for column in beside if not column.right] or beside
        below += [column for column in texts if column.folds] or [max(texts, key=lambda column: sizes[column].most)]
    lines = [column for column in shown if column in below]
    left = [column.title for column in shown if column not in below and column not in beside]
    drawn = _with_lines(beside, lines, records, widths) if lines else _table(beside, records, widths)
    return drawn, f"left out for want of room: {', '.join(left)}" if left else ""


class _Size(NamedTuple):
    """How narrow a column may be, and how wide its longest text is, in characters."""

    least: int
    most: int


def _size(column: OutputColumn, records: Sequence[Record], room: int) -> _Size:
    """A sentence is folded between words; addresses, and words that no line has room for, are folded anywhere."""
    texts = [column.title, *(column.text(record).expandtabs() for record in records)]
    most = max((cell_len(line) for text in texts for line in text.splitlines()), default=0)
    if not column.folds:
        return _Size(most, most)
    words = (cell_len(word) for text in texts for word in text.split() if ":/" not in word and word[0] != "/")
    return _Size(min(most, max([column.folds, *(length for length in words if length <= room)])), most)


def _widths(sizes: Sequence[_Size], room: int) -> list[int] | None:
    """The width of each column, where all fit: what is to spare goes to those that are folded, in equal parts."""
    widths = [size.least for size in sizes]
    spare = room - sum(widths) - _BETWEEN * (len(sizes) - 1)
    if spare < 0:
        return None
    order = sorted(range(len(sizes)), key=lambda index: sizes[index].most - sizes[index].least)
    for number, index in enumerate(order):
        more = min(sizes[index].most - sizes[index].least, spare // (len(order) - number))
        widths[index] += more
        spare -= more
    return widths


def _table(
    columns: Sequence[OutputColumn],
    records: Sequence[Record],
    widths: Sequence[int] | None = None,
    *,
    head: bool = True,
) -> Table:
    """
    A plain table: bold heading, no frame.

    Args:
        widths: in characters; None: when the table is too wide for the terminal, text is folded and right-aligned
            columns stay whole.
    """
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, show_header=head, header_style="bold")
    given: Sequence[int | None] = [None] * len(columns) if widths is None else widths
    for column, width in zip(columns, given, strict=True):
        drawn.add_column(
            column.title,
            justify="right" if column.right else "left",
            overflow="fold",
            no_wrap=column.right,
            width=width,
        )
    for record in records:
        drawn.add_row(*(column.text(record) for column in columns))
    return drawn


def _with_lines(
    beside: Sequence[OutputColumn], below: Sequence[OutputColumn], records: Sequence[Record], widths: Sequence[int]
) -> RenderableType:
    """A table in which the values of some columns stand below each row, with their titles."""
    parts: list[RenderableType] = []
    for number, record in enumerate(records):
        if beside:
            parts.append(_table(beside, [record], widths, head=number == 0))
        parts += [_line(column, text) for column in below if (text := column.text(record).expandtabs())]
    return Group(*parts)


def _line(column: OutputColumn, text: str) -> RenderableType:
    """A title and its value, indented as far as the value's longest word leaves room; a name that fits isn't folded."""
    room = _console().width
    words = text.split() if column.folds else text.splitlines()
    indent = max(0, min(2, room - max(map(cell_len, words), default=0)))
    fits = column.folds or indent + cell_len(f"{column.title}  {text}") <= room
    title = Text(column.title, style="bold")
    return Padding(title.append("  " if fits else "\n", "not bold").append(text, "not bold"), (0, 0, 0, indent))


def fits_terminal(drawn: RenderableType) -> bool:
    """Whether all of it is seen without folding; always where stdout is no terminal."""
    console = _console()
    return not console.is_terminal or _width(drawn) <= console.width


def _width(drawn: RenderableType) -> int:
    """In characters, when nothing is folded to fit."""
    console = _console()
    return Measurement.get(console, console.options.update(width=WIDEST), drawn).maximum


def _filled(columns: Sequence[OutputColumn], records: Sequence[Record]) -> list[OutputColumn]:
    """The columns that a table of these records has."""
    return [column for column in columns if column.people and any(column.text(record) for record in records)]


def _console() -> Console:
    return Console(file=sys.stdout, markup=False, highlight=False, emoji=False)


def draw(renderable: RenderableType) -> None:
    """
    Print to stdout: folded to the terminal's width, or, when stdout is no terminal, in full width without padding.
    """
    console = _console()
    if console.is_terminal:
        console.print(renderable)
        return
    console.width = WIDEST
    console.width = max(1, Measurement.get(console, console.options, renderable).maximum)
    with console.capture() as capture:
        console.print(renderable)
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()))


def tsv_cell(value: object) -> str:
    """A value as a TSV cell: on one line, without tabs; containers as JSON."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    text = json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, dict | list | tuple) else str(value)
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
