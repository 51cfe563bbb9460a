"""The case book of what may be published beside other compactions: tests/cases/rivals.txt."""

import pytest
from hypothesis import given

from compactor.acid.compaction import LayoutVersion
from compactor.acid.names import parse_dir
from compactor.acid.write_ids import ValidTxnList
from compactor.metastore.model import Entity
from compactor.metastore.partition_names import FoldedEntity, folded_entity
from compactor.planning.rivals import Rival, are_read_together, beside, hindrance
from tests.casebook import Case, cases, check
from tests.strategies import result_names, rivals, transaction_lists

BOOK = "rivals.txt"


def place(word: str) -> FoldedEntity:
    """Of `db.table` or `db.table/partition`."""
    name, _, partition = word.partition("/")
    database, _, table = name.partition(".")
    return folded_entity(Entity(database, table, partition or None))


def lists(options: dict[str, str]) -> ValidTxnList:
    """The transactions that a compaction saw."""
    open_, aborted = (
        tuple(map(int, options.get(word, "").split(",") if word in options else ())) for word in ("open", "aborted")
    )
    return ValidTxnList(int(options["hwm"]), open_, aborted)


def rival(line: str) -> Rival:
    """Another compaction, from the words of one entry."""
    kind, number, where, *words = line.split()
    options = dict(word.split("=", 1) for word in words if "=" in word)
    bare = {word for word in words if "=" not in word}
    known = {"working", "ready", "o", "a", "c", "forgotten"} if kind == "entry" else set()
    assert kind in {"entry", "open"}, line
    assert bare <= known, line
    assert options.keys() <= {"by", "txn", "highest"}, line
    worker = options.get("by", "")
    who = (worker or None, worker == "ours")
    if kind == "open":
        return Rival(place(where), None, False, *who, int(number), "o")
    txn_id = int(options["txn"]) if options.get("txn") else None
    state = words[-1] if words[-1] in {"o", "a", "c"} else None
    highest = int(options.get("highest", 0))
    return Rival(place(where), int(number), "working" in words, *who, txn_id, state, highest)


def outcome(case: Case) -> list[str]:
    """Whether the compaction may publish, or what each directory means for its result."""
    if case.verb.startswith("hive-"):
        seen = lists(case.options) if case.verb == "hive-4" else None
        name = int(case.options["name"]) if "name" in case.options else None
        return [hindrance(place(case.look.split()[1]), map(rival, case.entries), seen, name) or "may publish"]
    seen = lists(case.options) if case.verb == "result" else None
    layout = LayoutVersion.HIVE_3 if seen is None else LayoutVersion.HIVE_4
    known = case.options.get("known", "").split(",")
    result = parse_dir(case.look.split()[1], layout)
    assert result is not None
    told = []
    for line in case.entries:
        other = parse_dir(line.strip().rstrip("/"), layout)
        assert other is not None
        told.append(f"{other.name}: {beside(result, other, known, seen).value}")
    return told


@cases(BOOK)
def test_case(case: Case, request: pytest.FixtureRequest) -> None:
    """Whether a compaction may publish, and what hinders it, as the book says."""
    check(BOOK, case, outcome, rewrite=request.config.getoption("--rewrite"))


@given(rivals(), transaction_lists())
def test_a_second_result_is_never_published_unseen(other, seen):
    """What was committed after the lists, or may be by a worker of Hive's, hinders; what they show, and ours, don't."""
    by_hive = (other.working or other.entry_id is None) and not other.ours
    ended = other.entry_id is not None and not other.working and other.txn_id is not None
    unseen = ended and not seen.is_valid(other.txn_id) and not seen.is_aborted(other.txn_id)
    hinders = hindrance(other.place, [other], seen) is not None
    assert hinders == (by_hive or (unseen and other.txn_state != "a"))
    assert hindrance(("another.table", None), [other], seen) is None


@given(result_names(), result_names())
def test_which_results_are_read_together(mine, other):
    """
    Whichever of the two is asked for; and readers take one of two of which one has all write ids of the other, unless
    both are equal.
    """
    one, two = (parse_dir(name, LayoutVersion.HIVE_4) for name in (mine, other))
    ids = [set(range(-1 if each.is_base else each.min_write_id, each.max_write_id + 1)) for each in (one, two)]
    across = bool(ids[0] & ids[1]) and not (ids[0] <= ids[1] or ids[1] <= ids[0])
    equal = ids[0] == ids[1] and one.kind is two.kind
    assert are_read_together(one, two) is are_read_together(two, one) is (across or equal)
