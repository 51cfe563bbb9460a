"""A plan as an answer."""

import json

import pytest
from hypothesis import given
from pydantic import TypeAdapter
from rich.console import Console

from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.acid.names import DirKind
from compactor.cli.views.plan_view import cost, effect, headline, plan_view
from compactor.planning.document import (
    Action,
    BucketPlan,
    CompactionPlan,
    Cut,
    FileCopy,
    FileJoin,
    FileRole,
    InputFile,
    OutputDir,
    Prediction,
    Segment,
)
from tests.strategies import compaction_plans


def file(path, length, role=FileRole.DELTA):
    directory = path.rsplit("/", 1)[0] if "/" in path else ""
    return InputFile(path, length, 0, role, directory, 0, 1, 9)


@pytest.fixture
def plan():
    segments = (
        Segment(Action.COPY, "base_5/bucket_00000", (0, 1, 2), "nothing hits it", 3_000, 30_000_000),
        Segment(Action.PROBE, "base_5/bucket_00000", (3,), "a delete may hit it", 1_000, 10_000_000, 0),
        Segment(Action.RECODE, "base_5/bucket_00000", (4, 5), "deleted rows", 500, 500_000, 1, 2, Cut.YES),
        Segment(Action.RECODE, "base_5/bucket_00000", (6,), "deleted rows", 250, 250_000, 2, 9, Cut.PERHAPS),
        Segment(Action.RECODE, "delta_6_6/bucket_00000", (0,), "smaller than splice.min_stripe_bytes", 10, 2_000, 3),
    )
    return CompactionPlan(
        entity="db.t/k=1",
        location="/w/db.db/t/k=1",
        requested=CompactionKind.MINOR,
        kind=CompactionKind.MAJOR,
        layout=LayoutVersion.HIVE_4,
        insert_only=False,
        write_ids="db.t:9:9223372036854775807::",
        name_write_id=9,
        min_write_id=1,
        max_write_id=9,
        highest_write_id=9,
        visibility_txn=None,
        columns=(("a", "int"),),
        outputs=(
            OutputDir(
                DirKind.BASE,
                "base_0000009",
                (BucketPlan(0, "bucket_00000", segments, ("delete_delta_7_7/bucket_00000",), 4),),
            ),
        ),
        inputs=(file("base_5/bucket_00000", 40_000_000, FileRole.BASE), file("delta_6_6/bucket_00000", 2_000)),
        prediction=Prediction(42_000_000, 30_000_000, 10_000_000, 252_000, 40_000_000, 3.2, 500_000, 2_000, 2, 1, 8, 7),
        warnings=("a column is unknown",),
    )


@given(compaction_plans())
def test_document_is_the_plan_itself(made):
    """What JSON shows has every field of the plan: it can be read back as the same plan."""
    document = json.loads(json.dumps(plan_view(made).value()))
    assert document.pop("compaction-plan") == 1
    assert TypeAdapter(CompactionPlan).validate_json(json.dumps(document)) == made


def test_totals_per_bucket(plan):
    """One record per output file, with stripes and bytes per verdict."""
    (record,) = plan_view(plan).records
    assert record == {
        "directory": "base_0000009",
        "file": "bucket_00000",
        "copied_stripes": 3,
        "probed_stripes": 1,
        "cut_stripes": 2,
        "recoded_stripes": 2,
        "copied_bytes": 30_000_000,
        "probed_bytes": 10_000_000,
        "cut_bytes": 500_000,
        "recoded_bytes": 252_000,
        "rows": 4_760,
        "delete_events": 4,
    }


def test_picture_names_verdicts_reasons_cost_and_warnings(plan):
    """People see why stripes are copied, probed or recoded, what it costs, and what to beware of."""
    console = Console(width=200, no_color=True)
    with console.capture() as capture:
        console.print(plan_view(plan).picture())
    text = capture.get()
    for said in (
        "nothing hits it",
        "a delete may hit it",
        "splice.min_stripe_bytes",
        "cost: reads 40.1 MiB",
        "warning: a column is unknown",
        "asked for minor",
        "probe: copy or recode",
        "cut            ",
        "cut or recode",
        "effect: readers open 1 file",
    ):
        assert said in text


def test_headline_and_cost_are_sentences(plan):
    """From how much, into what; bytes and processor time; what readers have of it."""
    assert (
        headline(plan)
        == "major compaction (asked for minor) of db.t/k=1: 2 files in 2 directories, 38.1 MiB → base_0000009"
    )
    assert cost(plan) == (
        "reads 40.1 MiB, copies 28.6 MiB as bytes, probes 9.5 MiB, cuts rows out of 488.3 KiB, "
        "recodes 246.1 KiB (2.0 KiB only to join what is small), writes about 38.1 MiB, takes about 3.2 s of processor time"
    )
    assert effect(plan) == "readers open 1 file instead of 2, with about 7 stripes of rows instead of 8"


def test_insert_only_plans_show_files():
    """An insert-only table shows each new file and where it comes from, and why files are joined or carried."""
    join = FileJoin(
        "000001_0",
        "orc",
        (
            Segment(Action.COPY, "delta_1_1/000001_0", (0, 1), "untouched", 5, 50),
            Segment(Action.RECODE, "delta_2_2/000001_0", (0,), "small parts", 2, 7, 0),
        ),
    )
    plan = CompactionPlan(
        "db.t", "/w", CompactionKind.MAJOR, CompactionKind.MAJOR, LayoutVersion.HIVE_4, True, "db.t:2:9223372036854775807::", 2, 1, 2, 2, None, (),
        (OutputDir(DirKind.BASE, "base_0000002", copies=(FileCopy("delta_1_1/000000_0", "000000_0", 12, "full-sized"),), joins=(join,)),), (file("delta_1_1/000000_0", 12),),
        prediction=Prediction(files_before=3, files_after=2, stripes_before=4, stripes_after=3),
    )  # fmt: skip
    assert plan_view(plan).records == [
        {"directory": "base_0000002", "file": "000000_0", "source": "delta_1_1/000000_0", "copied_bytes": 12, "recoded_bytes": 0},
        {"directory": "base_0000002", "file": "000001_0", "source": "2 files", "copied_bytes": 50, "recoded_bytes": 7},
    ]  # fmt: skip
    console = Console(width=120)
    with console.capture() as capture:
        console.print(plan_view(plan).picture())
    shown = capture.get()
    for why in ("untouched", "small parts", "full-sized"):
        assert why in shown
    assert effect(plan) == (
        "readers open 2 files instead of 3: 2 small files of 57 B become 1 file, with about 3 stripes instead of 4"
    )
