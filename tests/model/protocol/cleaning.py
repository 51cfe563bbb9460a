"""
The Cleaner: when an entry may be cleaned, what goes then, and which aborted writes are forgotten.

Source: docs/metastore.md (Who may still be reading, Forgetting), `compactor.metastore.clean`,
`compactor.roles.cleaner`.
"""

from collections.abc import Iterator

from tests.model.protocol.reading import lists_now, resolve
from tests.model.protocol.scene import Scene
from tests.model.protocol.values import Action, Directory, Entry, Lists, Sight, State, Txn, bit
from tests.model.protocol.working import AT_WORK

Moves = Iterator[tuple[Action, State]]


def cleaners(scene: Scene, state: State) -> Moves:
    """Observe (Hive 3.1) or clean an entry; sweep aborted writes."""
    for entry in state.entries:
        if entry.state == "ready":
            if scene.hive == 3 and entry.sight is None:
                sight = Sight(state.next_txn - 1, state.directories)
                yield Action("observe", (entry.id,)), state.put_entry(entry._replace(sight=sight))
            elif (lists := may_be_cleaned(scene, state, entry)) is not None:
                yield _cleaned(scene, state, entry, lists)
            if scene.hives_cleaner and entry.sight is not None and not _read_since(state, entry.sight):
                yield _cleaned_by_hive(state, entry)
    if scene.sweeps:
        yield from _sweeps(scene, state)


def may_be_cleaned(scene: Scene, state: State, entry: Entry) -> Lists | None:
    """The lists under which an entry is cleaned now; None: it waits."""
    alike = [other for other in state.entries if other.place == entry.place and other.state == "ready"]
    if any((other.covered, other.id) < (entry.covered, entry.id) for other in alike):
        return None
    opened = state.open_txns()
    if scene.hive == 4:
        limit = entry.next - scene.lacks("strictly-below")
        if any(number <= limit for number in opened):
            return None
        lists = lists_now(state, entry.next)
        later = [other.txn for other in alike if other.next > entry.next and not scene.lacks("later-results")]
        hidden = tuple(sorted({*lists.txns_open, *later}))
        return lists._replace(high=min(lists.high, entry.covered), txns_open=hidden)
    if not scene.lacks("at-work") and any(
        other.place == entry.place and other.state in AT_WORK for other in state.entries
    ):
        return None
    if any(number <= _observed(scene, state, entry, alike) for number in opened):
        return None
    lists = lists_now(state)
    return lists._replace(high=min(lists.high, entry.covered))


def _observed(scene: Scene, state: State, entry: Entry, alike: list[Entry]) -> int:
    """
    The last transaction that must have ended before an entry of Hive 3.1 is cleaned.

    Without the listing of the first observation, those of later entries count as well, unless their results lie above
    what this one covers, by what the queue and the commits tell.
    """
    assert entry.sight is not None
    if not scene.lacks("seen-after-death"):
        return entry.sight.txn_high
    unfinished = {txn.write_id for txn in state.txns}
    newest = max((number for number in range(1, state.next_write_id) if number not in unfinished), default=0)
    within = [
        other.sight
        for other in alike
        if other.id == entry.id or (other.id > entry.id and min(other.covered, newest) <= entry.covered)
    ]
    return max(state.next_txn if sight is None else sight.txn_high for sight in within)


def _cleaned(scene: Scene, state: State, entry: Entry, lists: Lists) -> tuple[Action, State]:
    there = state.directories
    if entry.sight is not None and not scene.lacks("seen-after-death"):
        there &= entry.sight.directories  # only what was visible then makes anything obsolete
    found = resolve(there, entry.place, lists, whole_ranges=True)
    gone = {*found.obsolete, *found.aborted}
    after = state._replace(directories=state.directories - gone).without_entry(entry.id)
    after = _forgotten(scene, after, lists_now(state), up_to=entry.covered, place=entry.place)
    return Action("clean", (entry.id, tuple(sorted(gone)))), after


def _read_since(state: State, sight: Sight) -> bool:
    """Whether a lock is left of those that Hive 3.1's Cleaner found when it first saw the entry."""
    return any(reader.txn <= sight.txn_high for reader in state.readers)


