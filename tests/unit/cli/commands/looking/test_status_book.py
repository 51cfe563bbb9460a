"""The case book of `compactor status`: tests/cases/status.txt."""

import re
from functools import partial

import pytest
from sqlalchemy import update

from compactor.coordination import Member
from compactor.coordination.model import HELD, NOT_READY, POOLS, SETTINGS
from compactor.coordination.sql.table import StateTable
from compactor.metastore.db.own_tables import STATE
from tests.casebook import Case, cases, check
from tests.metastore.databases import metastore
from tests.unit.cli.explained import asked
from tests.unit.roles.drawn import Drawn, milliseconds
from tests.unit.roles.world import World

BOOK = "status.txt"
_VARIES = ((re.compile(r"\b\d+(\.\d)? s\b"), "<seconds>"), (re.compile(r"\b\w+@here\b"), "<user>@here"))


def status(drawn: Drawn, _: list[str]) -> list[str]:
    """The screen, without rules and blanks between columns; <seconds> is what passed while the case was led."""
    drawn.world.settle_time()
    lines = [" ".join(line.split()) for line in asked(drawn, "status") if line.strip("─")]
    for varying, name in _VARIES:
        lines = [varying.sub(name, line) for line in lines]
    return lines


def run(drawn: Drawn, words: list[str]) -> list[str]:
    """Another command, which succeeds."""
    told = asked(drawn, *words)
    assert not told or not told[0].startswith("exit"), told
    return []


def daemon(drawn: Drawn, words: list[str]) -> list[str]:
    """A daemon's record, as it writes it at each heartbeat."""
    host, *given = words
    facts = dict(word.split("=", 1) for word in given)
    extra = {POOLS: facts.get("pools", "default").split(",")}
    if "not_ready" in facts:
        extra[NOT_READY] = [facts["not_ready"]]
    if "held" in facts:
        extra[NOT_READY], extra[HELD] = [facts["held"]], facts["held"]
    version = facts.get("version", "1.0")
    if "other" in facts:
        extra[SETTINGS] = {facts["other"]: "other"}
    instance = f"{host:0<16}".encode().hex()
    member = Member(instance, host, 7, version, tuple(facts["roles"].split(",")), extra=extra)
    table = StateTable(drawn.world.database)
    table.make()
    acted = dict.fromkeys(facts.get("leads", "").split(","), 0)
    key = f"members/{member.instance}"
    table.put(
        key, {**member.record(), "heartbeat_seconds": 60 if "gone" in facts else 3_600_000, "acted_ms_ago": acted}
    )
    if "gone" in facts:
        older = update(STATE).where(STATE.c.key == key).values(updated=STATE.c.updated - milliseconds(facts["gone"]))
        drawn.world.database.write(lambda connection: connection.execute(older))
    return []


def answers(database, folder, monkeypatch, case: Case) -> list[str]:
    """The screens of a case; the command's version is 1.0."""
    monkeypatch.setattr("compactor.status.overview.version", lambda: "1.0")
    return Drawn(World(database, folder), case, monkeypatch).answers(status=status, run=run, daemon=daemon)


@cases(BOOK)
def test_case(case: Case, tmp_path, monkeypatch, request: pytest.FixtureRequest) -> None:
    """`status` prints what the book says."""
    with metastore("sqlite", request, tmp_path) as database:
        check(
            BOOK, case, partial(answers, database, tmp_path, monkeypatch), rewrite=request.config.getoption("--rewrite")
        )
