"""
`compactor simulate`: what other thresholds would queue.

It only looks, and needs no daemon.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import click

from compactor.acid.compaction import CompactionKind
from compactor.cli import completing, units
from compactor.cli.naming.many import chosen
from compactor.cli.output import OutputColumn, Record, View
from compactor.cli.session import Command, Session, pass_session
from compactor.cli.views.survey import Survey, Surveyed, listed
from compactor.errors import UsageError
from compactor.planning.picker import Pick
from compactor.roles.initiator.rules import thresholds_from
from compactor.settings import ThresholdSettings
from compactor.words import plural

_KEY: Final = "initiator.thresholds."

SIMULATED_COLUMNS = (
    OutputColumn("thresholds", "THRESHOLDS", folds=16),
    OutputColumn("due_major", "MAJOR", right=True, show=units.number),
    OutputColumn("due_minor", "MINOR", right=True, show=units.number),
    OutputColumn("bytes", "THEIR SIZE", right=True, show=units.size),
    OutputColumn("files", "FILES", right=True, show=units.number),
    OutputColumn("more", "MORE", right=True, show=units.number),
    OutputColumn("fewer", "FEWER", right=True, show=units.number),
)


@dataclass(frozen=True, slots=True)
class _Change:
    key: str
    value: str


def _changes(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> tuple[_Change, ...]:
    found: list[_Change] = []
    for value in values:
        key, equals, text = value.partition("=")
        name = key.strip().removeprefix(_KEY)
        if not equals or name not in ThresholdSettings.model_fields:
            known = ", ".join(f"{_KEY}{field}" for field in ThresholdSettings.model_fields)
            raise click.BadParameter(f"{value!r} isn't KEY=VALUE with one of {known}")
        if any(name == one.key for one in found):
            raise click.BadParameter(f"{name} is given twice")
        found.append(_Change(name, text.strip()))
    return tuple(found)


@click.command(cls=Command)
@click.argument("target", required=False, default="*", metavar="[DB[.TABLE]|PATTERN]", shell_complete=completing.tables)
@click.option(
    "--set", "changes", multiple=True, required=True, callback=_changes, metavar="KEY=VALUE", help="A threshold to try."
)
@pass_session
def simulate(session: Session, *, target: str, changes: tuple[_Change, ...]) -> None:
    """
    Show what other thresholds would queue now.

    Lists the directory of each table and partition; changes nothing. A table's own thresholds still count.
    """
    now = session.settings.initiator.thresholds
    try:
        other = ThresholdSettings(**(now.model_dump() | {one.key: one.value for one in changes}))
    except ValueError:
        raise UsageError(
            f"--set: {', '.join(f'{one.key}={one.value}' for one in changes)}: not a number, or one that the threshold may not have"
        ) from None
    among = chosen(session, target, None)
    with session.output.busy(f"listing {plural(len(among), 'directory', 'directories')}") as tell:
        survey = Survey(session, among, listed(tell, len(among)))
    before, after = survey.judged(), survey.judged(thresholds_from(other))
    said = ", ".join(f"{one.key} {one.value}" for one in changes)
    records = [_simulated("as they are", before, before), _simulated(said, after, before)]
    session.output.show(View(SIMULATED_COLUMNS, records))


def _simulated(said: str, now: Sequence[Surveyed], before: Sequence[Surveyed]) -> Record:
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
        "more": len(names - known),
        "fewer": len(known - names),
        "entities": sorted(map(str, names)),
    }
