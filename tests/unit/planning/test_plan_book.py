"""The case book of inputs and names: tests/cases/plan.txt."""

import pytest

from compactor.acid.columns import ColumnRule
from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.acid.names import DirKind
from compactor.acid.snapshot import resolve
from compactor.acid.write_ids import CompactorWriteIdList, ValidTxnList, ValidWriteIdList
from compactor.errors import RefusedError
from compactor.planning.facts import TableSpec
from compactor.planning.insert_only.joins import JoinSizes
from compactor.planning.parts import PartLimits
from compactor.planning.plan import plan_whole_files
from compactor.planning.select import Selection, select
from compactor.reasons import Reason
from tests.casebook import Case, cases, check, listing, size_of

BOOK = "plan.txt"


def numbers(options, key):
    return tuple(int(i) for i in options.get(key, "").split(",") if i)


def outcome(case: Case) -> list[str]:
    """What is chosen, one line a group."""
    options = case.options
    layout = LayoutVersion(options.get("layout", "hive-4"))
    reader = ValidWriteIdList("db.t", int(options["hwm"]), numbers(options, "open"), numbers(options, "aborted"))
    write_ids = CompactorWriteIdList.from_reader(reader)
    txn = int(options["txn"]) if "txn" in options else None
    txns = None
    if txn is not None:
        txns = ValidTxnList(
            int(options["txns"]), tuple({*numbers(options, "txns_open"), txn}), numbers(options, "txns_aborted")
        )
    spec = TableSpec(
        "db.t",
        (("a", "int"),),
        ColumnRule.NAME,
        "insert-only" in options,
        "plain" not in options,
        "sorted" in options,
        int(options.get("buckets", "0")),
    )
    try:
        state = resolve(listing(case.entries), write_ids, txns, layout)
        room = size_of(options["room"]) if "room" in options else None
        limits = PartLimits(int(options.get("deltas", "1000")), room, "the file system", Reason.DISK_FULL)
        chosen = select(
            state,
            spec,
            CompactionKind(case.verb),
            layout,
            write_ids,
            txn,
            prefer_major="prefer-major" in options,
            limits=limits,
        )
    except RefusedError as error:
        return [f"refused    {error.reason}: {error.message}"]
    return described(chosen)


def described(chosen: Selection) -> list[str]:
    """A selection as lines; groups that are empty are left out."""
    kinds = (
        [DirKind.BASE]
        if chosen.major
        else [DirKind.DELTA] * bool(chosen.inserts or chosen.files) + [DirKind.DELETE_DELTA] * bool(chosen.deletes)
    )
    groups = {
        "kind": [chosen.kind] if chosen.kind is not chosen.requested else [],
        "result": [chosen.output_name(kind) for kind in kinds],
        "highest": [str(chosen.highest_write_id)],
        "rows": [file.path + ("*" if file.raw else "") for file in chosen.inserts],
        "deletes": [file.path for file in chosen.deletes],
        "aborted": [str(i) for i in chosen.aborted],
        "by row": sorted(
            {file.directory for file in chosen.inserts + chosen.deletes if file.may_hold_aborted and chosen.aborted}
        ),
        "warning": list(chosen.warnings),
    }
    lines = [f"{group:10} {' '.join(names)}" for group, names in groups.items() if names]
    if chosen.files:
        plan = plan_whole_files(chosen, "/t", {}, JoinSizes(file=256 << 20, part=64 << 20, min_part=8 << 20))
        lines += [f"{'file':10} {copy.path} -> {copy.name}" for output in plan.outputs for copy in output.copies]
    return lines


@cases(BOOK)
def test_case(case: Case, request: pytest.FixtureRequest) -> None:
    """Every layout of the book gives the inputs and names that the book says."""
    check(BOOK, case, outcome, rewrite=request.config.getoption("--rewrite"))
