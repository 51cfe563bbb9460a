"""
Workers: an entry from its claim to its commit, ours and Hive's; their deaths, and the recovery of their claims.

Source: docs/compaction.md, `compactor.planning.select`, `compactor.engine.publish`, `compactor.roles.worker.attempt`,
`compactor.roles.housekeeper.recovery`.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.protocol.reading import Resolved, compactor_lists, lists_now, resolve, rows_of
from tests.model.protocol.scene import Scene
from tests.model.protocol.values import Action, Directory, Entry, Late, Lists, State, Txn, bit, numbers, span

Moves = Iterator[tuple[Action, State]]
AT_WORK = frozenset({"opened", "working", "looked", "displaced", "half", "published"})
"""What stands as `working` in the queue."""


class Plan(NamedTuple):
    """What an attempt is going to do; without results the entry is left to the Cleaner."""

    inputs: tuple[Directory, ...]
    results: tuple[Directory, ...]
    covered: int
    replaced: tuple[Directory, ...] = ()


def requests(scene: Scene, state: State) -> Moves:
    """ALTER TABLE ... COMPACT, or an Initiator."""
    if len(state.entries) >= scene.entries:
        return
    for place in range(scene.places):
        busy = any(entry.place == place and entry.state != "ready" for entry in state.entries)
        several = sum(directory.place == place for directory in state.directories) > 1
        if several and (scene.twice or not busy):
            for kind in scene.compactions:
                entry = Entry(state.next_entry, place, kind)
                yield (
                    Action("ask", (kind, entry.id, place)),
                    state._replace(next_entry=entry.id + 1, entries=(*state.entries, entry)),
                )


def workers(scene: Scene, state: State) -> Moves:
    """The next step of each entry that waits or is worked on."""
    for entry in state.entries:
        if entry.state == "initiated":
            yield from _claimed(scene, state, entry)
        elif entry.state == "opened":
            yield from _planned(scene, state.without_txn(entry.txn), state, entry)
        elif entry.state in AT_WORK:
            if entry.worker == "hive":
                yield from _hives(scene, state, entry)
            else:
                yield from _ours(scene, state, entry)
    for late in state.late:
        yield from _late(scene, state, late)


def _claimed(scene: Scene, state: State, entry: Entry) -> Moves:
    begun = state
    if not scene.shared_overwrites and any(txn.kind == "overwrite" and txn.state == "open" for txn in state.txns):
        return  # it waits for the lock
    if scene.hive == 4:
        number = state.next_txn
        begun = state._replace(next_txn=number + 1, txns=(*state.txns, Txn(number, "compaction")))
        entry = entry._replace(txn=number, next=number)
    if scene.opens:
        yield Action("claim", (entry.id,)), begun.put_entry(entry._replace(state="opened", worker="ours"))
    else:
        yield from _planned(scene, state, begun, entry)


def _planned(scene: Scene, before: State, begun: State, entry: Entry) -> Moves:
    """Lists are taken, and the place is listed. `before`: as it is without the attempt's transaction."""
    state = before
    plan = planned(scene, begun, entry)
    if plan is None:
        yield Action("refuse", (entry.id,)), state.without_entry(entry.id)
        return
    if scene.hive == 4:
        entry = entry._replace(beside=lists_now(state).txns_open)
    if not plan.results:
        if _another(state, entry, "hive") or _revoked_and_alive(scene, state, entry):
            yield Action("refuse", (entry.id,)), state.without_entry(entry.id)
            return
        entry = entry._replace(covered=plan.covered)
        yield Action("leave-to-cleaner", (entry.id,)), _ended(scene, begun, entry)
        return
    if _cleaned_later(scene, state, entry, plan.results):
        return
    inputs, replaced = frozenset(plan.inputs), frozenset(plan.replaced)
    entry = entry._replace(
        state="working", covered=plan.covered, inputs=inputs, replaced=replaced, results=plan.results, worker="ours"
    )
    yield Action("plan", (entry.id, entry.results)), begun.put_entry(entry)
    if scene.hives_worker and not (_another(state, entry) or state.late):  # two of Hive's are Hive's affair
        theirs = entry._replace(worker="hive")
        yield Action("hive-plan", (entry.id, entry.results)), begun.put_entry(theirs)


