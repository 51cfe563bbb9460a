"""
What a shell completes beside commands and options: tables and partitions of the catalog, ids and pools of the queue,
hosts whose workers the queue and the history name.

A TAB starts a process and asks the metastore once. What can't be asked completes to nothing: no message would be read.
Nor is a name offered that means something to a shell, which puts it on the command line as it is: whoever may write a
partition's value could run commands.
"""

import contextlib
import re
import signal
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import click
from click.shell_completion import CompletionItem

from compactor.cli.session import Session, session_of
from compactor.errors import CompactorError

_SECONDS: Final = 2.0
"""A TAB waits no longer for a database that doesn't answer."""
_MOST: Final = 200
_PLAIN: Final = re.compile(r"[\w.=/:%+,@-]+")
"""Characters that no shell interprets."""

Completing = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _quietly(names: Callable[[Session, str], Iterable[str]]) -> Completing:
    """Those that begin with what was typed, whatever the case of letters; none when they can't be asked."""

    def complete(ctx: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
        session = session_of(ctx)
        try:
            with _at_most(_SECONDS):
                session.database(patience_seconds=_SECONDS)
                found = list(names(session, typed))
        except (CompactorError, OSError):
            return []
        fitting = [name for name in found if name.lower().startswith(typed.lower()) and _PLAIN.fullmatch(name)]
        return [CompletionItem(name) for name in sorted(fitting)[:_MOST]]

    return complete


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Give up on a statement that waits for somebody's lock."""

    def give_up(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _tables(session: Session, typed: str) -> list[str]:
    from compactor.metastore.catalog import Catalog

    catalog = Catalog(session.database())
    database, dot, rest = typed.partition(".")
    if not dot:
        return [f"{name}." for name in catalog.databases()]
    database = database.lower()
    table, slash, _ = rest.partition("/")
    if not slash:
        return [f"{database}.{name}" for name in catalog.table_names(database)]
    facts = catalog.find_table(database, table.lower())
    return [] if facts is None else [f"{facts.full_name}/{name}" for name in catalog.partition_names(facts)]


def _queued(session: Session, _: str) -> list[str]:
    from compactor.metastore.compaction_queue.queue import Queue

    return [str(entry.id) for entry in Queue(session.database()).entries()]


def _ended_badly(session: Session, _: str) -> list[str]:
    from compactor.metastore.compaction_queue.queue import Queue
    from compactor.metastore.model import QueueState

    found = Queue(session.database()).history(limit=_MOST)
    return [str(entry.id) for entry in found if entry.state is not QueueState.SUCCEEDED]


def _pools(session: Session, _: str) -> set[str]:
    from compactor.metastore.compaction_queue.queue import Queue

    worker = session.settings.worker
    queued = (entry.pool for entry in Queue(session.database()).entries())
    return {*worker.pools, *(pool for pool in (worker.pool, *queued) if pool)}


def _hosts(session: Session, _: str) -> set[str]:
    from compactor.metastore.compaction_queue.queue import Queue
    from compactor.roles.identity import parse_worker_id

    queue = Queue(session.database())
    workers = (parse_worker_id(entry.worker_id) for entry in (*queue.working(), *queue.history(limit=_MOST)))
    return {session.settings.host_name, *(worker.host for worker in workers if worker is not None)}


tables = _quietly(_tables)
"""`DB.`, `DB.TABLE`, `DB.TABLE/PARTITION`, as far as is typed."""
queued = _quietly(_queued)
ended_badly = _quietly(_ended_badly)
named_pools = _quietly(_pools)
pools = _quietly(lambda session, typed: {"default", *_pools(session, typed)})
"""With `default`, where that stands for entries without a pool."""
hosts = _quietly(_hosts)
