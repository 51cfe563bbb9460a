"""`compactor orphans`: shows what attempts and statements that are over have left behind, and removes what is proven."""

import click

from compactor.cli import completing, control_records, units
from compactor.cli.naming.filters import METAVAR
from compactor.cli.naming.many import chosen
from compactor.cli.output import OutputColumn, Record, View
from compactor.cli.session import Code, Command, Session, pass_session
from compactor.errors import CompactorError, UsageError
from compactor.metastore.model import duration
from compactor.roles.cleaner.quarantine.orphans import Leftovers, Orphan
from compactor.roles.services import Services
from compactor.status.judging import Found
from compactor.words import plural

COLUMNS = (
    OutputColumn("path", "PATH"),
    OutputColumn("kind", "OF"),
    OutputColumn("bytes", "BYTES", right=True, show=units.number),
    OutputColumn("age_ms", "AGE", right=True, show=lambda value: duration(int(str(value)))),
    OutputColumn("proven", "PROVEN", show=units.yes_or_no),
    OutputColumn("why", "WHY", folds=24),
    OutputColumn("removed", "REMOVED", show=units.yes_or_no),
)
_MUTEX_SECONDS = 30.0
_EVERY = 500
"""Directories after which the command says how far it is."""


@click.command(cls=Command)
@click.argument("target", default="*", metavar=METAVAR, shell_complete=completing.tables)
@click.option(
    "--older-than", default="7d", show_default=True, metavar="LENGTH", help="Remove only what is older: 12h, 7d."
)
@click.option("--remove", is_flag=True, help="Remove what is proven and old enough; without --yes it is only shown.")
@click.option("--yes", is_flag=True, help="With --remove: do it.")
@click.option(
    "--quarantine",
    is_flag=True,
    help="Of quarantine alone, also before its time is over: what goes can't be restored any more.",
)
@pass_session
def orphans(session: Session, *, target: str, older_than: str, remove: bool, yes: bool, quarantine: bool) -> int:
    """
    Show what attempts and statements that are over have left behind: path, size, age, and what proves it.

    Staging, evidence and trash of the daemon, and what statements of Hive staged. With --remove --yes, what is proven
    and older than --older-than goes. What isn't proven never does.
    """
    if yes and not remove:
        raise UsageError("--yes is for --remove")
    older_than_ms = control_records.length_ms(older_than, "--older-than")
    services = Services.over(session.database(write=yes), session.settings)
    found = _found(session, _places(services, _included(session, services, target), only_quarantine=quarantine))
    due = [(place, orphan) for place, orphan in found if orphan.is_due(older_than_ms)]
    size = sum(orphan.bytes for _, orphan in due)
    what = f"{plural(len(due), 'directory', 'directories')} ({plural(size, 'byte')}) proven and old enough"
    removed = _remove(session, services, due, older_than_ms, what) if yes and due else set[str]()
    footer = f"{len(removed):,} of {what} removed" if yes else f"{what}: --remove --yes removes them"
    records = [_record(orphan, orphan.path in removed) for _, orphan in found]
    session.output.show(View(COLUMNS, records, empty="nothing is left over", footer=footer if due else ""))
    if yes:
        return Code.NOTHING_TO_DO if not due else Code.DONE if len(removed) == len(due) else Code.FAILED
    return Code.DONE if found else Code.NOTHING_TO_DO


def _found(session: Session, places: list[Leftovers]) -> list[tuple[Leftovers, Orphan]]:
    found: list[tuple[Leftovers, Orphan]] = []
    with session.output.busy(f"looking into {plural(len(places), 'directory', 'directories')}") as tell:
        for number, place in enumerate(places):
            if number and number % _EVERY == 0:
                tell(f"looked into {number:,} of {plural(len(places), 'directory', 'directories')}")
            try:
                found += [(place, orphan) for orphan in place.find()]
            except CompactorError as error:
                session.output.say(f"{place.location}: {error}")
    return found


def _remove(
    session: Session, services: Services, due: list[tuple[Leftovers, Orphan]], older_than_ms: int, what: str
) -> set[str]:
    """
    Remove what is still due, as the holder of the Cleaner's mutex; returns the paths that are gone.

    Args:
        what: all of it, in words.
    """
    removed: set[str] = set()
    with (
        services.database.mutex("Cleaner", wait_seconds=_MUTEX_SECONDS) as mutex,
        session.output.busy(f"removing {what}") as tell,
    ):
        try:
            for number, (place, orphan) in enumerate(due):
                if number and number % _EVERY == 0:
                    tell(f"{len(removed):,} of {what} removed")
                mutex.check()
                try:
                    if place.remove(orphan, older_than_ms):
                        removed.add(orphan.path)
                except CompactorError as error:
                    session.output.say(f"{orphan.path}: {error}")
        except (KeyboardInterrupt, CompactorError):
            session.output.say(f"{len(removed):,} of {what} removed")
            raise
    return removed


def _included(session: Session, services: Services, target: str) -> list[Found]:
    """The tables and partitions that fit, but for those that `control.only` leaves out; says how many these are."""
    among = chosen(session, target, None)
    included = [one for one in among if services.control.includes(one.table.database, one.table.name)]
    if left := len(among) - len(included):
        what = plural(left, "directory", "directories")
        session.output.say(f"{what} not looked into: control.only leaves {'it' if left == 1 else 'them'} out")
    return included


def _places(services: Services, found: list[Found], *, only_quarantine: bool) -> list[Leftovers]:
    """The directories to look into: those of the partitions, and once that of each partitioned table."""
    places: dict[str, Leftovers] = {}
    for one in found:
        if one.table.location:
            places.setdefault(
                one.table.location, Leftovers(services, one.table, None, one.table.location, only_quarantine)
            )
        if one.partition is not None and one.partition.location:
            places[one.partition.location] = Leftovers(
                services, one.table, one.partition, one.partition.location, only_quarantine
            )
    return list(places.values())


def _record(orphan: Orphan, removed: bool) -> Record:
    return {
        "path": orphan.path,
        "kind": orphan.kind,
        "bytes": orphan.bytes,
        "age_ms": orphan.age_ms,
        "proven": orphan.proven,
        "why": orphan.why,
        "removed": removed,
    }
