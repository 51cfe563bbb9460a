"""
`compactor simulate`: what other thresholds would queue.

It only looks, and needs no daemon.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import click

from compactor.acid.compaction import CompactionKind
from compactor.cli import completing, units
from compactor.cli.commands.queueing.queue import work_on
from compactor.cli.naming.many import chosen
from compactor.cli.output import OutputColumn, Record, View
from compactor.cli.session import Command, Session, pass_session
from compactor.errors import UsageError
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.model import QueueState
from compactor.planning.picker import Pick
from compactor.roles.initiator.rules import thresholds_from
from compactor.settings import ThresholdSettings
from compactor.status.records import Pace, paces
from compactor.status.survey import Survey, Surveyed, listed
from compactor.words import binary_units, plural

_KEY: Final = "initiator.thresholds."
_LATEST: Final = 1000
"""Compactions of the queue that wait for cleaning, and of the history, whose pace counts."""


def _duration(hours: object) -> str:
    return units.about(3600 * float(str(hours))) if hours else "0 s"


SIMULATED_COLUMNS = (
    OutputColumn("thresholds", "THRESHOLDS", folds=16),
    OutputColumn("due_major", "MAJOR", right=True, show=units.number),
    OutputColumn("due_minor", "MINOR", right=True, show=units.number),
    OutputColumn("bytes", "THEIR SIZE", right=True, show=binary_units),
    OutputColumn("files", "FILES", right=True, show=units.number),
    OutputColumn("worker_hours", "OF A WORKER", right=True, show=_duration, less=1),
    OutputColumn("more", "MORE", right=True, show=units.number),
    OutputColumn("fewer", "FEWER", right=True, show=units.number),
)


def _changes(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """The thresholds to try, by their names in the settings."""
    found: dict[str, str] = {}
    for value in values:
        key, equals, text = value.partition("=")
        name = key.strip().removeprefix(_KEY)
        if not equals or name not in ThresholdSettings.model_fields:
            known = ", ".join(f"{_KEY}{field}" for field in ThresholdSettings.model_fields)
            raise click.BadParameter(f"{value!r} isn't KEY=VALUE with one of {known}")
        if name in found:
            raise click.BadParameter(f"{name} is given twice")
        found[name] = text.strip()
    return found


@click.command(cls=Command)
@click.argument("target", required=False, default="*", metavar="[DB[.TABLE]|PATTERN]", shell_complete=completing.tables)
@click.option(
    "--set", "changes", multiple=True, required=True, callback=_changes, metavar="KEY=VALUE", help="A threshold to try."
)
@pass_session
def simulate(session: Session, *, target: str, changes: dict[str, str]) -> None:
    """
    Show what other thresholds would queue now.

    Lists the directory of each table and partition; changes nothing. A table's own thresholds still count.
    """
    now = session.settings.initiator.thresholds
    try:
        other = ThresholdSettings(**(now.model_dump() | changes))
    except ValueError:
        given = ", ".join(f"{key}={value}" for key, value in changes.items())
        raise UsageError(f"--set: {given}: not a number, or one that the threshold may not have") from None
    among = chosen(session, target, None)
    with session.output.busy(f"listing {plural(len(among), 'directory', 'directories')}") as tell:
        survey = Survey(session.database(), session.settings, session.places, among, listed(tell, len(among)))
    before, after = survey.judged(), survey.judged(thresholds_from(other))
    said = ", ".join(f"{key} {value}" for key, value in changes.items())
    known = _paces(session)
    records = [_simulated("as they are", before, before, known), _simulated(said, after, before, known)]
    kinds = (CompactionKind.MAJOR, CompactionKind.MINOR)
    untold = [kind for kind in kinds if kind not in known and any(record[f"due_{kind}"] for record in records)]
    footer = f"how long a worker takes isn't known: the history has no {' and no '.join(untold)} compaction of ours"
    session.output.show(View(SIMULATED_COLUMNS, records, footer=footer if untold else ""))


def _paces(session: Session) -> Mapping[str, Pace]:
    queue = Queue(session.database())
    done = [
        *queue.entries(QueueState.READY_FOR_CLEANING, limit=_LATEST),
        *queue.history(QueueState.SUCCEEDED, limit=_LATEST),
    ]
    work = work_on(session, done)
    return paces((entry, work.get(entry.id)) for entry in done)


def _hours(due: Sequence[Surveyed], pace: Mapping[str, Pace]) -> float | None:
    """How long workers take for what is due, together; None where the pace of a kind among them isn't known."""
    total = 0.0
    for one in due:
        found = pace.get(one.verdict.kind) if isinstance(one.verdict, Pick) else None
        if found is None:
            return None
        total += found.seconds(one.input_bytes)
    return round(total / 3600, 6)


def _simulated(said: str, now: Sequence[Surveyed], before: Sequence[Surveyed], pace: Mapping[str, Pace]) -> Record:
    due = [one for one in now if isinstance(one.verdict, Pick)]
    names = {one.found.entity for one in due}
    known = {one.found.entity for one in before if isinstance(one.verdict, Pick)}
    kinds = [one.verdict.kind for one in due if isinstance(one.verdict, Pick)]
    return {
        "thresholds": said,
        "due_major": sum(kind is CompactionKind.MAJOR for kind in kinds),
        "due_minor": sum(kind is CompactionKind.MINOR for kind in kinds),
        "bytes": sum(one.read.bytes for one in due),
        "files": sum(one.read.files for one in due),
        "worker_hours": _hours(due, pace),
        "more": len(names - known),
        "fewer": len(known - names),
        "entities": sorted(map(str, names)),
    }
