"""
Draws docs/images/beside-hive.svg from benchmarks/results.json: seconds of each compaction by Hive's worker and by ours.

    python -m docs.pictures.beside_hive
"""

import json
from html import escape
from pathlib import Path
from typing import Any

from docs.pictures.chart import COLOURS, STYLE, WIDTH

PROJECT = Path(__file__).resolve().parents[2]
RESULTS = PROJECT / "benchmarks" / "results.json"
IMAGE = PROJECT / "docs" / "images" / "beside-hive.svg"
TITLE = "Seconds from the claim to the commit, Hive 4.0.1 and compactor"
CASES = {
    "untouched_first": "nothing hit, first",
    "untouched_next": "nothing hit, next",
    "range_first": "100 rows deleted, first",
    "range_next": "100 rows deleted, next",
    "every_stripe": "every stripe hit",
    "minor_4": "minor, 4 deltas",
    "minor_200": "minor, 200 deltas",
}
LEFT, RIGHT, TOP, ROW, BAR = 190, 150, 62, 48, 15
SIDES = (("Hive", COLOURS[3]), ("ours", COLOURS[0]))


def picture(measured: dict[str, dict[str, dict[str, float]]]) -> str:
    """The SVG; `measured` has the figures of both sides of each case."""
    longest = max(sides[name]["commit"] for sides in measured.values() for name, _ in SIDES)
    height = TOP + ROW * len(measured)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(TITLE)}</title><style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#111217"/>',
        f'<text class="row" x="12" y="24">{escape(TITLE)}</text>',
    ]
    for number, (name, colour) in enumerate(SIDES):
        words = {"Hive": "Hive's own worker", "ours": "compactor"}[name]
        parts.append(f'<rect x="{LEFT + 140 * number}" y="38" width="12" height="8" rx="1" fill="{colour}"/>')
        parts.append(f'<text x="{LEFT + 140 * number + 18}" y="46">{words}</text>')
    for number, (case, sides) in enumerate(measured.items()):
        top = TOP + ROW * number
        parts.append(f'<text class="title right" x="{LEFT - 12}" y="{top + 20}">{escape(CASES[case])}</text>')
        for below, (name, colour) in enumerate(SIDES):
            took, y = sides[name]["commit"], top + 2 + (BAR + 2) * below
            width = max(1.0, took / longest * (WIDTH - LEFT - RIGHT))
            times = f", {sides['Hive']['commit'] / took:.1f} ×" if name == "ours" else ""
            parts.append(f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2" fill="{colour}"/>')
            parts.append(f'<text x="{LEFT + width + 8:.1f}" y="{y + 12}">{took:.2f} s{times}</text>')
    return "\n".join([*parts, "</svg>\n"])


def draw() -> None:
    """Draw what `make bench-hive` measured last."""
    entries: list[dict[str, Any]] = json.loads(RESULTS.read_text(encoding="utf-8"))
    found = {entry["name"]: entry["sides"] for entry in entries if "sides" in entry}
    measured = {case: found[f"beside_hive/{case}/commit"] for case in CASES}
    IMAGE.write_text(picture(measured), encoding="utf-8")


if __name__ == "__main__":
    draw()