def planned(scene: Scene, state: State, entry: Entry) -> Plan | None:
    """
    Inputs, results and the highest write id of a compaction that lists now; None: there is nothing to do.

    The name covers nothing that is left out; a base is named up to what the lists decide, unless a directory lies
    across that id.
    """
    lists = compactor_lists(lists_now(state))
    if entry.txn and not scene.lacks("own-transaction"):
        lists = lists._replace(txns_open=tuple(sorted({*lists.txns_open, entry.txn})))
    found = resolve(state.directories, entry.place, lists, whole_ranges=True)
    if scene.lacks("own-transaction"):
        own = Directory(entry.place, "base", 0, lists.high, entry.txn)
        lists = lists._replace(txns_open=())
        found = resolve(state.directories | {own}, entry.place, lists, whole_ranges=True)
        inputs = tuple(one for one in (*found.read, *found.obsolete) if one.high <= lists.high and one != own)
        return Plan(inputs, (own,), lists.high) if len(inputs) > 1 else None
    base, deltas = found.base, _included(found)
    kind = _kind(scene, entry, found, deltas, lists)
    pieces = len(deltas) + (base is not None and kind == "major")
    mixed = any(not one.txn and not one.statement and lists.aborted & span(one.low, one.high) for one in deltas)
    enough = (
        pieces > 1 or mixed if kind == "major" else pieces > 2 or (pieces == 2 and deltas[0].kind == deltas[1].kind)
    )
    if not enough or (kind == "minor" and _overlap(base, deltas)):
        return _left_to_the_cleaner(scene, found, lists)
    reached = max((one.high for one in deltas), default=base.high if base else 0)
    name = _name(scene, state, found, lists, reached) if kind == "major" else reached
    lowest = 0 if kind == "major" else _lowest(scene, found, deltas, base)
    left = bool(found.excluded) or (scene.hive == 3 and bool(lists.aborted >> (name + 1)))
    covered = name if left else max(name, lists.high)
    inputs = ((base,) if base and kind == "major" else ()) + deltas
    results = _results(scene, entry._replace(kind=kind), inputs, lists, (lowest, name))
    if any(result.name in {one.name for one in state.directories} for result in results):
        return None
    return Plan(inputs, results, covered, (*found.obsolete, *found.aborted))


def _included(found: Resolved) -> tuple[Directory, ...]:
    """The deltas that lie wholly below everything that is left out (`compactor.planning.included`)."""
    left = [max(one.low, 1) if one.kind != "base" else one.high for one in found.excluded if not _result(one)]
    deltas = tuple(one for one in found.read if one.kind != "base")
    limit = min(left, default=None)
    while limit is not None:
        lower = min((one.low for one in deltas if one.high >= limit), default=limit)
        deltas = tuple(one for one in deltas if one.high < limit)
        if lower >= limit:
            break
        limit = lower
    return deltas


def _result(directory: Directory) -> bool:
    return directory.kind == "base" and not directory.statement


def _kind(scene: Scene, entry: Entry, found: Resolved, deltas: tuple[Directory, ...], lists: Lists) -> str:
    """A minor compaction of Hive 3.1 that would publish two directories, or pass over an aborted base, is a major."""
    if scene.hive == 4 or entry.kind == "major":
        return entry.kind
    both = len({one.kind for one in deltas}) > 1 and not scene.lacks("one-rename")
    low, high = (found.base.high if found.base else 0), max((one.high for one in deltas), default=0)
    undone = any(one.kind == "base" and low < one.high < high for one in found.aborted)
    return "major" if both or undone else "minor"


def _overlap(base: Directory | None, deltas: tuple[Directory, ...]) -> bool:
    reached = base.high if base else 0
    return any(one.low <= reached < one.high for one in deltas)


def _name(scene: Scene, state: State, found: Resolved, lists: Lists, reached: int) -> int:
    """What a base is named after: the highest id that is in it, or that the lists decide with nothing left out."""
    if scene.lacks("below-the-open"):
        return state.next_write_id - 1
    if scene.lacks("no-stream-across"):
        return lists.high
    return reached