def _cleaned_by_hive(state: State, entry: Entry) -> tuple[Action, State]:
    """Hive 3.1's Cleaner takes every write id up to the covered one for committed, and forgets those that aren't."""
    lists = Lists(state.next_txn - 1, (), (), entry.covered, 0, 0)
    found = resolve(state.directories, entry.place, lists, whole_ranges=True)
    after = state._replace(directories=state.directories - {*found.obsolete}).without_entry(entry.id)
    for txn in state.txns:
        if txn.state == "aborted" and txn.write_id <= entry.covered:
            after = after.put_txn(txn._replace(noted=False))
    return Action("hive-clean", (entry.id, tuple(sorted(found.obsolete)))), after


def _sweeps(scene: Scene, state: State) -> Moves:
    """All places of the table, below its first open writer, without regard to readers."""
    undone = [txn for txn in state.txns if txn.state == "aborted" and txn.noted]
    if not undone:
        return
    first = min(
        (txn.id for txn in state.txns if txn.state == "open" and txn.kind != "compaction"), default=state.next_txn
    )
    lists = lists_now(state, min(first - 1, state.next_txn - 1))
    lists = lists._replace(high=_reach(lists))
    gone: set[Directory] = set()
    places = range(1 if scene.lacks("all-places") else len(state.rows))
    for place in places:
        found = resolve(state.directories, place, lists, whole_ranges=True)
        gone |= {*found.aborted, *(found.obsolete if scene.lacks("aborted-only") else ())}
    after = _forgotten(scene, state._replace(directories=state.directories - gone), lists, place=None)
    if after != state:
        yield Action("sweep-aborted", (tuple(sorted(gone)),)), after


def _reach(lists: Lists) -> int:
    return min(lists.high, (lists.open & -lists.open).bit_length() - 2 if lists.open else lists.high)


def _forgotten(scene: Scene, state: State, lists: Lists, *, place: int | None, up_to: int | None = None) -> State:
    """
    Without the rows of TXN_COMPONENTS of which nothing is left, and nothing can come.

    Args:
        place: of the entry that is cleaned; None: all were swept.
        up_to: a cleaned entry's highest write id.
    """
    after = state
    for txn in state.txns:
        if txn.state == "aborted" and txn.noted and txn.id <= lists.txn_high:
            if txn.kind == "compaction":
                forget = may_forget_attempt(scene, state, txn)
            else:
                within = up_to is None or txn.write_id <= up_to
                forget = within and may_forget_write(scene, state, txn, lists, swept=place is None)
            if forget:
                after = after.put_txn(txn._replace(noted=False))
    return after


def may_forget_write(scene: Scene, state: State, txn: Txn, lists: Lists, *, swept: bool) -> bool:
    """
    Whether an aborted write id may count as committed from now on.

    Nothing of it lies anywhere, and no task of it writes any more. That a result's range covers the id isn't enough:
    an INSERT OVERWRITE writes a base.
    """
    places = range(1 if scene.lacks("all-places") else len(state.rows))
    if not txn.write_id:
        return txn.over
    if any(_holds(scene, one, txn.write_id) for one in state.directories if one.place in places):
        return False
    if txn.over or txn.written or scene.lacks("late-after-sweep" if swept else "late-after-cleaning"):
        return True
    return scene.lacks("late-covered") and all(
        any(
            max(one.low, 1) <= txn.write_id <= one.high and not one.statement
            for one in resolve(state.directories, place, lists).read
        )
        for place in places
    )


def _holds(scene: Scene, directory: Directory, write_id: int) -> bool:
    """Whether the row of a write id lies there, or an event of it."""
    if scene.lacks("held-inside") and directory.low != directory.high:
        return False
    if directory.kind == "base" and not directory.statement:
        return False
    mark = bit(write_id)
    return bool(directory.rows & mark) or any(number == write_id for number, _ in directory.events)


def may_forget_attempt(scene: Scene, state: State, txn: Txn) -> bool:
    """Whether the mark of an aborted compaction may go: nothing of it is there, and its job is over."""
    if any(one.txn == txn.id for one in state.directories):
        return False
    return scene.lacks("attempt-marked") or all(late.txn != txn.id for late in state.late)
