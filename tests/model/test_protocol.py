"""The protocol's model (docs/protocol.md): what holds, and which rule taken away breaks it."""

import random
import re
from pathlib import Path

import pytest

from compactor.acid.compaction import LayoutVersion
from compactor.acid.listing import FileEntry, Listing
from compactor.acid.names import base_name, delete_delta_name, delta_name
from compactor.acid.snapshot import resolve as resolve_names
from compactor.acid.write_ids import ValidTxnList, ValidWriteIdList
from compactor.errors import RefusedError
from tests.counts import count
from tests.model.protocol.reading import lists_now, resolve
from tests.model.protocol.scene import SCENES, SWITCHES
from tests.model.protocol.search import beginning, broken, moves, normal, replay, search, walk
from tests.model.protocol.values import numbers

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"
STATES = 8_000
"""Of each scene, in `make test`."""
_LENGTH = 40
_WALKS = 30


@pytest.mark.parametrize("name", SWITCHES)
def test_without_a_rule_a_promise_breaks(name):
    """With one rule taken away a history is found after which a reader doesn't see its rows; with it, none."""
    switch = SWITCHES[name]
    scene = switch.scene.without(name, *switch.beside)
    outcome = search(scene)
    assert outcome.broken, f"{outcome.states} states without a counterexample"
    assert not search(switch.scene, states=outcome.states + STATES).broken
    *_, (_, _, last) = replay(scene, outcome.choices)
    assert broken(scene, last), "the same history breaks it with the true numbers, too"
    for guard in switch.beside:
        assert not search(switch.scene.without(name), states=STATES).broken, f"{guard} alone isn't enough"


@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", SCENES)
def test_no_history_breaks_a_promise(name, request):
    """Under the protocol as it is, each reader sees its rows after every history, the shorter ones first."""
    minutes = request.config.getoption("--model-minutes")
    limits = {"states": STATES} if minutes is None else {"states": 10**9, "seconds": 60 * minutes}
    outcome = search(SCENES[name], **limits)
    count("states of the protocol's model", outcome.states)
    if minutes is not None:
        count(f"actions deep: {name}{', all states' if outcome.whole else ''}", outcome.depth)
    trace = [str(action) for _, action, _ in replay(SCENES[name], outcome.choices)]
    assert outcome.broken is None, (outcome.broken, trace)


@pytest.mark.parametrize("name", SCENES)
def test_random_long_histories_break_no_promise(name):
    """The same of random histories, which go deeper than all of them can be followed."""
    rng = random.Random(name)
    for _ in range(_WALKS):
        choices, why = walk(SCENES[name], rng, _LENGTH)
        assert why is None, (why, [str(action) for _, action, _ in replay(SCENES[name], choices)])


def test_the_page_names_every_switch():
    """docs/protocol.md has an argument for each switch of the model, and for no other."""
    told = re.findall(r"^- \*\*switch\*\*: (.+)$", PAGE.read_text(), re.MULTILINE)
    assert sorted(name for line in told for name in re.findall(r"`([a-z-]+)`", line)) == sorted(SWITCHES)
    assert all(switch.known_as in PAGE.read_text() for switch in SWITCHES.values())


def test_the_page_names_every_scene():
    """docs/protocol.md lists the spaces of states that are searched, each with its figures."""
    told = re.findall(r"^\| ([^|]+?) \| [34] \|", PAGE.read_text(), re.MULTILINE)
    assert sorted(told) == sorted(name.removesuffix(" (Hive 3.1)") for name in SCENES)


@pytest.mark.parametrize("name", [name for name, scene in SCENES.items() if scene.places == 1])
def test_the_model_reads_as_the_product_does(name):
    """What the model finds read, replaced and aborted in a place is what `compactor.acid.snapshot` finds there."""
    scene, rng = SCENES[name], random.Random(name)
    layout = LayoutVersion.HIVE_4 if scene.hive == 4 else LayoutVersion.HIVE_3
    for _ in range(_WALKS):
        state = beginning(scene)[0]
        for _ in range(_LENGTH):
            _, state = rng.choice(list(moves(scene, state)))
            state = normal(state)
            lists = lists_now(state)
            found = resolve(state.directories, 0, lists)
            if found.history:
                continue
            opened, aborted = numbers(lists.open), numbers(lists.aborted)
            write_ids = ValidWriteIdList("db.t", lists.high, tuple(opened), tuple(aborted), min(opened, default=None))
            txns = ValidTxnList(lists.txn_high, lists.txns_open, lists.txns_aborted) if scene.hive == 4 else None
            try:
                there = resolve_names(_listing(state.directories), write_ids, txns, layout)
            except RefusedError:  # Hive 3.1 can't list where the only base was rolled back
                assert any(one.kind == "base" for one in found.aborted)
                continue
            read = [there.base, *there.deltas] if there.base else list(there.deltas)
            assert sorted(one.name for one in read) == sorted(map(_name, found.read))
            assert sorted(one.name for one in there.obsolete) == sorted(map(_name, found.obsolete))
            assert sorted(one.name for one in there.aborted) == sorted(map(_name, found.aborted))


def _name(directory):
    if directory.kind == "base":
        return base_name(directory.high, directory.txn)
    of_kind = delta_name if directory.kind == "delta" else delete_delta_name
    return of_kind(directory.low, directory.high, 0 if directory.statement else None, directory.txn)


def _listing(directories):
    names = {directory: _name(directory) for directory in directories}
    return Listing(
        tuple(FileEntry(f"{name}/bucket_00000", 100) for name in names.values()),
        tuple(names.values()),
        tuple((name, "compacted") for one, name in names.items() if one.kind == "base" and not one.statement),
    )
