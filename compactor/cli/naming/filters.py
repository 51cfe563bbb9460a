"""
Which entries a listing shows: of a database, of tables that fit a pattern, of a pool or a worker, since a moment; and how
a listing is watched.
"""

import io
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TypeVar

import click

from compactor.acid.compaction import CompactionKind
from compactor.cli import completing, control_records
from compactor.cli.naming.lookup import find_partition, find_table
from compactor.cli.naming.patterns import by_pattern, require_tables
from compactor.cli.naming.pools import known_pools, unknown_pool
from compactor.cli.naming.target import no_database, parse_target, partition_names
from compactor.cli.options import together
from compactor.cli.output import View
from compactor.cli.session import Session
from compactor.control.scope import DEFAULT_POOL
from compactor.errors import NothingFitsError, RefusedError, UnreachableError, UsageError
from compactor.metastore.catalog import Catalog
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.model import Entity, ForeignEntry, QueueEntry
from compactor.name_patterns import fits, is_pattern
from compactor.status.records import entered_ms

Row = TypeVar("Row", bound=QueueEntry | ForeignEntry)
METAVAR = "[DB[.TABLE[/PARTITION]]]"
_WATCH_SECONDS = 2.0
_LONGEST_WATCH_SECONDS = 86_400


entry_options = together(
    click.argument("target", required=False, metavar=METAVAR, shell_complete=completing.tables),
    click.option(
        "--type",
        "kind",
        type=click.Choice([kind.value for kind in CompactionKind], case_sensitive=False),
        help="Only compactions of this kind.",
    ),
    click.option(
        "--pool",
        metavar="P",
        shell_complete=completing.pools,
        help="Only of this pool; `default`: entries without one.",
    ),
    click.option(
        "--worker",
        metavar="PATTERN",
        shell_complete=completing.workers,
        help="Only of workers whose name fits; * and ? stand for others.",
    ),
    click.option("--since", metavar="LENGTH", help="Only of the last 30min, 2h or 1d12h: enqueued, or ended, then."),
)
"""Adds the options by which `Wanted` chooses entries; the command gets them as `chosen`."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """
    The entries that a listing shows.

    Args:
        place: whether a table or partition is among those asked for.
        since_ms: by the database clock.
    """

    place: Callable[[Entity], bool]
    kind: str | None = None
    pool: str | None = None
    worker: str | None = None
    since_ms: int | None = None

    @classmethod
    def of(  # noqa: PLR0917 - the options of `entry_options`
        cls,
        session: Session,
        target: str | None,
        kind: str | None,
        pool: str | None,
        worker: str | None,
        since: str | None,
    ) -> "Wanted":
        """
        Read the options.

        Raises:
            UsageError: one makes no sense.
            RefusedError: as `places`.
        """
        length = None if since is None else control_records.length_ms(since, "--since")
        place = places(session, target)
        if length is not None:
            database = session.database()
            length = database.read(database.now_ms) - length
        return cls(place, kind, pool, worker, length)

    def among(self, entries: Iterable[Row]) -> list[Row]:
        """Those that are asked for. An entry of a later Hive has no known pool, and its own kind."""
        return [entry for entry in entries if self.place(entry.entity) and self._is_like(entry)]

    def tell_unknown(self, session: Session, there: Iterable[QueueEntry | ForeignEntry]) -> None:
        """Say of a pool that none of these entries has, and no worker and no table either, which names are near."""
        if self.pool is None:
            return
        pools = {entry.pool for entry in there if isinstance(entry, QueueEntry) and entry.pool is not None}
        if self.pool.lower() in {DEFAULT_POOL, *map(str.lower, pools)}:
            return
        catalog = Catalog(session.database())
        known = known_pools(session.settings, catalog, control_records.daemons(session), pools)
        if (unknown := unknown_pool(self.pool, known)) is not None:
            session.output.say(f"--pool: {unknown}")

    def _is_like(self, entry: QueueEntry | ForeignEntry) -> bool:
        if self.worker is not None and (not entry.worker_id or not fits(entry.worker_id.lower(), self.worker)):
            return False
        if isinstance(entry, ForeignEntry):
            return self.kind is None and self.pool is None and self._is_since(entered_ms(entry))
        if self.kind is not None and entry.kind.value != self.kind:
            return False
        if self.pool is not None and self.pool.lower() != (entry.pool or DEFAULT_POOL).lower():
            return False
        return self._is_since(entered_ms(entry))

    def _is_since(self, moment_ms: int | None) -> bool:
        """Hive 3.1 doesn't note when an entry was queued: what may be since then is shown."""
        return self.since_ms is None or moment_ms is None or moment_ms >= self.since_ms


