"""Draws a partition: its items by their standing, with a bar for each size."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from compactor.cli import units
from compactor.cli.output import OutputColumn, fits_terminal
from compactor.status.items import DirectoryStanding, Item, Totals, read_totals
from compactor.words import binary_units, plural

FOLD_ABOVE = 12
FOLD_HEAD = 6
FOLD_TAIL = 3
BAR_WIDTH = 12
EIGHTHS = " ▏▎▍▌▋▊▉"


COLOURS = {
    DirectoryStanding.BASE: "green",
    DirectoryStanding.DELTA: "cyan",
    DirectoryStanding.DELETE_DELTA: "magenta",
    DirectoryStanding.ORIGINAL: "blue",
    DirectoryStanding.NOT_VISIBLE: "yellow",
    DirectoryStanding.ABORTED: "red",
    DirectoryStanding.OBSOLETE: "bright_black",
    DirectoryStanding.UNKNOWN: "bold red",
    DirectoryStanding.EVIDENCE: "yellow",
}
COLUMNS = (
    OutputColumn("standing", "STANDING"),
    OutputColumn("name", "NAME"),
    OutputColumn("min_write_id", "FROM", right=True),
    OutputColumn("max_write_id", "TO", right=True),
    OutputColumn("files", "FILES", right=True, show=units.number),
    OutputColumn("bytes", "SIZE", right=True, show=binary_units),
    OutputColumn("input", "INPUT"),
    OutputColumn("note", "NOTE"),
)


def in_words(totals: Totals) -> str:
    """As a sentence has it: `3 directories, 4 files, 1.2 GiB`."""
    directories = plural(totals.directories, "directory", "directories")
    return f"{directories}, {plural(totals.files, 'file')}, {binary_units(totals.bytes)}"


def picture(title: str, items: Sequence[Item], *, fold: bool = True, notes: bool = True) -> RenderableType:
    """
    The drawing: items grouped by standing, with a bar for each size; ● marks the inputs of a compaction.

    Notes stand beside the items; below the drawing, each once, where the terminal is too narrow.
    """
    drawn = _grid(items, fold=fold, notes=notes)
    below: list[Text] = []
    if notes and not fits_terminal(drawn):
        drawn, below = _grid(items, fold=fold, notes=False), [Text(note, style="dim") for note in _notes(items)]
    legend = "; ● goes into a compaction" if any(item.input for item in items) else ""
    return Group(
        Text(title, style="bold"), Text(f"a query reads {in_words(read_totals(items))}{legend}"), drawn, *below
    )


def _notes(items: Sequence[Item]) -> list[str]:
    """Each note with what it is about: the first of the items, and how many more."""
    found: dict[str, list[str]] = {}
    for item in items:
        if item.note:
            found.setdefault(item.note, []).append(item.name)
    return [f"{names[0]}{f' and {len(names) - 1} more' if names[1:] else ''}: {note}" for note, names in found.items()]


def _grid(items: Sequence[Item], *, fold: bool, notes: bool) -> Table:
    drawn = Table.grid(padding=(0, 1))
    for justify in ("left", "left", "left", "right", "right"):
        drawn.add_column(justify=justify, no_wrap=True)
    if notes:
        drawn.add_column(overflow="fold")
    largest = max((item.bytes for item in items), default=0)
    for standing in DirectoryStanding:
        group = [item for item in items if item.standing is standing]
        if group:
            _group(drawn, standing, group, largest, fold=fold, notes=notes)
    if not items:
        drawn.add_row("", Text("empty", style="dim"))
    return drawn


def _group(
    drawn: Table, standing: DirectoryStanding, group: Sequence[Item], largest: int, *, fold: bool, notes: bool
) -> None:
    colour = COLOURS[standing]
    if fold and len(group) > FOLD_ABOVE:
        head, middle, tail = group[:FOLD_HEAD], group[FOLD_HEAD:-FOLD_TAIL], group[-FOLD_TAIL:]
    else:
        head, middle, tail = group, (), ()
    label = standing.value
    for item in (*head, None, *tail):
        if item is None:
            if middle:
                total = Totals.of(middle)
                drawn.add_row(
                    "",
                    Text("⋮", style=colour),
                    Text(f"{len(middle)} more", style="dim"),
                    *_numbers(total.bytes, total.files, colour),
                )
            continue
        name = Text(("● " if item.input else "  ") + item.name, style=colour)
        cells: list[RenderableType] = [
            Text(label, style=f"bold {colour}"),
            name,
            Text(bar(item.bytes, largest), style=colour),
            *_numbers(item.bytes, item.files, colour),
        ]
        if notes:
            cells.append(Text(item.note, style="dim"))
        drawn.add_row(*cells)
        label = ""


def _numbers(size: int, files: int, colour: str) -> tuple[Text, Text]:
    return Text(binary_units(size), style=colour), Text(plural(files, "file"), style="dim")


def bar(value: int, largest: int) -> str:
    """A bar of at most `BAR_WIDTH` characters, drawn in eighths; every positive value shows at least one eighth."""
    if value <= 0 or largest <= 0:
        return ""
    eighths = max(1, round(value * BAR_WIDTH * 8 / largest))
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()
