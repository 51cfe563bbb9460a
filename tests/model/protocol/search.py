"""
Searches for a history that breaks a promise: all histories, breadth first, or random ones.

The shortest counterexample comes first. What `search` finds is a list of choices, which `replay` plays again with the
true numbers of transactions and entries.
"""

import random
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from tests.model.protocol.cleaning import cleaners
from tests.model.protocol.reading import lists_now, resolve, rows_of
from tests.model.protocol.scene import Scene
from tests.model.protocol.values import Action, Lists, State
from tests.model.protocol.working import requests, workers
from tests.model.protocol.writing import hives_purges, readers, reads_wrong, writers

CHECK_CLOCK = 256
"""States between two looks at the clock."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    What a search found.

    Args:
        broken: which promise; None: no counterexample.
        choices: the counterexample, as indices of `moves`.
        depth: actions of the longest history that was looked at.
        whole: every state of the scene was looked at.
    """

    states: int
    depth: int
    whole: bool
    seconds: float
    broken: str | None = None
    choices: tuple[int, ...] = ()


def moves(scene: Scene, state: State) -> Iterator[tuple[Action, State]]:
    """Every action that may come next, in an order that depends on nothing but the state."""
    yield from writers(scene, state)
    yield from readers(scene, state)
    yield from requests(scene, state)
    yield from workers(scene, state)
    yield from cleaners(scene, state)
    yield from hives_purges(state)


def broken(scene: Scene, state: State) -> str | None:
    """Which promise doesn't hold: a reader that begins now, and each open one, sees its rows, each of them once."""
    lists = lists_now(state)
    for place, rows in enumerate(state.rows):
        found = resolve(state.directories, place, lists)
        if (read := rows_of(found.read, lists.valid)) != (rows, 0):
            return f"a new reader of place {place} reads {read[0]:b} and {read[1]:b} twice, where {rows:b} are due"
    for reader in state.readers:
        if (why := reads_wrong(scene, state, reader)) is not None:
            return why
    return None


def search(scene: Scene, *, states: int = 1_000_000, seconds: float = 60.0) -> Outcome:
    """Look at every history, the shorter ones first, until a promise breaks or a limit is reached."""
    first, begun = beginning(scene)
    came: dict[State, tuple[State, int] | None] = {first: None}
    waiting, began, depth, deepest = deque([(first, 0)]), time.monotonic(), 0, 0
    looked = 0
    while waiting:
        state, depth = waiting.popleft()
        looked += 1
        if len(came) > states or (looked % CHECK_CLOCK == 0 and time.monotonic() - began > seconds):
            return Outcome(len(came), depth, False, time.monotonic() - began)
        for at, (_, raw) in enumerate(moves(scene, state)):
            after = normal(raw)
            if after in came:
                continue
            came[after] = (state, at)
            deepest = depth + 1
            if (why := broken(scene, after)) is not None:
                choices = begun + _choices(came, after)
                return Outcome(len(came), deepest, False, time.monotonic() - began, why, choices)
            waiting.append((after, depth + 1))
    return Outcome(len(came), deepest, True, time.monotonic() - began)


def beginning(scene: Scene) -> tuple[State, tuple[int, ...]]:
    """The state after the actions with which every history of the scene begins, and the choices that lead there."""
    state, choices = normal(scene.first()), []
    for words in scene.begins:
        at, after = next(
            (at, after) for at, (action, after) in enumerate(moves(scene, state)) if str(action).startswith(words)
        )
        choices.append(at)
        state = normal(after)
    return state, tuple(choices)


def _choices(came: dict[State, tuple[State, int] | None], state: State) -> tuple[int, ...]:
    found = []
    while (before := came[state]) is not None:
        state, at = before
        found.append(at)
    return tuple(reversed(found))


