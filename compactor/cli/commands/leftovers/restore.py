"""`compactor restore`: shows what is in quarantine, and undoes a compaction from it."""

import click

from compactor.cli import completing, control_records, units
from compactor.cli.naming.lookup import find
from compactor.cli.naming.target import parse_target
from compactor.cli.options import target_options
from compactor.cli.output import OutputColumn, Record, View
from compactor.cli.session import Code, Command, Session, pass_session
from compactor.control.scope import listed
from compactor.errors import CompactorError, RefusedError, UsageError
from compactor.metastore.catalog import Catalog
from compactor.metastore.model import duration
from compactor.reasons import Reason
from compactor.roles.cleaner.quarantine.kept import Kept
from compactor.roles.cleaner.quarantine.manifest import QuarantineManifest
from compactor.roles.cleaner.quarantine.restore import Restore
from compactor.roles.services import Services
from compactor.status.judging import Found
from compactor.words import plural

COLUMNS = (
    OutputColumn("entry", "COMPACTION", right=True),
    OutputColumn("age_ms", "KEPT FOR", right=True, show=lambda value: duration(int(str(value)))),
    OutputColumn("left_ms", "LEFT", right=True, show=lambda value: duration(int(str(value)))),
    OutputColumn(
        "directories", "DIRECTORIES", right=True, show=lambda value: str(len(value)) if isinstance(value, list) else ""
    ),
    OutputColumn("bytes", "BYTES", right=True, show=units.number),
    OutputColumn("restorable", "RESTORABLE", show=units.yes_or_no),
    OutputColumn("why_not", "WHY NOT", folds=24),
    OutputColumn("name", "NAME", less=1),
)
_NAMED = 3
"""So many directories are named to people."""
_Standing = tuple[Kept, RefusedError | None]
"""A quarantine directory, and why it can't be restored; None: it can."""


@click.command(cls=Command)
@target_options
@click.option(
    "--entry",
    type=click.IntRange(min=1),
    metavar="ID",
    shell_complete=completing.succeeded,
    help="The compaction to undo; needed where several can be.",
)
@click.option("--yes", is_flag=True, help="Undo it; without it what is in quarantine is only shown.")
@pass_session
def restore(session: Session, *, target: str, partition: str | None, entry: int | None, yes: bool) -> int:
    """
    Show what the Cleaner keeps in quarantine, and undo a compaction from it with --yes.

    The partition is then as if the compaction had not been. Where that isn't exact, it is refused with the reason, and
    nothing is changed.
    """
    wanted = parse_target(target, partition)
    database = session.database(write=yes)
    found = find(Catalog(database), wanted)
    services = Services.over(database, session.settings)
    work = Restore(services, found.table, found.partition, found.location)
    for done in work.settle() if yes else ():
        if entry in {None, done.entry}:
            return _undone(session, services, found, done, done.directories[0].name)
    standings = [(kept, _refusal(work, kept)) for kept in work.kept() if _is_of(kept, entry)]
    if not yes:
        now_ms = services.now_ms()
        records = [_record(*one, now_ms) for one in standings]
        session.output.show(View(COLUMNS, records, empty=_nothing(str(found.entity), entry)))
        return Code.DONE if records else Code.NOTHING_TO_DO
    chosen, refusal = _chosen(standings, str(found.entity), entry)
    if refusal is not None:
        raise refusal
    with session.output.busy(f"{found.entity}: comparing rows"):
        undo = work.run(chosen)
    return _undone(session, services, found, undo.manifest, undo.away)


def _undone(session: Session, services: Services, found: Found, manifest: QuarantineManifest, result: str) -> int:
    """Show, and note in the work on the entry, what was undone just now, or by a restore that was cut off at its end."""
    entry = services.queue.entry(manifest.entry) if manifest.entry is not None else None
    if entry is not None and entry.start_ms is not None:
        try:
            services.work.put_undone(entry.id, entry.start_ms, control_records.who(session), services.now_ms())
        except CompactorError as error:
            session.output.say(f"compactor history won't tell that compaction {entry.id} was undone: {error}")
    session.output.show(
        View(
            (
                OutputColumn("entry", "COMPACTION"),
                OutputColumn("result", "TAKEN AWAY"),
                OutputColumn("read", "READ AGAIN", show=_names, folds=24),
            ),
            [{"entry": manifest.entry, "result": result, "read": list(manifest.read_before)}],
        )
    )
    session.output.say(
        f"{found.entity} is as it was before compaction {manifest.entry}, and the Initiator may queue it again: "
        f"compactor pause --table {found.table.full_name} --reason … keeps it from doing so"
    )
    return Code.DONE


def _names(value: object) -> str:
    """Names of directories; of many the first, and how many more there are."""
    names = [str(name) for name in value] if isinstance(value, list) else []
    more = [f"{len(names) - _NAMED:,} more"] if len(names) > _NAMED else []
    return listed([*names[:_NAMED], *more]) if names else ""


def _refusal(work: Restore, kept: Kept) -> RefusedError | None:
    try:
        work.plan(kept)
    except RefusedError as refusal:
        return refusal
    return None


def _is_of(kept: Kept, entry: int | None) -> bool:
    return entry is None or (kept.manifest is not None and kept.manifest.entry == entry)


def _chosen(standings: list[_Standing], what: str, entry: int | None) -> _Standing:
    """
    The one to undo: of several only one that can be.

    Raises:
        RefusedError: nothing fits.
        UsageError: several can be undone.
    """
    if not standings:
        raise RefusedError(Reason.NOT_RESTORABLE, _nothing(what, entry))
    possible = [one for one in standings if one[1] is None]
    if len(possible) > 1:
        raise UsageError(f"{plural(len(possible), 'compaction')} of {what} can be undone: name one with --entry")
    of_compactions = [one for one in standings if one[0].manifest is not None and one[0].manifest.result]
    return possible[0] if possible else (of_compactions or standings)[-1]


def _nothing(what: str, entry: int | None) -> str:
    of = f" of compaction {entry}" if entry is not None else ""
    return f"nothing{of} of {what} is in quarantine"


def _record(kept: Kept, refusal: RefusedError | None, now_ms: int) -> Record:
    manifest = kept.manifest
    record: dict[str, object] = {
        "name": kept.name,
        "restorable": refusal is None,
        "why_not": None if refusal is None else str(refusal),
    }
    if manifest is not None:
        record |= {
            "entry": manifest.entry,
            "what": manifest.what,
            "age_ms": now_ms - manifest.kept_ms,
            "left_ms": max(0, manifest.until_ms - now_ms),
            "directories": [directory.name for directory in manifest.directories],
            "bytes": manifest.length,
        }
    return record
