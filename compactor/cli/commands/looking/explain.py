"""
`compactor explain`: draws a partition and says why it is or isn't due, what its compaction would cost, and what blocks
cleaning.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import click
from rich.console import Group, RenderableType
from rich.text import Text

from compactor.acid.compaction import CompactionKind
from compactor.cli import control_records, units
from compactor.cli.commands.looking.plan import OnlyCleaningError, make_plan
from compactor.cli.commands.queueing.queue import work_on
from compactor.cli.naming.lookup import find, find_table, require_transactional
from compactor.cli.naming.target import parse_target
from compactor.cli.options import target_options
from compactor.cli.output import OutputColumn, Record, View
from compactor.cli.session import Command, Session, pass_session
from compactor.cli.views.achieved import told_undone
from compactor.cli.views.drawing import COLUMNS, picture
from compactor.cli.views.plan_view import cost, effect, headline
from compactor.errors import RefusedError
from compactor.metastore.catalog import Catalog
from compactor.metastore.clean.may_clean import ReadyEntry
from compactor.metastore.compaction_queue.urgency import reason_of
from compactor.metastore.model import QueueEntry, QueueState
from compactor.planning.document import CompactionPlan
from compactor.planning.picker import Pick, Skip
from compactor.reasons import Reason
from compactor.status.judging import Found
from compactor.status.partition import Inspection, inspect, partition_records
from compactor.words import binary_units

PARTITION_COLUMNS = (
    OutputColumn("partition", "PARTITION"),
    OutputColumn("directories", "READS", right=True, show=units.number),
    OutputColumn("files", "FILES", right=True, show=units.number),
    OutputColumn("bytes", "SIZE", right=True, show=binary_units),
    OutputColumn("due", "DUE"),
    OutputColumn("score", "SCORE", right=True, show=lambda value: f"{float(str(value)):.2f}"),
    OutputColumn("explanation", "WHY", folds=24),
)
_ENDS: Final = frozenset({Reason.COMPACTION_ABORTED, Reason.NO_CLEANUP, Reason.REPLICATION_SOURCE})
"""For these the Cleaner doesn't wait: it ends the entry, and the files stay."""


@click.command(cls=Command)
@target_options
@click.option("--all", "everything", is_flag=True, help="Draw every directory; otherwise long groups are folded.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="For a partitioned table: look at so many partitions at most.",
)
@pass_session
def explain(session: Session, *, target: str, partition: str | None, everything: bool, limit: int) -> None:
    """
    Draw a partition, and say why it is or isn't due, and what blocks cleaning.

    A partitioned table without a partition lists its partitions, most in need first.
    """
    wanted = parse_target(target, partition)
    database = session.database()
    catalog = Catalog(database)
    facts = find_table(catalog, wanted)
    if facts.partitioned and wanted.partition is None:
        require_transactional(facts)
        records = partition_records(database, session.settings, session.places, facts, limit)
        session.output.show(View(PARTITION_COLUMNS, records, empty=f"{facts.full_name} has no partitions"))
        return
    found = find(catalog, wanted)
    inspection = inspect(database, session.settings, session.places, found, control_records.daemons(session))
    inspection = replace(inspection, work=work_on(session, inspection.history))
    session.output.show(explanation_view(inspection, _plan(session, inspection), fold=not everything))


def _plan(session: Session, inspection: Inspection) -> CompactionPlan | RefusedError:
    """
    The plan of a compaction that would start now, or why it would be refused.

    An ineligible table or partition is not planned: the directory's contents can't change that refusal.
    """
    if (skip := inspection.ineligible) is not None:
        return RefusedError(skip.reason, skip.explanation)
    try:
        return make_plan(session, inspection.found, inspection.kind)
    except RefusedError as refusal:
        return refusal


def explanation_view(inspection: Inspection, plan: CompactionPlan | RefusedError, *, fold: bool) -> View:
    """The answer: the drawing for people, one document for JSON and YAML, the directories for TSV."""
    return View(
        COLUMNS,
        [item.record() for item in inspection.items],
        document=inspection.record(_compaction_record(plan, _warnings(inspection.found, plan))),
        picture=lambda: _picture(inspection, plan, fold=fold),
    )


def _warnings(found: Found, plan: CompactionPlan | RefusedError) -> list[str]:
    """Warnings for an operator who wants to request a compaction, even one that would be refused now."""
    if isinstance(plan, RefusedError):
        return [] if found.kept is None else [found.kept]
    return list(plan.warnings)


def _compaction_record(plan: CompactionPlan | RefusedError, warnings: list[str]) -> Record:
    if isinstance(plan, RefusedError):
        return {
            "possible": False,
            "reason": plan.reason.value,
            "message": plan.message,
            "sends_cleaner": isinstance(plan, OnlyCleaningError),
            "warnings": warnings,
        }
    predicted = plan.prediction
    return {
        "possible": True,
        "kind": plan.kind.value,
        "directories": list(plan.names),
        "read_bytes": predicted.read,
        "copied_bytes": predicted.copied,
        "probed_bytes": predicted.probed,
        "cut_bytes": predicted.cut,
        "recoded_bytes": predicted.recoded,
        "joined_bytes": predicted.joined,
        "written_bytes": predicted.written,
        "seconds": predicted.seconds,
        "files_before": predicted.files_before,
        "files_after": predicted.files_after,
        "stripes_before": predicted.stripes_before,
        "stripes_after": predicted.stripes_after,
        "warnings": warnings,
    }


