"""
Draws a partition: which directories a query reads, which it ignores, and which the next compaction takes as inputs.

Pure: works on the resolved states (`acid.snapshot`) of a reader and of a compactor; rich draws the picture.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from compactor.acid.compaction import CompactionKind
from compactor.acid.names import DirKind
from compactor.acid.snapshot import AcidState, ListedDir, data_files
from compactor.cli import units
from compactor.cli.output import OutputColumn, Record, fits_terminal
from compactor.planning.picker import enough
from compactor.words import plural

FOLD_ABOVE = 12
FOLD_HEAD = 6
FOLD_TAIL = 3
BAR_WIDTH = 12
EIGHTHS = " ▏▎▍▌▋▊▉"


class DirectoryStanding(StrEnum):
    """How a query that starts now treats a directory or file."""

    BASE = "base"
    DELTA = "delta"
    DELETE_DELTA = "delete delta"
    ORIGINAL = "original"
    NOT_VISIBLE = "not visible"
    ABORTED = "aborted"
    OBSOLETE = "obsolete"
    UNKNOWN = "unknown"
    EVIDENCE = "evidence"


READ = (DirectoryStanding.BASE, DirectoryStanding.DELTA, DirectoryStanding.DELETE_DELTA, DirectoryStanding.ORIGINAL)
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
    OutputColumn("bytes", "SIZE", right=True, show=units.size),
    OutputColumn("input", "INPUT"),
    OutputColumn("note", "NOTE"),
)


@dataclass(frozen=True, slots=True)
class Item:
    """
    One directory (or original file, or unknown name) of a partition.

    Args:
        files, bytes: count and size of the data files only.
        input: whether a compaction that starts now would have this item as input.
        note: in a few words, why a query or compaction doesn't use the item.
    """

    standing: DirectoryStanding
    name: str
    files: int = 0
    bytes: int = 0
    min_write_id: int | None = None
    max_write_id: int | None = None
    input: bool = False
    note: str = ""

    def record(self) -> Record:
        """The item as an output record."""
        return {
            "standing": self.standing.value,
            "name": self.name,
            "min_write_id": self.min_write_id,
            "max_write_id": self.max_write_id,
            "files": self.files,
            "bytes": self.bytes,
            "input": self.input,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class Totals:
    """Directories, files and bytes of a set of items."""

    directories: int
    files: int
    bytes: int

    @classmethod
    def of(cls, items: Sequence[Item]) -> "Totals":
        directories = sum(item.min_write_id is not None for item in items)
        return cls(directories, sum(item.files for item in items), sum(item.bytes for item in items))

    def __str__(self) -> str:
        return f"{plural(self.directories, 'directory', 'directories')}, {plural(self.files, 'file')}, {units.size(self.bytes)}"


def items_of(
    reader: AcidState, compactor: AcidState, *, insert_only: bool, explain: Callable[[ListedDir], str] = lambda _: ""
) -> tuple[Item, ...]:
    """
    All items of a partition directory, in the order in which they are drawn.

    Args:
        reader: the directory as a query that starts now resolves it.
        compactor: the directory as a compaction that starts now resolves it.
        explain: makes the note for a directory that is not visible or aborted: which transaction, and whose.
    """
    worth_it = enough(compactor, CompactionKind.MAJOR, insert_only)
    taken = {listed.acid.name for listed in (compactor.base, *compactor.deltas) if listed is not None and worth_it}
    taken_originals = {file.path for file in compactor.originals if worth_it}

    def item(standing: DirectoryStanding, listed: ListedDir, note: str = "") -> Item:
        files = data_files(listed, insert_only)
        acid = listed.acid
        size = sum(file.length for file in files)
        return Item(
            standing, acid.name, len(files), size, acid.min_write_id, acid.max_write_id, acid.name in taken, note
        )

    def items() -> Iterator[Item]:
        if reader.base is not None:
            yield item(DirectoryStanding.BASE, reader.base)
        for kind, standing in (
            (DirKind.DELTA, DirectoryStanding.DELTA),
            (DirKind.DELETE_DELTA, DirectoryStanding.DELETE_DELTA),
        ):
            yield from (item(standing, listed) for listed in reader.deltas if listed.acid.kind is kind)
        for file in reader.originals:
            note = (
                "not named like a bucket file: nothing is compacted beside it"
                if file.path in reader.unknown and not insert_only
                else ""
            )
            yield Item(
                DirectoryStanding.ORIGINAL, file.path, 1, file.length, input=file.path in taken_originals, note=note
            )
        for excluded in reader.excluded:
            yield item(DirectoryStanding.NOT_VISIBLE, excluded.dir, explain(excluded.dir) or excluded.reason)
        yield from (item(DirectoryStanding.ABORTED, listed, explain(listed)) for listed in reader.aborted)
        yield from (item(DirectoryStanding.OBSOLETE, listed) for listed in reader.obsolete)
        for file in reader.obsolete_originals:
            yield Item(DirectoryStanding.OBSOLETE, file.path, 1, file.length)
        for file in reader.left_originals:
            yield Item(
                DirectoryStanding.UNKNOWN,
                file.path,
                1,
                file.length,
                note="not read, for it lies in no base and no delta: stays"
                if insert_only
                else "not read, and in no list of a compaction: stays",
            )
        files = {file.path for file in (*reader.originals, *reader.obsolete_originals, *reader.left_originals)}
        yield from (
            Item(DirectoryStanding.UNKNOWN, name, note="not Hive's: nothing is done about it")
            for name in reader.unknown
            if name not in files
        )

    return tuple(items())


def read_totals(items: Sequence[Item]) -> Totals:
    """Totals of the items that every query opens."""
    return Totals.of([item for item in items if item.standing in READ])


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
    return Group(Text(title, style="bold"), Text(f"a query reads {read_totals(items)}{legend}"), drawn, *below)


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
    return Text(units.size(size), style=colour), Text(plural(files, "file"), style="dim")


def bar(value: int, largest: int, width: int = BAR_WIDTH) -> str:
    """A bar of at most `width` characters, drawn in eighths; every positive value shows at least one eighth."""
    if value <= 0 or largest <= 0:
        return ""
    eighths = max(1, round(value * width * 8 / largest))
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()
