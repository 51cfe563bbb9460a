"""
`compactor report`: what is late, what it costs readers, and what stands in the way, over all tables.

It only looks, and needs no daemon.
"""

import html
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Group, RenderableType
from rich.text import Text

from compactor.acid.compaction import CompactionKind
from compactor.cli import completing, units
from compactor.cli.commands.looking.plan import make_plan
from compactor.cli.naming.many import chosen
from compactor.cli.options import file_to_write
from compactor.cli.output import OutputColumn, Record, View, part_of_picture
from compactor.cli.session import Command, Session, pass_session
from compactor.control.configured import Configured
from compactor.errors import CompactorError, SettingsError
from compactor.metastore.candidates import Initiating
from compactor.metastore.txn.transactions import Transactions
from compactor.planning.picker import Pick
from compactor.status.survey import SMALL_FILE, Survey, Surveyed, listed, worst
from compactor.words import binary_units, instant, plural

WORST_COLUMNS = (
    OutputColumn("entity", "TABLE"),
    OutputColumn("kind", "DUE FOR"),
    OutputColumn("score", "SCORE", right=True, show=lambda value: f"{float(str(value)):.2f}", less=5),
    OutputColumn("files", "FILES NOW", right=True, show=units.number),
    OutputColumn("files_after", "THEN", right=True, show=units.number, less=2),
    OutputColumn("bytes", "SIZE", right=True, show=binary_units, less=3),
    OutputColumn("recoded_bytes", "WRITTEN ANEW", right=True, show=binary_units, less=6),
    OutputColumn("seconds", "TAKES", right=True, show=lambda value: units.about(float(str(value))), less=4),
    OutputColumn("explanation", "WHY", folds=24),
)
_WORST: Final = 10
_EXAMPLES: Final = 5
_BEGINS: Final = '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/><title>compactor: '
"""How each page begins."""


@click.command(cls=Command)
@click.argument("target", required=False, default="*", metavar="[DB[.TABLE]|PATTERN]", shell_complete=completing.tables)
@click.option(
    "--html",
    "page",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=file_to_write(_BEGINS.encode()),
    help="Write a page with pictures.",
)
@pass_session
def report(session: Session, *, target: str, page: Path | None) -> None:
    """
    Show what is late, what it costs readers, and what stands in the way.

    Lists the directory of each table and partition, and plans the ten worst; changes nothing and needs no daemon.
    """
    if page is not None and not os.access(page.parent, os.W_OK):  # told before the work, which may take an hour
        raise SettingsError(f"--html {page} can't be written: {page.parent} isn't there, or may not be written to")
    among = chosen(session, target, None)
    with session.output.busy(f"listing {plural(len(among), 'directory', 'directories')}") as tell:
        surveyed = Survey(
            session.database(), session.settings, session.places, among, listed(tell, len(among))
        ).judged()
        first = worst(surveyed, _WORST)
        records = []
        for one, pick in first:
            tell(f"planning {one.found.entity}")
            records.append(_worst_record(session, one, pick))
    document = {"target": target, **_summary(session, surveyed), "worst": records}
    if page is not None:
        beside = page.with_name(f".{page.name}.new")
        try:
            beside.write_text(as_page(document), encoding="utf-8")
            beside.replace(page)
        except OSError as error:
            with suppress(OSError):
                beside.unlink()
            raise SettingsError(f"--html {page} can't be written: {error.strerror}") from None
        session.output.say(f"written to {page}")
    session.output.show(View(WORST_COLUMNS, records, document=document, picture=lambda: _picture(document, records)))


def _summary(session: Session, surveyed: Sequence[Surveyed]) -> dict[str, object]:
    database = session.database()
    now, included = database.read(database.now_ms), Configured.of(session.settings).includes
    open_now = Transactions(database).open_transactions()
    names = {one.found.entity for one in surveyed}
    aborted = sum(one.aborted_count for one in Initiating(database).candidates() if one.entity in names)
    read = [one.read for one in surveyed]
    due = [one.verdict for one in surveyed if isinstance(one.verdict, Pick)]
    oldest = max((txn.age_ms for txn in open_now), default=None)
    return {
        "taken": instant(now),
        "tables": len({one.found.table.full_name for one in surveyed}),
        "partitions": len(surveyed),
        "left_alone": sum(
            not included(*name) for name in {(one.found.table.database, one.found.table.name) for one in surveyed}
        ),
        "unreadable": sum(one.error is not None for one in surveyed),
        "directories": sum(one.directories for one in read),
        "files": sum(one.files for one in read),
        "small_files": sum(one.small_files for one in surveyed),
        "bytes": sum(one.bytes for one in read),
        "obsolete_bytes": sum(one.obsolete_bytes for one in surveyed),
        "due_minor": sum(one.kind is CompactionKind.MINOR for one in due),
        "due_major": sum(one.kind is CompactionKind.MAJOR for one in due),
        "aborted": aborted,
        "open_transactions": len(open_now),
        "oldest_open_ms": oldest,
        "left_files": [f"{one.found.entity}: {path}" for one in surveyed for path in one.left],
    }


