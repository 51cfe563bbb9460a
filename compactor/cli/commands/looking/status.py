"""`compactor status`: on one screen how the daemons, the queue and Hive's tables are, and whether all is well."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click
from rich.console import Group, RenderableType
from rich.text import Text

from compactor.cli import control_records, units
from compactor.cli.commands.control.members import COLUMNS as MEMBER_COLUMNS
from compactor.cli.commands.looking.why import COLUMNS as CAUSE_COLUMNS
from compactor.cli.naming.filters import watch_option, watched
from compactor.cli.output import OutputColumn, Record, View, part_of_picture
from compactor.cli.session import Code, Command, Session, pass_session
from compactor.control.judge import shortened
from compactor.status.overview import Overview
from compactor.words import binary_units, plural

COLUMNS = (
    OutputColumn("what", "WHAT"),
    OutputColumn("sentence", "IS NOT WELL", folds=24),
    OutputColumn("since_ms", "FOR", right=True, show=units.milliseconds),
    OutputColumn("remedy", "WHAT ENDS IT", folds=24),
)
_SHOWN: Final = 8
"""Causes, pauses and entries of each kind that one screen names."""


@click.command(cls=Command)
@watch_option
@pass_session
def status(session: Session, *, watch: float | None) -> int:
    """
    Show on one screen whether all is well, and what isn't.

    Daemons and leaders, the queue and what holds it up, what fails, the last 24 hours, pauses, Hive's side. The exit
    code is 0 when all is well, 1 when something isn't: `compactor status >/dev/null || page-me`.
    """
    shown = watched(session, watch, lambda: _view(session))
    return Code.FAILED if shown.records else Code.DONE


def _view(session: Session) -> View:
    overview = Overview.read(session.database(), control_records.daemons(session), session.settings)
    document = overview.document()
    troubles = document["troubles"]
    assert isinstance(troubles, list)
    return View(COLUMNS, troubles, document=document, picture=lambda: picture(document))


def picture(document: Mapping[str, Any]) -> RenderableType:
    """The screen for people; all of it is in the document."""
    troubles = document["troubles"]
    said = "all is well" if not troubles else f"{plural(len(troubles), 'thing')} not well"
    parts: list[RenderableType] = [
        Text(f"{said}, {units.clock(document['taken'])}", style="bold red" if troubles else "bold green")
    ]
    for title, columns, records in (
        ("", COLUMNS, troubles),
        ("DAEMONS", [column for column in MEMBER_COLUMNS if column.people], document["daemons"] or ()),
        ("WHAT HOLDS ENTRIES BACK", CAUSE_COLUMNS, document["causes"]),
        ("WORK BROKE DOWN", BROKEN_COLUMNS, document["broke_down"]),
        ("PAUSES", control_records.COLUMNS, document["pauses"]),
    ):
        if records:
            parts += _section(title, columns, records)
    return Group(*parts, Text(), *map(Text, sentences(document)))


BROKEN_COLUMNS = (
    OutputColumn("id", "ID", right=True),
    OutputColumn("entity", "TABLE"),
    OutputColumn("failures", "FAILURES", right=True),
    OutputColumn("last_failure", "LAST FAILURE", folds=24),
)


def _section(title: str, columns: Sequence[OutputColumn], records: Sequence[Record]) -> Iterator[RenderableType]:
    yield Text()
    if title:
        yield Text(title, style="bold")
    yield part_of_picture(columns, records[:_SHOWN])
    if len(records) > _SHOWN:
        yield Text(f"… and {len(records) - _SHOWN:,} more", style="dim")


def sentences(document: Mapping[str, Any]) -> Iterator[str]:
    """What is told in words: which tables are included, the queue by state, the last day, Hive's side."""
    if document["only"]:
        yield f"control.only names {shortened(document['only'])}; other tables are left alone"
    for one in document["queue"]:
        age = one["since_ms"]
        oldest = "" if age is None else f", the oldest for {units.milliseconds(age)} ({one['oldest']})"
        yield f"{one['entries']:,} {one['state']}{oldest}"
    if document["left_to_hive"]:
        yield f"{document['left_to_hive']:,} left to Hive: of a type or state that isn't known here"
    day, hive = document["last_day"], document["hive"]
    ended = ", ".join(
        f"{day[key]:,} {key.replace('_', ' ')}"
        for key in ("succeeded", "refused", "failed", "aborted", "did_not_initiate")
        if day[key] or key in {"succeeded", "failed"}
    )
    kept = f", {binary_units(day['quarantined_bytes'])} in quarantine" if day["quarantined_bytes"] else ""
    yield f"last 24 h: {ended}; {binary_units(day['freed_bytes'])} freed{kept}"
    oldest = document["oldest_open_ms"]
    age = "" if oldest is None else f", the oldest for {units.milliseconds(oldest)}"
    yield f"{plural(document['open_transactions'], 'open transaction')}{age}"
    yield f"Hive: schema {hive['schema']}; {'; '.join(_of_hive(hive))}"


def _of_hive(hive: Mapping[str, Any]) -> Iterator[str]:
    initiators = hive["initiators"]
    yield (
        "its Initiator isn't noted there"
        if initiators is None
        else f"its Initiator queues on {', '.join(initiators)}"
        if initiators
        else "its Initiator queues nothing"
    )
    yield f"its workers did {hive['compactions_by_hive']:,} of the latest {plural(hive['of_latest'], 'compaction')}"
    yield f"housekeeper.enabled: {hive['housekeeper']}"
    if hive["undone"]:
        yield f"no process seems to do {', '.join(hive['undone'])}"
