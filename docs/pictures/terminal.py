"""Draws what a command printed, as a terminal shows it."""

from pathlib import Path

from rich.text import Text

from tests.demo.picture import recording, write_svg


def draw(path: Path, command: str, printed: str) -> None:
    """Write the picture, as wide as the longest line."""
    text = Text.assemble(("$ ", "bold green"), (command, "bold"), "\n\n") + Text.from_ansi(printed.rstrip())
    width = max(len(line.rstrip()) for line in text.plain.splitlines()) + 1
    console = recording(width)
    console.print(text, no_wrap=True, crop=False)
    write_svg(console, path, command)
