"""
Draws a row of the dashboard as SVG, in the manner of Grafana: numbers with a curve behind them, and time series.

Knows nothing of Prometheus. The same numbers give the same text.
"""

import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from itertools import pairwise

from docs.pictures.dashboard import STEP, Panel, Series

WIDTH = 800
COLUMN, UNIT = WIDTH / 24, 26.0
"""Width and height of a field of Grafana's grid."""
GAP = 4
HEAD = 32
LETTER = 6.5
"""Width of a letter of a legend, a little more than on average."""
LINE = 16
COLOURS = ("#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#f2495c", "#b877d9", "#8ab8ff", "#ffa6b0", "#c4a000", "#33a2a2")
STYLE = (
    "text{font:11px system-ui,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;fill:#a5a9b1}"
    ".title{font-weight:600;font-size:12px;fill:#e3e4e6}.row{font-weight:600;font-size:14px;fill:#e3e4e6}"
    ".big{font-weight:600;font-size:22px;fill:#73bf69}.right{text-anchor:end}.middle{text-anchor:middle}"
    ".card{fill:#1b1e23}.grid{stroke:#32363d}polyline{fill:none;stroke-width:1.5;stroke-linejoin:round}"
)
SECONDS_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600)
PREFIXES = ("", "k", "M", "G", "T")
UNITS = {"short": "", "Bps": "B/s"}
"""How Grafana's units are written; seconds and shares have rules of their own."""
Shown = tuple[Panel, Sequence[Series]]


def picture(title: str, shown: Sequence[Shown], seconds: float) -> str:
    """The SVG of a row; times run from 0 to `seconds`."""
    numbers = [one for one in shown if one[0].kind == "stat"]
    graphs = [one for one in shown if one[0].kind != "stat"]
    above = max((panel.height for panel, _ in numbers), default=0) * UNIT
    first = min(panel.y for panel, _ in graphs)
    height = above + HEAD + max(panel.y - first + panel.height for panel, _ in graphs) * UNIT + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{height:g}" rx="8" fill="#111217"/>',
    ]
    for panel, series in numbers:
        box = _Box(panel, 0)
        parts += box.group(_number(box, panel.unit, series, seconds))
    parts.append(_text(12, above + 22, title, "row"))
    for panel, series in graphs:
        box = _Box(panel, above + HEAD - first * UNIT)
        parts += box.group(_graph(box, panel.unit, series, seconds))
    return "\n".join([*parts, "</svg>\n"])


class _Box:
    """The place of a panel."""

    def __init__(self, panel: Panel, down: float) -> None:
        self.title = panel.title
        self.left = panel.x * COLUMN + GAP
        self.top = panel.y * UNIT + down + GAP
        self.right = self.left + panel.width * COLUMN - 2 * GAP
        self.bottom = self.top + panel.height * UNIT - 2 * GAP

    def group(self, content: Iterable[str]) -> Iterator[str]:
        """The panel: its name, background, title (a long one over several lines), content."""
        size = f'width="{self.right - self.left:.1f}" height="{self.bottom - self.top:.1f}"'
        yield f"<g><title>{escape(self.title)}</title>"
        yield f'<rect class="card" x="{self.left:.1f}" y="{self.top:.1f}" {size} rx="4"/>'
        for number, line in enumerate(textwrap.wrap(self.title, int((self.right - self.left - 12) / 6.6))):
            yield _text(self.left + 8, self.top + 17 + 14 * number, line, "title")
        yield from content
        yield "</g>"


def _number(box: _Box, unit: str, series: Sequence[Series], seconds: float) -> Iterator[str]:
    """The latest value, above its curve."""
    points = series[0].points
    highest = max((value for _, value in points), default=0) or 1
    across, up = _scale(0, seconds, box.left, box.right), _scale(0, highest, box.bottom, box.bottom - 24)
    curve = " ".join(f"{across(at):.1f},{up(value):.1f}" for at, value in points)
    edge = f"{across(points[0][0]):.1f},{box.bottom:.1f} {curve} {across(points[-1][0]):.1f},{box.bottom:.1f}"
    yield f'<polygon points="{edge}" fill="#73bf69" fill-opacity=".18"/>'
    yield f'<polyline points="{curve}" stroke="#73bf69" stroke-opacity=".6"/>'
    yield _text((box.left + box.right) / 2, box.bottom - 26, shown(points[-1][1], unit), "big middle")