def walk(scene: Scene, rng: random.Random, steps: int) -> tuple[tuple[int, ...], str | None]:
    """A random history, and which promise it broke at its end."""
    state, begun = beginning(scene)
    choices = list(begun)
    for _ in range(steps):
        found = list(moves(scene, state))
        if not found:
            break
        at = rng.randrange(len(found))
        choices.append(at)
        state = normal(found[at][1])
        if (why := broken(scene, state)) is not None:
            return tuple(choices), why
    return tuple(choices), None


def replay(scene: Scene, choices: tuple[int, ...]) -> Iterator[tuple[State, Action, State]]:
    """The same history with the numbers as they are handed out: before, action, after."""
    state = scene.first()
    for at in choices:
        action, after = list(moves(scene, state))[at]
        yield state, action, after
        state = after


# Numbers


def normal(state: State) -> State:
    """The same state with small numbers of transactions and entries, in the same order."""
    known = {one.txn for one in state.directories}
    known.update(txn.id for txn in state.txns if txn.kind == "compaction")
    used = {txn.id for txn in state.txns} | known
    changed = False
    met = []
    for reader in state.readers:
        lists = reader.lists
        kept = lists._replace(
            txns_open=tuple(number for number in lists.txns_open if number in known),
            txns_aborted=tuple(number for number in lists.txns_aborted if number in known),
        )
        changed |= kept != lists
        used |= {reader.txn, lists.txn_high, *kept.txns_open, *kept.txns_aborted}
        met.append(reader._replace(lists=kept))
    for entry in state.entries:
        used |= {entry.txn, entry.next, *entry.beside}
        used.update(one.txn for one in (*entry.results, *entry.inputs, *entry.replaced))
        if entry.sight is not None:
            used.add(entry.sight.txn_high)
            used.update(one.txn for one in entry.sight.directories)
    used.update(late.txn for late in state.late)
    used.discard(0)
    order = sorted(used)
    ids = [entry.id for entry in state.entries]
    changed |= any(late.entry not in {0, *ids} for late in state.late)
    if order == list(range(1, len(order) + 1)) and ids == list(range(1, len(ids) + 1)):
        next_txn, next_entry = len(order) + 1, len(ids) + 1
        if not changed and (state.next_txn, state.next_entry) == (next_txn, next_entry):
            return state
        kept = tuple(late if late.entry in ids else late._replace(entry=0) for late in state.late)
        return state._replace(next_txn=next_txn, next_entry=next_entry, readers=tuple(met), late=kept)
    new = {0: 0} | {number: at for at, number in enumerate(order, 1)}

    def renamed(directories):
        return type(directories)(
            one if new[one.txn] == one.txn else one._replace(txn=new[one.txn]) for one in directories
        )

    def lists_of(lists: Lists) -> Lists:
        return lists._replace(
            txn_high=new[lists.txn_high],
            txns_open=tuple(new[number] for number in lists.txns_open),
            txns_aborted=tuple(new[number] for number in lists.txns_aborted),
        )

    return state._replace(
        next_txn=len(order) + 1,
        next_entry=len(ids) + 1,
        txns=tuple(txn._replace(id=new[txn.id]) for txn in state.txns),
        readers=tuple(reader._replace(txn=new[reader.txn], lists=lists_of(reader.lists)) for reader in met),
        entries=tuple(
            entry._replace(
                id=at,
                txn=new[entry.txn],
                next=new[entry.next],
                beside=tuple(new[number] for number in entry.beside),
                inputs=renamed(entry.inputs),
                replaced=renamed(entry.replaced),
                results=renamed(entry.results),
                sight=entry.sight
                and entry.sight._replace(
                    txn_high=new[entry.sight.txn_high], directories=renamed(entry.sight.directories)
                ),
            )
            for at, entry in enumerate(state.entries, 1)
        ),
        late=tuple(
            late._replace(
                txn=new[late.txn],
                results=renamed(late.results),
                entry=ids.index(late.entry) + 1 if late.entry in ids else 0,
            )
            for late in state.late
        ),
        directories=renamed(state.directories),
    )