def _lowest(scene: Scene, found: Resolved, deltas: tuple[Directory, ...], base: Directory | None) -> int:
    """Where a minor's range begins: on Hive 3.1 it also takes in the aborted deltas right below."""
    lowest = min(one.low for one in deltas)
    if scene.hive == 4:
        return lowest
    read = [one.high for one in found.read if one.kind != "base" and one.high < lowest]
    below = max([base.high if base else 0, *read])
    return min([lowest, *(one.low for one in found.aborted if one.kind != "base" and below < one.low)])


def _results(
    scene: Scene, entry: Entry, inputs: tuple[Directory, ...], lists: Lists, ends: tuple[int, int]
) -> tuple[Directory, ...]:
    low, high = ends
    read = inputs[:-1] if scene.lacks("every-row") else inputs
    if entry.kind == "major":
        return (Directory(entry.place, "base", 0, high, entry.txn, rows_of(read, lists.valid)[0]),)
    made = []
    rows = 0
    for one in read:
        rows |= one.rows & lists.valid
    if any(one.kind == "delta" for one in inputs):
        made.append(Directory(entry.place, "delta", low, high, entry.txn, rows))
    if any(one.kind == "delete" for one in inputs):
        events = tuple(event for one in read for event in one.events if lists.valid & bit(event[0]))
        made.append(Directory(entry.place, "delete", low, high, entry.txn, 0, events))
    return tuple(made)


def _left_to_the_cleaner(scene: Scene, found: Resolved, lists: Lists) -> Plan | None:
    """An entry without enough to compact ends as ready when files are to go."""
    gone = [*found.obsolete, *found.aborted]
    kept = [max(one.low, 1) if one.kind != "base" else one.high for one in found.excluded]
    if scene.hive == 3:
        reached = found.base.high if found.base else 0
        undone = lists.aborted >> (reached + 1) << (reached + 1)
        if scene.lacks("ends-below-aborted"):
            undone &= _there(found)
        kept += numbers(undone)
    highest = min([lists.high, *(number - 1 for number in kept)])
    gone = [one for one in gone if one.high <= highest]
    return Plan((), (), highest) if gone and highest > 0 else None


def _there(found: Resolved) -> int:
    """The write ids that names of deltas, and of what was rolled back, tell of."""
    bits = 0
    for one in (*found.aborted, *found.read):
        bits |= bit(one.high) if one.kind == "base" else span(one.low, one.high)
    return bits


def _ours(scene: Scene, state: State, entry: Entry) -> Moves:
    there = {one.name for one in state.directories}
    if entry.state == "working":
        if not _last_look(scene, state, entry):
            yield Action("refuse-last", (entry.id,)), _undone(scene, state, entry).without_entry(entry.id)
        elif scene.steps:
            yield (
                Action("look", (entry.id,)),
                _displacing(scene, state, entry).put_entry(entry._replace(state="looked")),
            )
        else:
            yield Action("publish", (entry.id, entry.results)), _published(state, entry, entry.results)
    elif entry.state == "looked":
        if any(one.name in there for one in entry.results):
            yield Action("refuse-last", (entry.id,)), _undone(scene, state, entry).without_entry(entry.id)
        elif len(entry.results) > 1:
            # the delete side first: the other way round a reader in between sees deleted rows again
            first = entry.results[1:]
            yield Action("publish-first", (entry.id, first)), _published(state, entry, first, "half")
        else:
            yield Action("publish", (entry.id, entry.results)), _published(state, entry, entry.results)
    elif entry.state == "displaced":
        yield Action("give-way", (entry.id,)), state.without_entry(entry.id)
    elif entry.state == "half":
        yield Action("publish", (entry.id, entry.results[:1])), _published(state, entry, entry.results[:1])
        if scene.lacks("both-renames"):
            yield Action("commit-half", (entry.id,)), _ended(scene, state, entry)
    elif _may_commit(scene, state, entry):
        yield Action("commit-compaction", (entry.id,)), _ended(scene, state, entry)
    else:
        yield Action("give-way", (entry.id,)), _undone(scene, state, entry).without_entry(entry.id)
    if scene.deaths:
        yield Action("recover", (entry.id,)), _recovered(scene, state, entry)


