"""The case book of the picker: tests/cases/picker.txt."""

from dataclasses import replace

import pytest

from compactor.acid.compaction import CompactionKind, LayoutVersion
from compactor.acid.listing import FileEntry, Listing
from compactor.acid.names import base_name, delete_delta_name, delta_name
from compactor.acid.snapshot import AcidState, resolve
from compactor.acid.write_ids import CompactorWriteIdList, ValidTxnList, ValidWriteIdList
from compactor.errors import UsageError
from compactor.planning.included import included
from compactor.planning.picker import Pick, PickInput, Skip, auto_compaction_off, pick, thresholds_for
from compactor.reasons import Reason
from compactor.roles.initiator.rules import thresholds_from
from compactor.settings import ThresholdSettings
from tests.casebook import Case, cases, check, listing

BOOK = "picker.txt"
HOUR_MS = 3_600_000


def numbers(options: dict[str, str], key: str) -> tuple[int, ...]:
    """A comma-separated option."""
    return tuple(int(i) for i in options.get(key, "").split(",") if i)


def parameters(options: dict[str, str], owner: str) -> dict[str, str]:
    """Properties of the table or the database."""
    return {k.removeprefix(f"{owner}."): v for k, v in options.items() if k.startswith(f"{owner}.")}


def hours(options: dict[str, str], key: str) -> int | None:
    """An age in milliseconds."""
    return round(float(options[key]) * HOUR_MS) if key in options else None


def facts(options: dict[str, str], found: Listing, txns: ValidTxnList) -> PickInput:
    """What the picker is given for a listing."""
    layout = LayoutVersion(options.get("layout", "hive-4"))
    reader = ValidWriteIdList("db.t", int(options["hwm"]), numbers(options, "open"), numbers(options, "aborted"))
    state = resolve(
        found, CompactorWriteIdList.from_reader(reader), txns if layout is LayoutVersion.HIVE_4 else None, layout
    )
    defaults = thresholds_from(ThresholdSettings())
    defaults = replace(
        defaults,
        delta_count=int(options.get("count", defaults.delta_count)),
        delta_ratio=float(options.get("ratio", defaults.delta_ratio)),
        aborted_count=int(options.get("aborts", defaults.aborted_count)),
        aborted_age_ms=int(options.get("age", 12)) * HOUR_MS,
    )
    return PickInput(
        state=state,
        insert_only="insert_only" in options,
        layout=layout,
        thresholds=thresholds_for(defaults, parameters(options, "table"), parameters(options, "database")),
        aborted_count=int(options.get("aborted_rows", 0)),
        oldest_abort_age_ms=hours(options, "abort_age"),
        ready_for_cleaning_hwm=int(options["ready"]) if "ready" in options else None,
        oldest_open_age_ms=hours(options, "open_age"),
        cleanup_off="no_cleanup" in options,
    )


def published(found: Listing, state: AcidState, decision: Pick, layout: LayoutVersion, txn: int) -> tuple[Listing, int]:
    """The listing with the result beside what it replaces, and the high watermark that is ready for cleaning then."""
    deltas = included(state)
    bases = [0 if state.base is None else max(0, state.base.acid.max_write_id)]
    highest = max([*bases, *(d.acid.max_write_id for d in deltas)])
    if decision.reason is Reason.SEVERAL_BASES:
        return found, highest
    suffix = txn if layout is LayoutVersion.HIVE_4 else 0
    if decision.kind is CompactionKind.MAJOR:
        names = [base_name(highest, suffix)]
    else:
        low = min(d.acid.min_write_id for d in deltas)
        writers = {"delta": delta_name, "delete-delta": delete_delta_name}
        names = sorted({writers[d.acid.kind](low, highest, None, suffix) for d in deltas})
    files = tuple(FileEntry(f"{n}/bucket_00000", 1 << 20) for n in names)
    formats = tuple((n, "compacted") for n in names if n.startswith("base_"))
    return Listing(found.files + files, found.directories + tuple(names), found.formats + formats), highest


def outcome(case: Case) -> list[str]:
    """The decision, and the one after the picked compaction."""
    options = case.options
    layout = LayoutVersion(options.get("layout", "hive-4"))
    if auto_compaction_off(parameters(options, "table"), parameters(options, "database"), layout):
        return ["off"]
    txns = ValidTxnList(int(options.get("txns", 50)), numbers(options, "txns_open"), numbers(options, "txns_aborted"))
    found = listing(case.entries)
    try:
        given = facts(options, found, txns)
    except UsageError as error:
        return [f"error {error}"]
    decision = pick(given)
    if isinstance(decision, Skip):
        return said("skip", decision)
    later, highest = published(found, given.state, decision, layout, txns.high_watermark + 1)
    options = {**options, "ready": str(max(highest, given.ready_for_cleaning_hwm or 0))}
    after = pick(facts(options, later, replace(txns, high_watermark=txns.high_watermark + 1)))
    assert isinstance(after, Skip), after
    return [*said(decision.kind, decision), f"then  {after.reason}"]


def said(verb: str, decision: Pick | Skip) -> list[str]:
    """A decision as lines."""
    return [
        f"{verb} {decision.reason}",
        f"      {decision.explanation}",
        *(f"finding {sentence}" for sentence in decision.findings),
    ]


@cases(BOOK)
def test_case(case: Case, request: pytest.FixtureRequest) -> None:
    """Every layout of the book is decided as the book says, and never twice."""
    check(BOOK, case, outcome, rewrite=request.config.getoption("--rewrite"))
