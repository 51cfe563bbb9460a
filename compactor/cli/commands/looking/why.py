"""
`compactor why`: over all tables, what keeps replaced files from being removed and entries from being compacted, each
cause once, with what it holds back and the command that ends it.
"""

import gc
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import click

from compactor.acid.children import ListedDir
from compactor.cli import completing, control_records, units
from compactor.cli.naming.filters import METAVAR, places, watch_option, watched
from compactor.cli.output import OutputColumn, View
from compactor.cli.session import Command, Session, pass_session
from compactor.errors import RefusedError, UnreachableError
from compactor.metastore.catalog import Catalog
from compactor.metastore.clean.aborts import Aborts
from compactor.metastore.clean.ready import Cleaning
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.db.sql import batches
from compactor.metastore.model import Entity, QueueState
from compactor.status.causes import Hindrances, cause_records, causes_of, put_off, ties
from compactor.status.daemons import Daemons
from compactor.status.judging import CatalogMoment, Found, look
from compactor.status.survey import LISTED_AT_ONCE
from compactor.storage.registry import storage_for
from compactor.words import binary_units, plural

COLUMNS = (
    OutputColumn("holds", "HOLDS BACK"),
    OutputColumn("reason", "REASON", people=False),
    OutputColumn("cause", "BECAUSE", folds=24),
    OutputColumn("entries", "ENTRIES", right=True, show=units.number),
    OutputColumn("tables", "TABLES", right=True, show=units.number),
    OutputColumn("bytes", "BYTES", right=True, show=binary_units),
    OutputColumn("since_ms", "LONGEST", right=True, show=units.milliseconds),
    OutputColumn("example", "SUCH AS"),
    OutputColumn("remedy", "WHAT ENDS IT", folds=24),
    OutputColumn("ids", "IDS", people=False),
)


@click.command(cls=Command)
@click.argument("target", required=False, metavar=METAVAR, shell_complete=completing.tables)
@click.option(
    "--measure",
    type=click.IntRange(0, 1_000_000),
    default=1000,
    show_default=True,
    help="List at most so many directories to tell the bytes that are held back.",
)
@watch_option
@pass_session
def why(session: Session, *, target: str | None, measure: int, watch: float | None) -> None:
    """
    Show what keeps replaced files from being removed, and entries from being compacted, over all tables.

    Each cause is shown once (a transaction with its user and host, a lock, a pause, a pool without workers), with what
    it holds back and what ends it; what holds back most bytes comes first. An entry with several causes counts for each.
    """
    watched(session, watch, lambda: _view(session, target, measure))


@contextmanager
def _without_collector() -> Iterator[None]:
    """Without Python's collector of cycles: it would walk through all entries again and again, and they have none."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@_without_collector()
def _view(session: Session, target: str | None, measure: int) -> View:
    database = session.database()
    fits = places(session, target)
    now = database.read(database.now_ms)
    cleaner = Cleaning(database)
    cleaning = [
        ready for ready in cleaner.ready_for_cleaning(*session.settings.cleaner.waits_ms) if fits(ready.entry.entity)
    ]
    waiting = [entry for entry in Queue(database).entries(QueueState.INITIATED) if fits(entry.entity)]
    aborted = put_off(entry for entry in Aborts(database).noted() if fits(entry.entity))
    daemons = control_records.daemons(session) if cleaning or waiting or aborted else Daemons()
    hindrances = Hindrances(Catalog(database), daemons, cleaning)
    told = {} if target is None else ties(cleaner, cleaning)
    held = causes_of(hindrances, [*cleaning, *aborted], waiting, daemons, told)
    removable = dict.fromkeys(ready.entry.entity for ready in cleaning if ready.entry.location is None)
    sizes = _sizes(session, _found(session, removable, measure))
    unmeasured = len(removable.keys() - sizes.keys())
    notes = [f"of {plural(unmeasured, 'directory', 'directories')} it isn't known how many bytes"] if unmeasured else []
    late = Aborts(database).count_may_write(session.settings.cleaner.late_ms)
    if late and target is None:
        notes.append(
            f"{plural(late, 'aborted transaction')} can't be forgotten yet: tasks may still write"
            " (cleaner.late_writer_hours)"
        )
    return View(COLUMNS, cause_records(held, sizes, now), empty="nothing waits", footer="; ".join(notes))


def _found(session: Session, entities: Iterable[Entity], most: int) -> list[Found]:
    """The first `most` of these tables and partitions that the catalog has."""
    catalog = Catalog(session.database())
    found: list[Found] = []
    for batch in batches(entities, most):
        facts = catalog.facts_for(batch)
        found += [Found(*facts[entity]) for entity in batch if entity in facts]
        if len(found) >= most:
            break
    return found[:most]


def _sizes(session: Session, chosen: Sequence[Found]) -> dict[Entity, int]:
    """The bytes in each place that no query reads any more, where it can be listed."""
    moments: dict[str, CatalogMoment] = {}
    for found in chosen:
        if found.table.full_name not in moments:
            moments[found.table.full_name] = look(session.database(), found.table, session.settings.readers)
    with ThreadPoolExecutor(LISTED_AT_ONCE, thread_name_prefix="listing") as pool:
        sizes = pool.map(lambda found: _size(found, moments[found.table.full_name]), chosen)
        return {found.entity: size for found, size in zip(chosen, sizes, strict=True) if size is not None}


def _size(found: Found, moment: CatalogMoment) -> int | None:
    try:
        state, _ = moment.resolve(storage_for(found.location).list_tree(found.location))
    except (RefusedError, UnreachableError):
        return None
    return sum(_bytes(state.obsolete)) + sum(_bytes(state.aborted)) + sum(f.length for f in state.obsolete_originals)


def _bytes(directories: Iterable[ListedDir]) -> Iterator[int]:
    return (file.length for listed in directories for file in listed.files)