def _worst_record(session: Session, one: Surveyed, pick: Pick) -> Record:
    record: dict[str, object] = {
        "entity": str(one.found.entity),
        "kind": pick.kind.value,
        "score": pick.score,
        "files": one.read.files,
        "bytes": one.read.bytes,
        "reason": pick.reason.value,
        "explanation": pick.explanation,
        "refused": None,
        **dict.fromkeys(("files_after", "copied_bytes", "recoded_bytes", "seconds")),
    }
    try:
        predicted = make_plan(session, one.found, pick.kind).prediction
    except CompactorError as error:
        return record | {"refused": str(error)}
    return record | {
        "files_after": predicted.files_after,
        "copied_bytes": predicted.copied,
        "recoded_bytes": predicted.recoded + predicted.cut,
        "seconds": predicted.seconds,
    }


def sentences(document: Mapping[str, Any]) -> list[str]:
    """The summary in words."""
    due = document["due_minor"] + document["due_major"]
    places = f"{plural(document['tables'], 'table')}, {plural(document['partitions'], 'directory', 'directories')}"
    opened = f"{plural(document['files'], 'file')} of {binary_units(document['bytes'])}"
    found = [
        f"{places}: queries open {opened} in {plural(document['directories'], 'base or delta', 'bases and deltas')}",
        f"{plural(document['small_files'], 'file')} below {binary_units(SMALL_FILE)}",
        f"{plural(due, 'compaction')} due ({document['due_major']:,} major, {document['due_minor']:,} minor)",
        f"{binary_units(document['obsolete_bytes'])} that no query reads any more wait for cleaning"
        + ("; compactor why says for what" if document["obsolete_bytes"] else ""),
        f"{plural(document['aborted'], 'write')} of aborted transactions",
        plural(document["open_transactions"], "open transaction")
        + (f", the oldest for {units.milliseconds(document['oldest_open_ms'])}" if document["oldest_open_ms"] else ""),
    ]
    if left := document["left_files"]:
        names = ", ".join(left[:_EXAMPLES]) + (f" and {len(left) - _EXAMPLES:,} more" if len(left) > _EXAMPLES else "")
        found.append(f"{plural(len(left), 'file')} that no query reads, in no base and no delta: {names}")
    if document["left_alone"]:
        found.append(f"{plural(document['left_alone'], 'table')} left alone by the daemon: control.only names others")
    if document["unreadable"]:
        found.append(f"{plural(document['unreadable'], 'directory', 'directories')} can't be read")
    return found


def _picture(document: Mapping[str, Any], records: Sequence[Record]) -> RenderableType:
    parts: list[RenderableType] = [
        Text(f"{sentence}", style="bold" if number == 0 else "") for number, sentence in enumerate(sentences(document))
    ]
    return Group(*parts, Text(), part_of_picture(WORST_COLUMNS, records)) if records else Group(*parts)


def as_page(document: Mapping[str, Any]) -> str:
    """One HTML page, with nothing from elsewhere."""
    rows = []
    most = max((record["files"] for record in document["worst"]), default=0) or 1
    for record in document["worst"]:
        after = record["files_after"]
        bars = "".join(
            f'<div class="{kind}" style="width:{max(0.5, 100 * (count or 0) / most):.1f}%">{count if count is not None else "?"}</div>'
            for kind, count in (("now", record["files"]), ("then", after))
        )
        cells = (
            html.escape(str(record["entity"])),
            html.escape(str(record["kind"])),
            bars,
            binary_units(record["bytes"]),
            "?" if record["recoded_bytes"] is None else binary_units(record["recoded_bytes"]),
            "?" if record["seconds"] is None else units.about(record["seconds"]),
            html.escape(str(record["refused"] or record["explanation"])),
        )
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    said = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in sentences(document))
    heads = ("table", "due for", "files now, and then", "size", "written anew", "takes", "why")
    head = "".join(f"<th>{one}</th>" for one in heads)
    title = f"{html.escape(str(document['target']))}, {units.clock(document['taken'])}"
    return f"""{_BEGINS}{title}</title><style>
body {{ font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 75em; color: #222; }}
table {{ border-collapse: collapse; width: 100%; }} td, th {{ padding: .4em .7em; text-align: left; vertical-align: top; }}
tr + tr td {{ border-top: 1px solid #ddd; }} td:nth-child(3) {{ width: 22em; }}
.now, .then {{ padding: 0 .3em; color: #fff; white-space: nowrap; }} .now {{ background: #b4433b; }} .then {{ background: #2d7d46; }}
</style></head><body>
<h1>Hive ACID tables: {title}</h1>
<ul>{said}</ul>
<h2>Most in need</h2>
<table><tr>{head}</tr>{"".join(rows)}</table>
</body></html>
"""
