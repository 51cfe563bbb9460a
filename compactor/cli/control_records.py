"""
Shared by the commands that change control state (`pause`, `resume`, `drain`) or show why an entry waits.

Connects to the coordinator, reads scopes and times from options, and makes records of pauses and drains.
"""

import getpass
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import click

from compactor.cli import completing, units
from compactor.cli.naming.lookup import find_table
from compactor.cli.naming.target import Target, no_database
from compactor.cli.output import OutputColumn, Record
from compactor.cli.session import Session, quiet_log
from compactor.control import Control, Drain, Judge, Pause, Scope
from compactor.control.configured import zone_of
from compactor.control.judge import Situation
from compactor.control.records import HOLDS, Holds
from compactor.control.scope import ScopeKind
from compactor.control.times import FIRST_YEAR, LAST_YEAR, in_ms, last
from compactor.control.waits import Surroundings, Wait
from compactor.coordination import Coordinator, SeenMember, open_coordinator
from compactor.errors import CompactorError, UnreachableError, UsageError
from compactor.metastore.catalog import Catalog
from compactor.metastore.compaction_queue.queue import Queue
from compactor.metastore.model import QueueEntry, QueueState
from compactor.name_patterns import fits, is_pattern
from compactor.roles.pauses import subject_of, workers_of
from compactor.roles.worker.failures import KEY, StoredFailure, told

_OPEN = frozenset({QueueState.INITIATED, QueueState.WORKING})


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
_UNTOLD = "it can't be told what is paused"


# Scopes


def scope_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options --pool, --database, --table and --all to a command; `scope_from` reads them."""
    for option in (
        click.option("--all", "everything", is_flag=True, help="The whole cluster."),
        click.option(
            "--table",
            metavar="PATTERN",
            shell_complete=completing.tables,
            help="DB.TABLE; * stands for any characters, ? for one.",
        ),
        click.option(
            "--database", metavar="D", shell_complete=completing.databases, help="A database; may be a pattern, too."
        ),
        click.option(
            "--pool", metavar="P", shell_complete=completing.pools, help="A pool; `default`: entries without one."
        ),
    ):
        command = option(command)
    return command


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

    A pattern that fits no database or table now is accepted, with a message.

    Raises:
        RefusedError: TABLE_MISSING, with near names.
    """
    if scope.kind not in {ScopeKind.DATABASE, ScopeKind.TABLE}:
        return
    catalog = Catalog(session.database())
    database, _, table = scope.name.partition(".")
    databases = catalog.databases()
    if not is_pattern(scope.name):
        if table:
            find_table(catalog, Target(database, table))
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


def judge(session: Session) -> Judge:
    """
    The judge of why an entry waits.

    When the control state can't be read, the reason is printed once, on a line of its own; the judge then answers for
    each entry only that it can't be told what is paused.
    """
    database, settings = session.database(), session.settings
    try:
        with coordinator(session) as found:
            decide = Control(lambda: found, lambda: settings, lambda: database.read(database.now_ms), None).judge()
    except CompactorError as error:
        unknown = f"{_UNTOLD}: {error}"
    else:
        if (denial := decide.uncertain()) is None:
            return decide
        unknown = denial.sentence
    session.output.say(unknown)
    return Judge(Situation(now_ms=0, unknown=_UNTOLD))


def daemons(session: Session) -> list[SeenMember] | None:
    """The daemons that are alive; None, with a message, where that can't be told."""
    try:
        with coordinator(session) as where:
            return [seen for seen in where.members() if seen.alive]
    except UnreachableError as error:
        session.output.say(f"it can't be told which daemons are there: {error}")
        return None
    except CompactorError:
        return []  # no daemon has been here yet


def surroundings(session: Session, entries: Iterable[QueueEntry]) -> tuple[Surroundings, Mapping[int, StoredFailure]]:
    """
    What it depends on whether these entries are claimed, and the stored failures of initiated and working ones, by id.

    What can't be read is said once, on a line of its own.
    """
    decide = judge(session)
    if decide.uncertain() is not None:
        return Surroundings(decide), {}
    told = stored_failures(session, entries)
    working = [subject_of(entry) for entry in Queue(session.database()).working()] if decide.counts else []
    since_attempt = {number: (one.reason, one.because) for number, one in told.items() if one.reason}
    alive = daemons(session)
    return Surroundings(decide, working, since_attempt, None if alive is None else workers_of(alive)), told


def waiting(
    session: Session, entries: Collection[QueueEntry]
) -> tuple[Mapping[int, Wait], Mapping[int, StoredFailure]]:
    """`waits` of these entries, and their stored failures, both by id; where none is initiated, only the latter are asked."""
    if all(entry.state is not QueueState.INITIATED for entry in entries):
        return {}, stored_failures(session, entries)
    at, told = surroundings(session, entries)
    return waits(at, entries), told


def waits(at: Surroundings, entries: Iterable[QueueEntry]) -> dict[int, Wait]:
    """Why each initiated entry isn't claimed now, by id; without those that the next free worker claims."""
    return {
        entry.id: wait
        for entry in entries
        if entry.state is QueueState.INITIATED
        and (wait := at.wait(subject_of(entry), entry.kind, entry.id)) is not None
    }


# Records


def pause_record(pause: Pause) -> Record:
    """A pause as an output record."""
    return {
        "what": "pause",
        "scope": str(pause.scope),
        "reason": pause.reason,
        "by": pause.by,
        "since": units.instant(pause.since_ms),
        "until": units.instant(pause.until_ms),
        "cancel": pause.cancel,
        "cleaner": pause.cleaner,
    }


def drain_record(drain: Drain) -> Record:
    """A drained host as an output record; `scope` is `host:…`."""
    return {
        "what": "drain",
        "scope": f"host:{drain.host}",
        "reason": drain.reason or None,
        "by": drain.by,
        "since": units.instant(drain.since_ms),
        "until": None,
        "cancel": None,
        "cleaner": None,
    }


def stored_failures(session: Session, entries: Iterable[QueueEntry]) -> Mapping[int, StoredFailure]:
    """
    The stored failures of initiated and working entries, by entry id.

    When the control state can't be read, a message says so and the result is empty.
    """
    wanted = {entry.id for entry in entries if entry.state in _OPEN}
    if not wanted:
        return {}
    try:
        with coordinator(session) as where:
            value = where.read(KEY)
    except CompactorError as error:
        session.output.say(f"it can't be told what broke down: {error}")
        return {}
    return {
        entry_id: found
        for entry_id, found in told(value.data if value is not None else {}).items()
        if entry_id in wanted
    }
