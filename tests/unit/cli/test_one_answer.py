"""Whoever is asked why an entry waits, or isn't cleaned, gives the same reasons: commands and metrics."""

import json
import shutil
from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import example, given, settings
from sqlalchemy import insert, select, update

from compactor.control.records import HOLDS, Drain, Pause, with_drain, with_pause
from compactor.control.scope import Scope
from compactor.coordination import Coordinator, Member, open_coordinator
from compactor.coordination.model import HELD, POOLS
from compactor.coordination.sql.table import StateTable
from compactor.daemon.queue_metrics import QueueMetrics
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.db.database import Database
from compactor.metastore.db.own_tables import STATE
from compactor.roles.identity import Identity
from compactor.roles.services import Services
from compactor.roles.worker.failures import Failures
from compactor.settings import load_settings
from tests.compacting import NothingRuns
from tests.metastore.actor import Hive
from tests.strategies import cases_of_all
from tests.unit.cli.conftest import Shop

ENTITIES = ("shop.orders", "shop.events/day=2024-01-01/path=a%2Fb", "shop.events/day=2024-01-02/path=x y")
Reasons = dict[int, set[str]]
NOTHING: dict[str, Any] = {
    "entries": [("i", "night", "a", None, False), None, ("r", None, "a", None, False)],
    "daemons": [],
    "pauses": [],
    "drained": [],
    "one_job": False,
    "only": None,
    "kept": False,
    "replicated": False,
}
"""An entry of a pool waits, and one is ready for cleaning; no daemon is there."""


def make(database: Database, coordinator: Coordinator, case: dict[str, Any]) -> None:
    """Have it all happen, by rows as Hive and daemons leave them."""
    hive, schema = Hive(database), database.schema
    (highest,) = max(hive.rows(schema.txns, "txn_id"))
    # for a second after an id was handed out a transaction below it may be about to open
    hive.change(update(schema.txns).values(txn_started=schema.txns.c.txn_started - 10_000))
    noting = Failures(lambda: coordinator, lambda _: True)
    for entity, drawn in zip(ENTITIES, case["entries"], strict=True):
        if drawn is None:
            continue
        state, pool, kind, noted, held = drawn
        more = {
            "i": {},
            "w": {"worker_id": f"compactor-h1-{'0' * 32}-1", "start": 1},
            "r": {"highest_write_id": 1, "next_txn_id": highest if held else 1, "commit_time": 1},
        }[state]
        number = hive.queued(entity, state=state, type=kind, pool_name=pool, enqueue_time=1, **more)
        entry = Queue(database).entry(number)
        assert entry is not None
        if noted == "room":
            noting.waits(entry, "disk-full", "no room")
        elif noted == "broke":
            noting.count(replace(entry, worker_id="compactor-h1-x-1", start_ms=1), "lost", died=False)
    table = StateTable(database)
    table.make()
    for number, (host, roles, pools, alive, held) in enumerate(case["daemons"]):
        member = Member(
            f"{number:032}", host, number, "1", roles, extra={HELD: held} | ({} if pools is None else {POOLS: pools})
        )
        table.put(f"members/{member.instance}", {**member.record(), "heartbeat_seconds": 3600 if alive else 0.001})
        if not alive:
            old = update(STATE).where(STATE.c.key == f"members/{member.instance}").values(updated=1)
            database.write(lambda connection, old=old: connection.execute(old))
    for scope, cleaner in case["pauses"]:
        pause = Pause(Scope.parse(scope), "why", "ann", 0, cleaner=cleaner)
        coordinator.update(HOLDS, lambda data, pause=pause: with_pause(data, pause, 0))
    for host in case["drained"]:
        coordinator.update(HOLDS, lambda data, host=host: with_drain(data, Drain(host, "", "ann", 0)))
    if case["kept"]:
        orders = select(schema.tbls.c.tbl_id).where(schema.tbls.c.tbl_name == "orders").scalar_subquery()
        hive.change(insert(schema.table_params).values(tbl_id=orders, param_key="no_cleanup", param_value="true"))
    if case["replicated"]:
        shop = select(schema.dbs.c.db_id).where(schema.dbs.c.name == "shop").scalar_subquery()
        source = {"db_id": shop, "param_key": "repl.source.for", "param_value": "policy"}
        hive.change(insert(schema.database_params).values(source))


