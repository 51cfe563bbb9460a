"""Writers, readers, Hive's reaper and purges: what may happen without a compactor."""

from collections.abc import Iterator

from tests.model.protocol.reading import lists_now, resolve, rows_of
from tests.model.protocol.scene import Scene
from tests.model.protocol.values import Action, Directory, Reader, State, Txn, bit, directory_name, span, upto

Moves = Iterator[tuple[Action, State]]
BATCH = 2
"""Transactions of a streaming batch."""


def writers(scene: Scene, state: State) -> Moves:
    """What writers may do."""
    overwritten = any(txn.kind == "overwrite" and txn.state == "open" for txn in state.txns)
    if state.next_write_id <= scene.last_write_id:
        for kind in scene.kinds:
            if overwritten and (kind == "overwrite" or not scene.shared_overwrites):
                continue  # waits for its lock
            for places in _reach(scene):
                yield from _begun(scene, state, kind, places)
    for txn in state.txns:
        if txn.kind != "compaction":
            yield from _goes_on(scene, state, txn)


def _reach(scene: Scene) -> list[tuple[int, ...]]:
    places = [(place,) for place in range(scene.places)]
    return [*places, tuple(range(scene.places))] if scene.everywhere else places


def _begun(scene: Scene, state: State, kind: str, places: tuple[int, ...]) -> Moves:
    number, write_id = state.next_txn, state.next_write_id
    if kind == "batch":
        high = write_id + BATCH - 1
        if high > scene.last_write_id:
            return
        batch = tuple(
            Txn(number + at, kind, "open", write_id + at, write_id, high, places, written=True, over=True)
            for at in range(BATCH)
        )
        directory = Directory(places[0], "delta", write_id, high, rows=span(write_id, high))
        yield (
            Action("begin", (kind, number, places)),
            state._replace(
                next_txn=number + BATCH,
                next_write_id=high + 1,
                txns=state.txns + batch,
                directories=state.directories | {directory},
            ),
        )
        return
    if (
        kind == "overwrite"
        and not scene.shared_overwrites
        and (
            state.readers
            or any(txn.state == "open" for txn in state.txns)
            or any(entry.state not in {"initiated", "ready"} for entry in state.entries)
        )
    ):
        return  # waits for the locks of the others
    events = 0
    if kind == "delete":
        events = state.rows[places[0]]
        if not events or any(txn.kind == "delete" and txn.state == "open" for txn in state.txns):
            return  # the later of two would conflict
    txn = Txn(
        number,
        kind,
        "open",
        write_id,
        write_id,
        write_id,
        places,
        events=events,
        over=not scene.zombies,
        noted=not scene.lacks("noted"),
    )
    if scene.late_ids:
        yield (
            Action("open", (kind, number, places)),
            state._replace(next_txn=number + 1, txns=(*state.txns, txn._replace(write_id=0, low=0, high=0))),
        )
        return
    yield (
        Action("begin", (kind, number, places)),
        state._replace(next_txn=number + 1, next_write_id=write_id + 1, txns=(*state.txns, txn)),
    )


def _goes_on(scene: Scene, state: State, txn: Txn) -> Moves:
    if txn.state == "open":
        if not txn.write_id:
            if state.next_write_id <= scene.last_write_id:
                number = state.next_write_id
                yield (
                    Action("allocate", (txn.id,)),
                    state.put_txn(txn._replace(write_id=number, low=number, high=number))._replace(
                        next_write_id=number + 1
                    ),
                )
        elif not txn.written:
            yield Action("write", (txn.id,)), _written(state, txn)
            if scene.empty:
                yield Action("commit-empty", (txn.id,)), _committed(state.without_txn(txn.id), txn, empty=True)
        else:
            yield Action("commit", (txn.id,)), _committed(state.without_txn(txn.id), txn)
        yield Action("abort", (txn.id,)), state.put_txn(txn._replace(state="aborted"))
        return
    if not txn.over and not txn.written and txn.write_id:
        yield Action("write-late", (txn.id,)), _written(state, txn)
        yield Action("tasks-end", (txn.id,)), _kept(state, txn._replace(over=True))


def _kept(state: State, txn: Txn) -> State:
    """A purged transaction of which nothing is to come isn't remembered."""
    if txn.state == "purged" and (txn.over or txn.written):
        return state.without_txn(txn.id)
    return state.put_txn(txn)


