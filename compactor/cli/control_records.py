"""
Shared by the commands that change control state (`pause`, `resume`, `drain`) or show why an entry waits.

Connects to the coordinator, and reads scopes and times from options.
"""

import getpass
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import click

from compactor.cli import completing, units
from compactor.cli.naming.lookup import find_table
from compactor.cli.naming.pools import known_pools, unknown_pool
from compactor.cli.naming.target import no_database
from compactor.cli.options import together
from compactor.cli.output import OutputColumn
from compactor.cli.session import Session, quiet_log
from compactor.control import Control, Scope
from compactor.control.configured import zone_of
from compactor.control.records import HOLDS, Holds
from compactor.control.scope import ScopeKind
from compactor.control.times import FIRST_YEAR, LAST_YEAR, in_ms, last
from compactor.coordination import Coordinator, open_coordinator
from compactor.errors import CompactorError, UsageError
from compactor.metastore.catalog import Catalog
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.model import Entity
from compactor.name_patterns import fits, is_pattern
from compactor.status.daemons import UNTOLD, Daemons

COLUMNS = (
    OutputColumn("what", "WHAT"),
    OutputColumn("scope", "SCOPE"),
    OutputColumn("reason", "REASON", folds=24),
    OutputColumn("by", "BY", less=1),
    OutputColumn("since", "SINCE", show=units.clock, less=3),
    OutputColumn("until", "UNTIL", show=units.clock),
    OutputColumn("cancel", "CANCELS", show=lambda value: "yes" if value else "", less=2),
    OutputColumn("cleaner", "CLEANER TOO", show=lambda value: "yes" if value else "", less=2),
)
_PATIENCE_SECONDS = 5.0
"""How long a command waits for ZooKeeper at most."""
_LENGTH = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)min)?(?:(\d+)s)?")
_LENGTHS = (86_400_000, 3_600_000, 60_000, 1000)
_LONGEST_MS = 10 * 366 * 86_400_000


# Scopes


scope_options = together(
    click.option(
        "--pool", metavar="P", shell_complete=completing.pools, help="A pool; `default`: entries without one."
    ),
    click.option(
        "--database", metavar="D", shell_complete=completing.databases, help="A database; may be a pattern, too."
    ),
    click.option(
        "--table",
        metavar="PATTERN",
        shell_complete=completing.tables,
        help="DB.TABLE; * stands for any characters, ? for one.",
    ),
    click.option("--all", "everything", is_flag=True, help="The whole cluster."),
)
"""Adds --pool, --database, --table and --all, for `scope_from`."""


def scope_from(pool: str | None, database: str | None, table: str | None, *, everything: bool) -> Scope:
    """
    The scope that the options of `scope_options` name.

    Raises:
        UsageError: no option is given, more than one is, or a table is named without its database.
    """
    given = [
        Scope(kind, name.strip())
        for kind, name in (
            (ScopeKind.POOL, pool),
            (ScopeKind.DATABASE, database and database.lower()),
            (ScopeKind.TABLE, table and table.lower()),
        )
        if name is not None
    ] + ([Scope(ScopeKind.ALL)] if everything else [])
    if len(given) != 1:
        raise UsageError("say what: --pool, --database, --table or --all" + (", only one of them" if given else ""))
    scope = given[0]
    if scope.kind is not ScopeKind.ALL and (not scope.name or re.search(r"\s", scope.name)):
        raise UsageError(f"--{scope.kind.value}: {scope.name!r} is no name")
    if scope.kind is ScopeKind.TABLE and scope.name.count(".") != 1:
        raise UsageError(
            f"--table: {scope.name!r} doesn't name tables: write DATABASE.TABLE, such as sales.orders or sales.*"
        )
    return scope


