"""The case book of what may be cleaned, and what holds it back: tests/cases/may_clean.txt."""

from dataclasses import replace

from compactor.acid.compaction import CompactionKind
from compactor.metastore.clean.may_clean import Environment, Readers, ReadyEntry, may_clean
from compactor.metastore.model import Entity, HeldLock, OpenTransaction, QueueEntry, QueueState
from compactor.metastore.txn.snapshot import Snapshot
from compactor.planning.observed import NOTHING
from tests.casebook import Case, cases, check

BOOK = "may_clean.txt"


def answers(case: Case) -> list[str]:
    """What may be cleaned at each moment of a case."""
    found, remembered = [], {}
    moments = moments_of(case)
    for first, lines in moments:
        environment = environment_of(case.verb, first, lines)
        judged, remembered = may_clean(environment, remembered)
        if len(moments) > 1:
            found.append(f"at {environment.now_ms // 1000}")
        found += [line for item in judged for line in shown(item)]
    return found


def moments_of(case: Case) -> list[tuple[list[str], list[list[str]]]]:
    """The first line of each moment, and its entries: `then` begins another."""
    moments = [(case.look.split()[1:], [])]
    for line in case.entries:
        words = line.split()
        if words[0] == "then":
            moments.append((words[1:], []))
        else:
            moments[-1][1].append(words)
    return moments


def environment_of(generation: str, first: list[str], lines: list[list[str]]) -> Environment:
    """One moment."""
    said = dict(word.partition("=")[::2] for word in first)
    of = {verb: [words for words in lines if words[0] == verb] for verb in VERBS}
    assert sum(map(len, of.values())) == len(lines), lines
    at, newest = int(said["at"]) * 1000, int(said["newest"])
    opened = tuple(sorted((transaction(words, at) for words in of["open"]), key=lambda one: one.txn_id))
    gaps = [int(words[1]) for words in of["opening"]]
    writing = sorted([*(one.txn_id for one in opened if not one.read_only), *gaps])
    settled = int(said.get("settled", min([one.txn_id for one in opened] + gaps, default=newest + 1)))
    locks: dict[Entity, list[HeldLock]] = {}
    for words in of["lock"]:
        lock = held(words)
        locks.setdefault(Entity(lock.database, lock.table), []).append(lock)
    options = {words[1]: options_of(words) for words in of["open"]}
    readers = Readers(
        Snapshot(
            newest,
            tuple(writing),
            tuple(one.txn_id for one in opened if one.read_only),
            tuple(sorted(int(words[1]) for words in of["aborted"])),
            len(gaps),
        ),
        settled,
        opened,
        {table: tuple(those) for table, those in locks.items()},
        {int(txn): int(given["saw"]) for txn, given in options.items() if "saw" in given},
        {
            int(txn): frozenset(map(entity, given["reads"].split(",")))
            for txn, given in options.items()
            if "reads" in given
        },
    )
    return Environment(
        [ready(words) for words in of["ready"]],
        readers,
        at,
        generation == "hive-4",
        listed={int(words[1]): NOTHING if words[2:] != ["failed"] else None for words in of["listed"]},
        lists="shows" not in said,
        retention_ms=int(said.get("retention", 0)) * 1000,
        listing_wait_ms=int(said.get("wait", 0)) * 1000,
    )


VERBS = ("ready", "open", "opening", "aborted", "lock", "listed")


def options_of(words: list[str]) -> dict[str, str]:
    """`key=value` words behind the first two."""
    return dict(word.partition("=")[::2] for word in words[2:])


def entity(name: str) -> Entity:
    """`db.table` or `db.table/partition`."""
    place, _, partition = name.partition("/")
    return Entity(*place.split("."), partition or None)


def ready(words: list[str]) -> tuple[QueueEntry, str | None]:
    """`ready <id> <place> covers=… txn=<n>:<state> next=… committed=…`."""
    given = dict(word.partition("=")[::2] for word in words[3:])
    txn, _, state = given.get("txn", "").partition(":")
    entry = QueueEntry(
        id=int(words[1]),
        entity=entity(words[2]),
        kind=CompactionKind(given.get("kind", "major")),
        state=QueueState.READY_FOR_CLEANING,
        highest_write_id=int(given["covers"]) if "covers" in given else None,
        txn_id=int(txn) if txn else None,
        next_txn_id=int(given["next"]) if "next" in given else None,
        commit_ms=int(given["committed"]) * 1000 if "committed" in given else None,
    )
    more = {"properties": {"location": given["removes"]}} if "removes" in given else {}
    more |= {"retry_retention_ms": int(given["retry"]) * 1000} if "retry" in given else {}
    return replace(entry, **more), state or None


def transaction(words: list[str], at: int) -> OpenTransaction:
    """`open <txn> [read-only] [since=…]`."""
    given = options_of(words)
    since = int(given.get("since", at // 1000)) * 1000
    return OpenTransaction(int(words[1]), "ann", "edge1", since, since, at - since, "read-only" in given)


def held(words: list[str]) -> HeldLock:
    """`lock <id> <place> [txn=…]`."""
    place = entity(words[2])
    txn = int(options_of(words[1:]).get("txn", 0))
    return HeldLock(int(words[1]), 1, txn, place.database, place.table, place.partition, "a", "r", "ann", "edge1", 0)


def shown(item: ReadyEntry) -> list[str]:
    """Lines of the book."""
    if item.blockers:
        return [f"{item.entry.id}: {blocker.reason.value}: {blocker.sentence}" for blocker in item.blockers]
    unlocked = ", as long as there is no lock" if item.unlisted else ""
    if item.txns is None:
        seen = "what lay there when it was observed" if item.seen is not None else "nothing: it wasn't listed"
        return [f"{item.entry.id}: may go: {seen}{unlocked}"]
    hidden = "".join(f", without {txn}" for txn in sorted({*item.txns.open, *item.txns.aborted}))
    return [f"{item.entry.id}: may go: what transactions to {item.txns.high_watermark} replaced{hidden}{unlocked}"]


@cases(BOOK)
def test_book(case: Case, request):
    """What the book says."""
    check(BOOK, case, answers, rewrite=request.config.getoption("--rewrite"))


def test_the_same_holder_is_the_same_at_every_moment():
    """Its sentence tells an age, or how much longer it holds; another transaction, lock or entry is another holder."""

    def holders(at: int, *lines: str) -> dict[object, str]:
        entries = ["ready 2 db.t covers=6 txn=9:c next=10 committed=90", *lines]
        first = [f"at={at}", "newest=20", "retention=60"]
        environment = environment_of("hive-4", first, [line.split() for line in entries])
        item = may_clean(environment, {})[0][0]
        return {blocker.what: blocker.sentence for blocker in item.blockers}

    lines = ("ready 1 db.t covers=5 txn=8:c next=9 committed=80", "open 7 since=40", "lock 3 db.t")
    now, later = holders(100, *lines), holders(110, *lines)
    assert now.keys() == later.keys()
    assert sum(now[holder] != later[holder] for holder in now) == 2
    others = [holders(100, *(line.replace(old, new) for line in lines)) for old, new in (("1 db", "0 db"), ("7", "6"))]
    assert [len(now.keys() - other.keys()) for other in [*others, holders(100, *lines[:2], "lock 4 db.t")]] == [1] * 3