def _written(state: State, txn: Txn) -> State:
    found = set(state.directories)
    for place in txn.places:
        low = 0 if txn.kind == "overwrite" else txn.write_id
        kind = {"overwrite": "base", "insert": "delta", "delete": "delete"}[txn.kind]
        rows, events = (0, ((txn.write_id, txn.events),)) if kind == "delete" else (bit(txn.write_id), ())
        made = Directory(place, kind, low, txn.write_id, 0, rows, events, statement=True)
        there = next((one for one in found if one.name == made.name), None)
        if there is not None:  # Hive 3.1: the same name as a compaction's base
            found.discard(there)
            made = there._replace(rows=there.rows | rows)
        found.add(made)
    return _kept(state._replace(directories=frozenset(found)), txn._replace(written=True))


def _committed(state: State, txn: Txn, *, empty: bool = False) -> State:
    rows = list(state.rows)
    for place in txn.places:
        if empty:
            continue
        if any(one.place == place and one.high > txn.write_id for one in _overwritten(state)):
            continue  # as if it had been committed before that INSERT OVERWRITE
        if txn.kind == "overwrite":
            rows[place] = bit(txn.write_id) | (rows[place] & ~upto(txn.write_id))
        elif txn.kind == "delete":
            rows[place] &= ~txn.events
        else:
            rows[place] |= bit(txn.write_id)
    return state._replace(rows=tuple(rows))


def _overwritten(state: State) -> list[Directory]:
    """The bases that committed INSERT OVERWRITEs wrote."""
    ended = {txn.write_id for txn in state.txns}
    return [one for one in state.directories if one.kind == "base" and one.statement and one.high not in ended]


def readers(scene: Scene, state: State) -> Moves:
    """Readers begin, list (Hive 3.1) and end."""
    overwritten = any(txn.kind == "overwrite" and txn.state == "open" for txn in state.txns)
    if len(state.readers) < scene.readers and (scene.shared_overwrites or not overwritten):
        begun = Reader(state.next_txn, lists_now(state), state.rows)
        if scene.hive == 3 and not scene.late_readers:
            begun = begun._replace(listed=listing_of(state, begun))
        yield (
            Action("read", (begun.txn,)),
            state._replace(next_txn=state.next_txn + 1, readers=(*state.readers, begun)),
        )
    for at, reader in enumerate(state.readers):
        others = state.readers[:at] + state.readers[at + 1 :]
        yield Action("read-no-more", (reader.txn,)), state._replace(readers=others)
        if scene.hive == 3 and reader.listed is None:
            listed = reader._replace(listed=listing_of(state, reader))
            fails = any(
                resolve(state.directories, place, reader.lists).history for place in range(len(state.rows))
            )  # "Not enough history available": the reader fails, and reads nothing wrong
            yield (
                Action("list", (reader.txn,)),
                state._replace(readers=others if fails else (*state.readers[:at], listed, *state.readers[at + 1 :])),
            )


def listing_of(state: State, reader: Reader) -> frozenset[Directory]:
    """The directories that a reader of Hive 3.1 lists, once for all."""
    return frozenset(
        directory
        for place in range(len(state.rows))
        for directory in resolve(state.directories, place, reader.lists).read
    )


def reads_wrong(scene: Scene, state: State, reader: Reader) -> str | None:
    """What is wrong with what an open reader reads now."""
    if scene.hive == 3 and reader.listed is None:
        return None
    if reader.listed is not None and (lost := reader.listed - state.directories):
        return f"reader {reader.txn} misses {', '.join(sorted(map(directory_name, lost)))}"
    there = state.directories if reader.listed is None else reader.listed
    for place, due in enumerate(reader.due):
        if (found := rows_of(resolve(there, place, reader.lists).read, reader.lists.valid)) != (due, 0):
            return f"reader {reader.txn} reads {found[0]:b} and {found[1]:b} twice, where {due:b} are due"
    return None


def hives_purges(state: State) -> Moves:
    """Hive forgets aborted transactions without components below the first open one: their ids count as committed."""
    first = min(state.open_txns(), default=state.next_txn)
    for txn in state.txns:
        if txn.state == "aborted" and not txn.noted and txn.id < first:
            after = (
                state.without_txn(txn.id) if txn.kind == "compaction" else _kept(state, txn._replace(state="purged"))
            )
            yield Action("purge", (txn.id,)), after
