"""
What a shell completes beside commands and options: tables and partitions of the catalog, ids and pools of the queue,
workers that the queue and the history name, and their hosts.

A TAB starts a process and asks the metastore once. What can't be asked completes to nothing: no message would be read.
Nor is a name offered that means something to a shell, which puts it on the command line as it is: a user who may write
a partition's value could run commands.

The names that were offered are kept in the user's cache directory for half a minute. The next TAB on the same command
line is answered from there, without the modules of a command, the settings and the database being loaded.
"""

import contextlib
import hashlib
import itertools
import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)

from compactor.cli.session import Session, session_of
from compactor.errors import CompactorError

if TYPE_CHECKING:
    from compactor.metastore.catalog import Catalog
    from compactor.metastore.compaction_queue.queue import Queue

_SECONDS: Final = 2.0
"""A TAB waits no longer for a database that doesn't answer."""
_MOST: Final = 200
_FRESH_SECONDS: Final = 30.0
_OFFERS: Final = 20
_SECRET: Final = re.compile(r"://\S*:\S*@|password|pwd", re.IGNORECASE)
_OURS: Final = re.compile(r"[0-9a-f]{64}\.(json|\d+)")
_LARGEST: Final = 1_000_000
"""Bytes of a settings file, and of a file of the cache."""
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
        return [CompletionItem(name) for name in sorted(_fitting(found, typed))[:_MOST]]

    return complete


def _fitting(names: Iterable[str], typed: str) -> list[str]:
    return [name for name in names if name.lower().startswith(typed.lower()) and _PLAIN.fullmatch(name)]


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Give up on a statement that waits for a lock."""

    def give_up(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Cached(ShellComplete):
    """Answers a TAB from what one of the latest offered. Any trouble with the cache is passed over in silence."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        # a shell hands the words over as they were typed
        args = [
            os.path.expanduser(word) if before == "--config" else word  # noqa: PTH111 - an unknown user stays
            for before, word in itertools.pairwise(["", *args])
        ]
        if incomplete.startswith("-"):
            return super().get_completions(args, incomplete)
        file, kept = None, list[_Offer]()
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            file = _cache_file(args)
            kept = _kept(file) if file is not None else []
        if (names := _answer(kept, args, incomplete)) is not None:
            return [CompletionItem(name) for name in names]
        items = super().get_completions(args, incomplete)
        names = [
            item.value for item in items if item.type == "plain" and not item.help and _PLAIN.fullmatch(item.value)
        ]
        if file is not None and names and len(names) == len(items):
            with contextlib.suppress(OSError):
                _keep(file, [(time.time(), args, incomplete, names), *kept[:_OFFERS]])
        return items


for _shell in (BashComplete, FishComplete, ZshComplete):
    add_completion_class(type(_shell.__name__, (Cached, _shell), {}), _shell.name)

_Offer = tuple[float, list[str], str, list[str]]
"""When (by this machine's clock), the words before, what was typed, the names."""


def _answer(kept: Iterable[_Offer], args: Sequence[str], typed: str) -> list[str] | None:
    """
    The names for a word that was completed, or for one that goes on from there; past a dot or a slash other names are
    asked for, and of many names only the first were kept.
    """
    for _, before, begun, names in kept:
        if before != args or not typed.startswith(begun):
            continue
        goes_on = typed[len(begun) :]
        if not goes_on:
            return names
        if len(names) < _MOST and not {".", "/"} & set(goes_on) and (found := _fitting(names, typed)):
            return found
    return None


def _cache_file(args: Sequence[str]) -> Path | None:
    """
    The file for the database that the settings name; None: a password is in its address. Databases are told apart by
    what names them, the settings file and its variables: to read the settings takes longer than a TAB should.

    Raises:
        OSError, RuntimeError, ValueError: there is no settings file of this name, or no place for a cache.
    """
    files = [after for word, after in itertools.pairwise(args) if word == "--config"]
    files += [word.removeprefix("--config=") for word in args if word.startswith("--config=")]
    if not files and (named := os.environ.get("COMPACTOR_CONFIG")):
        files = [named]
    digest = hashlib.sha256(f"{Path.cwd()}\0".encode())
    for name in files:
        with Path(name).open("rb") as read:
            digest.update(hashlib.sha256(read.read(_LARGEST)).digest())
    for name, value in sorted(os.environ.items()):
        if name.upper().startswith("COMPACTOR_DATABASE") and not name.upper().endswith("PASSWORD"):
            if _SECRET.search(value):
                return None
            digest.update(f"{name}={value}\0".encode())
    place = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(place) if place.startswith("/") else Path.home() / ".cache"
    return home / "compactor" / f"{digest.hexdigest()}.json"