def _displacing(scene: Scene, state: State, entry: Entry) -> State:
    """
    On Hive 3.1 the last look takes away the staging directories of others in the place. Those that haven't looked yet
    may have made theirs later, and see the result when they look.
    """
    if scene.hive == 4 or scene.lacks("other-staging"):
        return state
    for other in state.entries:
        if other.id != entry.id and other.place == entry.place and other.state == "looked":
            state = state.put_entry(other._replace(state="displaced"))
    return state


def _last_look(scene: Scene, state: State, entry: Entry) -> bool:
    """Whether the result may appear: its inputs are there, nothing overlaps, and no other attempt is under way."""
    if not entry.inputs <= state.directories:
        return False
    if any(result.name in {one.name for one in state.directories} for result in entry.results):
        return False
    if scene.lacks("first-commit") or scene.lacks("beside"):
        return not any(
            one.kind == result.kind and (one.low, one.high, one.statement) == (result.low, result.high, False)
            for one in state.directories
            for result in entry.results
            if one.place == result.place and one not in entry.inputs
        )
    if _another(state, entry, "hive") or _revoked_and_alive(scene, state, entry):
        return False
    if _cleaned_later(scene, state, entry, entry.results):
        return False
    return not any(_in_the_way(one, result, entry) for one in state.directories for result in entry.results)


def _cleaned_later(scene: Scene, state: State, entry: Entry, results: tuple[Directory, ...]) -> bool:
    """Whether an entry of the place that reaches as high as these results isn't cleaned yet (Hive 3.1)."""
    if scene.hive == 4 or scene.lacks("cleaned-first"):
        return False
    return any(
        other.id != entry.id
        and other.place == entry.place
        and other.state == "ready"
        and other.covered >= max(one.high for one in results)
        for other in state.entries
    )


def _another(state: State, entry: Entry, *workers: str) -> bool:
    """Whether another entry of the same place is worked on, by one of these."""
    return any(
        other.id != entry.id
        and other.place == entry.place
        and other.state in AT_WORK
        and (not workers or other.worker in workers)
        for other in state.entries
    )


def _revoked_and_alive(scene: Scene, state: State, entry: Entry) -> bool:
    """Whether a worker whose claim was taken back still has its transaction of this place open (Hive 4)."""
    return not scene.lacks("revoked-counts") and any(
        late.alive and late.results[0].place == entry.place for late in state.late
    )


def _may_commit(scene: Scene, state: State, entry: Entry) -> bool:
    """
    Whether no other compaction of the place was committed since this one's transaction was opened (Hive 4): the first
    that commits wins, and Hive's own don't ask.
    """
    if scene.hive == 3 or scene.lacks("first-commit"):
        return True
    alike = [other for other in state.entries if other.id != entry.id and other.place == entry.place]
    if _another(state, entry, "hive") or _revoked_and_alive(scene, state, entry):
        return False
    return not any(other.state == "ready" and (other.txn in entry.beside or other.txn > entry.txn) for other in alike)


def _in_the_way(one: Directory, result: Directory, entry: Entry) -> bool:
    """
    Whether it is another compaction's result that readers would read beside this one, and that the plan neither took in
    nor found replaced. Of two ranges one inside the other they read the wider one.
    """
    if one.place != result.place or one.statement or one in entry.inputs or one in entry.replaced:
        return False
    if (one.kind, one.low, one.high) == (result.kind, result.low, result.high):
        return True
    apart = one.low > result.high or result.low > one.high
    inside = one.low <= result.low and result.high <= one.high
    around = result.low <= one.low and one.high <= result.high
    return not (apart or inside or around)


def _published(state: State, entry: Entry, results: tuple[Directory, ...], word: str = "published") -> State:
    return state._replace(directories=state.directories | set(results)).put_entry(entry._replace(state=word))


