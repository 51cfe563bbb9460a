"""The case book of snapshot resolution: tests/cases/snapshot.txt."""

import pytest

from compactor.acid.compaction import LayoutVersion
from compactor.acid.snapshot import AcidState, resolve
from compactor.acid.write_ids import CleanerWriteIdList, CompactorWriteIdList, ValidTxnList, ValidWriteIdList
from compactor.errors import RefusedError
from tests.casebook import Case, cases, check, listing

BOOK = "snapshot.txt"


def ids(options: dict[str, str], key: str) -> tuple[int, ...]:
    """A comma-separated option."""
    return tuple(int(i) for i in options.get(key, "").split(",") if i)


def valid_list(verb: str, options: dict[str, str]) -> ValidWriteIdList:
    """The write-id list that a case's first line describes."""
    reader = ValidWriteIdList("db.t", int(options["hwm"]), ids(options, "open"), ids(options, "aborted"))
    if verb == "compactor":
        return CompactorWriteIdList.from_reader(reader)
    return CleanerWriteIdList.from_reader(reader, int(options["cap"])) if verb == "cleaner" else reader


def txn_list(options: dict[str, str]) -> ValidTxnList | None:
    """The transaction list of a case; without one, nothing may have a visibility suffix."""
    return (
        ValidTxnList(int(options["txns"]), ids(options, "txns_open"), ids(options, "txns_aborted"))
        if "txns" in options
        else None
    )


def outcome(case: Case) -> list[str]:
    """What the resolution says, one line a group."""
    layout = LayoutVersion(case.options.get("layout", "hive-4"))
    try:
        state = resolve(
            listing(case.entries),
            valid_list(case.verb, case.options),
            txn_list(case.options),
            layout,
            with_originals=case.options.get("originals") != "left",
        )
    except RefusedError as error:
        return [f"refused    {error.reason}: {error.message}"]
    return list(described(state))


def described(state: AcidState) -> list[str]:
    """A state as lines; groups that are empty are left out."""
    groups = {
        "base": [] if state.base is None else [state.base.name],
        "deltas": [d.name for d in state.deltas],
        "originals": [f.path for f in state.originals],
        "obsolete": [d.name for d in state.obsolete] + [f.path for f in state.obsolete_originals],
        "left": [f.path for f in state.left_originals],
        "aborted": [d.name for d in state.aborted],
        "abort ids": [str(i) for i in sorted(state.aborted_write_ids)],
        "mixed ids": [str(i) for i in sorted(state.mixed_aborted_write_ids)],
        "unknown": list(state.unknown),
        "hidden": list(state.hidden),
    }
    lines = [f"{group:10} {' '.join(names)}" for group, names in groups.items() if names]
    return lines + [f"{'left out':10} {e.dir.name}  ({e.reason})" for e in state.excluded]


@cases(BOOK)
def test_case(case: Case, request: pytest.FixtureRequest) -> None:
    """Every layout of the book is resolved as the book says."""
    check(BOOK, case, outcome, rewrite=request.config.getoption("--rewrite"))