def places(session: Session, target: str | None) -> Callable[[Entity], bool]:
    """
    Whether a table or partition is asked for: by a database, a table, a partition, or a pattern of these. Without a
    target all are.

    Names fit patterns whatever the case of their letters.

    Raises:
        UsageError: the pattern names no tables.
        RefusedError: TABLE_MISSING, PARTITION_MISSING: a name without `*` and `?` is neither in the catalog nor in
            queue or history; with near names.
        NothingFitsError: a pattern fits no table, neither in the catalog nor in queue or history.
    """
    if target is None:
        return lambda _: True
    if is_pattern(target):
        return _by_pattern(session, target)
    name = target.strip().replace("`", "").lower()
    if not name:
        raise UsageError("an empty name is no database's: leave it out for all")
    if "." not in name:
        databases = Catalog(session.database()).databases()
        if name not in databases:
            raise no_database(name, databases, alone=True)
        return lambda entity: entity.database == name
    wanted = _entity(session, target)
    return lambda entity: is_of(entity, wanted)


def is_of(entity: Entity, wanted: Entity) -> bool:
    """Whether an entity is this table or partition, or a partition of this table."""
    return entity == wanted or (wanted.partition is None and entity.whole_table() == wanted)


def _by_pattern(session: Session, pattern: str) -> Callable[[Entity], bool]:
    asked_for = by_pattern(pattern)
    try:
        require_tables(Catalog(session.database()), pattern)
    except (NothingFitsError, RefusedError, UsageError):
        if not _has_rows(session, asked_for):  # tables that are gone
            raise
    return asked_for


def _entity(session: Session, target: str) -> Entity:
    wanted = parse_target(target)
    catalog = Catalog(session.database())
    table = catalog.find_table(wanted.database, wanted.table)
    if table is None or wanted.partition is None:
        if table is None and not _has_rows(session, lambda one: is_of(one, wanted)):
            find_table(catalog, wanted)
        return wanted
    try:
        return Entity(wanted.database, wanted.table, find_partition(catalog, table, wanted.partition).name)
    except RefusedError:
        names = partition_names(wanted.partition, [key.name for key in table.partition_keys])
        entities = [Entity(wanted.database, wanted.table, name) for name in names]
        gone = next((one for one in entities if _has_rows(session, partial(is_of, wanted=one))), None)
        if gone is None:
            raise
        return gone


def _has_rows(session: Session, asked_for: Callable[[Entity], bool]) -> bool:
    queue = Queue(session.database())
    rows: list[QueueEntry | ForeignEntry] = [*queue.entries(), *queue.foreign(), *queue.history()]
    return any(asked_for(row.entity) for row in rows)


# Watching


def _not_too_long(_: click.Context, __: click.Parameter, value: float | None) -> float | None:
    if value is not None and not value <= _LONGEST_WATCH_SECONDS:  # nor no number
        raise click.BadParameter(f"{value:g} is no number of seconds up to {_LONGEST_WATCH_SECONDS}, a day")
    return value


watch_option = click.option(
    "--watch",
    is_flag=False,
    flag_value=_WATCH_SECONDS,
    type=click.FloatRange(min=0.2),
    metavar="[SECONDS]",
    callback=_not_too_long,
    help="Show it again every two seconds, or so many, until Ctrl-C.",
)
"""Adds `watch`, for `watched`."""


def watched(session: Session, seconds: float | None, look: Callable[[], View]) -> View:
    """
    Show an answer once, or again and again; the metastore is left alone in between, and asked again when it was away.

    On a terminal a picture stays until the next one is known; elsewhere a line with the time begins each.

    Returns:
        What was shown; again and again there is no end but Ctrl-C.
    """
    if seconds is None:
        view = look()
        session.output.show(view)
        return view
    while True:
        said, answer = io.StringIO(), None
        try:
            with redirect_stderr(said):
                answer = look()
        except UnreachableError as error:
            said.write(f"error: {error}\n")
        except Exception:  # ends the watching: no picture follows with what was said
            click.echo(said.getvalue(), err=True, nl=False)
            raise
        if sys.stdout.isatty():
            click.clear()
        else:
            session.output.separate(f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S %Z}")
        click.echo(said.getvalue(), err=True, nl=False)
        if answer is not None:
            session.output.show(answer)
        session.close()
        time.sleep(seconds)