def _ended(scene: Scene, state: State, entry: Entry) -> State:
    """On Hive 4 entry and transaction end together; on 3.1 only the entry does."""
    done = entry._replace(state="ready", inputs=frozenset(), replaced=frozenset(), results=(), beside=(), worker="")
    if scene.hive == 3:
        return state.put_entry(done)
    after = state.without_txn(entry.txn)
    if not scene.lacks("commit-order"):
        done = done._replace(next=state.next_txn - 1)
    return after.put_entry(done)


def _undone(scene: Scene, state: State, entry: Entry) -> State:
    """What an attempt's rollback leaves: nothing; on Hive 3.1 a result that was renamed stays."""
    if scene.hive == 3:
        return state
    left = frozenset(one for one in state.directories if one.txn != entry.txn)
    return state.without_txn(entry.txn)._replace(directories=left)


def _recovered(scene: Scene, state: State, entry: Entry) -> State:
    """
    A claim is given back after its worker died, or fell asleep: then its staging directory is gone, and no rename of it
    can come.
    """
    after = _undone(scene, state, entry)
    if scene.lacks("fence") and entry.state in {"working", "looked"}:
        after = after._replace(late=(*after.late, Late(entry.txn, entry.results)))
    return after.put_entry(Entry(entry.id, entry.place, entry.kind))


def _hives(scene: Scene, state: State, entry: Entry) -> Moves:
    """Hive's own worker has neither a last look nor staging; its claim may be taken back while it works."""
    published = entry.state == "published"
    if published:
        yield Action("hive-commit", (entry.id,)), _ended(scene, state, entry)
    else:
        yield Action("hive-publish", (entry.id, entry.results)), _published(state, entry, entry.results)
    if state.late or any(txn.kind == "compaction" and txn.state == "aborted" for txn in state.txns):
        return  # one at a time
    late = Late(entry.txn, entry.results, entry.id, entry.covered, True, published)
    free = state.put_entry(Entry(entry.id, entry.place, entry.kind))
    alive = free._replace(late=(*state.late, late))
    if scene.hives_revokes:
        yield Action("hive-revoke", (entry.id,)), alive
    yield Action("revoke", (entry.id,)), alive if scene.lacks("revoked-ended") else _rolled_back(alive, late)


def _rolled_back(state: State, late: Late) -> State:
    """Its transaction is aborted, by our recovery, Hive's reaper or the worker itself; its job may still publish."""
    aborted = state.txn(late.txn)._replace(state="aborted", write_id=0, high=late.covered)
    dead = () if late.published else (late._replace(entry=0, covered=0, alive=False),)
    return state.put_txn(aborted)._replace(late=(*(other for other in state.late if other != late), *dead))


def _late(scene: Scene, state: State, late: Late) -> Moves:
    """A worker that lost its claim publishes all the same, and commits while its transaction is open; or its job ends."""
    rest = tuple(other for other in state.late if other != late)
    there = {one.name for one in state.directories}
    if not late.published and not any(one.name in there for one in late.results):
        left = (*rest, late._replace(published=True)) if late.alive else rest
        after = state._replace(late=left, directories=state.directories | set(late.results))
        yield Action("publish-late", (late.txn, late.results)), after
    if late.alive:
        if late.published:
            yield Action("commit-late", (late.txn,)), _committed_late(scene, state._replace(late=rest), late)
        yield Action("reap-compaction", (late.txn,)), _rolled_back(state, late)
    elif not late.published:
        yield Action("tasks-end-compaction", (late.txn,)), state._replace(late=rest)


def _committed_late(scene: Scene, state: State, late: Late) -> State:
    """
    Hive marks the entry by its number, whoever has the claim by now. One that ours had claimed has the number of our
    transaction, which is undone: the entry ends as failed, and nothing is cleaned for it.
    """
    entry = next((entry for entry in state.entries if entry.id == late.entry), None)
    if entry is None or entry.state == "ready":
        return state.without_txn(late.txn)
    if entry.state == "initiated":
        return _ended(scene, state, entry._replace(covered=late.covered, txn=late.txn))
    return _undone(scene, state, entry).without_txn(late.txn).without_entry(entry.id)
