"""The case book of stripes: tests/cases/stripes.txt."""

import re
import shlex

import pytest

from compactor.acid.row_id import Hit, RowKey
from compactor.planning.document import Cut, FileRole, FormatSpec, InputFile
from compactor.planning.facts import FileFacts, StripeFacts
from compactor.planning.segments import SegmentSource, Sizes, segments
from tests.casebook import Case, cases, check

BOOK = "stripes.txt"
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}
BUCKET = 536870912
CUTS = {Cut.NO: "", Cut.PERHAPS: " [perhaps cut]", Cut.YES: " [cut]"}


def size(text):
    """`64M` in bytes."""
    found = re.fullmatch(r"(\d+)([KM]?)", text)
    return int(found[1]) * UNITS[found[2]]


def stripe(number, text):
    """A stripe from its drawing."""
    span, length, *flags = text.split("/")
    write_id, first, last = map(int, re.fullmatch(r"(\d+):(\d+)-(\d+)", span).groups())
    ids = next(
        (tuple(map(int, flag[4:].split("-"))) for flag in flags if flag.startswith("ids=")), (write_id, write_id)
    )
    rows = last - first + 1
    if "nostats" in flags:
        return StripeFacts(number, rows, size(length))
    exact = "nolast" not in flags
    hit = Hit.CERTAIN if "hit" in flags else Hit.POSSIBLE if "maybe" in flags else Hit.NONE
    bounds = (RowKey(ids[0], BUCKET, first), RowKey(ids[1], BUCKET, last))
    values = next((size(flag[2:]) for flag in flags if flag.startswith("v=")), 0)
    events = next((int(flag[2:]) for flag in flags if flag.startswith("d=")), 0)
    removable = next((tuple(map(int, flag[4:].split("-"))) for flag in flags if flag.startswith("cut=")), (0, 0))
    buckets = (BUCKET, BUCKET + (1 << 16)) if "buckets" in flags else (BUCKET, BUCKET)
    return StripeFacts(
        number, rows, size(length), *bounds, exact, ids, buckets, ids, (0, 0), hit, events, values, removable
    )


def source(line, aborted):
    """A file from its line."""
    name, *words = shlex.split(line)
    stripes = tuple(
        stripe(number, word)
        for number, word in enumerate(
            word for word in words if ":" in word and "/" in word and not word.startswith("no=")
        )
    )
    reason = next((word[3:] for word in words if word.startswith("no=")), None)
    ids = [int(part) for part in re.findall(r"\d+", name)] if "_" in name and not name[0].isdigit() else [0, 0]
    low, high = (0, ids[0]) if name.startswith("base") else (ids[0], ids[-1])
    role = (
        FileRole.BASE if name.startswith("base") else FileRole.DELTA if name.startswith("delta") else FileRole.ORIGINAL
    )
    file = InputFile(name, 0, 0, role, name, 0, low, high, raw="plain" in words)
    facts = FileFacts(name, sum(item.rows for item in stripes), "plain" not in words, stripes, not_copyable=reason)
    return SegmentSource(file, facts, aborted if "stream" in words else ())


def outcome(case: Case) -> list[str]:
    options = case.options
    aborted = tuple(int(i) for i in options.get("aborted", "").split(",") if i)
    sizes = Sizes(size(options["min"]), size(options["chunk"]), int(options.get("events", "1000000")))
    output = FormatSpec(stripe_rows=int(options["rows"])) if "rows" in options else FormatSpec()
    laid = segments([source(line, aborted) for line in case.entries], sizes, output)
    return [
        f"{segment.action:7} {'-' if segment.chunk < 0 else segment.chunk} {segment.path:10} {','.join(map(str, segment.stripes)):8} {segment.reason}{CUTS[segment.cut]}"
        for segment in laid
    ]


@cases(BOOK)
def test_case(case: Case, request: pytest.FixtureRequest) -> None:
    """Every stripe of the book gets the verdict that the book says."""
    check(BOOK, case, outcome, rewrite=request.config.getoption("--rewrite"))