def _kept(file: Path) -> list[_Offer]:
    """What was offered lately, newest first; nothing where the file is another user's, or isn't one of ours."""
    try:
        with file.open("rb") as read:
            if os.fstat(read.fileno()).st_uid != os.geteuid():
                return []
            found = json.loads(read.read(_LARGEST))
        now = time.time()
        return [
            (float(at), [str(word) for word in before], str(begun), _fitting(map(str, names), ""))
            for at, before, begun, names in found
            if 0 <= now - float(at) < _FRESH_SECONDS
        ]
    except (OSError, ValueError, TypeError):
        return []


def _keep(file: Path, offers: Sequence[_Offer]) -> None:
    """Replace the file as a whole, and remove those of other settings that are out of date."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = file.with_suffix(f".{os.getpid()}")
    try:
        with os.fdopen(os.open(made, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as written:
            json.dump(offers, written)
        made.replace(file)
    finally:
        made.unlink(missing_ok=True)
    for other in file.parent.iterdir():
        if _OURS.fullmatch(other.name) and time.time() - other.stat().st_mtime > 2 * _FRESH_SECONDS:
            other.unlink()


def _catalog(session: Session) -> "Catalog":
    from compactor.metastore.catalog import Catalog

    return Catalog(session.database())


def _queue(session: Session) -> "Queue":
    from compactor.metastore.compaction_queue.queue import Queue

    return Queue(session.database())


def _tables(session: Session, typed: str) -> list[str]:
    catalog = _catalog(session)
    database, dot, rest = typed.partition(".")
    if not dot:
        return [f"{name}." for name in catalog.databases()]
    database = database.lower()
    table, slash, _ = rest.partition("/")
    if not slash:
        return [f"{database}.{name}" for name in catalog.table_names(database)]
    facts = catalog.find_table(database, table.lower())
    return [] if facts is None else [f"{facts.full_name}/{name}" for name in catalog.partition_names(facts)]


def _ended_badly(session: Session, _: str) -> list[str]:
    from compactor.metastore.model import QueueState

    found = _queue(session).history(limit=_MOST)
    return [str(entry.id) for entry in found if entry.state is not QueueState.SUCCEEDED]


def _pools(session: Session, _: str) -> set[str]:
    worker = session.settings.worker
    queued = (entry.pool for entry in _queue(session).entries())
    return {*worker.pools, *(pool for pool in (worker.pool, *queued) if pool)}


def _workers(session: Session, _: str) -> set[str]:
    queue = _queue(session)
    return {entry.worker_id for entry in (*queue.working(), *queue.history(limit=_MOST)) if entry.worker_id}


def _hosts(session: Session, typed: str) -> set[str]:
    from compactor.metastore.worker_ids import parse_worker_id

    workers = map(parse_worker_id, _workers(session, typed))
    return {session.settings.host_name, *(worker.host for worker in workers if worker is not None)}


def _succeeded(session: Session, ctx: click.Context) -> list[str]:
    from compactor.cli.naming.lookup import find
    from compactor.cli.naming.target import parse_target
    from compactor.metastore.model import QueueState

    entity = None
    if (target := ctx.params.get("target") or next(iter(ctx.args), None)) is not None:
        entity = find(_catalog(session), parse_target(target, ctx.params.get("partition"))).entity
    return [str(entry.id) for entry in _queue(session).history(QueueState.SUCCEEDED, entity=entity, limit=_MOST)]


tables = _quietly(_tables)
"""`DB.`, `DB.TABLE`, `DB.TABLE/PARTITION`, as far as is typed."""
databases = _quietly(lambda session, _: _catalog(session).databases())
queued = _quietly(lambda session, _: [str(entry.id) for entry in _queue(session).entries()])
ended_badly = _quietly(_ended_badly)
named_pools = _quietly(_pools)
pools = _quietly(lambda session, typed: {"default", *_pools(session, typed)})
"""With `default`, where that stands for entries without a pool."""
hosts = _quietly(_hosts)
workers = _quietly(_workers)


def succeeded(ctx: click.Context, parameter: click.Parameter, typed: str) -> list[CompletionItem]:
    """Ids of compactions of the table or partition that the command line names."""
    return _quietly(lambda session, _: _succeeded(session, ctx))(ctx, parameter, typed)
