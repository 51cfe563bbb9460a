"""Draws the README's picture as SVG: a partition before and after compaction, as the demo measured it."""

import io
import re
from pathlib import Path

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from compactor.cli.views import drawing
from compactor.words import plural
from tests.demo.measure import Measured

WIDTH = 168


def save_picture(path: Path, before: Measured, after: Measured) -> None:
    """Write the two drawings side by side."""
    console = recording(WIDTH)
    sides = Table.grid(padding=(0, 3))
    sides.add_row(_side(before, "before"), _side(after, "after"))
    console.print(Group(sides, Text(), _same(before, after)))
    write_svg(console, path, f"compactor: {before.place.entity}")


def recording(width: int) -> Console:
    """A terminal of so many columns that records what is printed, and shows it nowhere."""
    return Console(
        record=True,
        width=width,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        legacy_windows=False,
    )


def write_svg(console: Console, path: Path, title: str) -> None:
    """Write what a console recorded. The same text gives the same SVG; it loads no fonts from the network."""
    svg = console.export_svg(title=title, unique_id=path.stem)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(re.sub(r"@font-face\s*\{.*?\}", "", svg, flags=re.DOTALL), encoding="utf-8")


def _side(measured: Measured, when: str) -> Group:
    title = f"{when}: {plural(measured.on_disk.directories, 'directory', 'directories')}, {plural(measured.on_disk.files, 'file')}"
    return Group(drawing.picture(title, measured.items, fold=False, notes=False))


def _same(before: Measured, after: Measured) -> Text:
    if before.rows != after.rows:
        return Text(f"rows differ: {before.rows.rows:,} and {after.rows.rows:,}", style="bold red")
    return Text(
        f"the same {after.rows.rows:,} rows, with the same ROW__IDs (hash {str(after.rows)[:16]})", style="bold green"
    )