def _graph(box: _Box, unit: str, series: Sequence[Series], seconds: float) -> Iterator[str]:
    """Axes, a line for each series that is ever above 0, and a legend."""
    drawn = [one for one in series if any(value for _, value in one.points)] or list(series[:1])
    names = [one.name for one in drawn] if len(series) == 1 or any(value for _, value in drawn[0].points) else []
    legend = list(_legend(box, names, len(series) - len(names)))
    bottom = box.bottom - 24 - LINE * (1 + max(row for row, *_ in legend))
    marks = ticks([value for one in drawn for _, value in one.points], unit)
    across, up = _scale(0, seconds, box.left + 58, box.right - 18), _scale(0, marks[-1], bottom, box.top + 30)
    for mark in marks:
        y = up(mark)
        yield f'<path class="grid" d="M{across(0):.1f} {y:.1f}H{across(seconds):.1f}"/>'
        yield _text(box.left + 52, y + 4, shown(mark, unit), "right")
    for minute in range(0, int(seconds) // 60 + 1, 2):
        yield _text(across(minute * 60), bottom + 15, f"{minute}:00", "middle")
    for number, one in reversed(list(enumerate(drawn))):
        for part in _unbroken(one.points):
            line = " ".join(f"{across(at):.1f},{up(value):.1f}" for at, value in part)
            yield f'<polyline points="{line}" stroke="{_colour(number)}"/>'
    for row, x, words, colour in legend:
        y = bottom + 34 + LINE * row
        if colour is not None:
            yield f'<rect x="{x:.1f}" y="{y - 5:.1f}" width="12" height="3" rx="1" fill="{_colour(colour)}"/>'
        yield _text(x + (0 if colour is None else 16), y, words)


def _legend(box: _Box, names: Sequence[str], others: int) -> Iterator[tuple[int, float, str, int | None]]:
    """Line, place, words and the number of the colour of each entry."""
    entries: list[tuple[str, int | None]] = [(name, number) for number, name in enumerate(names)]
    if others:
        entries.append((f"{others} more at 0" if names else f"all {others} at 0", None))
    line, x = 0, box.left + 12
    for words, number in entries:
        width = (0 if number is None else 16) + len(words) * LETTER
        if x + width > box.right - 4 and x > box.left + 12:
            line, x = line + 1, box.left + 12
        yield line, x, words, number
        x += width + 12


def ticks(values: Sequence[float], unit: str) -> list[float]:
    """Up to six round numbers, from 0 to the highest value or a little more."""
    highest = max(values, default=0)
    if highest <= 0:
        return [0, 1]
    rough = highest / 5
    if unit == "s" and highest > 4:
        step = float(next((step for step in SECONDS_STEPS if step >= rough), SECONDS_STEPS[-1]))
    else:
        ten = 10.0 ** math.floor(math.log10(rough))
        step = next(ten * part for part in (1, 2, 5, 10) if ten * part >= rough)
        if unit == "short" and all(value == int(value) for value in values):
            step = max(step, 1)
    return [step * number for number in range(math.ceil(highest / step - 0.001) + 1)]


def shown(value: float, unit: str) -> str:
    """A value as people read it: 1.5 min, 12 kB/s, 98 %, 340."""
    if unit == "s":
        if value >= 120:
            return f"{value / 60:.3g} min"
        return f"{value:.3g} s" if value >= 1 or not value else f"{value * 1000:.3g} ms"
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    thousands = 0
    while value >= 1000:
        value, thousands = value / 1000, thousands + 1
    return f"{value:.3g} {PREFIXES[thousands]}{UNITS[unit]}".strip()


def _unbroken(points: Sequence[tuple[float, float]]) -> Iterator[list[tuple[float, float]]]:
    """Parts between which points are missing."""
    part = list(points[:1])
    for before, after in pairwise(points):
        if after[0] - before[0] > 1.5 * STEP:
            yield part
            part = []
        part.append(after)
    if part:
        yield part


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    return lambda value: start + (value - low) / (high - low) * (end - start)


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def _text(x: float, y: float, words: str, style: str = "") -> str:
    named = f' class="{style}"' if style else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'