def require_there(session: Session, scope: Scope) -> None:
    """
    Refuse a database or table that doesn't exist, so that a misspelt name doesn't pass for a pause.

    A pattern that fits no database or table now, and an unknown pool, are accepted, with a message.

    Raises:
        RefusedError: TABLE_MISSING, with near names.
    """
    catalog = Catalog(session.database())
    if scope.kind is ScopeKind.POOL:
        pools = known_pools(session.settings, catalog, daemons(session))
        if (unknown := unknown_pool(scope.name, pools)) is not None:
            session.output.say(f"--pool: {unknown}")
        return
    if scope.kind not in {ScopeKind.DATABASE, ScopeKind.TABLE}:
        return
    database, _, table = scope.name.partition(".")
    databases = catalog.databases()
    if not is_pattern(scope.name):
        if table:
            find_table(catalog, Entity(database, table))
        elif database not in databases:
            raise no_database(database, databases)
        return
    fitting = [name for name in databases if fits(name, database)]
    if not fitting or (
        table and not any(fits(f"{one}.{name}", scope.name) for one in fitting for name in catalog.table_names(one))
    ):
        session.output.say(f"nothing fits {scope.name} now")


# Times


def length_ms(text: str, option: str = "--for") -> int:
    """
    Milliseconds of a length of time such as `90s`, `30min`, `2h`, `1d12h`.

    Raises:
        UsageError: the text isn't a length of time.
    """
    found = _LENGTH.fullmatch(text.replace(" ", ""))
    total = sum(int(number or 0) * unit for number, unit in zip(found.groups(), _LENGTHS, strict=True)) if found else 0
    if not 0 < total <= _LONGEST_MS:
        raise UsageError(f"{option}: {text!r} is no length of time such as 30min, 2h or 1d12h, of ten years at most")
    return total


def moment_ms(session: Session, text: str) -> int:
    """
    Milliseconds since 1970 of a time in ISO 8601.

    A time without an offset is in the zone of the settings (`windows.time_zone`); of a time that clocks show twice, the
    later one is meant.

    Raises:
        UsageError: the text isn't a time.
    """
    try:
        given = datetime.fromisoformat(text.strip())
        if not FIRST_YEAR <= given.year <= LAST_YEAR:
            raise ValueError(given.year)
    except ValueError:
        years = f"of a year from {FIRST_YEAR} to {LAST_YEAR}"
        raise UsageError(
            f"--until: {text!r} is no time such as 2026-01-31T18:00 or 2026-01-31T18:00+01:00, {years}"
        ) from None
    return in_ms(given) if given.tzinfo is not None else last(given, zone_of(session.settings.windows.time_zone))


def who(session: Session) -> str:
    """The user of this command, as `user@host`."""
    return f"{getpass.getuser()}@{session.settings.host_name}"


# Control state


@contextmanager
def coordinator(session: Session, *, write: bool = False) -> Iterator[Coordinator]:
    """
    The coordinator that keeps the control state, connected until the context ends.

    Raises:
        UnreachableError: the coordinator doesn't answer within a few seconds, or a daemon holds the embedded metastore.
    """
    quiet_log()
    if session.settings.zookeeper.hosts is None:
        session.database(write=write)
    found = open_coordinator(session.settings, session.database, patience_seconds=_PATIENCE_SECONDS)
    try:
        found.connect()
        yield found
    finally:
        found.close()


def stored(where: Coordinator) -> Holds:
    """
    The stored pauses and drains.

    Raises:
        CompactorError: the coordinator doesn't answer, or the stored value isn't one that compactor wrote.
    """
    value = where.read(HOLDS)
    try:
        return Holds.of(None if value is None else value.data)
    except ValueError as error:
        raise CompactorError(f"control state {HOLDS}: {error}") from None


def change(where: Coordinator, how: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
    """
    Store a change of the pauses and drains.

    Args:
        how: makes the new value from the stored one.

    Raises:
        CompactorError: the coordinator doesn't answer, or the stored value isn't one that compactor wrote.
    """
    stored(where)
    where.update(HOLDS, how)


def daemons(session: Session) -> Daemons:
    """
    All daemons at this moment; what isn't known of them is printed, a line each.

    When the control state can't be read, it is answered for each entry only that it can't be told what is paused.
    """
    database, settings = session.database(), session.settings
    try:
        with coordinator(session) as where:
            control = Control(lambda: where, lambda: settings, lambda: database.read(database.now_ms), None)
            found = Daemons.read(where, control.judge(), Queue(database))
    except CompactorError as error:
        found = Daemons.untold(f"{UNTOLD}: {error}")
    for sentence in found.unknown:
        session.output.say(sentence)
    return found