def _picture(inspection: Inspection, plan: CompactionPlan | RefusedError, *, fold: bool) -> RenderableType:
    found, wait = inspection.found, inspection.wait
    parts: list[RenderableType] = [
        picture(str(found.entity), inspection.items, fold=fold),
        Text(found.location, style="dim"),
        Text(),
        *_verdict_lines(inspection, plan),
        *(Text(f"  warning: {warning}", style="yellow") for warning in _warnings(found, plan)),
    ]
    if wait is not None:
        parts.append(Text(f"none may begin now ({wait.reason}): {wait.sentence}", style="yellow"))
    for entry, shown in zip(inspection.queue, inspection.queued, strict=True):
        parts += _queue_lines(entry, shown, said=None if wait is None else wait.reason)
    for ready in inspection.cleaning:
        parts += _cleaning_lines(ready)
    if (known := inspection.why_known()) is not None:
        parts.append(Text(known, style="dim"))
    for last in inspection.ended[:1]:
        parts.append(Text(_last(last), style="dim"))
    return Group(*parts)


def _verdict_lines(inspection: Inspection, plan: CompactionPlan | RefusedError) -> Iterator[Text]:
    """Whether it is due, and what a compaction now would come to; once where both have the same reason."""
    verdict = inspection.verdict
    one_answer = (
        isinstance(plan, RefusedError)
        and not isinstance(plan, OnlyCleaningError)
        and isinstance(verdict, Skip)
        and verdict.reason is plan.reason
    )
    yield _verdict_line(verdict, and_refused=one_answer)
    for sentence in inspection.moment.open_writers()[:1]:
        yield Text(f"  {sentence}; nothing at or above it can be compacted yet", style="yellow")
    for finding in verdict.findings:
        yield Text(f"  {finding}", style="yellow")
    match plan:
        case OnlyCleaningError():
            yield Text(f"a compaction now would join nothing, and send the Cleaner: {plan.left.sentence}")
        case RefusedError() if not one_answer:
            yield Text(f"a compaction now would be refused ({plan.reason.value}): {plan.message}")
        case CompactionPlan():
            yield Text(headline(plan))
            yield Text(f"  {cost(plan)}", style="dim")
            yield Text(f"  {effect(plan)}", style="dim")


def _queue_lines(entry: QueueEntry, record: Record, *, said: str | None) -> Iterator[Text]:
    """
    An entry of the queue, its failures and what it waits for.

    Args:
        said: the reason of waiting that was told before.
    """
    by = f" by {entry.worker_id}" if entry.worker_id else ""
    yield Text(f"{entry.kind.value} compaction {entry.id} is {entry.state.value}{by}")
    if entry.kind is CompactionKind.ABORT_CLEANUP and entry.error_message:  # nothing else tells what it waits for
        yield Text(f"  {entry.error_message}", style="yellow")
    if entry.state is QueueState.INITIATED and (urgent := reason_of(entry)) is not None:
        yield Text(f"  {urgent}", style="dim")
    if record["broke_down"]:
        yield Text(f"  {record['broke_down']}", style="yellow")
    if record["waits"] not in (None, said):
        yield Text(f"  waits ({record['waits']}): {record['waits_because']}", style="yellow")


def _cleaning_lines(ready: ReadyEntry) -> Iterator[Text]:
    if not ready.blockers:
        yield Text(f"nothing holds back cleaning after compaction {ready.entry.id}")
        return
    ends = not _ENDS.isdisjoint(blocker.reason for blocker in ready.blockers)
    how = "will end without removing anything" if ends else "waits"
    yield Text(f"cleaning after compaction {ready.entry.id} {how}:")
    for blocker in ready.blockers:
        yield Text(f"  {blocker.sentence} ({blocker.reason.value})", style="yellow")


def _last(ended: Record) -> str:
    """The entry that ended last; and whether its result was taken away again."""
    message = f": {ended['message']}" if ended["message"] else ""
    restored = told_undone(ended)
    message += f"; undone {restored}" if restored else ""
    return f"last: {ended['kind']} compaction {ended['id']} {ended['state']} {units.clock(ended['ended'])}{message}"


def _verdict_line(verdict: Pick | Skip, *, and_refused: bool) -> Text:
    """
    The verdict as one line.

    Args:
        and_refused: whether a compaction now would be refused for the verdict's own reason.
    """
    if isinstance(verdict, Pick):
        return Text(
            f"due for a {verdict.kind.value} compaction ({verdict.reason.value}): {verdict.explanation}",
            style="bold green",
        )
    what = "not due, and a compaction now would be refused" if and_refused else "not due"
    return Text(f"{what} ({verdict.reason.value}): {verdict.explanation}", style="bold")