def answer(shop: Shop, *words: str) -> Any:
    """What a command says to programs; `status` and `enqueue` end otherwise than with 0 where there is a reason."""
    result = shop.run("-o", "json", *words)
    assert result.exit_code in {0, 1, 3}, result.output
    return json.loads(result.stdout or "[]")


def by_cause(records: list[dict[str, Any]], holds: str) -> Reasons:
    """The reasons for each entry, of causes as `why` and `status` show them; without any where nothing holds it back."""
    found: Reasons = {}
    for record in records:
        if record["holds"] == holds:
            for number in record["ids"]:
                found.setdefault(number, set()).update({record["reason"]} - {""})
    return found


def of(codes: dict[int, str | None]) -> Reasons:
    return {number: set() if code is None else {code} for number, code in codes.items()}


def metrics(shop: Shop, database: Database) -> Counter[str]:
    """How many entries wait by reason, as a daemon's metrics tell."""
    (shop.root / "alive").mkdir()
    identity = Identity("h9", "compactor", shop.root / "alive")
    services = Services.over(database, load_settings(shop.config), identity=identity, submitter=NothingRuns())
    services.coordinator = open_coordinator(services.settings, lambda: database)
    QueueMetrics(services).run_once()
    (family,) = [one for one in services.metrics.registry.collect() if one.name == "compactor_held_entries"]
    return Counter({sample.labels["reason"]: int(sample.value) for sample in family.samples})


@settings(max_examples=8)
@given(cases_of_all(len(ENTITIES)))
@example(NOTHING)
@example(NOTHING | {"daemons": [("h1", ("worker",), ["default"], True, "")]})
@example(NOTHING | {"entries": [("r", None, "a", None, True), None, None]})
@example(NOTHING | {"replicated": True, "daemons": [("h1", ("worker", "cleaner"), None, True, "")]})
def test_all_give_the_same_reasons(built, tmp_path_factory, case):
    """
    Of entries that wait: queue, why, explain, enqueue's preview, status and the metrics; of those that aren't cleaned:
    why, explain and status. Each of the examples was answered in two ways once; the last but one by a lock of a transaction.
    """
    shop = Shop(tmp_path_factory.mktemp("asked"))
    for file in built.glob("metastore.db*"):
        shutil.copy(file, shop.root / file.name)
    control = {"budgets": [{"name": "one", "jobs": 1}] if case["one_job"] else [], "only": case["only"] or []}
    sections = f"host: h9\ncontrol: {json.dumps(control)}\n"
    shop.config.write_text(f"database:\n  url: sqlite:///{shop.root}/metastore.db\n{sections}")
    with shop.open() as database:
        make(database, open_coordinator(load_settings(shop.config), lambda: database), case)
        entries = Queue(database).entries()
        told = metrics(shop, database)
    waiting = {entry.id for entry in entries if entry.state == "initiated"}
    queue = of({one["id"]: one["waits"] for one in answer(shop, "queue") if one["id"] in waiting})
    causes, status = answer(shop, "why", "--measure", "0"), answer(shop, "status")["causes"]
    pictures = [answer(shop, "explain", str(entry.entity)) for entry in entries]
    explained = of({one["id"]: one["waits"] for each in pictures for one in each["queue"] if one["id"] in waiting})
    assert by_cause(causes, "compaction") == by_cause(status, "compaction") == explained == queue
    assert told == Counter(reason for reasons in queue.values() for reason in reasons)
    preview = [one for one in answer(shop, "enqueue", "shop.*") if one["refused"] is None and one["id"] in waiting]
    assert of({one["id"]: one["waits"] for one in preview}) == {one["id"]: queue[one["id"]] for one in preview}
    uncleaned = {
        one["id"]: {blocker["reason"] for blocker in one["blockers"]} for each in pictures for one in each["cleaning"]
    }
    assert by_cause(causes, "cleaning") == by_cause(status, "cleaning") == uncleaned
