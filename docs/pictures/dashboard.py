"""
What the dashboard's panels show: read from deploy/grafana/compactor.json, asked of a Prometheus as Grafana does.

Knows the JSON and Prometheus' query_range; no query or title stands here.
"""

import json
import math
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.deploy.monitoring import concrete

SOURCE = Path(__file__).resolve().parents[2] / "deploy" / "grafana" / "compactor.json"
STEP = 5
"""Seconds between two points."""


@dataclass(frozen=True, slots=True)
class Panel:
    """
    One panel.

    Args:
        kind: `stat` or `timeseries`.
        unit: as Grafana names it: short, s, Bps, percentunit.
        x, y, width, height: its place, in Grafana's grid of 24 columns.
        targets: queries, each with its legend.
    """

    title: str
    kind: str
    unit: str
    x: int
    y: int
    width: int
    height: int
    targets: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a panel: (second, value) pairs in order."""

    name: str
    points: tuple[tuple[float, float], ...]


def rows() -> Iterator[tuple[str, list[Panel]]]:
    """The dashboard's rows with their panels; those above the first row come with it."""
    title, panels = "", list[Panel]()
    for panel in json.loads(SOURCE.read_text(encoding="utf-8"))["panels"]:
        if panel["type"] == "row":
            if title:
                yield title, panels
                panels = []
            title = panel["title"]
        else:
            panels.append(_panel(panel))
    yield title, panels


def image(folder: Path, title: str) -> Path:
    """The file of a row's picture."""
    return folder / f"dashboard-{title.lower().replace(' ', '-')}.svg"


def _panel(panel: Mapping[str, Any]) -> Panel:
    place = panel["gridPos"]
    return Panel(
        panel["title"],
        panel["type"],
        panel["fieldConfig"]["defaults"]["unit"],
        place["x"],
        place["y"],
        place["w"],
        place["h"],
        tuple((target["expr"], target.get("legendFormat", "")) for target in panel["targets"]),
    )


def answers(address: str, begin: float, end: float) -> dict[str, list[Any]]:
    """What Prometheus answers to each query of the dashboard for this time, as it came."""
    queries = {query for _, panels in rows() for panel in panels for query, _ in panel.targets}
    return {query: _ask(address, query, begin, end) for query in sorted(queries)}


def _ask(address: str, query: str, begin: float, end: float) -> list[Any]:
    words = urllib.parse.urlencode({"query": concrete(query), "start": begin, "end": end, "step": STEP})
    with urllib.request.urlopen(f"{address}/api/v1/query_range?{words}", timeout=30) as answer:  # noqa: S310 - our own Prometheus
        found: list[Any] = json.load(answer)["data"]["result"]
    return found


def series_of(panel: Panel, asked: Mapping[str, list[Any]], begin: float) -> list[Series]:
    """A panel's lines, in seconds since `begin`; what is no number is left out."""
    found = []
    for query, legend in panel.targets:
        for result in asked[query]:
            points = ((float(at) - begin, float(value)) for at, value in result["values"])
            name = _named(legend, result["metric"])
            found.append(Series(name, tuple(point for point in points if math.isfinite(point[1]))))
    return sorted(found, key=lambda one: one.name) if len(panel.targets) == 1 else found


def _named(legend: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{(\w+)}}", lambda label: labels.get(label[1], ""), legend).strip()
