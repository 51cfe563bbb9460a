"""
Writes a command's answer: as a table for people, as JSON, YAML or TSV for programs.

A command makes one `View` and knows nothing of formats; `--output` chooses the `Output` once. Data goes to stdout,
messages go to stderr.
"""

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

import click
import yaml
from rich import box
from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.status import Status
from rich.table import Table
from rich.text import Text

Record = Mapping[str, object]

WIDEST = 100_000  # characters; lines are folded only for a terminal


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
        folds: long texts are folded, down to so many characters, before other columns are left out; 0: only after that.
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
    footer: str = field(default="")

    def value(self) -> object:
        """The value that JSON and YAML show."""
        return list(self.records) if self.document is None else self.document


class Output(ABC):
    """Writes views to stdout in one format; `say` writes messages to stderr in every format."""

    def show(self, view: View) -> None:
        """Write one answer to stdout."""
        self._write(view)
        if not view.records and view.picture is None and view.document is None:
            self.say(view.empty)

    def say(self, sentence: str) -> None:
        """Write a one-line message to stderr."""
        click.echo(sentence, err=True)

    def separate(self, moment: str) -> None:
        """Begin the picture of this moment, where pictures of one thing follow each other and stdout is no terminal."""
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

    @abstractmethod
    def _write(self, view: View) -> None: ...


class TableOutput(Output):
    """
    Tables and pictures, drawn by rich; in colour on a terminal unless NO_COLOR is set.

    Columns that matter less are left out where the terminal is too narrow for all.
    """

    def separate(self, moment: str) -> None:
        click.echo(moment)

    def _columns(self, view: View) -> Sequence[OutputColumn]:
        return fitting(view.columns, view.records)

    def _write(self, view: View) -> None:
        if view.picture is not None:
            draw(view.picture())
        elif view.records:
            columns = self._columns(view)
            draw(_folded(columns, view.records))
            if left := _left_out(view.columns, columns, view.records):
                self.say(f"{left}; -o wide shows all")
        if view.footer:
            self.say(view.footer)


class WideOutput(TableOutput):
    """The same with all columns."""

    def _columns(self, view: View) -> Sequence[OutputColumn]:
        return view.columns


class JsonOutput(Output):
    """One JSON value, indented, in UTF-8."""

    def _write(self, view: View) -> None:
        click.echo(json.dumps(view.value(), indent=2, ensure_ascii=False, default=str))


class YamlOutput(Output):
    """One YAML document."""

    def separate(self, moment: str) -> None:
        click.echo(f"--- # {moment}")

    def _write(self, view: View) -> None:
        plain = json.loads(json.dumps(view.value(), default=str))
        click.echo(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=WIDEST), nl=False)


class TsvOutput(Output):
    r"""
    A heading and one line per record. Tab, newline, carriage return and backslash are written \t, \n, \r, \\; a missing
    value is an empty cell.
    """

    def _write(self, view: View) -> None:
        keys = [column.key for column in view.columns if column.programs]
        click.echo("\t".join(keys))
        for record in view.records:
            click.echo("\t".join(tsv_cell(record.get(key)) for key in keys))


OUTPUTS: Mapping[Format, type[Output]] = {
    Format.TABLE: TableOutput,
    Format.WIDE: WideOutput,
    Format.JSON: JsonOutput,
    Format.YAML: YamlOutput,
    Format.TSV: TsvOutput,
}


def output_for(name: Format | Literal["table", "wide", "json", "yaml", "tsv"]) -> Output:
    """The `Output` of this format."""
    return OUTPUTS[Format(name)]()


def table(columns: Sequence[OutputColumn], records: Sequence[Record], *, spare: int | None = None) -> Table:
    """
    A plain table: bold heading, no frame, no empty columns. When it is too wide for the terminal, text is folded and
    right-aligned columns stay whole.

    Args:
        spare: characters that a column may be wider than what it may be folded to; None: any number.
    """
    shown = _filled(columns, records)
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for column in shown:
        drawn.add_column(
            column.title,
            justify="right" if column.right else "left",
            overflow="fold",
            no_wrap=column.right,
            max_width=column.folds + spare if spare is not None and column.folds else None,
        )
    for record in records:
        drawn.add_row(*(column.text(record) for column in shown))
    return drawn


def part_of_picture(columns: Sequence[OutputColumn], records: Sequence[Record]) -> RenderableType:
    """A table with the columns that fit the terminal; one line below it names the others."""
    kept = fitting(columns, records)
    drawn = _folded(kept, records)
    left = _left_out(columns, kept, records)
    return Group(drawn, Text(f"{left}; a wider terminal shows them", style="dim")) if left else drawn


def fitting(columns: Sequence[OutputColumn], records: Sequence[Record]) -> Sequence[OutputColumn]:
    """The columns that fit the terminal, those that matter most; all where stdout is no terminal."""
    console = _console()
    if not console.is_terminal:
        return columns
    kept = [column for column in columns if column.people]
    while (least := max(kept, key=lambda column: column.less)).less and (
        _width(table(kept, records, spare=0)) > console.width
    ):
        kept.remove(least)
    return kept


def _left_out(columns: Sequence[OutputColumn], kept: Sequence[OutputColumn], records: Sequence[Record]) -> str:
    left = [column.title for column in _filled(columns, records) if column not in kept]
    return f"left out for want of room: {', '.join(left)}" if left else ""


def _folded(columns: Sequence[OutputColumn], records: Sequence[Record]) -> Table:
    """The table; where the terminal is too narrow for it, columns that may be folded take the room that others leave."""
    whole = table(columns, records)
    folding = sum(column.folds > 0 for column in _filled(columns, records))
    room = _console().width - _width(table(columns, records, spare=0))
    return whole if fits_terminal(whole) or not folding or room < 0 else table(columns, records, spare=room // folding)


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
